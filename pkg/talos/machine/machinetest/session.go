package machinetest

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"

	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// session is the machine.Client of one dial.
type session struct {
	node    *Node
	address string
	role    machine.Role
	boot    int
	closed  atomic.Bool
}

func (s *session) fail(op machine.Op, class machine.Class, detail string) error {
	return &machine.Error{Class: class, Address: s.address, Op: op, Detail: detail}
}

// do records a call and does it, with the node's lock held, between the hooks.
func (s *session) do(ctx context.Context, call Call, action func() error) error {
	n := s.node
	call.Address, call.Role = s.address, s.role

	n.mu.Lock()
	n.calls = append(n.calls, call)
	before, after := n.before[call.Op], n.after[call.Op]
	n.mu.Unlock()

	if err := ctx.Err(); err != nil {
		return s.fail(call.Op, machine.ClassUnreachable, err.Error())
	}

	if before != nil {
		if err := before(ctx, call); err != nil {
			return err
		}
	}

	if err := n.locked(func() error {
		if call.Op != machine.OpDial {
			if s.closed.Load() || s.boot != n.boot {
				return s.fail(call.Op, machine.ClassUnreachable, "the session's only connection is over")
			}

			if !s.role.Covers(call.Op.Role()) {
				return s.fail(call.Op, machine.ClassDenied, string(s.role)+" may not")
			}
		}

		return action()
	}); err != nil {
		return err
	}

	if after != nil {
		return after(ctx, call)
	}

	return nil
}

func (n *Node) locked(action func() error) error {
	n.mu.Lock()
	defer n.mu.Unlock()

	return action()
}

func (s *session) Identity(ctx context.Context) (hardware maintenance.Hardware, err error) {
	err = s.do(ctx, Call{Op: machine.OpIdentity}, func() error {
		hardware = s.node.hardware
		hardware.Links, hardware.Disks = slices.Clone(hardware.Links), slices.Clone(hardware.Disks)

		return nil
	})

	return hardware, err
}

func (s *session) Status(ctx context.Context) (status machine.Status, err error) {
	err = s.do(ctx, Call{Op: machine.OpStatus}, func() error {
		status = s.node.status
		status.Unmet = slices.Clone(status.Unmet)

		return nil
	})
	if err != nil {
		return machine.Status{}, err
	}

	return status, nil
}

func (s *session) Configuration(ctx context.Context) (config []byte, err error) {
	err = s.do(ctx, Call{Op: machine.OpConfiguration}, func() error {
		config = bytes.Clone(s.node.config)

		return nil
	})
	if err != nil {
		return nil, err
	}

	return config, nil
}

func (s *session) Apply(ctx context.Context, config []byte, mode machine.Mode, dryRun bool) (result maintenance.ApplyResult, err error) {
	call := Call{Op: machine.OpApply, Mode: mode, Config: bytes.Clone(config)}
	if dryRun {
		call.Op = machine.OpTry
	}

	err = s.do(ctx, call, func() error {
		n := s.node
		reboots := n.needsReboot(bytes.Clone(n.config), bytes.Clone(config))

		switch {
		case mode == machine.ModeAuto && reboots:
			mode = machine.ModeReboot
		case mode == machine.ModeAuto:
			mode = machine.ModeNoReboot
		case mode == machine.ModeNoReboot && reboots:
			return s.fail(call.Op, machine.ClassRejected, "this needs a reboot")
		case mode != machine.ModeNoReboot && mode != machine.ModeStaged:
			return s.fail(call.Op, machine.ClassRejected, "no such mode")
		}

		result = maintenance.ApplyResult{Mode: string(mode), Warnings: slices.Clone(n.warnings)}

		if dryRun {
			return nil
		}

		switch mode {
		case machine.ModeNoReboot:
			n.config, n.staged = bytes.Clone(config), nil
		case machine.ModeStaged:
			n.staged = bytes.Clone(config)
		case machine.ModeReboot:
			n.staged = bytes.Clone(config)
			n.rebootLocked()
		}

		return nil
	})
	if err != nil {
		return maintenance.ApplyResult{}, err
	}

	return result, nil
}

func (s *session) EtcdMembers(ctx context.Context) (members []machine.EtcdMember, err error) {
	err = s.do(ctx, Call{Op: machine.OpEtcdMembers}, func() error {
		if len(s.node.members) == 0 {
			return s.fail(machine.OpEtcdMembers, machine.ClassNotBootstrapped, "etcd has never run here")
		}

		members = slices.Clone(s.node.members)

		return nil
	})
	if err != nil {
		return nil, err
	}

	return members, nil
}

func (s *session) Bootstrap(ctx context.Context) error {
	return s.do(ctx, Call{Op: machine.OpBootstrap}, func() error {
		if s.node.hasData {
			return s.fail(machine.OpBootstrap, machine.ClassAlreadyBootstrapped, "etcd has data here")
		}

		s.node.hasData = true
		s.node.members = []machine.EtcdMember{{ID: 1, Hostname: s.node.status.Hostname}}

		return nil
	})
}

func (s *session) Reboot(ctx context.Context) error {
	return s.do(ctx, Call{Op: machine.OpReboot}, func() error {
		s.node.rebootLocked()

		return nil
	})
}

func (s *session) Close() error {
	s.closed.Store(true)

	return nil
}
