package apiserver

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// LeaseName is the Lease, in the server's own namespace, whose holder runs the controllers.
const LeaseName = "fieldplane-apiserver"

// A leader that dies is replaced within lease and retry, which leaves room
// within the 20 s that a fault may take to a HOLD through its loss (P-16). One
// that cannot renew notices at most retry and deadline after it last could, and
// has what is left of the lease, 3 s, to stop.
const (
	leaseDuration = 10 * time.Second
	renewDeadline = 5 * time.Second
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
// has returned, so that two never lead; a Lease that is lost is left to expire,
// which leaves lead time to return.
func (e *election) run(ctx context.Context, lead func(context.Context)) {
	// The elector must outlive ctx: while lead returns, it goes on renewing.
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	// leading holds whoever leads, or waits until nobody does.
	leading := make(chan struct{}, 1)
	stopped := context.AfterFunc(ctx, func() {
		leading <- struct{}{}
		defer func() { <-leading }()
		release()
	})
	defer stopped()

	for electing.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: e.lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
			// It would release a Lease that it failed to renew before it even tells lead to stop.
			ReleaseOnCancel: false, Name: LeaseName,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(term context.Context) {
					leading <- struct{}{}
					defer func() { <-leading }()
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
	leading <- struct{}{}
	e.release(context.WithoutCancel(ctx))
}

// release gives the Lease up, if this replica holds it, so that the next leader
// need not wait until it expires.
func (e *election) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, retryPeriod)
	defer cancel()
	// The last renewal may still arrive between what is read here and what is written.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		record, _, err := e.lock.Get(ctx)
		if err != nil || record.HolderIdentity != e.lock.Identity() {
			return err
		}
		now := metav1.Now()
		return e.lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now,
		})
	})
	if err != nil {
		klog.ErrorS(err, "Cannot release the Lease; it expires by itself", "after", leaseDuration)
	}
}
