package runtimelink

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/isa88"
	probeapi "github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/probetest"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/runtimeclient"
)

// BenchmarkAThousandRuntimes gives a thousand runtimes an order each over their kept connections, mutual TLS and all, and tells what
// links that have nothing to say cost: both ends are in this process, so that the server's half is about half of it.
func BenchmarkAThousandRuntimes(b *testing.B) {
	const units = 1000
	ca := probetest.NewAuthority(b)
	var taken atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		report := api.Report{Runtime: api.RuntimeInfo{BootID: "b", UID: "u"}}
		if r.Method == http.MethodPut {
			taken.Add(1)
			_ = json.NewEncoder(w).Encode(report)
			return
		}
		ticker := time.NewTicker(api.Heartbeat)
		defer ticker.Stop()
		for {
			report.Runtime.Time = time.Now()
			if json.NewEncoder(w).Encode(report) != nil || http.NewResponseController(w).Flush() != nil {
				return
			}
			select {
			case <-r.Context().Done():
				return
			case <-ticker.C:
			}
		}
	}))
	server.Listener = tls.NewListener(server.Listener, probeapi.ServerConfig("site-a", ca.Credentials(b, ca.Namespace(b, "site-a"))))
	server.Start()
	defer server.CloseClientConnections()
	credentials := ca.Controllers(b)
	ctx, cancel := context.WithCancel(context.Background())
	links := make([]*link, units)
	for i := range links {
		links[i] = &link{
			unit: types.NamespacedName{Namespace: "site-a", Name: fmt.Sprint("u", i)}, clock: clock.RealClock{}, news: make(chan struct{}, 1),
			runtime: runtimeclient.New(server.Listener.Addr().String(), "site-a", credentials, (&net.Dialer{}).DialContext, clock.RealClock{}),
			changed: func(types.NamespacedName) {}, distrusted: func(string) {},
		}
		links[i].start(ctx, &api.Order{UID: "u", Revision: 1, State: isa88.Idle})
	}
	defer func() {
		cancel()
		for _, l := range links {
			l.stop()
		}
	}()
	await := func(is func(l *link) bool) {
		for _, l := range links {
			for !is(l) {
				time.Sleep(time.Millisecond)
			}
		}
	}
	await(func(l *link) bool { _, contact := l.look(); return contact })

	// What they cost when nothing happens.
	const watched = 6 * time.Second
	before := processorTime(b)
	time.Sleep(watched)
	idle := processorTime(b) - before
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)

	revision := int64(1)
	b.ResetTimer()
	for b.Loop() {
		revision++
		from := taken.Load()
		for _, l := range links {
			l.tell(api.Order{UID: "u", Revision: revision, State: isa88.Holding})
		}
		for taken.Load() < from+units {
			time.Sleep(100 * time.Microsecond)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/units, "ns/order")
	b.ReportMetric(100*float64(idle)/float64(watched), "%cpu-idle")
	b.ReportMetric(float64(memory.HeapInuse+memory.StackInuse)/units/1024, "KiB/unit")
	b.ReportMetric(float64(runtime.NumGoroutine())/units, "goroutines/unit")
}

func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
