package modbustest

import (
	"os/exec"
	"sync"
	"testing"
	"time"
)

func TestADeviceIsBackAtItsPortWhileProgramsAreBeingStarted(t *testing.T) {
	device := New("127.0.0.1:0")
	if err := device.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(device.Stop)
	var starting sync.WaitGroup
	defer starting.Wait()
	stop := time.Now().Add(time.Second)
	for range 8 {
		starting.Go(func() {
			for time.Now().Before(stop) {
				_ = exec.CommandContext(t.Context(), "/bin/true").Run()
			}
		})
	}
	for time.Now().Before(stop) {
		device.Stop()
		if err := device.Start(); err != nil {
			t.Fatal(err)
		}
	}
}
