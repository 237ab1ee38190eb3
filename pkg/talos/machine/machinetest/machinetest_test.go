package machinetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

const address = "192.0.2.1:50000"

func cluster(ca string) *secrets.Bundle {
	return &secrets.Bundle{Certs: &secrets.Certs{OS: &x509.PEMEncodedCertificateAndKey{Crt: []byte(ca)}}}
}

func dialed(t *testing.T, network *Network, role machine.Role) machine.Client {
	t.Helper()

	client, err := network.Dial(t.Context(), address, machine.Access{Bundle: cluster("a"), Role: role})
	if err != nil {
		t.Fatal(err)
	}

	return client
}

// Req: T-19
func TestWhoIsDialedAnswersAsTheRealOneDoes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Network)
		access machine.Access
		want   machine.Class
	}{
		{"nobody", func(*Network) {}, machine.Access{Bundle: cluster("a"), Role: machine.RoleReader}, machine.ClassUnreachable},
		{"a node of any cluster", func(n *Network) { n.Node(address) }, machine.Access{Bundle: cluster("a"), Role: machine.RoleReader}, ""},
		{"a node of this cluster", func(n *Network) { n.Node(address).OfCluster(cluster("a")) }, machine.Access{Bundle: cluster("a"), Role: machine.RoleReader}, ""},
		{"a node of another", func(n *Network) { n.Node(address).OfCluster(cluster("b")) }, machine.Access{Bundle: cluster("a"), Role: machine.RoleReader}, machine.ClassUntrusted},
		{"a node that is gone", func(n *Network) { n.Node(address); n.Put(address, nil) }, machine.Access{Bundle: cluster("a"), Role: machine.RoleReader}, machine.ClassUnreachable},
		{"a node that is back in maintenance", func(n *Network) { n.Node(address).Fail(machine.OpDial, machine.ClassInMaintenance) }, machine.Access{Bundle: cluster("a"), Role: machine.RoleReader}, machine.ClassInMaintenance},
		{"a node that has recovered", func(n *Network) {
			n.Node(address).Fail(machine.OpDial, machine.ClassUnreachable).Recover(machine.OpDial)
		}, machine.Access{Bundle: cluster("a"), Role: machine.RoleReader}, ""},
		{"without a bundle", func(n *Network) { n.Node(address) }, machine.Access{Role: machine.RoleReader}, machine.ClassInvalidAccess},
		{"without a role", func(n *Network) { n.Node(address) }, machine.Access{Bundle: cluster("a")}, machine.ClassInvalidAccess},
	} {
		network := NewNetwork()
		tc.change(network)

		_, err := network.Dial(t.Context(), address, tc.access)
		if machine.ClassOf(err) != tc.want || (err == nil) != (tc.want == "") {
			t.Errorf("%s: have %v, want class %q", tc.name, err, tc.want)
		}

		if want := []Call{{Op: machine.OpDial, Address: address, Role: tc.access.Role}}; !reflect.DeepEqual(network.Dials(), want) {
			t.Errorf("%s: recorded %v, want %v", tc.name, network.Dials(), want)
		}
	}
}

