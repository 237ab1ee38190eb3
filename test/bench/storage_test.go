package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

const (
	// writers is how many clients write, or read by name, at the same time.
	writers = 16
	// rounds is how often the two sides take turns, so that what else the machine does meets both.
	rounds = 4
	// smallObjects is how many of the kinds other than IOModule are written.
	smallObjects = 800
	gets         = 2000
	statusWrites = 1200
	// lists is how often each client lists; the median counts.
	lists = 5
)

// objects is how many IOModules there are. The budget speaks of 10,000, which take minutes to write.
func objects(b *testing.B) int {
	b.Helper()
	text := os.Getenv("FIELDPLANE_BENCH_OBJECTS")
	if text == "" {
		return 2000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < writers*rounds {
		b.Fatalf("FIELDPLANE_BENCH_OBJECTS=%q is no number from %d on", text, writers*rounds)
	}
	return n
}

// figures are what one side took for n operations in all rounds.
type figures struct {
	n    int
	took time.Duration
	cpu  time.Duration
}

func (f figures) rate() float64 { return float64(f.n) / f.took.Seconds() }
func (f figures) cpuMillis() float64 {
	return f.cpu.Seconds() * 1e3 / float64(f.n)
}

// alternate lets both sides do n operations in turns, each turn with all writers. The side that begins changes.
func alternate(b *testing.B, n int, ours, twin side, do func(ctx context.Context, s side, i int) error) (o, t figures) {
	b.Helper()
	pids := servers(b)
	turn := func(s side, f *figures, from, to int) {
		before, began := cpuOf(b, pids), time.Now()
		must(b, inParallel(b.Context(), from, to, func(ctx context.Context, i int) error {
			if err := do(ctx, s, i); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			return nil
		}))
		f.took += time.Since(began)
		f.cpu += cpuOf(b, pids) - before
		f.n += to - from
	}
	for round := range rounds {
		from, to := n*round/rounds, n*(round+1)/rounds
		if round%2 == 0 {
			turn(ours, &o, from, to)
			turn(twin, &t, from, to)
		} else {
			turn(twin, &t, from, to)
			turn(ours, &o, from, to)
		}
	}
	return o, t
}

// inParallel does the operations from up to to, each writer every 16th, and ends at the first error.
func inParallel(ctx context.Context, from, to int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for writer := range writers {
		group.Go(func() {
			for i := from; i < to; i++ {
				// The same writer always has the same objects, so that nobody's write conflicts.
				if i%writers != writer {
					continue
				}
				if ctx.Err() != nil {
					return
				}
				if err := do(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

// compare reports a rate of both sides and its ratio, and the CPU of all servers for one operation.
func compare(b *testing.B, what string, ours, twin figures, budget, cpuBudget string) {
	experiment(b)
	report(b, ours.rate(), what+"/s", "")
	report(b, twin.rate(), what+"/s-twin", "")
	report(b, ours.rate()/twin.rate(), "x-twin", budget)
	report(b, ours.cpuMillis(), "cpu-ms/"+what, "")
	report(b, ours.cpuMillis()/twin.cpuMillis(), "x-twin-cpu", cpuBudget)
}

func (s side) create(ctx context.Context, namespace, resource string, in, out runtime.Object) error {
	return s.typed.Post().Namespace(namespace).Resource(resource).Body(in).Do(ctx).Into(out)
}

func (s side) get(ctx context.Context, namespace, resource, name string, out runtime.Object) error {
	return s.typed.Get().Namespace(namespace).Resource(resource).Name(name).Do(ctx).Into(out)
}

func (s side) updateStatus(ctx context.Context, namespace, resource, name string, in, out runtime.Object) error {
	return s.typed.Put().Namespace(namespace).Resource(resource).Name(name).SubResource("status").Body(in).Do(ctx).Into(out)
}

// BenchmarkControlModules creates objects of a kind that no controller answers: what the path through the aggregator costs.
func BenchmarkControlModules(b *testing.B) {
	site := namespace(b)
	ours, twin := sides(b, site)
	create := func(ctx context.Context, s side, prefix string, i int) error {
		return s.create(ctx, site, "controlmodules", controlModule(fmt.Sprintf("%s-%05d", prefix, i)), &v1alpha1.ControlModule{})
	}
	warm(b, ours, twin, func(ctx context.Context, s side, i int) error { return create(ctx, s, "warm", i) })
	o, t := alternate(b, smallObjects, ours, twin, func(ctx context.Context, s side, i int) error { return create(ctx, s, "module", i) })
	b.Run("create", func(b *testing.B) { compare(b, "create", o, t, "≥0.95", "≤1") })
}

// BenchmarkControllers writes the status of a kind whose status anybody may write who has the right to.
func BenchmarkControllers(b *testing.B) {
	const each = 4
	site := namespace(b)
	ours, twin := sides(b, site)
	stored := map[string][]*v1alpha1.Controller{}
	for _, s := range []side{ours, twin} {
		stored[s.name] = make([]*v1alpha1.Controller, each*writers)
		must(b, inParallel(b.Context(), 0, each*writers, func(ctx context.Context, i int) error {
			stored[s.name][i] = &v1alpha1.Controller{}
			return s.create(ctx, site, "controllers", controller(fmt.Sprintf("cell-%02d", i)), stored[s.name][i])
		}))
	}
	write := func(ctx context.Context, s side, i int) error {
		// Object n is writer n%16's alone, as the index i is.
		at := i % (each * writers)
		changed := stored[s.name][at].DeepCopy()
		changed.Status = controllerStatus(i, changed.Generation)
		stored[s.name][at] = &v1alpha1.Controller{}
		return s.updateStatus(ctx, site, "controllers", changed.Name, changed, stored[s.name][at])
	}
	// Of another time than those that count: a write that changes nothing is not stored.
	warm(b, ours, twin, func(ctx context.Context, s side, i int) error { return write(ctx, s, i+1<<20) })
	o, t := alternate(b, statusWrites, ours, twin, write)
	b.Run("status", func(b *testing.B) { compare(b, "write", o, t, "≥1", "") })
}

// BenchmarkIOModules creates many modules, reads them by name and lists them. They are bound to a Controller that is
// absent, so that no probe runs for them; the server writes a status for each, which is part of what a creation costs
// here, and the twin's modules are given the same one afterwards, so that both lists carry the same.
func BenchmarkIOModules(b *testing.B) {
	// Nobody waits until the namespace is gone: this is the last benchmark, and its objects are many.
	site, n := env.Namespace(b), objects(b)
	ours, twin := sides(b, site)
	nameOf := func(i int) string { return fmt.Sprintf("module-%05d", i) }
	o, t := alternate(b, n, ours, twin, func(ctx context.Context, s side, i int) error {
		return s.create(ctx, site, "iomodules", ioModule(nameOf(i), i), &v1alpha1.IOModule{})
	})
	b.Run("create-with-status-by-controller", func(b *testing.B) { compare(b, "create", o, t, "", "") })

	settled := settle(b, ours, site, n)
	must(b, inParallel(b.Context(), 0, n, func(ctx context.Context, i int) error {
		module := &v1alpha1.IOModule{}
		if err := twin.get(ctx, site, "iomodules", settled[i].Name, module); err != nil {
			return err
		}
		module.Status = settled[i].Status
		return twin.updateStatus(ctx, site, "iomodules", module.Name, module, &v1alpha1.IOModule{})
	}))

	b.Run("get", func(b *testing.B) {
		o, t := alternate(b, gets, ours, twin, func(ctx context.Context, s side, i int) error {
			return s.get(ctx, site, "iomodules", nameOf(i%n), &v1alpha1.IOModule{})
		})
		compare(b, "get", o, t, "≥0.6", "")
	})
	b.Run("list", func(b *testing.B) { listModules(b, site, n, ours, twin) })
	b.Run("list-bytes", func(b *testing.B) {
		experiment(b)
		o, t := listBytes(b, ours, site), listBytes(b, twin, site)
		report(b, o/float64(n), "B/module", "")
		report(b, t/float64(n), "B/module-twin", "")
		report(b, o/t, "x-twin", "≤0.6")
		// JSON within protobuf, too: what no encoding of ours makes smaller.
		managed := 0
		for i := range settled {
			for _, entry := range settled[i].ManagedFields {
				managed += len(entry.FieldsV1.GetRawBytes())
			}
		}
		report(b, float64(managed)/float64(n), "B-managedFields/module", "")
	})
}

// settle waits until the server has written every module's status, and returns all modules.
func settle(b *testing.B, ours side, site string, n int) []v1alpha1.IOModule {
	b.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(250 * time.Millisecond) {
		list := &v1alpha1.IOModuleList{}
		must(b, ours.typed.Get().Namespace(site).Resource("iomodules").Do(b.Context()).Into(list))
		written := 0
		for i := range list.Items {
			if list.Items[i].Status.State != "" {
				written++
			}
		}
		switch {
		case written == n:
			return list.Items
		case time.Now().After(deadline):
			b.Fatalf("%d of %d modules have a status", written, n)
		}
	}
}

func listModules(b *testing.B, site string, n int, ours, twin side) {
	experiment(b)
	counted := func(got int, err error) {
		b.Helper()
		must(b, err)
		if got != n {
			b.Fatalf("a list has %d of %d modules", got, n)
		}
	}
	typed := func(s side) func() {
		return func() {
			list := &v1alpha1.IOModuleList{}
			err := s.typed.Get().Namespace(site).Resource("iomodules").Do(b.Context()).Into(list)
			counted(len(list.Items), err)
		}
	}
	untyped := func() {
		list, err := twin.untyped.Resource(twin.group.WithResource("iomodules")).Namespace(site).List(b.Context(), metav1.ListOptions{})
		must(b, err)
		counted(len(list.Items), nil)
	}
	ways := []func(){typed(ours), typed(twin), untyped}
	times := make([][]time.Duration, len(ways))
	for range lists {
		for i, list := range ways {
			began := time.Now()
			list()
			times[i] = append(times[i], time.Since(began))
		}
	}
	median := func(i int) float64 {
		slices.Sort(times[i])
		return times[i][lists/2].Seconds() * 1e3
	}
	o, t, u := median(0), median(1), median(2)
	report(b, float64(n), "objects", "")
	report(b, o, "ms", "")
	report(b, t, "ms-twin-typed", "")
	report(b, u, "ms-twin-unstructured", "")
	report(b, t/o, "x-faster-than-typed", "≥3")
	report(b, u/o, "x-faster-than-unstructured", "≥8")
}

// listBytes is the size of a list before compression.
func listBytes(b *testing.B, s side, site string) float64 {
	b.Helper()
	body, err := s.typed.Get().Namespace(site).Resource("iomodules").Do(b.Context()).Raw()
	must(b, err)
	return float64(len(body))
}

// warm does a few operations on both sides that nobody counts: connections, caches and code are there afterwards.
func warm(b *testing.B, ours, twin side, do func(ctx context.Context, s side, i int) error) {
	b.Helper()
	for _, s := range []side{ours, twin} {
		must(b, inParallel(b.Context(), 0, 4*writers, func(ctx context.Context, i int) error { return do(ctx, s, i) }))
	}
}

func ioModule(name string, i int) *v1alpha1.IOModule {
	module := &v1alpha1.IOModule{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"line": fmt.Sprintf("line-%d", i%20), "area": "mixing"}},
		Spec: v1alpha1.IOModuleSpec{
			Protocol:      v1alpha1.ProtocolModbus,
			ControllerRef: &v1alpha1.ControllerReference{Name: "absent"},
			Modbus: &v1alpha1.ModbusConnection{
				Endpoint: fmt.Sprintf("tcp://plc-%d.example.com:502", i/200), UnitID: ptr.To(int32(i % 200)),
			},
			Channels: []v1alpha1.Channel{
				{Name: "temperature", Address: "holding:0", DataType: v1alpha1.DataTypeFloat32, Unit: "°C", Scaling: &v1alpha1.Scaling{Factor: ptr.To(0.1)}},
				{Name: "pressure", Address: "holding:2", DataType: v1alpha1.DataTypeFloat32, Unit: "bar"},
				{Name: "speed", Address: "input:0", DataType: v1alpha1.DataTypeUint16, Unit: "1/min"},
				{Name: "running", Address: "coil:0", DataType: v1alpha1.DataTypeBool},
			},
		},
	}
	v1alpha1.SetObjectDefaults_IOModule(module)
	return module
}

func controlModule(name string) *v1alpha1.ControlModule {
	module := &v1alpha1.ControlModule{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"area": "mixing"}},
		Spec: v1alpha1.ControlModuleSpec{
			UnitRef: v1alpha1.UnitReference{Name: "mixer"},
			Tags: []v1alpha1.Tag{
				{Name: "temperature", IOModuleRef: v1alpha1.IOModuleReference{Name: "module-1"}, Address: "holding:0", DataType: v1alpha1.DataTypeFloat32, Unit: "°C"},
				{Name: "valve", IOModuleRef: v1alpha1.IOModuleReference{Name: "module-1"}, Address: "coil:0", DataType: v1alpha1.DataTypeBool, Access: v1alpha1.AccessReadWrite, HoldValue: ptr.To("false")},
			},
		},
	}
	v1alpha1.SetObjectDefaults_ControlModule(module)
	return module
}

func controller(name string) *v1alpha1.Controller {
	return &v1alpha1.Controller{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ControllerSpec{Simulation: true, Heartbeat: v1alpha1.HeartbeatExternal},
	}
}

// controllerStatus is the i-th of a sequence in which each differs from the one before.
func controllerStatus(i int, generation int64) v1alpha1.ControllerStatus {
	at := metav1.NewTime(time.Unix(1_800_000_000+int64(i), 0))
	status := v1alpha1.ControllerStatus{ObservedGeneration: generation, Phase: v1alpha1.ControllerSimulated, LastAlive: &at}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Alive", Message: "the simulator beats",
		ObservedGeneration: generation, LastTransitionTime: at,
	})
	return status
}
