package integration

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/test/harness"
)

// Req: T-17, A-04
func TestAnApprovedMachineAndItsClusterAreNotDeletedUntilItIsUnapproved(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	cluster := kindOf("TalosCluster")
	machine, other := m.approved(t), m.pending(t)
	create(t, cluster, cluster.object(m.namespace, "empty"))
	m.grant(t, "*", "talosmachines,talosclusters")

	for _, dryRun := range [][]string{{"--dry-run=server"}, nil} {
		for _, what := range []struct{ kind, name, says string }{
			{m.kind.full(), machine.Name, "spec.approved"}, {cluster.full(), "cluster", machine.Name},
		} {
			kubectlFails(t, "", append([]string{"delete", what.kind, what.name, "-n", m.namespace, "--as=" + m.user}, dryRun...), "Forbidden", what.says)
			// Nor by the administrator.
			kubectlFails(t, "", append([]string{"delete", what.kind, what.name, "-n", m.namespace}, dryRun...), "Forbidden", what.says)
		}
	}
	// All of them: those that may go do.
	kubectlFails(t, "", []string{"delete", cluster.full() + "," + m.kind.full(), "--all", "-n", m.namespace, "--as=" + m.user}, "Forbidden", machine.Name)
	if left := env.MustKubectl(t, "", "get", cluster.full()+","+m.kind.full(), "-n", m.namespace, "-o", "name"); left != "taloscluster.talos.fieldplane.dev/cluster\ntalosmachine.talos.fieldplane.dev/"+machine.Name+"\n" {
		t.Errorf("after delete --all there is\n%sand %s was pending", left, other.Name)
	}
	if err := m.admin.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("deletecollection: %v", err)
	}
	if now := m.read(t, machine.Name); now.DeletionTimestamp != nil {
		t.Error("it is being deleted")
	}

	if _, err := m.admin.Patch(t.Context(), machine.Name, types.MergePatchType, []byte(`{"spec":{"approved":false}}`), metav1.PatchOptions{}, "approval"); err != nil {
		t.Fatal(err)
	}
	env.MustKubectl(t, "", "delete", m.kind.full(), machine.Name, "-n", m.namespace, "--as="+m.user)
	env.MustKubectl(t, "", "delete", cluster.full(), "cluster", "-n", m.namespace, "--as="+m.user)
}

// gone waits until a namespace is no more.
func gone(t testing.TB, namespace string) {
	t.Helper()
	harness.Eventually(t, 60*time.Second, func() string {
		found, err := env.Host().CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return ""
		case err != nil:
			return err.Error()
		}
		return "it is there: " + toJSON(found.Status)
	})
}

func deleteNamespace(t testing.TB, namespace string) {
	t.Helper()
	if err := env.Host().CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Req: T-17 (C1)
func TestANamespaceWithAnApprovedMachineGoesAwayWhole(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	m.approved(t)
	deleteNamespace(t, m.namespace)
	gone(t, m.namespace)
	if list, err := m.admin.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("machines are left: %v, %v", list, err)
	}
}

// Req: A-01, A-04 (C1)
func TestDeletingANamespaceEmptiesEveryKindAndHonoursFinalizers(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	const finalizer = "test.example/hold"
	held := kindOf("Unit")
	for _, k := range kinds() {
		for n := range 2 {
			create(t, k, k.object(namespace, k.name(n)))
		}
	}
	setFinalizers(t, held, namespace, held.name(0), finalizer)
	deleteNamespace(t, namespace)

	// All but the one go; the namespace waits and says for what.
	harness.Eventually(t, 60*time.Second, func() string {
		left := 0
		for _, k := range kinds() {
			list, err := objects(t, k, namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			left += len(list.Items)
		}
		found, err := env.Host().CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		if err != nil {
			t.Fatalf("the namespace did not wait for a finalizer: %v", err)
		}
		for _, condition := range found.Status.Conditions {
			if left == 1 && condition.Type == corev1.NamespaceFinalizersRemaining && condition.Status == corev1.ConditionTrue && strings.Contains(condition.Message, finalizer) {
				return ""
			}
		}
		return toJSON(found.Status)
	})

	for _, k := range kinds() {
		for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
			_, err := objects(t, k, namespace).Create(t.Context(), k.object(namespace, k.name(9)), metav1.CreateOptions{DryRun: dryRun})
			if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				t.Errorf("create of %s in a namespace that terminates: %v", k.kind, err)
			}
		}
	}
	setFinalizers(t, held, namespace, held.name(0))
	gone(t, namespace)
	for _, k := range kinds() {
		if _, err := objects(t, k, namespace).Create(t.Context(), k.object(namespace, k.name(9)), metav1.CreateOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("create of %s in a namespace that is gone: %v", k.kind, err)
		}
	}
}

