package server

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/test/installation"
)

// Req. Stamping a version into Kubernetes' libraries turns gates off and says nothing (docs: the version stamping trap).
func TestTheBinaryHasTheFeaturesThatItPromises(t *testing.T) {
	running(t)
	client := probeClient(t)
	status, metrics, err := client.get(t.Context(), env.Installation.Address(), "/metrics")
	must(t, isOK(status, "", err))
	enabled := map[string]string{}
	for line := range strings.Lines(metrics) {
		if rest, ok := strings.CutPrefix(line, `kubernetes_feature_enabled{name="`); ok {
			name, rest, _ := strings.Cut(rest, `"`)
			_, value, _ := strings.Cut(rest, "} ")
			enabled[name] = strings.TrimSpace(value)
		}
	}
	for name, want := range map[string]string{
		"WatchList": "1", "MutatingAdmissionPolicy": "1", "DeclarativeValidation": "1", "RemoteRequestHeaderUID": "1",
		"ListFromCacheSnapshot": "1", "OpenAPIEnums": "1", "UnauthenticatedHTTP2DOSMitigation": "0",
	} {
		if enabled[name] != want {
			t.Errorf("feature gate %s is %q, want %q", name, enabled[name], want)
		}
	}

	for path, want := range map[string]string{
		"/version": `"gitVersion"`,
		// The separator is another one at each start, so that nobody parses it.
		"/flagz":   `data-dir\W+` + regexp.QuoteMeta(env.Installation.DataDir()[1:]) + `\n`,
		"/statusz": "Binary version",
	} {
		status, text, err := client.get(t.Context(), env.Installation.Address(), path)
		must(t, isOK(status, text, err))
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%s does not match %q:\n%s", path, want, text)
		}
	}
}

// Req
func TestAWrongFlagEndsTheStartWithAnErrorThatNamesIt(t *testing.T) {
	running(t)
	dir := t.TempDir()
	inUse := filepath.Join(dir, "others")
	must(t, os.Mkdir(inUse, 0o755))
	must(t, os.WriteFile(filepath.Join(inUse, "theirs"), nil, 0o600))
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, []byte("no kubeconfig"), 0o600))

	for _, tc := range []struct {
		name string
		args []string
		env  []string
		want []string
	}{
		{"no namespace", []string{"--namespace="}, []string{"POD_NAMESPACE="}, []string{"--namespace", "POD_NAMESPACE"}},
		{"a namespace that cannot be one", []string{"--namespace=Field_Plane"}, nil, []string{"--namespace", `"Field_Plane"`}},
		{"no data directory", []string{"--data-dir="}, nil, []string{"--data-dir", "--etcd-servers"}},
		{"a data directory that others can read, with their files", []string{"--data-dir=" + inUse}, nil, []string{"--data-dir", inUse, "0755", "chmod 0700"}},
		{"a data directory that is a file", []string{"--data-dir=" + file}, nil, []string{"--data-dir", file}},
		{"a kubeconfig that is absent", []string{"--kubeconfig=" + filepath.Join(dir, "none")}, nil, []string{"--kubeconfig", filepath.Join(dir, "none")}},
		{"a kubeconfig that is none", []string{"--kubeconfig=" + file}, nil, []string{"--kubeconfig", file}},
		{"a quota that holds nothing", []string{"--embedded-etcd-quota-bytes=1"}, nil, []string{"--embedded-etcd-quota-bytes", "67108864"}},
		{"an encoding that is unknown", []string{"--storage-media-type=text/plain"}, nil, []string{"--storage-media-type", "text/plain"}},
		{"a port that is none", []string{"--secure-port=70000"}, nil, []string{"--secure-port", "70000"}},
		{"a feature that the server needs, off", []string{"--feature-gates=WatchList=false"}, nil, []string{"--feature-gates", "WatchList"}},
		{"a feature that is unknown", []string{"--feature-gates=Wishful=true"}, nil, []string{"--feature-gates", "Wishful"}},
		{"a delay that is negative", []string{"--shutdown-delay-duration=-1s"}, nil, []string{"--shutdown-delay-duration"}},
		{"a file of encryption keys that is absent", []string{"--encryption-provider-config=" + filepath.Join(dir, "none")}, nil, []string{filepath.Join(dir, "none")}},
		{"a flag that is unknown", []string{"--date-dir=" + dir}, nil, []string{"--date-dir"}},
		{"an argument", []string{"serve"}, nil, []string{`"serve"`}},
		{"an admission plugin that is unknown", []string{"--enable-admission-plugins=Wishful"}, nil, []string{"enable-admission-plugins", "Wishful"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			logFile := filepath.Join(t.TempDir(), "server.log")
			environment := append([]string{"POD_NAMESPACE=" + installation.Namespace}, tc.env...)
			args := append(env.Installation.Args(),
				"--data-dir="+filepath.Join(t.TempDir(), "store"), fmt.Sprintf("--secure-port=%d", freePort(t)))
			server := startProgram(t, logFile, environment, "fieldplane-apiserver", append(args, tc.args...)...)
			within(t, 20*time.Second, server.Done(), "the end of the start")
			if code := server.ExitCode(); code != 1 {
				t.Errorf("ended with code %d, want 1", code)
			}
			log, err := os.ReadFile(logFile)
			must(t, err)
			// The log quotes what is quoted in the error.
			text := strings.ReplaceAll(string(log), `\"`, `"`)
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("does not name %s", want)
				}
			}
			if strings.Contains(text, "panic") || strings.Contains(text, "goroutine ") {
				t.Error("panics")
			}
			if t.Failed() {
				t.Logf("%s", text)
			}
		})
	}
}
