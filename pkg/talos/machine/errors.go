package machine

import (
	"context"
	"errors"
	"fmt"
)

// Class is what an error means for the one who gets it.
type Class string

// The classes of errors.
const (
	// ClassUnreachable: nothing answers, not in time, or no longer.
	ClassUnreachable Class = "Unreachable"
	// ClassNotTalos: something answers that is no Talos node.
	ClassNotTalos Class = "NotTalos"
	// ClassInMaintenance: a Talos node in maintenance mode. Its certificate is of its own making, so this is a claim of
	// whoever sits at the address and no more.
	ClassInMaintenance Class = "InMaintenance"
	// ClassUntrusted: the peer has no valid server certificate under the cluster's OS CA.
	ClassUntrusted Class = "Untrusted"
	// ClassDenied: the node is of the cluster, but does not take our certificate, or not for this operation.
	ClassDenied Class = "Denied"
	// ClassIdentityAbsent: a node without SMBIOS, or one that has not read it yet.
	ClassIdentityAbsent Class = "IdentityAbsent"
	// ClassNotBootstrapped: no etcd has ever run on this node.
	ClassNotBootstrapped Class = "NotBootstrapped"
	// ClassAlreadyBootstrapped: the node has data of an etcd already, so it bootstraps no other.
	ClassAlreadyBootstrapped Class = "AlreadyBootstrapped"
	// ClassBusy: the node cannot do this just now; later it can.
	ClassBusy Class = "Busy"
	// ClassRejected: the node refuses this request and always will.
	ClassRejected Class = "Rejected"
	// ClassOutcomeUnknown: the connection was lost while the node was to change something; it may have. Look at the
	// node before sending again.
	ClassOutcomeUnknown Class = "OutcomeUnknown"
	// ClassNodeError: the node failed to answer; later it may.
	ClassNodeError Class = "NodeError"
	// ClassInvalidAccess: the bundle or the role is not fit for making a client certificate; no connection was made.
	ClassInvalidAccess Class = "InvalidAccess"
)

// Error is the error of every function here: what was done, to whom, and what came of it.
type Error struct {
	Class   Class
	Address string
	Op      Op
	// Detail is for people. It holds nothing of a configuration or a bundle that is secret (T-15).
	Detail string
	// cause is kept where the peer cannot have put a piece of a configuration into it.
	cause error
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s %s: %s", e.Op, e.Address, e.Class)
	if e.Detail != "" {
		text += ": " + e.Detail
	}

	return text
}

func (e *Error) Unwrap() error { return e.cause }

// Retryable tells that the same call may succeed later, unchanged.
func (e *Error) Retryable() bool {
	switch e.Class {
	case ClassUnreachable, ClassIdentityAbsent, ClassNodeError, ClassBusy, ClassNotBootstrapped:
		return true
	}

	return false
}

// ClassOf returns the class of an error of this package, and "" for any other.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}

	return ""
}

// ended returns why a context is over, so that a caller can tell its own cancellation from a node's silence.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	return err
}
