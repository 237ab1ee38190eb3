package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
	"github.com/fieldplane/fieldplane/generated/informers"
	"github.com/fieldplane/fieldplane/pkg/controllers/discovery"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
	"github.com/fieldplane/fieldplane/pkg/talos/ranges"
	"github.com/fieldplane/fieldplane/test/localcluster/child"
	"github.com/fieldplane/fieldplane/test/plant"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

const (
	// candidates is the most that one cluster may declare (T-01): 64 addresses and networks of 1024.
	candidates = 1088
	// silentCandidates are as many as fit into a benchmark; their time is multiplied for all of them.
	silentCandidates = 64
)

// The nets of the candidates, five of them each.
const (
	answeringNet  = 80
	silentNet     = 86
	blackHoledNet = 88
	refusingNet   = 100
)

// BenchmarkDiscovery is one sweep by the real controller with its real dialer; only the API is a fake in the process.
func BenchmarkDiscovery(b *testing.B) {
	b.Run("refusing", func(b *testing.B) {
		sweep(b, addresses(refusingNet, candidates), 0, 1, "<0.5")
	})
	// Nothing comes back at all, as from an address that nobody has.
	b.Run("black-holed", func(b *testing.B) {
		for _, addr := range addresses(blackHoledNet, silentCandidates) {
			blackHole(b, addr)
		}
		sweep(b, addresses(blackHoledNet, silentCandidates), 0, candidates/silentCandidates, "≤20")
	})
	// A connection, and then silence: the whole time of a candidate each.
	b.Run("accepting-and-silent", func(b *testing.B) {
		for i, addr := range addresses(silentNet, silentCandidates) {
			node, err := talosnode.Start(talosnode.Options{Address: netip.AddrPortFrom(addr, ranges.Port).String(), Hardware: hardware(i)})
			must(b, err)
			b.Cleanup(node.Close)
			must(b, node.Inject(talosnode.FaultSilent))
		}
		sweep(b, addresses(silentNet, silentCandidates), 0, candidates/silentCandidates, "")
	})
	b.Run("answering", func(b *testing.B) {
		startNodes(b)
		sweep(b, addresses(answeringNet, candidates), candidates, 1, "≤2")
	})
}

// sweep asks the addresses once, and reports its time, times scale, and what it needed.
func sweep(b *testing.B, addrs []netip.Addr, answering int32, scale float64, budget string) {
	klog.SetOutput(io.Discard)
	var took, computed time.Duration
	var inFlight flights
	var heap uint64
	// On a busy machine one or the other node may take longer than a candidate may.
	var answered int32
	n := 0
	for b.Loop() {
		client := fake.NewSimpleClientset()
		talos := informers.NewSharedInformerFactory(client, 0).Talos().V1alpha1()
		controller := discovery.New(discovery.Config{
			Client: client, Clusters: talos.TalosClusters(), Machines: talos.TalosMachines(),
			Recorder: record.NewFakeRecorder(candidates), Clock: clock.RealClock{},
			Dial: inFlight.dial, Predial: inFlight.predial,
		})
		cluster := &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "plant", UID: "1"}}
		peak := watchHeap()
		began, before := time.Now(), cpu(b, os.Getpid())
		result := controller.DiscoverAll(b.Context(), cluster, addrs, true)
		took += time.Since(began)
		computed += cpu(b, os.Getpid()) - before
		heap = max(heap, peak())
		n++
		answered = result.Answered
		if result.Answered > answering || result.Registered != result.Answered || result.Failure != nil {
			b.Fatalf("%d of %d answered, %d were registered: %v", result.Answered, answering, result.Registered, result.Failure)
		}
	}
	experiment(b)
	report(b, float64(len(addrs)), "candidates", "")
	report(b, float64(answered), "answered", "")
	if scale == 1 {
		report(b, took.Seconds()/float64(n), "s", budget)
	} else {
		report(b, took.Seconds()/float64(n), "s", "")
		report(b, took.Seconds()/float64(n)*scale, fmt.Sprintf("s-scaled-to-%d", candidates), budget)
	}
	report(b, computed.Seconds()/float64(n), "cpu-s", "")
	report(b, float64(inFlight.most.Load()), "in-flight", "≤32")
	report(b, float64(heap)/1e6, "MB-over-idle", "≤50")
}

// flights counts the candidates that are being asked: from the pre-dial or the dial to its failure or the session's end.
type flights struct{ now, most atomic.Int64 }

