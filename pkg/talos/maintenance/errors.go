package maintenance

import (
	"context"
	"errors"
	"fmt"
)

// Class is what an error means for the one who gets it.
type Class string

// The classes of errors.
const (
	// ClassUnreachable: nothing answers, or not in time. In a sweep that is the ordinary case, and silent (T-09).
	ClassUnreachable Class = "Unreachable"
	// ClassNotTalos: something answers that is no Talos node.
	ClassNotTalos Class = "NotTalos"
	// ClassNotInMaintenance: a Talos node that has its configuration already, and asks for a certificate.
	ClassNotInMaintenance Class = "NotInMaintenance"
	// ClassIdentityAbsent: a node without SMBIOS, or one that has not read it yet.
	ClassIdentityAbsent Class = "IdentityAbsent"
	// ClassNodeError: a Talos node that failed to answer; later it may.
	ClassNodeError Class = "NodeError"
	// ClassRejected: the node refuses this configuration and always will.
	ClassRejected Class = "Rejected"
	// ClassBusy: the node cannot take a configuration just now.
	ClassBusy Class = "Busy"
	// ClassOutcomeUnknown: the connection was lost while the configuration was being applied; the node may have it.
	// Look at the node before sending again.
	ClassOutcomeUnknown Class = "OutcomeUnknown"
)

// Error is the error of every function here: what was done, to whom, and what came of it.
type Error struct {
	Class   Class
	Address string
	// Op is "dial", "read identity" or "apply configuration".
	Op string
	// Detail is for people. It holds nothing of a configuration that is secret (T-15).
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
	case ClassUnreachable, ClassIdentityAbsent, ClassNodeError, ClassBusy:
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
