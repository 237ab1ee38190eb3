// Package machine talks to a Talos node that has its configuration: apid, which then asks for a client certificate of
// the node's cluster. What comes before that, when nobody can be trusted yet, is package maintenance's.
package machine

import (
	"context"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// Role is what a session may do on the node: the organization of its client certificate.
type Role string

// The roles, each of which may do what the ones before it may.
const (
	// RoleReader reads what is not secret.
	RoleReader = Role(role.Reader)
	// RoleOperator reboots too.
	RoleOperator = Role(role.Operator)
	// RoleAdmin reads and writes the configuration, and bootstraps etcd.
	RoleAdmin = Role(role.Admin)
)

// Covers tells whether this role may do what the other may.
func (r Role) Covers(other Role) bool { return r.rank() > 0 && r.rank() >= other.rank() }

func (r Role) rank() int {
	switch r {
	case RoleReader:
		return 1
	case RoleOperator:
		return 2
	case RoleAdmin:
		return 3
	}

	return 0
}

// Op is one thing that a session does; errors and the calls that machinetest records name it.
type Op string

// The operations.
const (
	OpDial          Op = "dial"
	OpIdentity      Op = "read identity"
	OpStatus        Op = "read status"
	OpConfiguration Op = "read configuration"
	OpTry           Op = "try configuration"
	OpApply         Op = "apply configuration"
	OpEtcdMembers   Op = "list etcd members"
	OpBootstrap     Op = "bootstrap etcd"
	OpReboot        Op = "reboot"
)

// Role is the least role that an operation needs.
func (o Op) Role() Role {
	switch o {
	case OpConfiguration, OpTry, OpApply, OpBootstrap:
		return RoleAdmin
	case OpReboot:
		return RoleOperator
	}

	return RoleReader
}

// Access is by what a session is opened: the secrets of the cluster that the node must belong to, and the least role
// that suffices for what the session is to do.
type Access struct {
	Bundle *secrets.Bundle
	Role   Role
}

// Factory opens a session with the node at an address; errors are of type *Error. The peer has shown a certificate of
// the cluster by then, and has taken ours. Dial is the one that opens connections; tests of packages bring their own,
// from machinetest (T-19).
type Factory func(ctx context.Context, address string, access Access) (Client, error)

// Client is one session with one node: exactly one connection, which is never made again. Whoever compares the identity
// that it reads with the one expected, and then sends something through it, has sent it to that node (T-18).
//
// That comparison is part of every use, since any node of the cluster has a certificate of the cluster, and addresses
// move. No error and no result but Configuration's ever holds a part of a configuration that is secret (T-15).
type Client interface {
	// Identity reads who is there: SMBIOS, links, disks. An error of ClassIdentityAbsent comes with whatever else could
	// be read. RoleReader.
	Identity(ctx context.Context) (maintenance.Hardware, error)
	// Status reads how the node is. RoleReader.
	Status(ctx context.Context) (Status, error)
	// Configuration reads the configuration that the node runs with, YAML without comments. It holds secrets. RoleAdmin.
	Configuration(ctx context.Context) ([]byte, error)
	// Apply sends a complete configuration, or has the node only check it and say what it would do. RoleAdmin.
	Apply(ctx context.Context, config []byte, mode Mode, dryRun bool) (maintenance.ApplyResult, error)
	// EtcdMembers asks the etcd of this very node for the members of its cluster. ClassNotBootstrapped when none has
	// ever run there; any other error says nothing about whether one has. RoleReader.
	EtcdMembers(ctx context.Context) ([]EtcdMember, error)
	// Bootstrap makes this node the first member of a new etcd cluster, once per cluster. No error means that the node
	// means to; until EtcdMembers answers, a crash or reboot of it may still forget. RoleAdmin.
	Bootstrap(ctx context.Context) error
	// Reboot reboots the node; no error means that it will. RoleOperator.
	Reboot(ctx context.Context) error
	// Close ends the session.
	Close() error
}

// Status is how a node is; texts are the node's, bounded and free of control characters.
type Status struct {
	// Stage is Talos's machine stage: booting, installing, maintenance, running, rebooting, shutting down, resetting,
	// upgrading; "" when the node does not tell it yet.
	Stage string
	// Ready tells that the node's stage has all that it waits for.
	Ready bool
	// Unmet are the conditions that it waits for, each "name: reason"; none when Ready.
	Unmet []string
	// TalosVersion is such as v1.13.9, "" when not told.
	TalosVersion string
	// Hostname is the node's own name, without domain, "" before it has one.
	Hostname string
}

// StageRunning is the stage of a node that has started everything.
const StageRunning = "running"

// Mode is how a configuration is applied.
type Mode string

// The modes.
const (
	// ModeAuto has the node choose: in a dry run it then tells whether it would need a reboot. Not to be used for good,
	// since it reboots when it needs to (T-18a).
	ModeAuto Mode = "AUTO"
	// ModeNoReboot applies at once, or fails as ClassRejected.
	ModeNoReboot Mode = "NO_REBOOT"
	// ModeStaged applies at the next reboot.
	ModeStaged Mode = "STAGED"
	// ModeReboot is only ever an answer: applying needs a reboot.
	ModeReboot Mode = "REBOOT"
)

// EtcdMember is a member of a node's etcd cluster.
type EtcdMember struct {
	ID       uint64
	Hostname string
	// Learner tells that the member has no vote yet.
	Learner bool
}
