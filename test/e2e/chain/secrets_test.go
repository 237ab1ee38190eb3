package chain

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// Req: T-15, T-16
func TestNothingOfABundleIsToldAnywhere(t *testing.T) {
	t.Parallel()
	material, err := render.ParseBundle(secretsBundle())
	must(t, err)
	secrets := render.BundleMaterial(material)
	if len(secrets) < 100 {
		t.Fatalf("only %d values to look for", len(secrets))
	}

	// A machine that takes its configuration, one that refuses it after it has seen it, and bundles that are broken in ways whose
	// errors would quote what is beside the break.
	p := boxes(t, 76, 20, "taking", "refusing")
	taking, refusing := p.Node("taking"), p.Node("refusing")
	broken := boxes(t, 76, 22, "broken").Node("broken")
	// What it says quotes all that it was sent.
	must(t, p.Fault("refusing", string(talosnode.FaultRefuse)))

	well := newCell(t, addresses(host(taking), host(refusing))).withBundle(t, secretsBundle())
	well.pending(t, taking)
	well.approve(t, taking, v1alpha1.RoleControlPlane, "--fingerprint", taking.Fingerprint())
	well.applied(t, taking.Hardware().UUID)
	well.approveDirectly(t, well.pending(t, refusing), func(*v1alpha1.TalosMachineSpec) {})
	well.configured(t, refusing.Hardware().UUID, "False Refused")
	// One that runs, was changed by hand, also where a secret stands, has a change that waits for a reboot and refuses it, and
	// says so in its own words.
	f := fleet{cell: well, plant: p, names: []string{"taking", "refusing"}}
	f.runs(t, "taking")
	must(t, p.Patch("taking", "machine:\n  nodeLabels:\n    changed: by-hand\ncluster:\n  token: abcdef.0123456789abcdef\n"))
	must(t, taking.SetReadiness(&talosnode.Readiness{Unmet: []talosnode.Unmet{{Name: "services", Reason: "etcd says " + material.Cluster.Secret}}}))
	f.wake(t)
	f.has(t, turnLimit, "taking", "Drifted", "True ChangedOnTheMachine")
	f.has(t, turnLimit, "taking", "Ready", "False NotReady")
	must(t, taking.SetReadiness(nil))
	f.fault(t, "taking", talosnode.FaultRefuse)
	f.edit(t, "taking", `{"nodeLabels":{"line":"mixing"}}`)
	f.has(t, turnLimit, "taking", "UpToDate", "False Refused")

	said := map[string]string{}
	for name, spoil := range map[string]func([]byte) []byte{
		"a tab in the middle": func(data []byte) []byte { return bytes.Replace(data, []byte("\n    token:"), []byte("\n\ttoken:"), 1) },
		"a wrong type": func(data []byte) []byte {
			return bytes.Replace(data, []byte("trustdinfo:"), []byte("trustdinfo: &x"), 1)
		},
		"a field too many": func(data []byte) []byte { return append(bytes.Clone(data), "extra: "+material.Cluster.Secret+"\n"...) },
		"half of it":       func(data []byte) []byte { return data[:len(data)/2] },
		"a key missing": func(data []byte) []byte {
			return bytes.Replace(data, []byte("bootstraptoken:"), []byte("bootstraptokens:"), 1)
		},
	} {
		if _, err := render.ParseBundle(spoil(bytes.Clone(secretsBundle()))); err != nil {
			said["the error about "+name] = err.Error()
		}
	}
	if len(said) < 4 {
		t.Errorf("only these bundles are broken: %v", said)
	}
	bad := newCell(t, addresses(host(broken))).withBundle(t, append(bytes.Clone(secretsBundle()), "extra: "+material.Cluster.Secret+"\n"...))
	bad.pending(t, broken)
	bad.approve(t, broken, v1alpha1.RoleWorker)
	bad.configured(t, broken.Hardware().UUID, "False BundleInvalid")

	// What people see, errors included.
	for _, args := range [][]string{
		{"get", "events", "-A", "-o", "yaml"},
		{"get", "talosclusters,talosmachines,iomodules,controllers,controlmodules,units", "-A", "-o", "yaml"},
		{"get", "talosclusters,talosmachines", "-A", "-o", "wide"},
		{"get", "configmaps,pods", "-A", "-o", "yaml"},
		{"describe", "talosclusters,talosmachines", "-n", well.namespace},
		{"describe", "talosclusters,talosmachines", "-n", bad.namespace},
	} {
		said["kubectl "+strings.Join(args, " ")] = env.MustKubectl(t, "", args...)
	}
	for _, args := range [][]string{
		{"get", "--raw", "/apis/talos.fieldplane.dev/v1alpha1/namespaces/" + bad.namespace + "/talosmachines/" + broken.Hardware().UUID + "/config"},
		{"get", "--raw", "/apis/talos.fieldplane.dev/v1alpha1/namespaces/" + well.namespace + "/talosmachines/" + refusing.Hardware().UUID + "/config?diff=running"},
		{"create", "--raw", "/apis/talos.fieldplane.dev/v1alpha1/namespaces/" + well.namespace + "/talosmachines/" + taking.Hardware().UUID + "/reboot", "-f", "-"},
	} {
		output, _ := env.Kubectl(t, `{"apiVersion":"talos.fieldplane.dev/v1alpha1","kind":"RebootRequest"}`, args...)
		said["kubectl "+strings.Join(args, " ")] = output
	}
	for _, args := range [][]string{
		{"pending", "-A", "-o", "wide"},
		{"pending", "-A", "--all"},
		{"discover", clusterName, "-n", well.namespace},
		{"gen-secrets", clusterName, "-n", well.namespace},
		{"reboot", "machine", taking.Hardware().UUID, "-n", well.namespace, "--yes"},
		{"approve", "machine", refusing.Hardware().UUID, "-n", well.namespace, "--yes", "--role", "worker", "--install-disk", "/dev/none", "--dry-run"},
		{"approve", "machine", broken.Hardware().UUID, "-n", bad.namespace, "--yes", "--role", "worker", "--install-disk", talosDisk, "--dry-run"},
	} {
		output, _ := kubectlPlugin(t, args...)
		said["kubectl fieldplane "+strings.Join(args, " ")] = output
	}
	for _, machine := range []struct{ namespace, name string }{
		{well.namespace, taking.Hardware().UUID}, {well.namespace, refusing.Hardware().UUID}, {bad.namespace, broken.Hardware().UUID},
	} {
		output, err := env.Kubectl(t, "", "patch", "talosmachine", machine.name, "-n", machine.namespace, "--type=merge", "-p", `{"spec":{"configPatches":["machine: {token: x}"]}}`)
		if err == nil {
			t.Errorf("a patch of the machine's token was accepted: %s", output)
		}
		said["the refusal of a patch of "+machine.name] = output
	}
	// Every program's log: the server's, the probes', the host cluster's.
	logs := 0
	must(t, filepath.WalkDir(filepath.Join(env.Dir, "log"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		said[path] = string(text)
		logs++
		return err
	}))
	if logs < 5 || !strings.Contains(said[env.Installation.Log()], taking.Hardware().UUID) {
		t.Errorf("the logs are not where this test looks: %d files", logs)
	}

	for where, text := range said {
		for _, secret := range secrets {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s holds %d bytes of the bundle: %q…", where, len(secret), text[max(0, i-100):i])
				break
			}
		}
	}
	// What a configuration shows is all but its secrets.
	for _, args := range [][]string{
		{"config", "machine", taking.Hardware().UUID, "-n", well.namespace},
		{"config", "machine", taking.Hardware().UUID, "-n", well.namespace, "--diff"},
		{"config", "machine", refusing.Hardware().UUID, "-n", well.namespace},
	} {
		if output := mustPlugin(t, args...); strings.Contains(output, "0123456789abcdef") || !containsAll(output, "line") && !containsAll(output, "type: worker") {
			t.Errorf("kubectl fieldplane %q prints\n%s", args, output)
		}
	}
	// This test would find them: they are where they belong.
	for _, where := range [][]byte{taking.Configuration(), secretsBundle()} {
		found := 0
		for _, secret := range secrets {
			if bytes.Contains(where, []byte(secret)) {
				found++
			}
		}
		if found < 10 {
			t.Errorf("only %d values are found where they are", found)
		}
	}
	sentOnce(t, taking, v1alpha1.RoleControlPlane)
	if got := refusing.Configurations(); len(got) != 1 || got[0].Accepted {
		t.Errorf("the machine that refuses was sent %+v", got)
	}
	receivedNothing(t, broken)
}
