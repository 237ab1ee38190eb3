package clusterstatus

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/informers"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
)

func TestMain(m *testing.M) {
	// The fake clientset's watch panics when more events wait than this.
	watch.DefaultChanSize = 1 << 16

	os.Exit(m.Run())
}

func machine(n int, edits ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: fmt.Sprint("m", n)},
		Spec:       v1alpha1.TalosMachineSpec{ClusterRef: v1alpha1.ClusterReference{Name: "c"}},
	}
	for _, edit := range edits {
		edit(m)
	}

	return m
}

func approved(m *v1alpha1.TalosMachine) { m.Spec.Approved = ptr.To(true) }

func phase(p v1alpha1.MachinePhase) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) { m.Status.Phase = p }
}

// run starts a controller; what is returned stops it.
func run(t *testing.T, api *fakeapi.API, host kubernetes.Interface, recorder record.EventRecorder) (stop func()) {
	t.Helper()

	bundles, err := bundle.NewStore(host.CoreV1(), own)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(api.Fake, 0)
	controller := New(Config{
		Client:   api,
		Clusters: factory.Talos().V1alpha1().TalosClusters(),
		Machines: factory.Talos().V1alpha1().TalosMachines(),
		Bundles:  bundles,
		Recorder: recorder,
		Clock:    clock.RealClock{},
	})
	factory.Start(ctx.Done())

	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx) }()

	return func() {
		cancel()

		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}

		factory.Shutdown()
	}
}

// Req: A-08
func TestTheMachinesOfAClusterAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapi.New(
			&v1alpha1.TalosCluster{
				ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "c"},
				Status:     v1alpha1.TalosClusterStatus{Discovery: &v1alpha1.DiscoveryStatus{Answered: 9}},
			},
			machine(1),
			machine(2, func(m *v1alpha1.TalosMachine) { m.Spec.Rejected = &v1alpha1.MachineRejection{Reason: "no"} }),
			machine(3, approved, phase(v1alpha1.MachineRunning)),
			machine(4, approved, phase(v1alpha1.MachineFailed)),
			machine(5, func(m *v1alpha1.TalosMachine) { m.Spec.ClusterRef.Name = "other" }),
		)

		ctx := context.Background()
		defer run(t, api, kubefake.NewClientset(), &record.FakeRecorder{})()

		// The condition is written once.
		time.Sleep(time.Second)

		expect := func(want v1alpha1.MachineCounts) {
			t.Helper()
			time.Sleep(3 * time.Second)
			synctest.Wait()

			cluster, err := api.Fake.TalosV1alpha1().TalosClusters("site-a").Get(ctx, "c", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}

			if cluster.Status.Machines != want || cluster.Status.Discovery.Answered != 9 {
				t.Errorf("status %+v, want %+v", cluster.Status, want)
			}
		}

		expect(v1alpha1.MachineCounts{Total: 4, Pending: 1, Approved: 2, Running: 1, Failed: 1})

		machines := api.Fake.TalosV1alpha1().TalosMachines("site-a")
		if err := machines.Delete(ctx, "m3", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}

		expect(v1alpha1.MachineCounts{Total: 3, Pending: 1, Approved: 1, Failed: 1})

		before := len(api.Writes())

		for n := range 500 {
			if _, err := machines.Create(ctx, machine(100+n), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}

		expect(v1alpha1.MachineCounts{Total: 503, Pending: 501, Approved: 1, Failed: 1})

		if writes := len(api.Writes()) - before; writes > 3 {
			t.Errorf("%d writes for 500 machines", writes)
		}
	})
}
