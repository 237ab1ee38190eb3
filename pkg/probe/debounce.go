package probe

import "time"

// stableTime is how long a device that was lost must answer without a failure before it counts as back.
const stableTime = 5 * time.Second

// outcome is how one check ended.
type outcome int

const (
	success outcome = iota
	failure
	// notMeasured is no news: it neither counts nor breaks a run.
	notMeasured
)

// verdict is what the outcomes so far say of the device.
type verdict int

const (
	undetermined verdict = iota
	connected
	disconnected
	verdicts
)

// evidence is an outcome with its run before it.
type evidence int

const (
	someSuccesses evidence = iota
	enoughSuccesses
	stableSuccesses
	someFailures
	enoughFailures
	noEvidence
	evidences
)

// transitions is the whole state machine (P-06). First contact needs the threshold alone, so that a
// healthy device is Online after two checks; only a device that was lost must also be stable. A failure below the
// threshold changes nothing.
var transitions = [verdicts][evidences]verdict{
	undetermined: {
		someSuccesses:   undetermined,
		enoughSuccesses: connected,
		stableSuccesses: connected,
		someFailures:    undetermined,
		enoughFailures:  disconnected,
		noEvidence:      undetermined,
	},
	connected: {
		someSuccesses:   connected,
		enoughSuccesses: connected,
		stableSuccesses: connected,
		someFailures:    connected,
		enoughFailures:  disconnected,
		noEvidence:      connected,
	},
	disconnected: {
		someSuccesses:   disconnected,
		enoughSuccesses: disconnected,
		stableSuccesses: connected,
		someFailures:    disconnected,
		enoughFailures:  disconnected,
		noEvidence:      disconnected,
	},
}

// debounce turns outcomes into a verdict.
type debounce struct {
	failureThreshold int
	successThreshold int

	verdict   verdict
	failures  int
	successes int
	// successSince is the first success of the run.
	successSince time.Time
}

// observe takes one outcome and returns the verdict after it.
func (d *debounce) observe(now time.Time, o outcome) verdict {
	d.verdict = transitions[d.verdict][d.weigh(now, o)]
	return d.verdict
}

func (d *debounce) weigh(now time.Time, o outcome) evidence {
	switch o {
	case success:
		d.failures = 0
		if d.successes == 0 {
			d.successSince = now
		}
		d.successes++
		switch {
		case d.successes < d.successThreshold:
			return someSuccesses
		case now.Sub(d.successSince) < stableTime:
			return enoughSuccesses
		default:
			return stableSuccesses
		}
	case failure:
		d.successes = 0
		d.failures++
		if d.failures < d.failureThreshold {
			return someFailures
		}
		return enoughFailures
	default:
		return noEvidence
	}
}
