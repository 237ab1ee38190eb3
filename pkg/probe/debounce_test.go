package probe

import (
	"fmt"
	"testing"
	"time"
)

// TestEveryCellOfTheStateMachine says each cell once more, in words, and leads a real debounce into it. Req: P-06, P-07
func TestEveryCellOfTheStateMachine(t *testing.T) {
	reach := map[verdict][]outcome{
		undetermined: nil,
		connected:    {success, success},
		disconnected: {failure, failure, failure},
	}
	// Each is preceded by what breaks the run that led into the state, where it matters.
	arise := map[evidence]struct {
		outcomes []outcome
		step     time.Duration
	}{
		someSuccesses:   {[]outcome{failure, success}, time.Second},
		enoughSuccesses: {[]outcome{failure, success, success}, time.Second},
		stableSuccesses: {[]outcome{failure, success, success}, 5 * time.Second},
		someFailures:    {[]outcome{success, failure}, time.Second},
		enoughFailures:  {[]outcome{success, failure, failure, failure}, time.Second},
		noEvidence:      {[]outcome{notMeasured}, time.Second},
	}
	for _, c := range []struct {
		from verdict
		when evidence
		to   verdict
	}{
		{undetermined, someSuccesses, undetermined},
		{undetermined, enoughSuccesses, connected},
		{undetermined, stableSuccesses, connected},
		{undetermined, someFailures, undetermined},
		{undetermined, enoughFailures, disconnected},
		{undetermined, noEvidence, undetermined},
		{connected, someSuccesses, connected},
		{connected, enoughSuccesses, connected},
		{connected, stableSuccesses, connected},
		{connected, someFailures, connected},
		{connected, enoughFailures, disconnected},
		{connected, noEvidence, connected},
		{disconnected, someSuccesses, disconnected},
		{disconnected, enoughSuccesses, disconnected},
		{disconnected, stableSuccesses, connected},
		{disconnected, someFailures, disconnected},
		{disconnected, enoughFailures, disconnected},
		{disconnected, noEvidence, disconnected},
	} {
		t.Run(fmt.Sprintf("verdict %d, evidence %d", c.from, c.when), func(t *testing.T) {
			if got := transitions[c.from][c.when]; got != c.to {
				t.Errorf("the table leads to %d, want %d", got, c.to)
			}
			d := debounce{failureThreshold: 3, successThreshold: 2}
			now := time.Unix(0, 0)
			for _, o := range reach[c.from] {
				d.observe(now, o)
			}
			if d.verdict != c.from {
				t.Fatalf("the way into the cell leads to %d", d.verdict)
			}
			a := arise[c.when]
			for _, o := range a.outcomes {
				now = now.Add(a.step)
				d.observe(now, o)
			}
			if d.verdict != c.to {
				t.Errorf("the outcomes lead to %d, want %d", d.verdict, c.to)
			}
		})
	}
	if cells := int(verdicts) * int(evidences); cells != 18 {
		t.Errorf("the state machine has %d cells, and this test walks 18", cells)
	}
}

// Req: P-06
func TestWhatIsNotMeasuredBreaksNoRun(t *testing.T) {
	d := debounce{failureThreshold: 3, successThreshold: 2}
	now := time.Unix(0, 0)
	for _, o := range []outcome{failure, notMeasured, failure, notMeasured, failure} {
		d.observe(now, o)
	}
	if d.verdict != disconnected {
		t.Errorf("three failures with gaps give the verdict %d, want disconnected", d.verdict)
	}
}
