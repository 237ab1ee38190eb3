package driver

import (
	"context"
	"testing"
	"time"
)

// Req: P-13 (at most 20 connects at once)
func TestSuspectPeersNeverTakeEveryPlace(t *testing.T) {
	limit := NewConnectLimit(20)
	ended, cancel := context.WithCancel(t.Context())
	cancel()

	var releases []func()
	for {
		release, err := limit.Acquire(ended, true)
		if err != nil && len(releases) == 14 {
			break
		}
		if err != nil {
			// select may choose the ended context although a place is free.
			continue
		}
		if releases = append(releases, release); len(releases) > 14 {
			t.Fatal("a fifteenth suspect peer got a place")
		}
	}
	for len(releases) < 20 {
		release, err := limit.Acquire(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := limit.Acquire(short, false); err == nil {
		t.Fatal("a twenty-first connection got a place")
	}
	for _, release := range releases {
		release()
	}
	if n := limit.InUse(); n != 0 {
		t.Errorf("%d places in use after all were released", n)
	}
}
