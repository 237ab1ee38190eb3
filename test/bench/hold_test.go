package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	physicalclient "github.com/fieldplane/fieldplane/generated/clientset/versioned/typed/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
	"github.com/fieldplane/fieldplane/test/harness"
)

const (
	// sharingUnits require one and the same module; ownUnits, which run beside them, require a module each.
	sharingUnits = 1000
	ownUnits     = 200
	heldNet      = 98
	// sharedModule is the one that all of sharingUnits require.
	sharedModule = "shared"
)

// BenchmarkHold is the time from a probe's verdict, by its own word, until a watch through the aggregator shows the Unit as Holding:
// the module's Fault and the Unit's Holding stored, and the news come back. First of 200 Units each of which loses a device of its own,
// ten a second, while 1,000 others run; then of those 1,000, which lose one and the same. No runtime runs: there is no node for their
// pods, so that the Units were started with override, and stay Holding.
func BenchmarkHold(b *testing.B) {
	devices := startDevices(b, heldNet, ownUnits+1)
	site := namespace(b)
	moduleOf := func(i int) string { return fmt.Sprintf("module-%03d", i) }
	ownOf := func(i int) string { return fmt.Sprintf("own-%03d", i) }
	sharingOf := func(i int) string { return fmt.Sprintf("sharing-%04d", i) }

	createModules(b, site, ownUnits+1, func(i int) *v1alpha1.IOModule {
		name := sharedModule
		if i < ownUnits {
			name = moduleOf(i)
		}
		return &v1alpha1.IOModule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: modbusSpec(devices[i])}
	})
	const all = ownUnits + sharingUnits
	client := env.Admin(b).PhysicalV1alpha1()
	must(b, inParallel(b.Context(), 0, all, func(ctx context.Context, i int) error {
		if i < ownUnits {
			return createUnit(ctx, client, site, ownOf(i), moduleOf(i))
		}
		return createUnit(ctx, client, site, sharingOf(i-ownUnits), sharedModule)
	}))
	harness.Eventually(b, 3*time.Minute, func() string {
		pods, err := env.Host().CoreV1().Pods(site).List(b.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err.Error()
		}
		if len(pods.Items) < all+1 {
			return fmt.Sprintf("%d of %d pods are made", len(pods.Items), all+1)
		}
		return ""
	})
	atRest(b)
	begun := time.Now()
	must(b, inParallel(b.Context(), 0, all, func(ctx context.Context, i int) error {
		name := sharingOf(i - ownUnits)
		if i < ownUnits {
			name = ownOf(i)
		}
		return start(ctx, client, site, name)
	}))
	started := time.Since(begun)
	idle := atRest(b)
	b.Run("started", func(b *testing.B) {
		experiment(b)
		report(b, all, "units", "")
		report(b, all/started.Seconds(), "starts/s", "")
		report(b, idle, "cores-of-servers-at-rest", "")
	})

	follow := followHolds(b, site)
	b.Run("independent-faults-at-10/s", func(b *testing.B) {
		await := follow(b, ownUnits, ownUnits, func(module string) bool { return module != sharedModule })
		for _, device := range devices[:ownUnits] {
			device.Stop()
			time.Sleep(faultGap)
		}
		verdicts, faults, holds := await()
		var ofVerdict, ofFault []time.Duration
		for i := range ownUnits {
			at := holds[ownOf(i)]
			ofVerdict = append(ofVerdict, at.Sub(verdicts[moduleOf(i)]))
			ofFault = append(ofFault, at.Sub(faults[moduleOf(i)]))
		}
		experiment(b)
		report(b, ownUnits, "faults", "")
		report(b, all, "units", "")
		report(b, milliseconds(ofVerdict, 0.5), "ms-p50", "")
		report(b, milliseconds(ofVerdict, 0.99), "ms-p99", "≤100")
		report(b, milliseconds(ofVerdict, 1), "ms-max", "")
		report(b, milliseconds(ofFault, 0.99), "ms-p99-of-fault-stored", "")
	})
	b.Run("one-fault-of-all", func(b *testing.B) {
		await := follow(b, 1, sharingUnits, func(module string) bool { return module == sharedModule })
		pids := servers(b)
		before := cpuOf(b, pids)
		devices[ownUnits].Stop()
		verdicts, faults, holds := await()
		used := cpuOf(b, pids) - before
		var ofVerdict, ofFault []time.Duration
		for i := range sharingUnits {
			at := holds[sharingOf(i)]
			ofVerdict = append(ofVerdict, at.Sub(verdicts[sharedModule]))
			ofFault = append(ofFault, at.Sub(faults[sharedModule]))
		}
		experiment(b)
		report(b, sharingUnits, "units", "")
		report(b, milliseconds(ofVerdict, 0.5), "ms-to-half", "")
		report(b, milliseconds(ofVerdict, 1), "ms-to-all", "≤1000")
		report(b, milliseconds(ofFault, 1), "ms-to-all-of-fault-stored", "")
		report(b, used.Seconds()*1e3, "cpu-ms-of-servers", "")
	})
}

