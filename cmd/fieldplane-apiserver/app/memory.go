package app

import "runtime/debug"

const (
	// collectAt is by how much of what is in use the memory grows before it is collected. Many writes at once, as when a thousand
	// Units are held, leave much behind: at Go's own 100 a quarter of what they take is the collector's.
	collectAt = 200
	// memoryLimit is from where on it is collected sooner: the pod ends at 2 GiB.
	memoryLimit = 1792 << 20
)

// tuneMemory has memory collected later, and in time. GOGC and GOMEMLIMIT override it.
func tuneMemory(environment func(string) string) {
	if environment("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if environment("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}
