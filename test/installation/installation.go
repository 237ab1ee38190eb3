// Package installation installs fieldplane into a local cluster as a user
// would, by the shipped manifests, and runs the real server beside it with the
// shipped ServiceAccount's rights and no more.
package installation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/fieldplane/fieldplane/pkg/pki"
	"github.com/fieldplane/fieldplane/test/localcluster"
	"github.com/fieldplane/fieldplane/test/localcluster/child"
)

const (
	// Namespace is where the manifests install the server.
	Namespace = "fieldplane-system"
	// ServiceAccount is the one that the manifests give the server.
	ServiceAccount = "fieldplane-apiserver"
	// Port is the one that the local overlay's APIServices name.
	Port = 18443
	// StopLimit is what a pod's server has between SIGTERM and SIGKILL.
	StopLimit = 60 * time.Second
)

// APIServices are what the manifests register.
var apiServices = []string{"v1alpha1.physical.fieldplane.dev", "v1alpha1.talos.fieldplane.dev"}

// Options say what to install, and where.
type Options struct {
	Cluster *localcluster.Cluster
	// BinDir holds fieldplane-apiserver and kubectl.
	BinDir string
	// RepoDir holds artifacts/deploy.
	RepoDir string
	// Dir keeps the server's data and kubeconfig, LogDir its log.
	Dir, LogDir string
	// Port is where the server listens on 127.0.0.1; 0 means one that is free.
	Port int
	// ExtraArgs are appended to the server's flags.
	ExtraArgs []string
	// Progress is told of each step, and of how long it took when it is done.
	Progress func(step string, took time.Duration)
}

// Installation is fieldplane in a cluster.
type Installation struct {
	options    Options
	kubeconfig string

	mu     sync.Mutex
	server *child.Process
}

// Start applies the manifests, starts the server and returns when the
// aggregator routes to it.
func Start(ctx context.Context, options Options) (*Installation, error) {
	if options.Progress == nil {
		options.Progress = func(string, time.Duration) {}
	}
	if options.Port == 0 {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		options.Port = port
	}
	i := &Installation{options: options}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"manifests", i.apply},
		{"service account", i.credentials},
		{"fieldplane-apiserver", i.StartServer},
		{"aggregation", i.WaitAvailable},
	}
	for _, step := range steps {
		began := time.Now()
		options.Progress(step.name, 0)
		if err := step.do(ctx); err != nil {
			i.Kill()
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
		options.Progress(step.name, time.Since(began))
	}
	return i, nil
}

// apply installs by the one command that a user has.
func (i *Installation) apply(ctx context.Context) error {
	overlay := filepath.Join(i.options.RepoDir, "artifacts", "deploy", "local")
	if output, err := i.Kubectl(ctx, "apply", "-k", overlay); err != nil {
		return fmt.Errorf("kubectl apply -k %s: %w\n%s", overlay, err, output)
	}
	if i.options.Port == Port {
		return nil
	}
	client, err := aggregator.NewForConfig(i.options.Cluster.AdminConfig())
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/service/port","value":%d}]`, i.options.Port)
	for _, name := range apiServices {
		if _, err := client.ApiregistrationV1().APIServices().Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("port of APIService %s: %w", name, err)
		}
	}
	return nil
}

// Kubectl runs kubectl as the cluster's administrator.
func (i *Installation) Kubectl(ctx context.Context, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, filepath.Join(i.options.BinDir, "kubectl"),
		append([]string{"--kubeconfig", i.options.Cluster.Kubeconfig()}, args...)...)
	command.Env = append(os.Environ(), "PATH="+i.options.BinDir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return command.CombinedOutput()
}

func (i *Installation) credentials(ctx context.Context) error {
	var err error
	i.kubeconfig, err = i.options.Cluster.ServiceAccountKubeconfig(ctx, Namespace, ServiceAccount)
	return err
}

// DataDir is where the server keeps its embedded etcd.
func (i *Installation) DataDir() string { return filepath.Join(i.options.Dir, "store") }

// Log is the server's log file.
func (i *Installation) Log() string {
	return filepath.Join(i.options.LogDir, "fieldplane-apiserver.log")
}

