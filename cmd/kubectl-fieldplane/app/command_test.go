package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestHelpShowsExamplesAsAUserTypesThem(t *testing.T) {
	for _, test := range []struct {
		args  []string
		wants []string
	}{
		{[]string{"--help"}, []string{"kubectl fieldplane [command]", "approve", "pending", "kubectl fieldplane pending -A"}},
		{nil, []string{"kubectl fieldplane [command]"}},
		{[]string{"approve", "--help"}, []string{"kubectl fieldplane approve machine UUID --role ROLE", "--install-disk-selector", "--cert-fingerprint", "--dry-run"}},
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
	newSession().run(t, "aprove").wantRefused(t, `unknown command "aprove"`, "The commands are: approve, config, discover, gen-secrets, pending, reboot, reject, unapprove, unreject. See")
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
