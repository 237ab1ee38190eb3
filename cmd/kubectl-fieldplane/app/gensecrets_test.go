package app

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

// oneBundle is a bundle as talosctl gen secrets makes it, the same whenever it is asked for.
var oneBundle = sync.OnceValues(func() ([]byte, error) { return render.GenerateBundle("v1.13") })

func bundleForTests(t *testing.T) []byte {
	t.Helper()
	content, err := oneBundle()
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// anotherBundle differs from it in the cluster's id.
func anotherBundle(t *testing.T) []byte {
	t.Helper()
	parsed, err := render.ParseBundle(bundleForTests(t))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Replace(bundleForTests(t), []byte(parsed.Cluster.ID), []byte("VGhpcyBpcyBub3QgdGhlIGlkIG9mIHRoYXQgY2x1c3RlcnM="), 1)
}

func bundleFile(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secrets.yaml")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func hashOf(t *testing.T, content []byte) string {
	t.Helper()
	parsed, err := render.ParseBundle(content)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := bundle.HashOf(parsed)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// wantSecretKept asserts that nothing that was printed holds anything of the bundle.
func (s *session) wantSecretKept(t *testing.T, content []byte) {
	t.Helper()
	parsed, err := render.ParseBundle(content)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range render.BundleMaterial(parsed) {
		if strings.Contains(s.out+s.errOut, value) {
			t.Fatalf("prints %q", value)
		}
	}
}

// secretWrite is the one Secret that was to be created, and whether only in a dry run.
func (s *session) secretWrite(t *testing.T) (secret *corev1.Secret, dryRun bool) {
	t.Helper()
	writes := s.writes()
	if len(writes) != 1 || !writes[0].Matches("create", "secrets") {
		t.Fatalf("want one Secret created, have %v\n%s%s", writes, s.out, s.errOut)
	}
	create := writes[0].(clienttesting.CreateActionImpl)
	return create.Object.(*corev1.Secret), len(create.CreateOptions.DryRun) > 0
}

// Req: T-15, T-16
func TestGenSecretsMakesTheSecretThatTheClusterNames(t *testing.T) {
	imported := bundleForTests(t)
	for _, test := range []struct {
		name, input string
		args        []string
		namespace   string
		// content is what is to be stored; nil for something new.
		content []byte
	}{
		{name: "a new one", namespace: "fieldplane-system"},
		{name: "in another namespace of the server", args: []string{"--secret-namespace", "plant-system"}, namespace: "plant-system"},
		{name: "from a file, as it is", args: []string{"--from-file", bundleFile(t, append([]byte("# ours\n"), imported...))}, namespace: "fieldplane-system", content: append([]byte("# ours\n"), imported...)},
		{name: "from standard input", args: []string{"--from-file", "-"}, input: string(imported), namespace: "fieldplane-system", content: imported},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(plantCluster(), pendingMachine())
			s.input, s.noTerminal, s.generate = test.input, true, render.GenerateBundle
			s.run(t, append([]string{"gen-secrets", "plant"}, test.args...)...).wantOK(t)
			secret, dryRun := s.secretWrite(t)
			if dryRun || secret.Namespace != test.namespace || secret.Name != "plant-secrets" || secret.Labels["talos.fieldplane.dev/cluster"] != "site-a.plant" || secret.Type != corev1.SecretTypeOpaque || len(secret.Data) != 1 {
				t.Errorf("created %s/%s, labels %v, dry run %v", secret.Namespace, secret.Name, secret.Labels, dryRun)
			}
			content := secret.Data["bundle"]
			if _, err := render.ParseBundle(content); err != nil {
				t.Fatalf("no bundle: %v", err)
			}
			if test.content != nil && string(content) != string(test.content) {
				t.Error("is not the file")
			}
			wantContains(t, s.out, "secret/plant-secrets created in namespace "+test.namespace+"\n", "Keep a copy of it")
			s.wantSecretKept(t, content)
		})
	}
}