func (f *flights) start() {
	now := f.now.Add(1)
	for most := f.most.Load(); now > most && !f.most.CompareAndSwap(most, now); most = f.most.Load() {
	}
}

func (f *flights) predial(ctx context.Context, address string) error {
	f.start()
	defer f.now.Add(-1)
	return maintenance.Predial(ctx, address)
}

func (f *flights) dial(ctx context.Context, address string) (maintenance.Client, error) {
	f.start()
	client, err := maintenance.Dial(ctx, address)
	if err != nil {
		f.now.Add(-1)
		return nil, err
	}
	return flight{client, f}, nil
}

type flight struct {
	maintenance.Client
	flights *flights
}

func (f flight) Close() error {
	defer f.flights.now.Add(-1)
	return f.Client.Close()
}

// watchHeap measures the heap, garbage included, from now until the function that it returns is called, which returns
// how much the heap grew at most.
func watchHeap() (peak func() uint64) {
	read := func() uint64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	runtime.GC()
	idle := read()
	most := idle
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				most = max(most, read())
			}
		}
	}()
	return sync.OnceValue(func() uint64 {
		close(stop)
		<-done
		return max(most, read()) - idle
	})
}

// startNodes runs as many Talos nodes as there are candidates, in a process of their own so that their memory does not count.
func startNodes(b *testing.B) {
	b.Helper()
	var spec plant.Spec
	addrs := addresses(answeringNet, candidates)
	for i, addr := range addrs {
		spec.Talos = append(spec.Talos, plant.TalosSpec{Name: fmt.Sprintf("node-%d", i), Address: addr.String(), Hardware: hardware(i)})
	}
	text, err := json.Marshal(spec)
	must(b, err)
	dir := b.TempDir()
	file := filepath.Join(dir, "plant.json")
	must(b, os.WriteFile(file, text, 0o600))
	log, err := os.Create(filepath.Join(dir, "plant.log"))
	must(b, err)
	defer log.Close()
	process, err := child.Start(child.Spec{
		Name: "plant", Path: filepath.Join(env.BinDir, "plant"),
		Args: []string{"--file", file, "--control", filepath.Join(dir, "plant.sock"), "run"}, Output: log,
	})
	must(b, err)
	b.Cleanup(process.Kill)
	remote := plant.Connect(filepath.Join(dir, "plant.sock"))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		_, err := remote.List(b.Context())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("the plant does not answer: %v\n%s", err, child.Tail(log.Name(), 5))
		}
	}
}

// hardware is that of the i-th node, with a strong identity.
func hardware(i int) talosnode.Hardware {
	return talosnode.Hardware{
		UUID: fmt.Sprintf("3f1d2c4b-5a69-4788-9c0d-%012x", 1+i), Serial: fmt.Sprintf("ADV%07d", i), Manufacturer: "Advantech", Product: "ARK-3534",
		Links: []talosnode.Link{{Name: "eth0", MAC: fmt.Sprintf("c4:00:ad:10:%02x:%02x", i>>8, i&0xff), Driver: "igb"}, {Name: "lo0", Virtual: true}},
		Disks: []talosnode.Disk{{Path: "/dev/nvme0n1", SizeBytes: 512_110_190_592, Model: "SAMSUNG MZVL2512HCJQ", Serial: fmt.Sprintf("S64KNX0T%06d", i), Transport: "nvme"}},
	}
}

func addresses(third, n int) []netip.Addr {
	out := make([]netip.Addr, n)
	for i := range out {
		out[i] = netip.MustParseAddr(loopback(third, i))
	}
	return out
}

// blackHole listens with a full backlog that nobody empties: the kernel drops every further SYN unanswered, as a network
// does for an address that nobody has.
func blackHole(b *testing.B, addr netip.Addr) {
	b.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(b, err)
	b.Cleanup(func() { syscall.Close(socket) })
	must(b, syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1))
	must(b, syscall.Bind(socket, &syscall.SockaddrInet4{Addr: addr.As4(), Port: ranges.Port}))
	must(b, syscall.Listen(socket, 0))
	for range 2 {
		conn, err := net.DialTimeout("tcp4", netip.AddrPortFrom(addr, ranges.Port).String(), 20*time.Millisecond)
		if err != nil {
			return // full
		}
		b.Cleanup(func() { conn.Close() })
	}
}
