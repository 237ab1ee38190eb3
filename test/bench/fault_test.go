package bench

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/pki"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
)

const (
	faultyDevices = 100
	// faultGap lies between two faults: 10 a second.
	faultGap  = 100 * time.Millisecond
	faultyNet = 95
)

// BenchmarkFault is the time from a probe's verdict, by its own word, until a watch through the aggregator shows the
// module as Fault: stored, and the news come back. The budget is for a Unit that is held, one step further.
func BenchmarkFault(b *testing.B) {
	devices := startDevices(b, faultyNet, faultyDevices)
	site := namespace(b)
	modules := env.Admin(b).PhysicalV1alpha1().IOModules(site)
	nameOf := func(i int) string { return fmt.Sprintf("module-%03d", i) }
	createModules(b, site, faultyDevices, func(i int) *v1alpha1.IOModule {
		return &v1alpha1.IOModule{ObjectMeta: metav1.ObjectMeta{Name: nameOf(i)}, Spec: modbusSpec(devices[i])}
	})
	list, err := modules.List(b.Context(), metav1.ListOptions{})
	must(b, err)
	pod := list.Items[0].Status.ProbePodName

	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	verdicts, stored := newMoments(faultyDevices), newMoments(faultyDevices)
	probe := probeOf(b, site, pod)
	following.Go(func() {
		_ = probe.Watch(ctx, func(update probeclient.Update) {
			for _, name := range update.Changed {
				if module := update.Modules[name]; module.Found && !module.Connected {
					verdicts.note(name, module.Since)
				}
			}
		})
	})
	events, err := modules.Watch(ctx, metav1.ListOptions{})
	must(b, err)
	defer events.Stop()
	following.Go(func() {
		for event := range events.ResultChan() {
			if module, ok := event.Object.(*v1alpha1.IOModule); ok && event.Type != watch.Deleted && module.Status.State == v1alpha1.ModuleFault {
				stored.note(module.Name, time.Now())
			}
		}
	})

	for _, device := range devices {
		device.Stop()
		time.Sleep(faultGap)
	}
	for _, wanted := range []*moments{verdicts, stored} {
		select {
		case <-wanted.all:
		case <-ctx.Done():
			b.Fatalf("%d verdicts and %d stored faults of %d", len(verdicts.copy()), len(stored.copy()), faultyDevices)
		}
	}
	var delays []time.Duration
	told := verdicts.copy()
	for name, at := range stored.copy() {
		delays = append(delays, at.Sub(told[name]))
	}
	experiment(b)
	report(b, float64(len(delays)), "faults", "")
	report(b, milliseconds(delays, 0.5), "ms-p50", "")
	report(b, milliseconds(delays, 0.99), "ms-p99", "≤100-to-Holding")
}

// moments are when each of a number of modules first was something.
type moments struct {
	mu sync.Mutex
	at map[string]time.Time
	n  int
	// all is closed when each has its moment.
	all chan struct{}
}

func newMoments(n int) *moments {
	return &moments{at: map[string]time.Time{}, n: n, all: make(chan struct{})}
}

func (m *moments) note(name string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.at[name]; known {
		return
	}
	m.at[name] = at
	if len(m.at) == m.n {
		close(m.all)
	}
}

func (m *moments) copy() map[string]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string]time.Time, len(m.at))
	for name, at := range m.at {
		out[name] = at
	}
	return out
}

// probeOf is a client of a probe's pod, with its own namespace's certificate: a probe lets its likes in.
func probeOf(b *testing.B, site, name string) *probeclient.Client {
	b.Helper()
	secret, err := env.Host().CoreV1().Secrets(site).Get(b.Context(), pki.NamespaceSecretName, metav1.GetOptions{})
	must(b, err)
	credentials, err := api.StaticCredentials(secret.Data["ca.crt"], secret.Data["tls.crt"], secret.Data["tls.key"])
	must(b, err)
	pod, err := env.Host().CoreV1().Pods(site).Get(b.Context(), name, metav1.GetOptions{})
	must(b, err)
	return probeclient.New(net.JoinHostPort(pod.Status.PodIP, "9443"), site, credentials, (&net.Dialer{}).DialContext, clock.RealClock{})
}