func TestAnOperationNeedsItsRole(t *testing.T) {
	for role, want := range map[machine.Role]map[machine.Op]bool{
		machine.RoleReader:   {machine.OpIdentity: true, machine.OpStatus: true, machine.OpEtcdMembers: true},
		machine.RoleOperator: {machine.OpIdentity: true, machine.OpStatus: true, machine.OpEtcdMembers: true, machine.OpReboot: true},
		machine.RoleAdmin: {
			machine.OpIdentity: true, machine.OpStatus: true, machine.OpEtcdMembers: true, machine.OpReboot: true,
			machine.OpConfiguration: true, machine.OpTry: true, machine.OpApply: true, machine.OpBootstrap: true,
		},
	} {
		for op, call := range map[machine.Op]func(context.Context, machine.Client) error{
			machine.OpIdentity:      func(ctx context.Context, c machine.Client) error { _, err := c.Identity(ctx); return err },
			machine.OpStatus:        func(ctx context.Context, c machine.Client) error { _, err := c.Status(ctx); return err },
			machine.OpEtcdMembers:   func(ctx context.Context, c machine.Client) error { _, err := c.EtcdMembers(ctx); return err },
			machine.OpConfiguration: func(ctx context.Context, c machine.Client) error { _, err := c.Configuration(ctx); return err },
			machine.OpTry: func(ctx context.Context, c machine.Client) error {
				_, err := c.Apply(ctx, nil, machine.ModeAuto, true)
				return err
			},
			machine.OpApply: func(ctx context.Context, c machine.Client) error {
				_, err := c.Apply(ctx, nil, machine.ModeNoReboot, false)
				return err
			},
			machine.OpBootstrap: func(ctx context.Context, c machine.Client) error { return c.Bootstrap(ctx) },
			machine.OpReboot:    func(ctx context.Context, c machine.Client) error { return c.Reboot(ctx) },
		} {
			network := NewNetwork()
			network.Node(address).SetEtcd(machine.EtcdMember{ID: 1})

			err := call(t.Context(), dialed(t, network, role))
			if denied := machine.ClassOf(err) == machine.ClassDenied; denied == want[op] {
				t.Errorf("%s as %s: %v", op, role, err)
			}

			if calls := network.Node(address).Calls(op); len(calls) != 1 || calls[0].Role != role || calls[0].Address != address {
				t.Errorf("%s as %s: recorded %+v", op, role, calls)
			}
		}
	}
}

func TestConfigurationsAreTakenByMode(t *testing.T) {
	for _, tc := range []struct {
		mode    machine.Mode
		dryRun  bool
		reboots bool
		want    machine.Mode // empty: rejected
		running string
		staged  string
		boots   int
	}{
		{mode: machine.ModeAuto, dryRun: true, want: machine.ModeNoReboot, running: "old"},
		{mode: machine.ModeAuto, dryRun: true, reboots: true, want: machine.ModeReboot, running: "old"},
		{mode: machine.ModeAuto, want: machine.ModeNoReboot, running: "new"},
		{mode: machine.ModeAuto, reboots: true, want: machine.ModeReboot, running: "new", boots: 1},
		{mode: machine.ModeNoReboot, want: machine.ModeNoReboot, running: "new"},
		{mode: machine.ModeNoReboot, reboots: true, running: "old"},
		{mode: machine.ModeStaged, want: machine.ModeStaged, running: "old", staged: "new"},
		{mode: machine.ModeReboot, running: "old"},
	} {
		network := NewNetwork()
		node := network.Node(address).SetConfiguration([]byte("old")).SetWarnings("beware").
			NeedsReboot(func(running, next []byte) bool {
				return tc.reboots && string(running) == "old" && string(next) == "new"
			})

		have, err := dialed(t, network, machine.RoleAdmin).Apply(t.Context(), []byte("new"), tc.mode, tc.dryRun)
		if tc.want == "" {
			if machine.ClassOf(err) != machine.ClassRejected {
				t.Errorf("%+v: %v", tc, err)
			}
		} else if want := (maintenance.ApplyResult{Mode: string(tc.want), Warnings: []string{"beware"}}); err != nil || !reflect.DeepEqual(have, want) {
			t.Errorf("%+v: have %+v, %v", tc, have, err)
		}

		if running, staged := node.Configuration(); string(running) != tc.running || string(staged) != tc.staged || node.Boots() != tc.boots {
			t.Errorf("%+v: runs %q, staged %q, %d boots", tc, running, staged, node.Boots())
		}
	}
}