// Address is where the server listens.
func (i *Installation) Address() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(i.options.Port))
}

// Args are the flags that the server is started with, for tests that start another.
func (i *Installation) Args() []string {
	return append([]string{
		"--kubeconfig=" + i.kubeconfig,
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(i.options.Port),
		"--data-dir=" + i.DataDir(),
	}, i.options.ExtraArgs...)
}

// StartServer starts the server, which must not be running, and returns when it is ready.
func (i *Installation) StartServer(ctx context.Context) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	log, err := os.OpenFile(i.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	i.server, err = child.Start(child.Spec{
		Name:    "fieldplane-apiserver",
		Path:    filepath.Join(i.options.BinDir, "fieldplane-apiserver"),
		Args:    i.Args(),
		Env:     append(os.Environ(), "POD_NAMESPACE="+Namespace, "POD_NAME=fieldplane-apiserver-0"),
		Output:  log,
		PidFile: filepath.Join(i.options.Dir, "fieldplane-apiserver.pid"),
	})
	if err != nil {
		return err
	}
	return i.waitReady(ctx, i.server)
}

// waitReady asks the server itself, and believes it by the CA that it has made.
func (i *Installation) waitReady(ctx context.Context, server *child.Process) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case <-server.Done():
			return false, fmt.Errorf("the server ended: %w", server.Err())
		default:
		}
		return i.Ready(ctx) == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, child.Tail(i.Log(), 20))
	}
	return nil
}

// Ready returns nil if the server's /readyz is ok, and else what it says.
func (i *Installation) Ready(ctx context.Context) error {
	secret, err := i.options.Cluster.Client().CoreV1().Secrets(Namespace).Get(ctx, pki.ServingSecretName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(secret.Data["ca.crt"])
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: pki.ServingNames(ServiceAccount, Namespace)[0], MinVersion: tls.VersionTLS12,
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+i.Address()+"/readyz?verbose", nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: transport, Timeout: 2 * time.Second}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz is %s: %s", response.Status, body)
	}
	return nil
}

// WaitAvailable returns when the aggregator says that every APIService answers, and routes to it, which it does a moment later.
func (i *Installation) WaitAvailable(ctx context.Context) error {
	client, err := aggregator.NewForConfig(i.options.Cluster.AdminConfig())
	if err != nil {
		return err
	}
	var why string
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		for _, name := range apiServices {
			service, err := client.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				why = err.Error()
				return false, nil
			}
			if available, message := isAvailable(service); !available {
				why = name + ": " + message
				return false, nil
			}
			path := "/apis/" + service.Spec.Group + "/" + service.Spec.Version
			if err := client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx).Error(); err != nil {
				why = path + ": " + err.Error()
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, why)
	}
	return nil
}

func isAvailable(service *apiregistrationv1.APIService) (bool, string) {
	for _, condition := range service.Status.Conditions {
		if condition.Type == apiregistrationv1.Available {
			return condition.Status == apiregistrationv1.ConditionTrue, condition.Message
		}
	}
	return false, "not looked at yet"
}

// Server returns the running server's process.
func (i *Installation) Server() *child.Process {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.server
}

// Stop ends the server as a kubelet would, and returns its exit code.
func (i *Installation) Stop(ctx context.Context) int {
	server := i.Server()
	if server == nil {
		return 0
	}
	server.Stop(ctx, StopLimit)
	return server.ExitCode()
}

// Kill ends the server by SIGKILL and waits for its end.
func (i *Installation) Kill() {
	if server := i.Server(); server != nil {
		server.Signal(syscall.SIGKILL)
		<-server.Done()
	}
}

// ServerConfig reaches the server directly, past the aggregator, as its own ServiceAccount would.
func (i *Installation) ServerConfig(ctx context.Context) (*rest.Config, error) {
	config, err := i.options.Cluster.ServiceAccountConfig(ctx, Namespace, ServiceAccount)
	if err != nil {
		return nil, err
	}
	config.Host = "https://" + i.Address()
	return config, nil
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
