package unitruntime

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// certificateAge is how long a certificate that was looked at is not looked at again. A namespace may have a thousand Units, and its
// one certificate is renewed weeks before it ends.
const certificateAge = time.Minute

// certificates sees to it that each namespace has one.
type certificates struct {
	make  func(ctx context.Context, namespace string) error
	clock clock.PassiveClock

	mu     sync.Mutex
	looked map[string]time.Time
}

func newCertificates(make func(ctx context.Context, namespace string) error, c clock.PassiveClock) *certificates {
	return &certificates{make: make, clock: c, looked: map[string]time.Time{}}
}

func (c *certificates) ensure(ctx context.Context, namespace string) error {
	c.mu.Lock()
	at, ok := c.looked[namespace]
	c.mu.Unlock()
	if ok && c.clock.Since(at) < certificateAge {
		return nil
	}
	if err := c.make(ctx, namespace); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked[namespace] = c.clock.Now()
	return nil
}

func (c *certificates) forget(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.looked, namespace)
}
