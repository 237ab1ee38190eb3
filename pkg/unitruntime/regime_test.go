package unitruntime

import (
	"testing"

	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// Req: P-16b
func TestWhatMayBeWrittenInEveryState(t *testing.T) {
	want := map[isa88.State]struct {
		fresh, stale, latched regime
	}{
		isa88.Idle:       {regime{}, regime{}, regime{writesHoldValues, "latch/l"}},
		isa88.Running:    {regime{permission: writesOfUsers}, regime{}, regime{writesHoldValues, "latch/l"}},
		isa88.Pausing:    {regime{}, regime{}, regime{writesHoldValues, "latch/l"}},
		isa88.Paused:     {regime{}, regime{}, regime{writesHoldValues, "latch/l"}},
		isa88.Holding:    {regime{writesHoldValues, "hold/e"}, regime{writesHoldValues, "hold/e"}, regime{writesHoldValues, "hold/e"}},
		isa88.Held:       {regime{writesHoldValues, "hold/e"}, regime{writesHoldValues, "hold/e"}, regime{writesHoldValues, "hold/e"}},
		isa88.Restarting: {regime{}, regime{}, regime{writesHoldValues, "latch/l"}},
		isa88.Completing: {regime{}, regime{}, regime{writesHoldValues, "latch/l"}},
		isa88.Complete:   {regime{}, regime{}, regime{writesHoldValues, "latch/l"}},
		isa88.Stopping:   {regime{writesHoldValues, "stop/e"}, regime{writesHoldValues, "stop/e"}, regime{writesHoldValues, "stop/e"}},
		isa88.Stopped:    {regime{writesHoldValues, "stop/e"}, regime{writesHoldValues, "stop/e"}, regime{writesHoldValues, "stop/e"}},
		isa88.Aborting:   {regime{writesHoldValues, "abort/e"}, regime{writesHoldValues, "abort/e"}, regime{writesHoldValues, "abort/e"}},
		isa88.Aborted:    {regime{writesHoldValues, "abort/e"}, regime{writesHoldValues, "abort/e"}, regime{writesHoldValues, "abort/e"}},
		isa88.Resetting:  {regime{}, regime{}, regime{writesHoldValues, "latch/l"}},
	}
	for _, state := range isa88.States() {
		w, ok := want[state]
		if !ok {
			t.Errorf("%s is not in the table", state)
			continue
		}
		order, latch := &api.Order{State: state, Episode: "e"}, &api.Latch{ID: "l"}
		for name, c := range map[string]struct{ got, want regime }{
			"ordered now":                {regimeOf(order, nil, true), w.fresh},
			"ordered before the restart": {regimeOf(order, nil, false), w.stale},
			"latched":                    {regimeOf(order, latch, true), w.latched},
			"latched before the restart": {regimeOf(order, latch, false), w.latched},
		} {
			if c.got != c.want {
				t.Errorf("%s, %s: %+v, want %+v", state, name, c.got, c.want)
			}
		}
	}
	if got := regimeOf(nil, nil, false); got != (regime{}) {
		t.Errorf("without an order: %+v", got)
	}
}
