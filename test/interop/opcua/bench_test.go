package opcua

import (
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// BenchmarkDiscoveryOfTenThousandVariables lists and describes as many channels as a module may have. Driver and server take turns, and
// so the CPU of both is the time that it takes on a machine that does nothing else.
func BenchmarkDiscoveryOfTenThousandVariables(b *testing.B) {
	s := start(b, settings{Variables: driver.MaxChannels})
	device := open(b, newDriver(nil), s.plain())
	check(b, device)
	// The server's own code is slow before it has run for a while.
	const rounds = 4
	best, busy := time.Hour, time.Hour
	for range rounds {
		began, used := time.Now(), cpu(b, s)
		list, _ := channels(b, device, 0)
		best, busy = min(best, time.Since(began)), min(busy, cpu(b, s)-used)
		if len(list.Items) != driver.MaxChannels {
			b.Fatalf("%d channels", len(list.Items))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(best.Seconds(), "s(≤1)")
	b.ReportMetric(busy.Seconds(), "cpu-s-of-both")
}
