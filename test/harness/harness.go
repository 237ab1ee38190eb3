// Package harness gives a test package one real cluster with fieldplane
// installed in it, shared by its tests, which keep apart by namespace.
package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/test/installation"
	"github.com/fieldplane/fieldplane/test/localcluster"
)

// startLimit bounds the start of the cluster and of the server in it.
const startLimit = 3 * time.Minute

// Options say what a test package needs.
type Options struct {
	// Nodes are the cluster's; two by default, node-1 in zone a and node-2 in zone b.
	Nodes []localcluster.Node
	// ServerArgs are appended to the server's flags.
	ServerArgs []string
	// ComponentArgs are appended to the flags of the host cluster's component of that name.
	ComponentArgs map[string][]string
}

// Env is the cluster that a test package shares.
type Env struct {
	Cluster      *localcluster.Cluster
	Installation *installation.Installation
	// Dir is the environment's own directory, BinDir where the programs are.
	Dir, BinDir string

	namespaces atomic.Int64
}

// Run starts an environment, hands it to the package, runs the tests and stops
// it: call it from TestMain. The logs of a failed run are kept and named.
func Run(m *testing.M, options Options, use func(*Env)) int {
	env, err := start(options)
	if err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		return 1
	}
	use(env)
	code := m.Run()
	stopCtx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	env.Installation.Stop(stopCtx)
	env.Cluster.Stop()
	if code != 0 {
		fmt.Fprintln(os.Stderr, "harness: logs are kept in", filepath.Join(env.Dir, "log"))
		return code
	}
	_ = os.RemoveAll(env.Dir)
	return code
}

func start(options Options) (*Env, error) {
	repo := repoDir()
	bin := filepath.Join(repo, "_local", "bin")
	for _, program := range []string{"kube-apiserver", "kubectl", "fieldplane-apiserver", "io-probe", "unit-runtime"} {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			return nil, fmt.Errorf("%s is not built: run make build-test first", program)
		}
	}
	dir, err := os.MkdirTemp("", "fp")
	if err != nil {
		return nil, err
	}
	logs := filepath.Join(dir, "log")
	if options.Nodes == nil {
		options.Nodes = []localcluster.Node{
			{Name: "node-1", Labels: map[string]string{"zone": "a"}},
			{Name: "node-2", Labels: map[string]string{"zone": "b"}},
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	cluster, err := localcluster.Start(ctx, localcluster.Options{
		Dir: filepath.Join(dir, "cluster"), BinDir: bin, LogDir: logs, Nodes: options.Nodes, ExtraArgs: options.ComponentArgs,
	})
	if err != nil {
		return nil, fmt.Errorf("%w (logs in %s)", err, logs)
	}
	install, err := installation.Start(ctx, installation.Options{
		Cluster: cluster, BinDir: bin, RepoDir: repo, Dir: dir, LogDir: logs, ExtraArgs: options.ServerArgs,
	})
	if err != nil {
		cluster.Stop()
		return nil, fmt.Errorf("%w (logs in %s)", err, logs)
	}
	return &Env{Cluster: cluster, Installation: install, Dir: dir, BinDir: bin}, nil
}

// repoDir is the root of the repository, two folders above this file.
func repoDir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Namespace makes a namespace for one test and deletes it afterwards, without waiting.
func (e *Env) Namespace(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("site-%d", e.namespaces.Add(1))
	client := e.Cluster.Client()
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create namespace %s: %v", name, err)
	}
	t.Cleanup(func() {
		_ = client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	return name
}

// Admin is a client of our kinds as the cluster's administrator, through the aggregator.
func (e *Env) Admin(t testing.TB) versioned.Interface {
	t.Helper()
	return clientFor(t, e.Cluster.AdminConfig())
}

// As is a client of our kinds as another user, through the aggregator.
func (e *Env) As(t testing.TB, user string, groups ...string) versioned.Interface {
	t.Helper()
	config, err := e.Cluster.UserConfig(user, groups...)
	if err != nil {
		t.Fatalf("client certificate of %s: %v", user, err)
	}
	return clientFor(t, config)
}

// ServerConfig makes requests in the server's own name, for tests that arrange what it alone may write: the status of most
// kinds. A controller that keeps the same member undoes it.
func (e *Env) ServerConfig() *rest.Config {
	config := rest.CopyConfig(e.Cluster.AdminConfig())
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + installation.Namespace + ":" + installation.ServiceAccount,
		Groups:   []string{"system:masters"},
	}
	return config
}

// Host is a client of the host cluster's own kinds as its administrator.
func (e *Env) Host() kubernetes.Interface { return e.Cluster.Client() }

func clientFor(t testing.TB, config *rest.Config) versioned.Interface {
	t.Helper()
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatalf("client: %v", err)
	}
	return client
}

// Kubectl runs kubectl as the administrator with input on its standard input,
// and returns what it printed, errors included.
func (e *Env) Kubectl(t testing.TB, input string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(e.BinDir, "kubectl"),
		append([]string{"--kubeconfig", e.Cluster.Kubeconfig()}, args...)...)
	command.Env = append(os.Environ(), "PATH="+e.BinDir+string(os.PathListSeparator)+os.Getenv("PATH"))
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	return string(output), err
}

// MustKubectl is Kubectl for commands that must succeed.
func (e *Env) MustKubectl(t testing.TB, input string, args ...string) string {
	t.Helper()
	output, err := e.Kubectl(t, input, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

// Eventually asks until ask returns "", at most for limit, and else fails with
// the last answer.
func Eventually(t testing.TB, limit time.Duration, ask func() string) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		answer := ask()
		if answer == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, answer)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("test ended: %s", answer)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
