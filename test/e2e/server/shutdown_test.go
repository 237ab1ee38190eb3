package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/generated/informers"
	"github.com/fieldplane/fieldplane/test/localcluster"
)

// stopLimit is how long the server may take to stop with watches open.
const stopLimit = 15 * time.Second

// Req
func TestAStopUnderLoadIsOrderlyAndLosesNothing(t *testing.T) {
	running(t)
	namespace := env.Namespace(t)
	client, past := env.Admin(t), direct(t, env.Installation.Address())
	logged := logLength(t)

	// Watches that never end by themselves, beside those that the host's garbage collector has.
	ended := watchers(t, namespace, map[versioned.Interface]int{client: 20, past: 5})
	factory := informers.NewSharedInformerFactory(client, 0)
	for _, informer := range []interface{ HasSynced() bool }{
		factory.Physical().V1alpha1().ControlModules().Informer(), factory.Talos().V1alpha1().TalosMachines().Informer(),
	} {
		factory.Start(t.Context().Done())
		eventually(t, 20*time.Second, func() error {
			if !informer.HasSynced() {
				return errors.New("an informer has not synced")
			}
			return nil
		})
	}
	throughAggregator, directly := newLoad(namespace, "aggregator"), newLoad(namespace, "direct")
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	writers.Go(func() { throughAggregator.run(ctx, client, 16) })
	writers.Go(func() { directly.run(ctx, past, 8) })
	eventually(t, time.Minute, func() error {
		if a, d := throughAggregator.acknowledged.Load(), directly.acknowledged.Load(); a < 200 || d < 100 {
			return fmt.Errorf("%d and %d writes were acknowledged", a, d)
		}
		return nil
	})

	server, asked := env.Installation.Server(), time.Now()
	server.Signal(syscall.SIGTERM)
	within(t, stopLimit, server.Done(), "the server's end after SIGTERM")
	t.Logf("stopped in %v", time.Since(asked).Round(time.Millisecond))
	if code := server.ExitCode(); code != 0 {
		t.Errorf("the server ended with code %d", code)
	}
	stop()
	writers.Wait()
	within(t, 5*time.Second, ended, "the end of all watches")

	log := logSince(t, logged)
	inOrder(t, log, "Controllers stopped", `"InFlightRequestsDrained"`)
	inOrder(t, log, "Controllers stopped", "pre-shutdown hooks completed", "apiserver is exiting", "Embedded etcd closed")

	running(t)
	t.Run("nothing that was written through the aggregator is lost", func(t *testing.T) { throughAggregator.verify(t, client) })
	t.Run("nothing that was written directly is lost", func(t *testing.T) { directly.verify(t, client) })
}

