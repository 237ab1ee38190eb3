package runtimelink

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// A pod in the wrong hands says something else two thousand times a second; each may cost a write to the store.
//
// Req: P-12, P-16b
func TestARuntimeThatNeverFallsSilentIsListenedToAtAPace(t *testing.T) {
	fakeClock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	told := 0
	l := &link{unit: mixer(), clock: fakeClock, changed: func(types.NamespacedName) { told++ }}
	say := func(i int) {
		l.hear(api.Report{Runtime: api.RuntimeInfo{BootID: "b1", UID: "uid-of-mixer"}, Latch: &api.Latch{ID: fmt.Sprint(i)}})
	}
	say(0)
	if told != 1 {
		t.Fatalf("the first word was told %d times", told)
	}
	const seconds, each = 60, 2000
	for i := range seconds * each {
		fakeClock.Step(time.Second / each)
		say(i + 1)
		if i%(each/2) == 0 {
			l.judge()
		}
	}
	if most := newsAtOnce + seconds*int(time.Second/newsEach) + 2*seconds + 2; told > most || told < seconds*int(time.Second/newsEach) {
		t.Errorf("it was told %d times in %d seconds, want at most %d", told, seconds, most)
	}
	// The last word is told all the same, and is what is shown.
	say(-1)
	before := told
	l.judge()
	if report, _ := l.look(); report.Latch.ID != "-1" || told != before+1 {
		t.Errorf("shown is %s, told %d times more", report.Latch.ID, told-before)
	}
	if l.judge(); told != before+1 {
		t.Error("nothing new is told")
	}
	// One that has been quiet is heard at once.
	fakeClock.Step(time.Minute)
	l.judge()
	before = told
	for i := range newsAtOnce / 2 {
		say(-2 - i)
	}
	if told != before+newsAtOnce/2 {
		t.Errorf("%d of %d were told", told-before, newsAtOnce/2)
	}
}