// Req: T-15, T-16
func TestGenSecretsPrintsTheSecretsOnlyWhenAskedTo(t *testing.T) {
	content := bundleForTests(t)
	path := bundleFile(t, content)
	t.Run("a dry run prints nothing of them, and sends nothing of them", func(t *testing.T) {
		s := newSession(plantCluster()).run(t, "gen-secrets", "plant", "--from-file", path, "--dry-run").wantOK(t)
		secret, dryRun := s.secretWrite(t)
		if !dryRun || string(secret.Data["bundle"]) != "dry run" {
			t.Errorf("dry run %v, sent %d bytes", dryRun, len(secret.Data["bundle"]))
		}
		wantContains(t, s.out, "secret/plant-secrets would be created in namespace fieldplane-system (server dry run")
		s.wantSecretKept(t, content)
	})
	for name, answer := range map[string]error{
		"for yourself":                        nil,
		"for whoever may create it":           apierrors.NewForbidden(corev1.Resource("secrets"), "plant-secrets", errors.New("no")),
		"for a namespace that is still to be": apierrors.NewNotFound(corev1.Resource("namespaces"), "fieldplane-system"),
	} {
		t.Run("a manifest "+name, func(t *testing.T) {
			s := newSession(plantCluster())
			s.core.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return answer != nil, nil, answer })
			s.run(t, "gen-secrets", "plant", "--from-file", path, "--dry-run", "-o", "yaml").wantOK(t)
			if _, dryRun := s.secretWrite(t); !dryRun {
				t.Error("created")
			}
			var printed corev1.Secret
			if err := yaml.Unmarshal([]byte(s.out), &printed); err != nil {
				t.Fatal(err)
			}
			if printed.Kind != "Secret" || printed.APIVersion != "v1" || string(printed.Data["bundle"]) != string(content) || printed.Labels["talos.fieldplane.dev/cluster"] != "site-a.plant" {
				t.Errorf("printed %s %s, labels %v", printed.Kind, printed.Name, printed.Labels)
			}
			wantContains(t, s.errOut, "Warning: what is printed holds the secrets of the cluster.")
			if answer != nil {
				wantContains(t, s.errOut, "Warning: you could not create it now")
			}
		})
	}
}

// Req: T-15, T-16
func TestGenSecretsRefuses(t *testing.T) {
	content, foreign := bundleForTests(t), anotherBundle(t)
	had := func(hash string) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) {
			m.Status.Configuration = &v1alpha1.MachineConfiguration{IntendedAt: ptr.To(metav1.NewTime(now())), BundleHash: hash}
		}
	}
	for _, test := range []struct {
		name       string
		machine    func(*v1alpha1.TalosMachine)
		cluster    func(*v1alpha1.TalosCluster)
		args       []string
		what, todo string
	}{
		{name: "no cluster", args: []string{"gen-secrets"}, what: "which cluster is not said", todo: "gen-secrets CLUSTER"},
		{name: "a cluster that does not exist", args: []string{"gen-secrets", "filling"}, what: "there is no TalosCluster filling", todo: "kubectl get talosclusters -A"},
		{name: "to print without a dry run", args: []string{"gen-secrets", "plant", "-o", "yaml"}, what: "-o yaml prints the secrets", todo: "--dry-run -o yaml"},
		{name: "another output", args: []string{"gen-secrets", "plant", "--dry-run", "-o", "json"}, what: "-o json is not possible", todo: "--dry-run -o yaml"},
		{name: "a client-side dry run", args: []string{"gen-secrets", "plant", "--dry-run=client"}, what: "--dry-run=client", todo: "--dry-run=server"},
		{name: "a namespace that is none", args: []string{"gen-secrets", "plant", "--secret-namespace", ""}, what: `--secret-namespace "" is not`, todo: "server runs"},
		{name: "a cluster that is being deleted", cluster: func(c *v1alpha1.TalosCluster) {
			c.DeletionTimestamp, c.Finalizers = ptr.To(metav1.NewTime(now())), []string{"example.com/hold"}
		}, what: "being deleted", todo: "no secrets"},
		{name: "a version that cannot be rendered", cluster: func(c *v1alpha1.TalosCluster) { c.Spec.TalosVersion = "v9.9" }, what: `talosVersion "v9.9"`, todo: "Nothing was written"},
		{name: "a file that is not there", args: []string{"gen-secrets", "plant", "--from-file", "/nonexistent"}, what: "no such file", todo: "talosctl gen secrets"},
		{name: "an empty file", args: []string{"gen-secrets", "plant", "--from-file", bundleFile(t, []byte("\n"))}, what: "it is empty", todo: "talosctl gen secrets"},
		{name: "a file that is too large", args: []string{"gen-secrets", "plant", "--from-file", bundleFile(t, make([]byte, maxBundle+1))}, what: "larger than a Secret", todo: "talosctl gen secrets"},
		{name: "half a file", args: []string{"gen-secrets", "plant", "--from-file", bundleFile(t, content[:len(content)/2])}, what: "--from-file", todo: "talosctl gen secrets"},
		{name: "something else", args: []string{"gen-secrets", "plant", "--from-file", bundleFile(t, []byte("apiVersion: v1\nkind: Secret\n"))}, what: "not YAML as `talosctl gen secrets` writes it", todo: "whole"},
		{name: "new ones for a machine that has others", machine: had("abc"), what: "machine " + uuid + " was configured with the secrets", todo: "--from-file"},
		{name: "a file with other ones than a machine has", machine: had("abc"), args: []string{"gen-secrets", "plant", "--from-file", bundleFile(t, foreign)}, what: "was configured with other secrets", todo: "belongs to this cluster"},
	} {
		t.Run(test.name, func(t *testing.T) {
			machine, cluster := pendingMachine(), plantCluster()
			if test.machine != nil {
				test.machine(machine)
			}
			if test.cluster != nil {
				test.cluster(cluster)
			}
			args := test.args
			if args == nil {
				args = []string{"gen-secrets", "plant"}
			}
			s := newSession(machine, cluster)
			s.generate = render.GenerateBundle
			s.run(t, args...).wantRefused(t, test.what, test.todo)
			s.wantSecretKept(t, content)
			s.wantSecretKept(t, foreign)
		})
	}
	for name, hash := range map[string]string{"those that the machine has": hashOf(t, content), "those of a machine whose hash was not kept": ""} {
		t.Run("but not "+name, func(t *testing.T) {
			s := newSession(pendingMachine(had(hash)), plantCluster()).run(t, "gen-secrets", "plant", "--from-file", bundleFile(t, content)).wantOK(t)
			s.secretWrite(t)
		})
	}
}