// watchers opens so many watches with each client; the channel is closed when all have ended.
func watchers(t *testing.T, namespace string, counts map[versioned.Interface]int) <-chan struct{} {
	t.Helper()
	var open sync.WaitGroup
	for client, count := range counts {
		for range count {
			watching, err := client.PhysicalV1alpha1().ControlModules(namespace).Watch(t.Context(), metav1.ListOptions{})
			must(t, err)
			open.Go(func() {
				for range watching.ResultChan() {
				}
			})
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		open.Wait()
	}()
	return ended
}

// Req: A-06. With a delay, as several replicas have it, whoever routes requests sees that the server is going while it still answers them.
func TestReadinessFailsWhileRequestsAreStillServed(t *testing.T) {
	running(t)
	namespace := env.Namespace(t)
	stopped(t)
	server := startServer(t, freePort(t), "--shutdown-delay-duration=2s")
	server.waitReady(t)
	client, past := probeClient(t), direct(t, server.address)
	ended := watchers(t, namespace, map[versioned.Interface]int{past: 5})

	asked := time.Now()
	server.Signal(syscall.SIGTERM)
	eventually(t, 2*time.Second, func() error {
		status, text, err := client.get(t.Context(), server.address, "/readyz?verbose")
		must(t, err)
		if status != http.StatusInternalServerError || !strings.Contains(text, "[-]shutdown failed") {
			return fmt.Errorf("readyz is %d: %s", status, text)
		}
		return nil
	})
	must(t, isOK(client.get(t.Context(), server.address, "/livez")))
	_, err := past.PhysicalV1alpha1().ControlModules(namespace).Create(t.Context(), controlModule(metav1.ObjectMeta{Name: "late"}), metav1.CreateOptions{})
	must(t, err)

	// It never becomes ready again, and then no longer listens.
	eventually(t, stopLimit, func() error {
		status, text, err := client.get(t.Context(), server.address, "/readyz?verbose")
		if err == nil && status == http.StatusOK {
			t.Fatalf("readyz is ok again: %s", text)
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("readyz is %d: %v", status, err)
		}
		return nil
	})
	within(t, stopLimit, server.Done(), "the server's end")
	t.Logf("stopped in %v", time.Since(asked).Round(time.Millisecond))
	within(t, 5*time.Second, ended, "the end of all watches")
	if code := server.ExitCode(); code != 0 {
		t.Errorf("the server ended with code %d", code)
	}

	running(t)
	if _, err := env.Admin(t).PhysicalV1alpha1().ControlModules(namespace).Get(t.Context(), "late", metav1.GetOptions{}); err != nil {
		t.Errorf("what was written after SIGTERM: %v", err)
	}
}

// Req: A-06
func TestAStopDuringTheStartEndsTheServerWithoutAnError(t *testing.T) {
	running(t)
	stopped(t)
	// Nobody listens where this kubeconfig points.
	unreachable := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, localcluster.WriteKubeconfig(unreachable, &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", freePort(t)), BearerToken: "none"}))

	for _, tc := range []struct {
		name string
		args []string
		// reached tells whether the start has come to the moment of the signal.
		reached func(server *process, dataDir string) bool
	}{
		{
			name: "when it has just locked its data directory",
			reached: func(server *process, dataDir string) bool {
				text, _ := os.ReadFile(filepath.Join(dataDir, "LOCK"))
				return strings.HasPrefix(string(text), fmt.Sprintf("pid %d ", server.Pid()))
			},
		},
		{
			name: "when its store answers",
			reached: func(_ *process, dataDir string) bool {
				connection, err := net.Dial("unix", filepath.Join(dataDir, "client.sock"))
				if err == nil {
					connection.Close()
				}
				return err == nil
			},
		},
		{
			name: "when its port accepts connections",
			reached: func(server *process, _ string) bool {
				connection, err := net.Dial("tcp", server.address)
				if err == nil {
					connection.Close()
				}
				return err == nil
			},
		},
		{
			name:    "when its controllers start",
			reached: func(server *process, _ string) bool { return strings.Contains(server.log(), "Controllers started") },
		},
		{
			name: "while the host cluster does not answer",
			args: []string{"--kubeconfig=" + unreachable},
			reached: func(server *process, _ string) bool {
				return strings.Contains(server.log(), "Waiting for the serving certificate")
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dataDir := filepath.Join(t.TempDir(), "store")
			server := startServer(t, freePort(t), append(tc.args, "--data-dir="+dataDir)...)
			until(t, 20*time.Second, func() bool { return tc.reached(server, dataDir) })
			asked := time.Now()
			server.Signal(syscall.SIGTERM)
			within(t, stopLimit, server.Done(), "the server's end after SIGTERM")
			t.Logf("stopped in %v", time.Since(asked).Round(time.Millisecond))
			if code := server.ExitCode(); code != 0 {
				t.Errorf("the server ended with code %d", code)
			}

			lock, err := os.Open(filepath.Join(dataDir, "LOCK"))
			must(t, err)
			defer lock.Close()
			if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
				t.Errorf("the data directory is still locked: %v", err)
			}
		})
	}
}

// until asks as fast as it can, so that a moment is not missed.
func until(t *testing.T, limit time.Duration, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !reached(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s", limit)
		}
	}
}
