package chain

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
	"github.com/fieldplane/fieldplane/test/installation"
)

// bundleLimit is for the next reading of a Secret, which no watch tells about.
const bundleLimit = 60 * time.Second

// bundleReady waits for a reason of the cluster's condition BundleReady.
func (c cell) bundleReady(t *testing.T, want string) *v1alpha1.TalosCluster {
	t.Helper()
	return until(t, bundleLimit, clusterName, c.clusters.Watch, func(cluster *v1alpha1.TalosCluster) string {
		if have := condition(cluster.Status.Conditions, "BundleReady"); have != want {
			return fmt.Sprintf("BundleReady is %q, not %q", have, want)
		}
		return ""
	})
}

// deleteSecret takes a Secret away that a command has made.
func deleteSecret(name string) {
	_ = env.Host().CoreV1().Secrets(installation.Namespace).Delete(context.Background(), name, metav1.DeleteOptions{})
}

// Req: T-15, T-16
func TestAClusterSaysWhatIsWrongWithItsBundleAndGetsOneByThePlugin(t *testing.T) {
	t.Parallel()
	partial := bytes.Replace(bytes.Clone(secretsBundle()), []byte("bootstraptoken:"), []byte("bootstraptokens:"), 1)
	for name, test := range map[string]struct {
		make func(t *testing.T, c cell)
		want string
	}{
		"missing": {func(*testing.T, cell) {}, "False BundleNotFound"},
		"partial": {func(t *testing.T, c cell) { c.putSecret(t, installation.Namespace, c.bundleLabel(), partial) }, "False BundleInvalid"},
		"of another cluster": {func(t *testing.T, c cell) {
			c.putSecret(t, installation.Namespace, map[string]string{bundle.ClusterLabel: "elsewhere." + clusterName}, secretsBundle())
		}, "False BundleNotForThisCluster"},
		"in the tenant's namespace": {func(t *testing.T, c cell) { c.putSecret(t, c.namespace, c.bundleLabel(), secretsBundle()) }, "False BundleNotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCell(t, v1alpha1.TalosDiscovery{})
			c.tellsNothing(t)
			test.make(t, c)
			cluster := c.bundleReady(t, test.want)
			if cluster.Status.BundleHash != "" {
				t.Errorf("there is a hash of nothing: %s", cluster.Status.BundleHash)
			}
			output, err := plugin(t, "gen-secrets", clusterName, "-n", c.namespace)
			exists := name == "partial" || name == "of another cluster"
			if exists != (err != nil) {
				t.Fatalf("made although there is one, or not made: %v\n%s", err, output)
			}
			if exists {
				return // never replaced
			}
			secret, err := env.Host().CoreV1().Secrets(installation.Namespace).Get(t.Context(), c.secretName(), metav1.GetOptions{})
			must(t, err)
			t.Cleanup(func() { deleteSecret(c.secretName()) })
			made, err := render.ParseBundle(secret.Data[bundle.Key])
			must(t, err)
			if found := leak(output, render.BundleMaterial(made)); found != "" {
				t.Errorf("the plugin prints %s", found)
			}
			hash, err := bundle.HashOf(made)
			must(t, err)
			if cluster := c.bundleReady(t, "True BundleFound"); cluster.Status.BundleHash != hash {
				t.Errorf("the hash is %s, not %s", cluster.Status.BundleHash, hash)
			}
		})
	}
}

// Req: T-16, T-18a
func TestARotatedBundleIsNoticedAndNothingIsSentWithIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "control", "worker", "waiting")
	leftAlone := f.leftAlone(t, "waiting")
	f.run(t, "control", "worker")
	before := f.bundleReady(t, "True BundleFound").Status.BundleHash
	sentBefore := f.get(t, "worker").Status.Configuration.BundleHash
	if before == "" || before != sentBefore {
		t.Errorf("the cluster has the bundle %q, the worker was configured with %q", before, sentBefore)
	}

	other, err := render.GenerateBundle("v1.13")
	must(t, err)
	f.withBundle(t, other)
	after := f.bundleReady(t, "True BundleRotated")
	if after.Status.BundleHash == before {
		t.Error("the hash is the same")
	}
	if line := told(t, f.namespace, "TalosCluster", clusterName, corev1.EventTypeWarning, "BundleRotated"); !strings.Contains(line, "2 of 2") {
		t.Errorf("told is %q", line)
	}
	for _, name := range []string{"control", "worker"} {
		f.has(t, turnLimit, name, "UpToDate", "False BundleRotated")
	}
	// A change makes no difference.
	f.edit(t, "worker", `{"nodeLabels":{"line":"mixing"}}`)
	f.has(t, turnLimit, "worker", "Ready", "Unknown Untrusted")
	f.wake(t)
	f.swept(t)
	for name, role := range map[string]v1alpha1.MachineRole{"control": v1alpha1.RoleControlPlane, "worker": v1alpha1.RoleWorker} {
		sentOnce(t, f.node(name), role)
	}
	f.notRebooted(t)

	// The old one is back, and all goes on.
	f.withBundle(t, secretsBundle())
	f.bundleReady(t, "True BundleFound")
	f.changed(t, "worker", "line: mixing")
	f.runs(t, "control")
	if n := f.bootstrapCalls(); n != 1 {
		t.Errorf("Bootstrap was called %d times", n)
	}
	leftAlone()
}
