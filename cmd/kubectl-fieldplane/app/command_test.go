package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

func TestHelpShowsExamplesAsAUserTypesThem(t *testing.T) {
	for _, test := range []struct {
		args  []string
		wants []string
	}{
		{[]string{"--help"}, []string{"kubectl fieldplane [command]", "approve", "config", "discover", "gen-secrets", "pending", "reboot", "reject", "unapprove", "unreject", "kubectl fieldplane pending -A"}},
		{nil, []string{"kubectl fieldplane [command]"}},
		{[]string{"approve", "--help"}, []string{"kubectl fieldplane approve machine UUID --role ROLE", "--install-disk-selector", "--cert-fingerprint", "--dry-run", "--accept-shared-hardware", "--renew"}},
		{[]string{"discover", "--help"}, []string{"kubectl fieldplane discover CLUSTER", "--no-wait", "--timeout"}},
		{[]string{"reject", "--help"}, []string{"kubectl fieldplane reject machine UUID --reason TEXT", "kubectl fieldplane pending --all"}},
		{[]string{"unreject", "--help"}, []string{"kubectl fieldplane unreject machine UUID"}},
		{[]string{"unapprove", "--help"}, []string{"kubectl fieldplane unapprove machine UUID", "--yes"}},
		{[]string{"config", "--help"}, []string{"kubectl fieldplane config machine UUID", "--diff"}},
		{[]string{"reboot", "--help"}, []string{"kubectl fieldplane reboot machine UUID", "--wait"}},
		{[]string{"gen-secrets", "--help"}, []string{"kubectl fieldplane gen-secrets CLUSTER", "--from-file", "--secret-namespace", "fieldplane-system"}},
		{[]string{"hold", "--help"}, []string{"kubectl fieldplane hold UNIT", "--reason", "--no-wait", "It exits with 0 when"}},
		{[]string{"restart", "--help"}, []string{"kubectl fieldplane restart UNIT", "--override", "verb override"}},
		{[]string{"mode", "--help"}, []string{"kubectl fieldplane mode UNIT automatic|manual"}},
		{[]string{"tags", "--help"}, []string{"kubectl fieldplane tags UNIT [MODULE[/TAG]...]", "--watch"}},
		{[]string{"write", "--help"}, []string{"kubectl fieldplane write UNIT MODULE/TAG=VALUE...", "--reason"}},
		{[]string{"status", "--help"}, []string{"kubectl fieldplane status", "--all-namespaces", "--watch"}},
		{[]string{"pending", "--help"}, []string{"kubectl fieldplane pending -A -o wide"}},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			s := newSession().run(t, test.args...).wantOK(t)
			wantContains(t, s.out, test.wants...)
			if strings.Contains(s.out, "kubectl-fieldplane") {
				t.Errorf("names the binary, which nobody types:\n%s", s.out)
			}
		})
	}
	newSession().run(t, "aprove").wantRefused(t, `unknown command "aprove"`, "The commands are: abort, approve, channels, config, discover, gen-secrets, hold, mode, pause, pending, reboot, reject, reset, restart, resume, start, status, stop, tags, unapprove, unreject, write. See")
}

func TestCompletionOffersTheMachinesThatWait(t *testing.T) {
	line := uuid + "\t192.0.2.10 7MK1J33 Dell Inc. PowerEdge R650\n"
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"the word first", []string{"approve", ""}, "machine\n"},
		{"then the UUID", []string{"approve", "machine", ""}, line},
		{"by its beginning", []string{"approve", "machine", "4c4c"}, line},
		{"none with another beginning", []string{"approve", "machine", "ffff"}, ""},
		{"after a slash", []string{"approve", "machine/4"}, "machine/" + line},
		{"nothing after it", []string{"approve", "machine", uuid, ""}, ""},
		{"roles", []string{"approve", "--role", ""}, "worker\ncontrolplane\n"},
		{"dry runs", []string{"approve", "--dry-run="}, "none\nserver\n"},
		{"no reasons", []string{"reject", "--reason", ""}, ""},
		{"clusters", []string{"discover", ""}, "plant\tdeclares 192.0.2.0/24; it was not swept yet\n"},
		{"clusters by their beginning", []string{"gen-secrets", "x"}, ""},
		{"one cluster", []string{"discover", "plant", ""}, ""},
		{"outputs of secrets", []string{"gen-secrets", "-o", ""}, "yaml\n"},
		{"outputs", []string{"pending", "-o", ""}, "wide\njson\nyaml\nname\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(site()...).run(t, append([]string{"__complete"}, test.args...)...).wantOK(t)
			have, directive, _ := strings.Cut(s.out, ":4\n")
			if have != test.want || directive != "" {
				t.Errorf("have %q, want %q and no file names", s.out, test.want)
			}
		})
	}
}

