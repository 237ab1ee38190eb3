package machine

import (
	"context"
	"errors"
	"io"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/fieldplane/fieldplane/pkg/talos/internal/remark"
)

const (
	// membersTimeout bounds the question to an etcd that has data: when it does not run, a node only stops waiting for it
	// when the caller does.
	membersTimeout = 5 * time.Second
	// maxMembers bounds what is kept; etcd advises against more than seven.
	maxMembers = 64
)

// EtcdMembers looks at etcd's data first, as Talos itself does before it bootstraps. Asking for the members alone would
// not tell a node that has never had an etcd from one whose etcd is down: both just keep silent, and taking the one for
// the other would bootstrap a second cluster. Nor would asking without QueryLocal: any other control plane may answer
// then.
func (s *session) EtcdMembers(ctx context.Context) ([]EtcdMember, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	hasData, err := s.etcdHasData(ctx)
	if err != nil {
		return nil, s.readError(ctx, OpEtcdMembers, err)
	}

	if !hasData {
		return nil, &Error{Class: ClassNotBootstrapped, Address: s.address, Op: OpEtcdMembers, Detail: "etcd has never run here"}
	}

	askCtx, cancelAsk := context.WithTimeout(ctx, membersTimeout)
	defer cancelAsk()

	resp, err := client.FilterMessages(s.machine.EtcdMemberList(askCtx, &machineapi.EtcdMemberListRequest{QueryLocal: true}))
	if err != nil {
		failure := s.readError(ctx, OpEtcdMembers, err)
		if failure.Class == ClassUnreachable && s.channel.ReadError() == nil && ctx.Err() == nil {
			// The node has just answered, so it is etcd that is silent.
			failure.Class, failure.Detail = ClassNodeError, "etcd has data here, but does not answer"
		}

		return nil, failure
	}

	var members []EtcdMember

	for _, message := range resp.GetMessages() {
		for _, member := range message.GetMembers() {
			if len(members) == maxMembers {
				break
			}

			members = append(members, EtcdMember{ID: member.GetId(), Hostname: remark.Clean(member.GetHostname()), Learner: member.GetIsLearner()})
		}
	}

	if len(members) == 0 {
		return nil, &Error{Class: ClassNodeError, Address: s.address, Op: OpEtcdMembers, Detail: "etcd tells no members"}
	}

	return members, nil
}

// etcdHasData tells whether an etcd has ever written anything on the node. An error, also one for a directory that is
// not there, tells neither: early in the boot the disk is not mounted yet.
func (s *session) etcdHasData(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream after the first entries
	defer cancel()

	stream, err := s.machine.List(ctx, &machineapi.ListRequest{Root: constants.EtcdDataPath})
	if err != nil {
		return false, err
	}

	seenRoot := false

	for {
		entry, err := stream.Recv()

		switch {
		case errors.Is(err, io.EOF) && seenRoot:
			return false, nil
		case errors.Is(err, io.EOF):
			return false, errNoDirectory
		case err != nil:
			return false, err
		case entry.GetError() != "" || entry.GetMetadata().GetError() != "":
			return false, errNoDirectory
		case entry.GetRelativeName() != "." && entry.GetRelativeName() != "":
			return true, nil
		}

		seenRoot = true
	}
}

var errNoDirectory = errors.New("the node cannot look into etcd's data directory")

func (s *session) Bootstrap(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	_, err := client.FilterMessages(s.machine.Bootstrap(ctx, &machineapi.BootstrapRequest{}))

	return s.changeError(ctx, OpBootstrap, table{changes: true, alreadyExists: ClassAlreadyBootstrapped}, err)
}

func (s *session) Reboot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	_, err := client.FilterMessages(s.machine.Reboot(ctx, &machineapi.RebootRequest{}))

	return s.changeError(ctx, OpReboot, table{changes: true}, err)
}

// changeError is the error of an operation that changes the node without any configuration.
func (s *session) changeError(ctx context.Context, op Op, of table, err error) error {
	if err == nil {
		return nil
	}

	failure := &Error{Class: s.class(ctx, err, of), Address: s.address, Op: op, Detail: client.StatusCode(err).String(), cause: ended(ctx, nil)}

	if status := client.Status(err); status != nil {
		if text := remark.Scrub(status.Message()); text != "" {
			failure.Detail += ": " + text
		}
	}

	return failure
}
