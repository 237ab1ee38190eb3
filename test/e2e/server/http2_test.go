package server

import (
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
)

// Req. The aggregator has one HTTP/2 connection to the server for all users: what the server does to it because of one,
// it does to all (docs: UnauthenticatedHTTP2DOSMitigation).
func TestAnonymousRequestsThroughTheAggregatorCutNobodysWatches(t *testing.T) {
	running(t)
	namespace := env.Namespace(t)
	anonymousMayGet(t, namespace)
	admin := env.Admin(t).PhysicalV1alpha1().ControlModules(namespace)

	var open, ended sync.WaitGroup
	var dropped atomic.Int64
	finished := make(chan struct{})
	const watches = 20
	for range watches {
		watching, err := admin.Watch(t.Context(), metav1.ListOptions{})
		must(t, err)
		t.Cleanup(watching.Stop)
		open.Add(1)
		ended.Go(func() {
			sawLast := sync.OnceFunc(open.Done)
			defer sawLast()
			for event := range watching.ResultChan() {
				if module, ok := event.Object.(*physicalv1alpha1.ControlModule); ok && module.Name == "last" {
					sawLast()
				}
			}
			select {
			case <-finished:
			default:
				dropped.Add(1)
			}
		})
	}

	anonymous := rest.AnonymousClientConfig(env.Cluster.AdminConfig())
	anonymous.QPS = -1
	stranger, err := env.Cluster.UserConfig("mallory")
	must(t, err)
	before := connections(t)
	var requests sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for client := range 8 {
		config, who := rest.CopyConfig(anonymous), "anonymous"
		if client%4 == 3 {
			config, who = rest.CopyConfig(stranger), "mallory"
		}
		// A connection of its own for each, as 8 users would have.
		config.UserAgent = fmt.Sprintf("client-%d", client)
		clients, err := versioned.NewForConfig(config)
		must(t, err)
		for range 50 {
			requests.Go(func() {
				_, err := clients.PhysicalV1alpha1().ControlModules(namespace).Get(t.Context(), "none", metav1.GetOptions{})
				mu.Lock()
				defer mu.Unlock()
				answers[who+": "+string(apierrors.ReasonForError(err))]++
			})
		}
	}
	requests.Wait()
	made := connections(t)
	maps.DeleteFunc(made, func(from string, _ bool) bool { return before[from] })
	t.Logf("400 requests took %d connections", len(made))
	// Those that the server closes for a request are made again for the next.
	if len(made) > 8 {
		t.Errorf("the server was connected to %d times for 400 requests", len(made))
	}
	if want := map[string]int{"anonymous: Forbidden": 300, "mallory: Forbidden": 100}; fmt.Sprint(answers) != fmt.Sprint(want) {
		t.Errorf("the answers are %v, want %v", answers, want)
	}

	_, err = admin.Create(t.Context(), controlModule(metav1.ObjectMeta{Name: "last"}), metav1.CreateOptions{})
	must(t, err)
	allSaw := make(chan struct{})
	go func() {
		defer close(allSaw)
		open.Wait()
	}()
	within(t, 10*time.Second, allSaw, "the last object in all watches")
	if n := dropped.Load(); n > 0 {
		t.Errorf("%d of %d watches were dropped", n, watches)
	}
	close(finished)
}

// connections are the addresses from which the server is connected to, or was in the last minute.
func connections(t *testing.T) map[string]bool {
	t.Helper()
	_, port, err := net.SplitHostPort(env.Installation.Address())
	must(t, err)
	number, err := strconv.Atoi(port)
	must(t, err)
	from := map[string]bool{}
	for _, fields := range netTable(t, env.Installation.Server().Pid(), "tcp") {
		if strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", number)) {
			from[fields[2]] = true
		}
	}
	return from
}

// anonymousMayGet lets requests of nobody past the kube-apiserver, which would refuse them itself otherwise. Our server refuses them
// none the less.
func anonymousMayGet(t *testing.T, namespace string) {
	t.Helper()
	roles := env.Host().RbacV1()
	name := metav1.ObjectMeta{Name: "anonymous"}
	_, err := roles.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{physicalv1alpha1.GroupName}, Resources: []string{"controlmodules"}, Verbs: []string{"get"},
	}}}, metav1.CreateOptions{})
	must(t, err)
	_, err = roles.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: name,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:anonymous"}},
	}, metav1.CreateOptions{})
	must(t, err)
	client, err := versioned.NewForConfig(rest.AnonymousClientConfig(env.Cluster.AdminConfig()))
	must(t, err)
	eventually(t, 20*time.Second, func() error {
		_, err := client.PhysicalV1alpha1().ControlModules(namespace).Get(t.Context(), "none", metav1.GetOptions{})
		// The kube-apiserver refuses as well, but without our reason.
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "who is not authenticated") {
			return nil
		}
		return fmt.Errorf("anonymous gets %v", err)
	})
}
