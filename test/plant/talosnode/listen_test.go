package talosnode

import (
	"os/exec"
	"sync"
	"testing"
	"time"
)

// A port that is closed and opened again is there although programs are being started all the time.
func TestANodeIsBackWhileProgramsAreBeingStarted(t *testing.T) {
	node, err := Start(Options{Name: "busy", Address: "127.0.69.250:50000"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Close)
	var starting sync.WaitGroup
	defer starting.Wait()
	ctx := t.Context()
	stop := time.Now().Add(time.Second)
	for range 8 {
		starting.Go(func() {
			for time.Now().Before(stop) {
				_ = exec.CommandContext(ctx, "/bin/true").Run()
			}
		})
	}
	for time.Now().Before(stop) {
		for _, fault := range []Fault{FaultClosed, FaultTakeover, FaultNone} {
			if err := node.Inject(fault); err != nil {
				t.Fatal(err)
			}
		}
	}
}
