package opcua

import (
	"fmt"
	"testing"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-13, P-15 (one Read within the server's limits; its own status and source time)
func TestManyChannelsAtOnceAreWhatEachIsAlone(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit int
	}{{"no limit", 0}, {"few nodes in a request", 20}} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, settings{Variables: 300, MaxNodesPerRead: c.limit, Dir: t.TempDir()})
			device := open(t, newDriver(nil), s.plain())
			check(t, device)
			list, _ := channels(t, device, 0)
			var all []driver.Channel
			for _, item := range list.Items {
				if item.Count == 1 {
					all = append(all, driver.Channel{Name: item.Name, Address: item.Address, DataType: item.DataType})
				}
			}
			for _, address := range []string{"s=Odd.Uncertain", "s=Odd.Broken", "s=Odd.NotThere", "s=Plant/Area0/Unit0.V4"} {
				all = append(all, driver.Channel{Name: address, Address: plant + address})
			}
			if len(all) < 200 {
				t.Fatalf("%d channels", len(all))
			}
			samples, err := device.Read(t.Context(), all)
			if err != nil {
				t.Fatal(err)
			}
			dated := 0
			for i, sample := range samples {
				want, err := driver.ReadOne(t.Context(), device, all[i])
				if (err == nil) != (sample.Err == nil) || err == nil && fmt.Sprintf("%T", want) != fmt.Sprintf("%T", sample.Value) {
					t.Errorf("%s: %+v, alone %v, %v", all[i].Name, sample, want, err)
				}
				if !sample.SourceTime.IsZero() {
					dated++
				}
			}
			if dated < 200 {
				t.Errorf("%d values have a source time", dated)
			}
			odd := samples[len(samples)-4:]
			for i, want := range []struct{ uncertain, bad, value bool }{{true, false, true}, {false, true, false}, {false, true, false}, {false, true, false}} {
				if odd[i].Status.Uncertain() != want.uncertain || odd[i].Status.Bad() != want.bad || (odd[i].Err == nil) != want.value {
					t.Errorf("%s: %+v", all[len(all)-4+i].Name, odd[i])
				}
			}
			if odd[2].Status != 0x80340000 {
				t.Errorf("a node that is not there: %v", odd[2].Status)
			}
			if n := s.counts(t).Cumulated; n != 1 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}