// createModules makes modules, and waits until all of them are Online.
func createModules(b *testing.B, site string, n int, moduleOf func(i int) *v1alpha1.IOModule) {
	b.Helper()
	modules := env.Admin(b).PhysicalV1alpha1().IOModules(site)
	must(b, inParallel(b.Context(), 0, n, func(ctx context.Context, i int) error {
		_, err := modules.Create(ctx, moduleOf(i), metav1.CreateOptions{})
		return err
	}))
	harness.Eventually(b, time.Minute, func() string {
		list, err := modules.List(b.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, module := range list.Items {
			if module.Status.State != v1alpha1.ModuleOnline {
				return fmt.Sprintf("module %s is %q %q", module.Name, module.Status.State, module.Status.Reason)
			}
		}
		return ""
	})
}

// createUnit makes a Unit that no node takes, with one ControlModule of one tag.
func createUnit(ctx context.Context, client physicalclient.PhysicalV1alpha1Interface, site, name, module string) error {
	if _, err := client.Units(site).Create(ctx, &v1alpha1.Unit{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.UnitSpec{NodeSelector: map[string]string{"zone": "nowhere"}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := client.ControlModules(site).Create(ctx, &v1alpha1.ControlModule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ControlModuleSpec{UnitRef: v1alpha1.UnitReference{Name: name}, Tags: []v1alpha1.Tag{{
			Name: "level", IOModuleRef: v1alpha1.IOModuleReference{Name: module}, Address: "holding:0", DataType: v1alpha1.DataTypeUint16,
		}}},
	}, metav1.CreateOptions{})
	return err
}

// start has a Unit run whose runtime does not. A command that is carried out later than the server waits is given again: it says so.
func start(ctx context.Context, client physicalclient.PhysicalV1alpha1Interface, site, name string) error {
	const limit, pause = time.Minute, 100 * time.Millisecond
	command := &v1alpha1.UnitCommand{Spec: v1alpha1.UnitCommandSpec{
		ID: "start", Command: v1alpha1.CommandStart, Override: true, Reason: "a benchmark, without runtimes",
	}}
	for end := time.Now().Add(limit); ; {
		answer, err := client.Units(site).Command(ctx, name, command, metav1.CreateOptions{})
		if err != nil || answer.Status.State == v1alpha1.UnitRunning {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("unit %s: %+v", name, answer.Status)
		}
		time.Sleep(pause)
	}
}

// followHolds returns a function that follows the probe, the modules and the Units of a namespace from now on, and whose result waits
// for the first moments: of as many verdicts on the modules that concern, of these modules stored as Fault, and of Units stored as Holding.
func followHolds(b *testing.B, site string) func(b *testing.B, faults, holds int, concerns func(module string) bool) func() (verdicts, stored, holding map[string]time.Time) {
	client := env.Admin(b).PhysicalV1alpha1()
	return func(b *testing.B, faults, holds int, concerns func(string) bool) func() (verdicts, stored, holding map[string]time.Time) {
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Minute)
		var following sync.WaitGroup
		b.Cleanup(func() { cancel(); following.Wait() })
		verdicts, stored, holding := newMoments(faults), newMoments(faults), newMoments(holds)

		list, err := client.IOModules(site).List(ctx, metav1.ListOptions{})
		must(b, err)
		probe := probeOf(b, site, list.Items[0].Status.ProbePodName)
		following.Go(func() {
			_ = probe.Watch(ctx, func(update probeclient.Update) {
				for _, name := range update.Changed {
					if module := update.Modules[name]; module.Found && !module.Connected && concerns(name) {
						verdicts.note(name, module.Since)
					}
				}
			})
		})
		modules, err := client.IOModules(site).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		must(b, err)
		following.Go(func() {
			for event := range modules.ResultChan() {
				if module, ok := event.Object.(*v1alpha1.IOModule); ok && module.Status.State == v1alpha1.ModuleFault && concerns(module.Name) {
					stored.note(module.Name, time.Now())
				}
			}
		})
		running, err := client.Units(site).List(ctx, metav1.ListOptions{})
		must(b, err)
		before := map[string]bool{}
		for _, unit := range running.Items {
			before[unit.Name] = unit.Status.State == v1alpha1.UnitRunning
		}
		// A server ends the watch of a follower that is slower than a thousand changes come: it goes on from where it was.
		units, err := watchtools.NewRetryWatcherWithContext(ctx, running.ResourceVersion, &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return client.Units(site).Watch(ctx, options)
			},
		})
		must(b, err)
		following.Go(func() {
			for event := range units.ResultChan() {
				if unit, ok := event.Object.(*v1alpha1.Unit); ok && event.Type == watch.Modified && unit.Status.State == v1alpha1.UnitHolding && before[unit.Name] {
					holding.note(unit.Name, time.Now())
				}
			}
		})
		return func() (_, _, _ map[string]time.Time) {
			defer modules.Stop()
			defer units.Stop()
			for _, wanted := range []*moments{verdicts, stored, holding} {
				select {
				case <-wanted.all:
				case <-ctx.Done():
					b.Fatalf("%d verdicts and %d stored faults of %d, %d Units Holding of %d", len(verdicts.copy()), len(stored.copy()), faults, len(holding.copy()), holds)
				}
			}
			return verdicts.copy(), stored.copy(), holding.copy()
		}
	}
}

// atRest waits until the servers have done what there was to do, and returns how many cores they take from then on.
func atRest(b *testing.B) float64 {
	b.Helper()
	const (
		look  = 3 * time.Second
		quiet = 0.25
		limit = time.Minute
	)
	pids := servers(b)
	for end := time.Now().Add(limit); ; {
		before, began := cpuOf(b, pids), time.Now()
		time.Sleep(look)
		cores := (cpuOf(b, pids) - before).Seconds() / time.Since(began).Seconds()
		if cores < quiet || time.Now().After(end) {
			return cores
		}
	}
}

// milliseconds is the time that a share of the delays is at most.
func milliseconds(delays []time.Duration, share float64) float64 {
	sorted := slices.Sorted(slices.Values(delays))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)].Seconds() * 1e3
}
