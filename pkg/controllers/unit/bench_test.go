package unit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// BenchmarkOneFaultUnderAThousandUnits is one fault of a module that a thousand Units require: how long until the last of them is
// stored as Holding, with runtimes that do at once what they are told. The store is the fake one, in memory; what the real one takes
// is in test/bench.
//
// Req: P-16
func BenchmarkOneFaultUnderAThousandUnits(b *testing.B) {
	const units = 1000
	for range b.N {
		b.StopTimer()
		p := newPlant(b)
		p.module("shared", v1alpha1.ModuleOnline)
		for i := range units {
			p.unit(fmt.Sprintf("unit-%d", i), isa88.Running, "shared")
		}
		l := p.lead()
		holding := make(chan string, 2*units)
		settled := func() bool {
			for i := range units {
				if len(p.get(fmt.Sprintf("unit-%d", i)).Status.Conditions) == 0 {
					return false
				}
			}
			return true
		}
		for !settled() {
			time.Sleep(10 * time.Millisecond)
		}
		p.mu.Lock()
		p.stored = func(unit *v1alpha1.Unit) {
			if unit.Status.State == v1alpha1.UnitHolding {
				holding <- unit.Name
			}
		}
		p.mu.Unlock()
		b.StartTimer()
		begun := time.Now()
		p.module("shared", v1alpha1.ModuleFault)
		var after []time.Duration
		for range units {
			<-holding
			after = append(after, time.Since(begun))
		}
		b.StopTimer()
		slices.Sort(after)
		b.ReportMetric(float64(after[units/2].Milliseconds()), "ms-to-half")
		b.ReportMetric(float64(after[units-1].Milliseconds()), "ms-to-all")
		l.crash()
	}
}

// BenchmarkDecide is one decision on a Unit that requires fifty modules.
func BenchmarkDecide(b *testing.B) {
	var modules []module
	for i := range 50 {
		modules = append(modules, moduleIn(fmt.Sprintf("m%02d", i), v1alpha1.ModuleOnline))
	}
	f := factsOf(unitIn(isa88.Running), modules...)
	f = again(f, decide(f))
	b.ReportAllocs()
	for b.Loop() {
		decide(f)
	}
}

// BenchmarkUnitsOfAModule is a look at whom a module concerns that a thousand Units require.
func BenchmarkUnitsOfAModule(b *testing.B) {
	r := newRequired()
	for i := range 1000 {
		r.set(tagged(fmt.Sprint("c", i), fmt.Sprint("u", i), "shared"))
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(r.unitsOf(types.NamespacedName{Namespace: ns, Name: "shared"})) != 1000 {
			b.Fatal("some are missing")
		}
	}
}
