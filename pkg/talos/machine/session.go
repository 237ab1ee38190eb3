package machine

import (
	"context"
	"errors"
	"time"

	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"

	"github.com/fieldplane/fieldplane/pkg/talos/internal/apid"
	"github.com/fieldplane/fieldplane/pkg/talos/internal/remark"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// callTimeout bounds each operation, whatever the caller's context allows: long enough for a node that checks a
// configuration against its disks, or waits for its time server before it bootstraps.
const callTimeout = 30 * time.Second

// session is the Client of one connection.
type session struct {
	address string
	channel *apid.Channel
	machine machineapi.MachineServiceClient
	cosi    state.State
}

func newSession(address string, channel *apid.Channel) *session {
	return &session{
		address: address,
		channel: channel,
		machine: machineapi.NewMachineServiceClient(channel),
		cosi:    channel.COSI(),
	}
}

func (s *session) Close() error { return s.channel.Close() }

func (s *session) Identity(ctx context.Context) (maintenance.Hardware, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	hw, err := maintenance.ReadHardware(ctx, s.cosi)

	switch {
	case err == nil:
		return hw, nil
	case errors.Is(err, maintenance.ErrNoSystemInformation):
		return hw, &Error{Class: ClassIdentityAbsent, Address: s.address, Op: OpIdentity, Detail: err.Error(), cause: err}
	default:
		return hw, s.readError(ctx, OpIdentity, err)
	}
}

// readError is the error of an operation that changes nothing.
func (s *session) readError(ctx context.Context, op Op, err error) *Error {
	failure := &Error{Class: s.class(ctx, err, table{}), Address: s.address, Op: op, Detail: remark.Clean(err.Error()), cause: ended(ctx, err)}

	if broken := s.channel.ReadError(); broken != nil && failure.Class != ClassNodeError {
		failure.Detail = remark.Clean(broken.Error())
	}

	return failure
}

// table is what some outcomes mean for one operation; its zero value is for one that changes nothing.
type table struct {
	// changes tells that an answer that did not come leaves open what the node did.
	changes bool
	// alreadyExists, when set, is for that code.
	alreadyExists Class
}

// class says what a failed call means.
func (s *session) class(ctx context.Context, err error, of table) Class {
	code, broken := client.StatusCode(err), s.channel.ReadError()

	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		switch {
		case of.changes:
			return ClassOutcomeUnknown
		case code == codes.Unavailable && broken == nil && ctx.Err() == nil:
			// The connection stands: it is the node that cannot reach what is behind apid.
			return ClassNodeError
		default:
			return ClassUnreachable
		}
	case codes.Unauthenticated, codes.PermissionDenied:
		return ClassDenied
	case codes.InvalidArgument, codes.Unimplemented, codes.OutOfRange:
		return ClassRejected
	case codes.FailedPrecondition, codes.Aborted, codes.ResourceExhausted:
		return ClassBusy
	case codes.AlreadyExists:
		if of.alreadyExists != "" {
			return of.alreadyExists
		}
	}

	return ClassNodeError
}
