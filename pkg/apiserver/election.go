package apiserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// LeaseName is the Lease, in the server's own namespace, whose holder runs the controllers.
const LeaseName = "fieldplane-apiserver"

// A leader that dies is replaced within lease and retry, which leaves room
// within the 20 s that a fault may take to a HOLD through its loss (P-16).
const (
	leaseDuration = 10 * time.Second
	renewDeadline = 7 * time.Second
	retryPeriod   = 2 * time.Second
)

// election has replicas agree on which of them runs the controllers.
type election struct{ lock resourcelock.Interface }

func newElection(client kubernetes.Interface, namespace, identity string) (*election, error) {
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, LeaseName,
		client.CoreV1(), client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	return &election{lock: lock}, nil
}

// run calls lead whenever this replica holds the Lease, with a context that
// ends when it is lost, until ctx ends. The Lease is released only after lead
// has returned, so that two never lead.
func (e *election) run(ctx context.Context, lead func(context.Context)) {
	// The elector must outlive ctx: it releases the Lease as soon as its own context ends.
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var leading sync.Mutex
	stopped := context.AfterFunc(ctx, func() {
		leading.Lock()
		defer leading.Unlock()
		release()
	})
	defer stopped()

	for electing.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: e.lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
			ReleaseOnCancel: true, Name: LeaseName,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(term context.Context) {
					leading.Lock()
					defer leading.Unlock()
					term, end := context.WithCancel(term)
					defer end()
					defer context.AfterFunc(ctx, end)()
					if ctx.Err() == nil && term.Err() == nil {
						klog.InfoS("Leading", "identity", e.lock.Identity())
						lead(term)
						klog.InfoS("No longer leading", "identity", e.lock.Identity())
					}
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			klog.ErrorS(err, "Leader election is misconfigured")
			return
		}
		elector.Run(electing)
	}
	// A term that has begun may still be ending.
	leading.Lock()
	defer leading.Unlock()
}
