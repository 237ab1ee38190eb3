package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/pkg/pki"
	"github.com/fieldplane/fieldplane/test/installation"
	"github.com/fieldplane/fieldplane/test/localcluster/child"
)

// process is a server beside the installation's own, or in its place.
type process struct {
	*child.Process
	address string
	logFile string
}

// startServer starts a server with the installation's flags and args after them, which win, without waiting for it. The test's end
// kills it. A later --secure-port has to be given by port instead.
func startServer(t *testing.T, port int, args ...string) *process {
	t.Helper()
	p := &process{address: env.Installation.Address(), logFile: filepath.Join(t.TempDir(), "server.log")}
	if port != 0 {
		p.address = net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
		args = append(args, fmt.Sprintf("--secure-port=%d", port))
	}
	p.Process = startProgram(t, p.logFile, nil, "fieldplane-apiserver", append(env.Installation.Args(), args...)...)
	return p
}

// startProgram starts one of our programs with its output in logFile; the test's end kills it.
func startProgram(t *testing.T, logFile string, environment []string, name string, args ...string) *child.Process {
	t.Helper()
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	defer log.Close()
	if environment == nil {
		environment = []string{"POD_NAMESPACE=" + installation.Namespace, "POD_NAME=" + installation.ServiceAccount + "-0"}
	}
	started, err := child.Start(child.Spec{
		Name: name, Path: filepath.Join(env.BinDir, name), Args: args, Output: log,
		Env: append(os.Environ(), environment...),
	})
	must(t, err)
	t.Cleanup(func() {
		started.Signal(syscall.SIGKILL)
		<-started.Done()
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", name, child.Tail(logFile, 20))
		}
	})
	return started
}

// log is what the server has written so far.
func (p *process) log() string {
	text, _ := os.ReadFile(p.logFile)
	return string(text)
}

// waitReady waits until the server's /readyz is ok and it knows the administrator, whose CA it learns a moment later. Somebody
// who connects before that stays anonymous for as long as the connection lasts.
func (p *process) waitReady(t *testing.T) {
	t.Helper()
	client := probeClient(t)
	eventually(t, time.Minute, func() error {
		select {
		case <-p.Done():
			t.Fatalf("the server ended: %v", p.Err())
		default:
		}
		if err := isOK(client.get(t.Context(), p.address, "/readyz?verbose")); err != nil {
			return err
		}
		return isOK(client.get(t.Context(), p.address, "/metrics"))
	})
}

// prober asks a server something, as the administrator and each time over a new connection.
type prober struct{ tls *tls.Config }

func probeClient(t *testing.T) *prober {
	t.Helper()
	admin := env.Cluster.AdminConfig()
	certificate, err := tls.X509KeyPair(admin.CertData, admin.KeyData)
	must(t, err)
	return &prober{tls: &tls.Config{
		RootCAs: servingCA(t), ServerName: servingName(), Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
	}}
}

// get returns the status and the text of the answer, or why there is none.
func (p *prober) get(ctx context.Context, address, path string) (status int, text string, err error) {
	transport := &http.Transport{TLSClientConfig: p.tls, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, string(body), err
}

func isOK(status int, text string, err error) error {
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("answered %d: %s", status, text)
	}
	return err
}

func servingName() string {
	return pki.ServingNames(installation.ServiceAccount, installation.Namespace)[0]
}

// servingCA trusts the CA that the server keeps in its Secret, and no other.
func servingCA(t *testing.T) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(servingSecret(t)["ca.crt"])
	return pool
}

func servingSecret(t *testing.T) map[string][]byte {
	t.Helper()
	secret, err := env.Host().CoreV1().Secrets(installation.Namespace).Get(t.Context(), pki.ServingSecretName, metav1.GetOptions{})
	must(t, err)
	return secret.Data
}

// directConfig reaches a server past the aggregator, as the administrator.
func directConfig(t *testing.T, address string) *rest.Config {
	t.Helper()
	config := env.Cluster.AdminConfig()
	config.Host = "https://" + address
	config.CAData = servingSecret(t)["ca.crt"]
	config.ServerName = servingName()
	return config
}

// direct is a client of our kinds past the aggregator, as the administrator.
func direct(t *testing.T, address string) versioned.Interface {
	t.Helper()
	client, err := versioned.NewForConfig(directConfig(t, address))
	must(t, err)
	return client
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// logSince is what the installation's own server has written since the log was this long.
func logSince(t *testing.T, length int) string {
	t.Helper()
	text, err := os.ReadFile(env.Installation.Log())
	must(t, err)
	return string(text[length:])
}

func logLength(t *testing.T) int {
	t.Helper()
	return len(logSince(t, 0))
}

// inOrder fails the test unless the texts stand in the log, one after the other.
func inOrder(t *testing.T, log string, texts ...string) {
	t.Helper()
	rest := log
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			where := "is not in the log"
			if strings.Contains(log, text) {
				where = "is in the log too early"
			}
			t.Fatalf("%q %s; wanted in this order: %q\n%s", text, where, texts, log)
		}
		rest = after
	}
}
