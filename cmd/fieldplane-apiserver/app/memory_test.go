package app

import (
	"runtime/debug"
	"testing"
)

func TestTheEnvironmentOverridesHowMemoryIsCollected(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(1<<40)
	defer func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}()
	tuneMemory(func(string) string { return "50" })
	if percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1); percent != 100 || limit != 1<<40 {
		t.Errorf("%d %% and %d bytes, though the environment says otherwise", percent, limit)
	}
	tuneMemory(func(string) string { return "" })
	if percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1); percent != collectAt || limit != memoryLimit {
		t.Errorf("%d %% and %d bytes", percent, limit)
	}
}
