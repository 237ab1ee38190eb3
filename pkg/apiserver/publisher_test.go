package apiserver

import (
	"bytes"
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/pkg/pki"
)

// readyz is a server that can be told to be ready; it counts who asks with credentials.
func readyz(t *testing.T) (loopback *rest.Config, ready *atomic.Bool) {
	t.Helper()
	ready = &atomic.Bool{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("readiness is asked for with credentials")
		}
		if r.URL.Path != "/readyz" || !ready.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: ca, ServerName: "example.com"}}, ready
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		return check(), nil
	}); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// Req: A-09
func TestTheCAIsPublishedAndAnnouncedOnceReady(t *testing.T) {
	loopback, ready := readyz(t)
	client := fake.NewClientset()
	apiServices := client.ApiregistrationV1().APIServices()
	for _, name := range APIServiceNames() {
		if _, err := apiServices.Create(t.Context(), &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	client.ClearActions()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ca := []byte("our CA")

	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		(&Server{Loopback: loopback}).publish(ctx, apiServices, func() []byte { return ca }, clocktesting.NewFakeClock(now))
	}()

	time.Sleep(5 * readyPollPeriod)
	if actions := client.Actions(); len(actions) > 0 {
		t.Errorf("the aggregator was told of a server that is not ready: %v", actions)
	}
	ready.Store(true)
	published := func() bool {
		for _, name := range APIServiceNames() {
			service, err := apiServices.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || !bytes.Equal(service.Spec.CABundle, ca) {
				return false
			}
		}
		return true
	}
	announced := func() int {
		count := 0
		for _, action := range client.Actions() {
			if patch, ok := action.(interface{ GetPatch() []byte }); ok && bytes.Contains(patch.GetPatch(), []byte(pki.ReadyAtAnnotation)) {
				count++
			}
		}
		return count
	}
	eventually(t, "published and announced", func() bool { return published() && announced() == len(APIServiceNames()) })

	// Somebody applies the manifests again, which carry no CA.
	name := APIServiceNames()[0]
	service, err := apiServices.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := service.Annotations[pki.ReadyAtAnnotation]; got != now.Format(time.RFC3339Nano) {
		t.Errorf("announced at %q, want the time of readiness", got)
	}
	service.Spec.CABundle, service.Spec.InsecureSkipTLSVerify = nil, true
	if _, err := apiServices.Update(t.Context(), service, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "published again", published)
	if got := announced(); got != len(APIServiceNames()) {
		t.Errorf("%d announcements, want one for each APIService", got)
	}
	stop()
	<-stopped
}

// Req: A-09
func TestAServerThatNeverGetsReadyIsNotPublished(t *testing.T) {
	loopback, _ := readyz(t)
	client := fake.NewClientset()
	ctx, stop := context.WithTimeout(t.Context(), 5*readyPollPeriod)
	defer stop()
	(&Server{Loopback: loopback}).publish(ctx, client.ApiregistrationV1().APIServices(), func() []byte { return []byte("our CA") }, nil)
	if actions := client.Actions(); len(actions) > 0 {
		t.Errorf("%v", actions)
	}
}

// Req: A-09. The server's own certificate is verified even by itself.
func TestReadinessOfAnotherServerIsNotTakenForOurs(t *testing.T) {
	loopback, ready := readyz(t)
	ready.Store(true)
	own, err := readyCheck(loopback)
	if err != nil {
		t.Fatal(err)
	}
	if !own(t.Context()) {
		t.Error("our own server is not found ready")
	}
	stranger := rest.CopyConfig(loopback)
	stranger.ServerName = "apiserver-loopback-client"
	foreign, err := readyCheck(stranger)
	if err != nil {
		t.Fatal(err)
	}
	if foreign(t.Context()) {
		t.Error("a server with another name is taken for ours")
	}
}
