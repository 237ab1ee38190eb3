package clusterstatus

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

const own = "fieldplane-system"

// material is two bundles, made once: their keys take time.
var material = sync.OnceValues(func() ([2][]byte, error) {
	var both [2][]byte

	for i := range both {
		data, err := render.GenerateBundle("v1.13")
		if err != nil {
			return both, err
		}

		both[i] = data
	}

	return both, nil
})

func bundles(t *testing.T) (first, second []byte) {
	t.Helper()

	both, err := material()
	if err != nil {
		t.Fatal(err)
	}

	return both[0], both[1]
}

func hashOf(t *testing.T, data []byte) string {
	t.Helper()

	parsed, err := render.ParseBundle(data)
	if err != nil {
		t.Fatal(err)
	}

	hash, err := bundle.HashOf(parsed)
	if err != nil {
		t.Fatal(err)
	}

	return hash
}

// without takes a top-level member out of YAML.
func without(data []byte, member string) []byte {
	var (
		out  strings.Builder
		skip bool
	)

	for line := range strings.Lines(string(data)) {
		if line[0] != ' ' {
			skip = strings.HasPrefix(line, member)
		}

		if !skip {
			out.WriteString(line)
		}
	}

	return []byte(out.String())
}

func aCluster() *v1alpha1.TalosCluster {
	return &v1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "c", Generation: 1},
		Spec:       v1alpha1.TalosClusterSpec{SecretsRef: v1alpha1.SecretReference{Name: "c-bundle"}},
	}
}

func secret(data []byte, edits ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "c-bundle", Labels: map[string]string{bundle.ClusterLabel: "site-a.c"}},
		Data:       map[string][]byte{bundle.Key: data},
	}
	for _, edit := range edits {
		edit(s)
	}

	return s
}

func configured(hash string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) {
		now := metav1.Now()
		m.Status.Configuration = &v1alpha1.MachineConfiguration{AppliedAt: &now, BundleHash: hash}
	}
}

// world is a running controller, in a synctest bubble.
type world struct {
	t      *testing.T
	api    *fakeapi.API
	host   *kubefake.Clientset
	events *record.FakeRecorder
	stop   func()

	mu    sync.Mutex
	fail  error
	block chan struct{}
	reads int
}

func start(t *testing.T, host []runtime.Object, objects ...runtime.Object) *world {
	t.Helper()

	w := &world{t: t, api: fakeapi.New(objects...), host: kubefake.NewClientset(host...), events: record.NewFakeRecorder(100)}
	w.host.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		w.reads++
		fail, block := w.fail, w.block
		w.mu.Unlock()

		if block != nil {
			<-block
		}

		return fail != nil, nil, fail
	})
	w.restart()
	t.Cleanup(func() { w.stop() })

	return w
}

func (w *world) restart() {
	if w.stop != nil {
		w.stop()
	}

	w.stop = run(w.t, w.api, w.host, w.events)
	w.pass(2 * time.Second)
}

func (w *world) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) set(change func(*world)) {
	w.mu.Lock()
	defer w.mu.Unlock()

	change(w)
}

func (w *world) status() v1alpha1.TalosClusterStatus {
	w.t.Helper()

	cluster, err := w.api.Fake.TalosV1alpha1().TalosClusters("site-a").Get(context.Background(), "c", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}

	return cluster.Status
}

func (w *world) expect(status metav1.ConditionStatus, reason, inMessage string) {
	w.t.Helper()

	got := meta.FindStatusCondition(w.status().Conditions, ConditionBundleReady)
	if got == nil || got.Status != status || got.Reason != reason || !strings.Contains(got.Message, inMessage) {
		w.t.Errorf("BundleReady is %+v, want %s %s %q", got, status, reason, inMessage)
	}
}