// TestCompletionOffersToEachCommandTheMachinesItIsFor proves that pressing Tab offers no machine that would be refused.
func TestCompletionOffersToEachCommandTheMachinesItIsFor(t *testing.T) {
	named := func(name string, edits ...func(*v1alpha1.TalosMachine)) *v1alpha1.TalosMachine {
		return pendingMachine(append(edits, func(m *v1alpha1.TalosMachine) {
			m.Name, m.Spec.Endpoint, m.Spec.Identity.Serial, m.Status.Hardware = name, "", "", nil
		})...)
	}
	runs := func(m *v1alpha1.TalosMachine) {
		approveAs(m, v1alpha1.RoleWorker)
		m.Status.Phase = v1alpha1.MachineRunning
	}
	objects := []runtime.Object{named("back", backInMaintenance), named("changed", waitingForReboot), named("rejected", rejectedMachine), named("runs", runs), named("waits")}
	for command, want := range map[string]string{
		"approve":   "back waits",
		"reject":    "waits",
		"unreject":  "rejected",
		"unapprove": "back changed runs",
		"config":    "back changed runs",
		"reboot":    "changed",
	} {
		s := newSession(objects...).run(t, "__complete", command, "machine", "").wantOK(t)
		have, _, _ := strings.Cut(s.out, ":4\n")
		if have := strings.Join(strings.Fields(have), " "); have != want {
			t.Errorf("%s: have %q, want %q", command, have, want)
		}
	}
}

func TestTheFlagsOfKubectlSelectClusterNamespaceAndUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	err := os.WriteFile(path, []byte(`apiVersion: v1
kind: Config
current-context: here
clusters:
- {name: here, cluster: {server: "https://192.0.2.1:6443"}}
- {name: there, cluster: {server: "https://192.0.2.2:6443"}}
contexts:
- {name: here, context: {cluster: here, namespace: site-a}}
- {name: there, context: {cluster: there, namespace: site-b}}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name            string
		args            []string
		host, namespace string
	}{
		{"none", nil, "https://192.0.2.1:6443", "site-a"},
		{"context", []string{"--context=there"}, "https://192.0.2.2:6443", "site-b"},
		{"namespace", []string{"-n", "site-c"}, "https://192.0.2.1:6443", "site-c"},
		{"user", []string{"--as=alice"}, "https://192.0.2.1:6443", "site-a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := genericclioptions.NewConfigFlags(true)
			var have target
			var out bytes.Buffer
			cmd := newCommand(plugin{IOStreams: genericiooptions.IOStreams{Out: &out, ErrOut: &out}, connect: func() (target, error) {
				var err error
				have, err = connect(config, &out)
				if err != nil {
					t.Fatal(err)
				}
				return target{}, told("far enough", "")
			}})
			config.AddFlags(cmd.PersistentFlags())
			cmd.SetArgs(append([]string{"pending", "--kubeconfig", path}, test.args...))
			if execute(cmd, &out) == 0 {
				t.Fatal(out.String())
			}
			rest, err := config.ToRESTConfig()
			if err != nil {
				t.Fatal(err)
			}
			if have.namespace != test.namespace || rest.Host != test.host || (rest.Impersonate.UserName == "alice") != (test.name == "user") {
				t.Errorf("namespace %q, host %q, as %q", have.namespace, rest.Host, rest.Impersonate.UserName)
			}
		})
	}
}

func TestAKubeconfigThatCannotBeReadIsToldWithWhatToDo(t *testing.T) {
	var out, errOut bytes.Buffer
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	code := Run(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}, []string{"pending", "--kubeconfig", path})
	if code == 0 {
		t.Error("exit code 0")
	}
	wantContains(t, errOut.String(), "error: cannot read the kubeconfig: ", "\nCheck the cluster that kubectl is set to")
}