// Req: T-16
func TestGenSecretsNeverReplacesASecret(t *testing.T) {
	kept := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fieldplane-system", Name: "plant-secrets"}, Data: map[string][]byte{"bundle": []byte("old")}}
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	s := newSession(plantCluster())
	if err := s.core.Tracker().Add(kept); err != nil {
		t.Fatal(err)
	}
	s.run(t, "gen-secrets", "plant")
	s.secretWrite(t)
	s.core.ClearActions()
	s.wantRefused(t, "Secret fieldplane-system/plant-secrets exists already, and is never replaced", "condition BundleReady")
	stored, err := s.core.Tracker().Get(secrets, "fieldplane-system", "plant-secrets")
	if err != nil || string(stored.(*corev1.Secret).Data["bundle"]) != "old" {
		t.Errorf("replaced: %v", err)
	}
	for _, test := range []struct {
		name       string
		answer     error
		args       []string
		what, todo string
	}{
		{"a manifest of one that exists", apierrors.NewAlreadyExists(corev1.Resource("secrets"), "plant-secrets"), []string{"--dry-run", "-o", "yaml"}, "exists already", "BundleReady"},
		{"without the right", apierrors.NewForbidden(corev1.Resource("secrets"), "plant-secrets", errors.New("no")), nil, "forbidden", "kubectl auth can-i create secrets -n fieldplane-system"},
		{"without the namespace", apierrors.NewNotFound(corev1.Resource("namespaces"), "fieldplane-system"), nil, `namespaces "fieldplane-system" not found`, "--secret-namespace"},
		{"without an answer", errors.New("i/o timeout"), nil, "i/o timeout", "keep it if it is there: kubectl -n fieldplane-system get secret plant-secrets"},
		{"when a webhook refuses", apierrors.NewBadRequest("policy"), nil, "policy", "Nothing was written"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(plantCluster())
			s.core.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
			s.run(t, append([]string{"gen-secrets", "plant"}, test.args...)...)
			s.core.ClearActions()
			s.wantRefused(t, test.what, test.todo)
			if s.out != "" {
				t.Errorf("prints %q", s.out)
			}
		})
	}
}