func (w *world) put(data []byte) {
	w.t.Helper()

	if _, err := w.host.CoreV1().Secrets(own).Update(context.Background(), secret(data), metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) told() []string {
	var out []string

	for {
		select {
		case line := <-w.events.Events:
			out = append(out, line)
		default:
			return out
		}
	}
}

// Req: T-15, T-16
func TestTheBundleOfAClusterIsTold(t *testing.T) {
	good, _ := bundles(t)

	for _, test := range []struct {
		name      string
		secret    *corev1.Secret
		status    metav1.ConditionStatus
		reason    string
		inMessage string
	}{
		{"a whole one is ready", secret(good), metav1.ConditionTrue, ReasonBundleFound, "c-bundle"},
		{"without the Secret it says where the Secret has to be", nil, metav1.ConditionFalse, string(bundle.NotFound), own + "/c-bundle of TalosCluster c does not exist"},
		{
			"the Secret of another cluster is not read", secret(good, func(s *corev1.Secret) { s.Labels[bundle.ClusterLabel] = "site-b.c" }),
			metav1.ConditionFalse, string(bundle.NotForThisCluster), bundle.ClusterLabel + ": site-a.c",
		},
		{
			"a Secret without the key says which key", secret(good, func(s *corev1.Secret) { s.Data = map[string][]byte{"talosconfig": good} }),
			metav1.ConditionFalse, string(bundle.Invalid), `no key "bundle"`,
		},
		{"what is no bundle is not quoted", secret([]byte("cluster: {id: SECRET-VALUE, nonsense: 1}")), metav1.ConditionFalse, string(bundle.Invalid), "talosctl gen secrets"},
		{
			"of a partial bundle it says what is missing", secret(without(good, "trustdinfo:")),
			metav1.ConditionFalse, string(bundle.Invalid), "trustdinfo is required",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var host []runtime.Object
				if test.secret != nil {
					host = append(host, test.secret)
				}

				w := start(t, host, aCluster())
				w.expect(test.status, test.reason, test.inMessage)

				status := w.status()
				if want := test.status == metav1.ConditionTrue; (status.BundleHash != "") != want {
					t.Errorf("bundleHash is %q", status.BundleHash)
				}

				parsed, err := render.ParseBundle(good)
				if err != nil {
					t.Fatal(err)
				}

				for _, value := range append(render.BundleMaterial(parsed), "SECRET-VALUE") {
					if strings.Contains(fmt.Sprintf("%+v %v", status, w.told()), value) {
						t.Errorf("the status quotes the bundle: %+v", status)
					}
				}

				// What does not change is not written again.
				before := len(w.api.Writes())

				if w.pass(5 * time.Minute); len(w.api.Writes()) != before {
					t.Errorf("%d needless writes", len(w.api.Writes())-before)
				}
			})
		})
	}
}

// Req: T-16
func TestASecretThatChangesIsNoticedWithinHalfAMinuteAndIsNotReadMoreOften(t *testing.T) {
	first, second := bundles(t)

	synctest.Test(t, func(t *testing.T) {
		w := start(t, []runtime.Object{secret(first)}, aCluster())

		if got, want := w.status().BundleHash, hashOf(t, first); got != want {
			t.Errorf("hash %s, want %s", got, want)
		}

		// Machines that come and go have nothing read.
		for n := range 100 {
			if _, err := w.api.Fake.TalosV1alpha1().TalosMachines("site-a").Create(context.Background(), machine(n), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}

			w.pass(100 * time.Millisecond)
		}

		w.put(second)
		w.pass(readInterval)

		if got, want := w.status().BundleHash, hashOf(t, second); got != want {
			t.Errorf("hash %s, want %s", got, want)
		}

		w.expect(metav1.ConditionTrue, ReasonBundleFound, "") // no machine has the former

		if w.pass(10 * time.Minute); w.reads > 23 {
			t.Errorf("read %d times in less than 11 minutes", w.reads)
		}
	})
}

