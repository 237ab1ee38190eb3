package peer

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// endless says the same for ever.
type endless struct{ *strings.Reader }

func (e endless) Read(b []byte) (int, error) {
	n, err := e.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		_, err = e.Seek(0, io.SeekStart)
	}
	return n, err
}

func (endless) Close() error { return nil }

// Req: P-12 (who has one namespace's probe in hand does not keep the server busy)
func TestAStreamThatNeverPausesIsTakenAtItsPace(t *testing.T) {
	const long = time.Second
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	taken := 0
	began := time.Now()
	err := Follow(ctx, Stream{Who: "it", Clock: clock.RealClock{}, Silence: time.Minute, MaxMessage: 1 << 10},
		endless{strings.NewReader(strings.Repeat("{}\n", 100))}, func(struct{}) error { taken++; return nil })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
	if most := mostAtOnce + int(time.Since(began).Seconds()*mostPerSecond); taken > most+10 || taken < mostAtOnce/2 {
		t.Errorf("%d documents, want at most %d", taken, most)
	}
}