// Req: A-01 (C2)
func TestOwnersTakeWhatTheyOwnWithThemOrLeaveIt(t *testing.T) {
	t.Parallel()
	// Nothing of the host's is owned by a ControlModule: a runtime's ConfigMap would tell the collector of its Unit, watched or not.
	k := kindOf("ControlModule")
	ours := func(namespace, name string, owner ...metav1.OwnerReference) metav1.OwnerReference {
		object := k.object(namespace, name)
		object.SetOwnerReferences(owner)
		made := create(t, k, object)
		return metav1.OwnerReference{APIVersion: k.gv.String(), Kind: k.kind, Name: name, UID: made.GetUID(), BlockOwnerDeletion: ptr.To(true)}
	}
	for _, tc := range []struct {
		name        string
		propagation metav1.DeletionPropagation
		remains     bool
	}{
		{"in the background", metav1.DeletePropagationBackground, false},
		{"in the foreground", metav1.DeletePropagationForeground, false},
		{"as orphans", metav1.DeletePropagationOrphan, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			namespace := env.Namespace(t)
			host, client := hosted{t, namespace}, objects(t, k, namespace)
			// Ours owns ours and the host's; the host's owns ours.
			owner := ours(namespace, "owner")
			ours(namespace, "owned", owner)
			host.make("owned", owner)
			ours(namespace, "owned-by-host", host.make("owner"))

			// The collector watches each kind by itself, and ours only once it has found it, every 30 s. When it has seen that these two
			// are ownerless, it knows the others too.
			nobody := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "nobody", UID: "nobody"}
			ours(namespace, "sentinel", nobody)
			host.make("sentinel", nobody)
			harness.Eventually(t, 60*time.Second, func() string {
				if _, err := client.Get(t.Context(), "sentinel", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					return "ours owned by nobody is not collected"
				}
				if _, err := host.get("sentinel"); !apierrors.IsNotFound(err) {
					return "the host's owned by nobody is not collected"
				}
				return ""
			})

			options := metav1.DeleteOptions{PropagationPolicy: &tc.propagation}
			if err := client.Delete(t.Context(), "owner", options); err != nil {
				t.Fatal(err)
			}
			if err := host.remove("owner", options); err != nil {
				t.Fatal(err)
			}
			state := func() string {
				var text []string
				see := func(name string, object metav1.Object, err error) {
					switch {
					case apierrors.IsNotFound(err):
						text = append(text, name+" gone")
					case err != nil:
						text = append(text, name+" "+err.Error())
					case len(object.GetOwnerReferences()) == 0 && object.GetDeletionTimestamp() == nil:
						text = append(text, name+" free")
					default:
						text = append(text, name+" there")
					}
				}
				for _, name := range []string{"owner", "owned", "owned-by-host"} {
					object, err := client.Get(t.Context(), name, metav1.GetOptions{})
					see("ours/"+name, object, err)
				}
				for _, name := range []string{"owner", "owned"} {
					object, err := host.get(name)
					see("host/"+name, object, err)
				}
				return strings.Join(text, ", ")
			}
			want := "ours/owner gone, ours/owned gone, ours/owned-by-host gone, host/owner gone, host/owned gone"
			if tc.remains {
				want = "ours/owner gone, ours/owned free, ours/owned-by-host free, host/owner gone, host/owned free"
			}
			harness.Eventually(t, 60*time.Second, func() string {
				if have := state(); have != want {
					return have
				}
				return ""
			})
		})
	}
}

// hosted makes and reads ConfigMaps, a kind of the host cluster.
type hosted struct {
	t         *testing.T
	namespace string
}

func (h hosted) get(name string) (metav1.Object, error) {
	return env.Host().CoreV1().ConfigMaps(h.namespace).Get(h.t.Context(), name, metav1.GetOptions{})
}

func (h hosted) remove(name string, options metav1.DeleteOptions) error {
	return env.Host().CoreV1().ConfigMaps(h.namespace).Delete(h.t.Context(), name, options)
}

func (h hosted) make(name string, owner ...metav1.OwnerReference) metav1.OwnerReference {
	h.t.Helper()
	made, err := env.Host().CoreV1().ConfigMaps(h.namespace).Create(h.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owner},
	}, metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: made.UID, BlockOwnerDeletion: ptr.To(true)}
}