// Req: T-15, T-16
func TestARotationIsToldOnceAndHowManyMachinesHaveTheFormerBundle(t *testing.T) {
	first, second := bundles(t)
	former := hashOf(t, first)

	synctest.Test(t, func(t *testing.T) {
		w := start(t, []runtime.Object{secret(first)}, aCluster(),
			machine(1, approved, configured(former)),
			machine(2, approved, configured(former)),
			machine(3, approved),
			machine(4, approved, configured(former), func(m *v1alpha1.TalosMachine) { m.Spec.ClusterRef.Name = "other" }),
			machine(5, approved, configured("")), // before hashes were recorded
		)
		w.expect(metav1.ConditionTrue, ReasonBundleFound, "")

		w.put(second)
		w.pass(readInterval)
		w.expect(metav1.ConditionTrue, ReasonBundleRotated, "2 of 3 configured machines")

		told := w.told()
		if len(told) != 1 || !strings.HasPrefix(told[0], "Warning "+ReasonBundleRotated+" ") {
			t.Errorf("told %q", told)
		}

		// Neither time, nor another process, nor a machine that is configured anew has it told again.
		w.pass(5 * time.Minute)
		w.restart()

		if err := w.api.Fake.TalosV1alpha1().TalosMachines("site-a").Delete(context.Background(), "m1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}

		w.pass(time.Minute)
		w.expect(metav1.ConditionTrue, ReasonBundleRotated, "1 of 2 configured machines")

		if told := w.told(); len(told) != 0 {
			t.Errorf("told again: %q", told)
		}

		w.put(first)
		w.pass(readInterval)
		w.expect(metav1.ConditionTrue, ReasonBundleFound, "")

		w.put(second)
		w.pass(readInterval)

		if told := w.told(); len(told) != 1 {
			t.Errorf("the second rotation was told %d times", len(told))
		}
	})
}

// Req: T-16
func TestABundleThatIsGoneLeavesItsHash(t *testing.T) {
	first, _ := bundles(t)

	synctest.Test(t, func(t *testing.T) {
		w := start(t, []runtime.Object{secret(first)}, aCluster())

		if err := w.host.CoreV1().Secrets(own).Delete(context.Background(), "c-bundle", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}

		w.pass(readInterval)
		w.expect(metav1.ConditionFalse, string(bundle.NotFound), "")

		if got, want := w.status().BundleHash, hashOf(t, first); got != want {
			t.Errorf("hash %q, want the last whole bundle's", got)
		}
	})
}

// Req: T-16
func TestAHostClusterThatFailsOnceSaysNothingOfTheBundle(t *testing.T) {
	first, _ := bundles(t)

	synctest.Test(t, func(t *testing.T) {
		w := start(t, []runtime.Object{secret(first)}, aCluster())

		w.set(func(w *world) {
			w.fail = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "c-bundle", fmt.Errorf("at %s", time.Now()))
		})
		w.pass(readInterval)
		w.expect(metav1.ConditionTrue, ReasonBundleFound, "")

		w.pass(readInterval)
		w.expect(metav1.ConditionUnknown, ReasonBundleUnreadable, string(metav1.StatusReasonForbidden))

		before := len(w.api.Writes())

		if w.pass(5 * time.Minute); len(w.api.Writes()) != before {
			t.Errorf("%d needless writes", len(w.api.Writes())-before)
		}

		w.set(func(w *world) { w.fail = nil })
		w.pass(readInterval)
		w.expect(metav1.ConditionTrue, ReasonBundleFound, "")
	})
}

// Req: A-08
func TestASlowHostClusterDelaysNoCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil, aCluster())

		block := make(chan struct{})
		defer close(block)

		w.set(func(w *world) { w.block = block })
		w.pass(readInterval)

		if _, err := w.api.Fake.TalosV1alpha1().TalosMachines("site-a").Create(context.Background(), machine(1), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		if w.pass(2 * time.Second); w.reads != 2 || w.status().Machines.Total != 1 {
			t.Errorf("after %d reads the status is %+v", w.reads, w.status())
		}
	})
}
