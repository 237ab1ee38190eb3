package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/pkg/apiserver"
	"github.com/fieldplane/fieldplane/test/installation"
)

// leaderLimit is how long the controllers may be without a leader after one has died.
const leaderLimit = 20 * time.Second

// Req
func TestOfTwoReplicasExactlyOneRunsTheControllersAndTheOtherTakesOver(t *testing.T) {
	running(t)
	namespace := env.Namespace(t)
	stopped(t)
	leases := env.Host().CoordinationV1().Leases(installation.Namespace)
	if err := leases.Delete(t.Context(), apiserver.LeaseName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	etcd := externalEtcd(t)
	replicas := map[string]*process{}
	start := func(name string) {
		t.Helper()
		replicas[name] = startServer(t, freePort(t), "--etcd-servers="+etcd, "--leader-election-identity="+name)
	}
	start("a")
	start("b")
	for _, replica := range replicas {
		replica.waitReady(t)
	}
	leader := holder(t, leaderLimit, "")
	follower := map[string]string{"a": "b", "b": "a"}[leader]
	if follower == "" {
		t.Fatalf("the Lease is held by %q", leader)
	}
	eventually(t, 5*time.Second, func() error { return leads(replicas[leader]) })
	if leads(replicas[follower]) == nil {
		t.Error("both replicas lead")
	}

	t.Run("both serve the one store", func(t *testing.T) {
		for name, replica := range replicas {
			_, err := direct(t, replica.address).PhysicalV1alpha1().ControlModules(namespace).Create(t.Context(), controlModule(metav1.ObjectMeta{Name: name}), metav1.CreateOptions{})
			must(t, err)
		}
		for name, replica := range replicas {
			list, err := direct(t, replica.address).PhysicalV1alpha1().ControlModules(namespace).List(t.Context(), metav1.ListOptions{})
			must(t, err)
			if len(list.Items) != len(replicas) {
				t.Errorf("replica %s lists %d objects", name, len(list.Items))
			}
		}
		_, err := direct(t, replicas[follower].address).PhysicalV1alpha1().ControlModules(namespace).Get(t.Context(), leader, metav1.GetOptions{})
		must(t, err)
	})
	if leads(replicas[follower]) == nil {
		t.Error("both replicas lead")
	}

	t.Run("when the leader is killed", func(t *testing.T) {
		killed := time.Now()
		replicas[leader].Signal(syscall.SIGKILL)
		within(t, 5*time.Second, replicas[leader].Done(), "the end of a killed process")
		eventually(t, leaderLimit, func() error { return leads(replicas[follower]) })
		t.Logf("led again %v after the kill", time.Since(killed).Round(time.Millisecond))
		if got := holder(t, time.Second, leader); got != follower {
			t.Errorf("the Lease is held by %q, want %q", got, follower)
		}
	})

	t.Run("when the leader is stopped, at once and after its controllers have stopped", func(t *testing.T) {
		// The roles are exchanged.
		leader, follower := follower, leader
		start(follower)
		replicas[follower].waitReady(t)
		released := onRelease(t, func() string { return replicas[leader].log() })

		asked := time.Now()
		replicas[leader].Signal(syscall.SIGTERM)
		within(t, stopLimit, replicas[leader].Done(), "the leader's end")
		if code := replicas[leader].ExitCode(); code != 0 {
			t.Errorf("the leader ended with code %d", code)
		}
		// Waiting for the Lease to expire would take 10 s.
		eventually(t, 9*time.Second, func() error { return leads(replicas[follower]) })
		t.Logf("led again %v after SIGTERM", time.Since(asked).Round(time.Millisecond))

		select {
		case log := <-released:
			if !strings.Contains(log, `"No longer leading"`) {
				t.Error("the Lease was released before the controllers had stopped")
			}
		case <-time.After(5 * time.Second):
			t.Error("the Lease was not released")
		}
		inOrder(t, replicas[leader].log(), `"No longer leading"`, `"Controllers stopped"`, "apiserver is exiting")
	})
}

// leads returns nil if this replica's controllers run.
func leads(replica *process) error {
	log := replica.log()
	started, ended := strings.Count(log, `"Leading"`), strings.Count(log, `"No longer leading"`)
	if started != ended+1 || strings.Count(log, `"Controllers started"`) < started {
		return fmt.Errorf("led %d times, and ended it %d times", started, ended)
	}
	return nil
}

// holder waits until somebody but this one holds the Lease, and returns who.
func holder(t *testing.T, limit time.Duration, but string) string {
	t.Helper()
	var identity string
	eventually(t, limit, func() error {
		lease, err := env.Host().CoordinationV1().Leases(installation.Namespace).Get(t.Context(), apiserver.LeaseName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if identity = held(lease); identity == "" || identity == but {
			return fmt.Errorf("the Lease is held by %q", identity)
		}
		return nil
	})
	return identity
}

func held(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// onRelease yields what look returns when the Lease is first seen to be held by nobody.
func onRelease(t *testing.T, look func() string) <-chan string {
	t.Helper()
	watching, err := env.Host().CoordinationV1().Leases(installation.Namespace).Watch(t.Context(), metav1.ListOptions{})
	must(t, err)
	t.Cleanup(watching.Stop)
	seen := make(chan string, 1)
	go func() {
		for event := range watching.ResultChan() {
			if lease, ok := event.Object.(*coordinationv1.Lease); ok && lease.Name == apiserver.LeaseName && held(lease) == "" {
				seen <- look()
				return
			}
		}
	}()
	return seen
}

// externalEtcd starts a real etcd and returns its address.
func externalEtcd(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(env.Dir, "external.sock")
	address, peer := "unix://"+socket, "unix://"+socket+".peer"
	startProgram(t, filepath.Join(dir, "etcd.log"), nil, "etcd",
		"--name=external", "--data-dir="+filepath.Join(dir, "data"), "--log-level=warn",
		"--listen-client-urls="+address, "--advertise-client-urls="+address,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=external="+peer)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Context: t.Context()})
	must(t, err)
	t.Cleanup(func() { client.Close() })
	eventually(t, 30*time.Second, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := client.Get(ctx, "ready"); err != nil {
			return errors.Join(errors.New("etcd does not answer"), err)
		}
		return nil
	})
	return address
}
