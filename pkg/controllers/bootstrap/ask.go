package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hardware"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
)

// finding is what a machine says of etcd.
type finding int

// The findings, from the one that says nothing to the one that says most.
const (
	// silent: nothing answers where it should be.
	silent finding = iota
	// strange: something answers that is not known to be a machine of this cluster.
	strange
	// inMaintenance: something in maintenance mode answers, which anything can claim.
	inMaintenance
	// another: another machine of this cluster answers.
	another
	// unclear: the machine answers, and it cannot be told whether it has an etcd.
	unclear
	// notControlPlane: the machine answers, and can have no etcd.
	notControlPlane
	// never: the machine has never had an etcd.
	never
	// member: the machine has one.
	member
)

// answer is what came of asking one machine.
type answer struct {
	subject
	finding finding
	// address is where it answered.
	address netip.Addr
	members []machine.EtcdMember
	// detail is for people, and holds nothing of the bundle.
	detail string
}

// ask asks machines for their etcd, at most so many at once and each for at most so long.
func (c *Controller) ask(ctx context.Context, subjects []subject, bundle *secrets.Bundle, atOnce int, each time.Duration) []answer {
	var (
		asking  sync.WaitGroup
		answers = make([]answer, len(subjects))
		places  = make(chan struct{}, atOnce)
	)

	for i, s := range subjects {
		asking.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()

			askCtx, cancel := context.WithTimeout(ctx, each)
			defer cancel()

			answers[i] = c.askOne(askCtx, s, bundle)
		})
	}

	asking.Wait()

	return answers
}

// askOne looks for a machine at each of its addresses.
func (c *Controller) askOne(ctx context.Context, s subject, bundle *secrets.Bundle) answer {
	best := answer{subject: s, detail: "it has no address"}

	for i, addr := range s.addresses {
		session, got := c.meet(ctx, s, addr, machine.Access{Bundle: bundle, Role: machine.RoleReader})
		if session != nil {
			got = etcdOf(ctx, session, got, bundle)
			session.Close() //nolint:errcheck // nothing hangs on how it ends
		}

		if i == 0 || got.finding > best.finding {
			best = got
		}

		if best.finding >= unclear {
			break
		}
	}

	return best
}

// meet opens a session with a machine and makes sure that it is that machine (T-18). The session is nil when it is not.
func (c *Controller) meet(ctx context.Context, s subject, addr netip.Addr, access machine.Access) (machine.Client, answer) {
	ctx, cancel := context.WithTimeout(ctx, meetTimeout)
	defer cancel()

	got := answer{subject: s, address: addr}

	session, err := c.dial(ctx, hardware.Target(addr), access)
	if err != nil {
		got.finding, got.detail = dialFinding(machine.ClassOf(err)), explain(err, access.Bundle)

		return nil, got
	}

	read, err := session.Identity(ctx)
	if err == nil && hardware.Identity(read).UUID == s.uuid {
		return session, got
	}

	session.Close() //nolint:errcheck // nothing was sent

	switch {
	case err == nil:
		got.finding, got.detail = another, fmt.Sprintf("the machine that answers has the UUID %q", hardware.Identity(read).UUID)
	case machine.ClassOf(err) == machine.ClassUnreachable:
		got.finding, got.detail = silent, explain(err, access.Bundle)
	default:
		// It is of this cluster. Early in its boot it cannot say which one it is.
		got.finding, got.detail = unclear, explain(err, access.Bundle)
	}

	return nil, got
}

// etcdOf asks a machine that is known to be the right one.
func etcdOf(ctx context.Context, session machine.Client, got answer, bundle *secrets.Bundle) answer {
	members, err := session.EtcdMembers(ctx)

	switch class := machine.ClassOf(err); {
	case err == nil && len(members) > 0:
		got.finding, got.members = member, members
	case err == nil:
		got.finding, got.detail = unclear, "etcd names no members"
	case class == machine.ClassNotBootstrapped:
		got.finding = never
	case class == machine.ClassRejected:
		got.finding, got.detail = notControlPlane, explain(err, bundle)
	default:
		got.finding, got.detail = unclear, explain(err, bundle)
	}

	return got
}

// dialFinding is what it means when no session comes about.
func dialFinding(class machine.Class) finding {
	switch class {
	case machine.ClassInMaintenance:
		return inMaintenance
	case machine.ClassUntrusted, machine.ClassDenied, machine.ClassNotTalos:
		return strange
	default:
		return silent
	}
}

// explain is the text of a failure to talk to a machine. An error of unknown making may hold anything, and is withheld
// (T-15).
func explain(err error, bundle *secrets.Bundle) string {
	var failure *machine.Error

	switch {
	case !errors.As(err, &failure):
		return "talking to the machine failed"
	case failure.Class == machine.ClassUnreachable:
		// Its details name ports of ours, which are others each time.
		return fmt.Sprintf("%s: no answer", failure.Op)
	}

	text := fmt.Sprintf("%s: %s", failure.Op, failure.Class)
	if failure.Detail != "" {
		text += ": " + failure.Detail
	}

	return notice.Redacted(text, bundle)
}