func TestARebootEndsSessionsAndTakesWhatIsStaged(t *testing.T) {
	network := NewNetwork()
	node := network.Node(address).SetConfiguration([]byte("old"))
	client, other := dialed(t, network, machine.RoleAdmin), dialed(t, network, machine.RoleReader)

	if _, err := client.Apply(t.Context(), []byte("new"), machine.ModeStaged, false); err != nil {
		t.Fatal(err)
	}

	if err := client.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}

	for _, c := range []machine.Client{client, other} {
		if _, err := c.Status(t.Context()); machine.ClassOf(err) != machine.ClassUnreachable {
			t.Errorf("a session outlives the reboot: %v", err)
		}
	}

	if running, staged := node.Configuration(); string(running) != "new" || staged != nil {
		t.Errorf("runs %q, staged %q", running, staged)
	}

	again := dialed(t, network, machine.RoleReader)
	again.Close() //nolint:errcheck

	if _, err := again.Status(t.Context()); machine.ClassOf(err) != machine.ClassUnreachable {
		t.Errorf("a closed session answers: %v", err)
	}
}

func TestEtcdIsBootstrappedOnce(t *testing.T) {
	network := NewNetwork()
	node := network.Node(address).SetStatus(machine.Status{Hostname: "cp-1"})
	client := dialed(t, network, machine.RoleAdmin)

	if _, err := client.EtcdMembers(t.Context()); machine.ClassOf(err) != machine.ClassNotBootstrapped {
		t.Errorf("before: %v", err)
	}

	if err := client.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}

	if have, err := client.EtcdMembers(t.Context()); err != nil || !reflect.DeepEqual(have, []machine.EtcdMember{{ID: 1, Hostname: "cp-1"}}) {
		t.Errorf("after: %+v, %v", have, err)
	}

	if err := client.Bootstrap(t.Context()); machine.ClassOf(err) != machine.ClassAlreadyBootstrapped {
		t.Errorf("again: %v", err)
	}

	node.SetEtcd()

	if err := client.Bootstrap(t.Context()); err != nil {
		t.Errorf("a node whose data is gone: %v", err)
	}
}

func TestHooksStandBeforeAndAfterWhatIsDone(t *testing.T) {
	network := NewNetwork()
	lost := &machine.Error{Class: machine.ClassOutcomeUnknown}
	node := network.Node(address)
	node.After(machine.OpBootstrap, func(context.Context, Call) error { return lost })

	client := dialed(t, network, machine.RoleAdmin)

	if err := client.Bootstrap(t.Context()); !errors.Is(err, lost) {
		t.Errorf("have %v", err)
	}

	if _, err := client.EtcdMembers(t.Context()); err != nil {
		t.Errorf("the answer was lost, and the bootstrap with it: %v", err)
	}

	// A node that changes between two calls of a session, as a test of an identity compared too early needs it.
	node.Before(machine.OpApply, func(context.Context, Call) error {
		node.SetHardware(maintenance.Hardware{UUID: "another"})

		return nil
	})

	if _, err := client.Apply(t.Context(), nil, machine.ModeNoReboot, false); err != nil {
		t.Fatal(err)
	}

	if hw, err := client.Identity(t.Context()); err != nil || hw.UUID != "another" {
		t.Errorf("have %+v, %v", hw, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	if _, err := client.Status(ctx); machine.ClassOf(err) != machine.ClassUnreachable {
		t.Errorf("after the context's end: %v", err)
	}

	node.ForgetCalls()

	if calls := node.Calls(); calls != nil {
		t.Errorf("remembered %v", calls)
	}
}

func TestANetworkIsUsedByMany(t *testing.T) {
	network := NewNetwork()

	var wait sync.WaitGroup

	for i := range 8 {
		wait.Go(func() {
			at := fmt.Sprintf("192.0.2.%d", i%3)
			network.Node(at).SetStatus(machine.Status{Hostname: at}).SetConfiguration([]byte(at)).Fail(machine.OpReboot, machine.ClassBusy)

			client, err := network.Dial(t.Context(), at, machine.Access{Bundle: cluster("a"), Role: machine.RoleAdmin})
			if err != nil {
				t.Error(err)

				return
			}

			if status, err := client.Status(t.Context()); err != nil || status.Hostname != at {
				t.Errorf("have %+v, %v", status, err)
			}

			if err := client.Reboot(t.Context()); machine.ClassOf(err) != machine.ClassBusy {
				t.Errorf("have %v", err)
			}

			network.Node(at).Calls()
			network.Dials()
		})
	}

	wait.Wait()
}
