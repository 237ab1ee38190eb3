package talosnode_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// session is the real client's, with a node that takes it.
func session(t *testing.T, node *talosnode.Node, bundle *secrets.Bundle, role machine.Role) machine.Client {
	t.Helper()

	client, err := machine.Dial(within(t), node.Address(), machine.Access{Bundle: bundle, Role: role})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { client.Close() }) //nolint:errcheck

	return client
}

// Req: T-18, T-18a
func TestTheClientOfConfiguredNodesMeetsOneFromItsConfigurationOn(t *testing.T) {
	bundle, other, trustd := anyBundle(t), newBundle(t), &talosnode.Trustd{}
	node := func(address string) *talosnode.Node {
		return start(t, func(o *talosnode.Options) {
			o.Trustd, o.Address, o.Name, o.Reboot = trustd, address, address, 50*time.Millisecond
		})
	}
	control, worker := node("127.0.60.41:0"), node("127.0.60.42:0")
	access := machine.Access{Bundle: bundle, Role: machine.RoleReader}

	if _, err := machine.Dial(within(t), control.Address(), access); machine.ClassOf(err) != machine.ClassInMaintenance {
		t.Errorf("in maintenance mode: %v", err)
	}

	configured(t, control, bundle, v1alpha1.RoleControlPlane)
	configured(t, worker, bundle, v1alpha1.RoleWorker)

	if _, err := machine.Dial(within(t), control.Address(), machine.Access{Bundle: other, Role: machine.RoleReader}); machine.ClassOf(err) != machine.ClassUntrusted {
		t.Errorf("with another cluster's bundle: %v", err)
	}

	reader := session(t, control, bundle, machine.RoleReader)

	hw, err := reader.Identity(within(t))
	if err != nil || hw.UUID != server.UUID || len(hw.Disks) != 1 {
		t.Errorf("identity: %+v, %v", hw, err)
	}

	status, err := reader.Status(within(t))
	if err != nil || status.Stage != "booting" || status.Ready || len(status.Unmet) == 0 || status.Hostname != control.Hostname() || status.TalosVersion != "v1.13.9" {
		t.Errorf("status: %+v, %v", status, err)
	}

	waitFor(t, "etcd's data directory", func() bool {
		_, err := reader.EtcdMembers(within(t))

		return machine.ClassOf(err) == machine.ClassNotBootstrapped
	})

	if _, err := session(t, worker, bundle, machine.RoleReader).EtcdMembers(within(t)); machine.ClassOf(err) != machine.ClassNodeError {
		t.Errorf("etcd of a worker: %v", err)
	}

	_, err = reader.Configuration(within(t))
	for _, err := range []error{err, reader.Reboot(within(t)), reader.Bootstrap(within(t))} {
		if machine.ClassOf(err) != machine.ClassDenied {
			t.Errorf("as a reader: %v", err)
		}
	}

	admin := session(t, control, bundle, machine.RoleAdmin)

	if err := admin.Bootstrap(within(t)); err != nil {
		t.Fatal(err)
	}

	if err := admin.Bootstrap(within(t)); machine.ClassOf(err) != machine.ClassAlreadyBootstrapped {
		t.Errorf("a second bootstrap: %v", err)
	}

	members, err := reader.EtcdMembers(within(t))
	if err != nil || len(members) != 1 || members[0].Hostname != control.Hostname() || members[0].ID == 0 {
		t.Errorf("members: %+v, %v", members, err)
	}

	if status, err := reader.Status(within(t)); err != nil || status.Stage != machine.StageRunning || !status.Ready || status.Unmet != nil {
		t.Errorf("status: %+v, %v", status, err)
	}

	running, err := admin.Configuration(within(t))
	if err != nil || !bytes.Equal(running, configuration(t, bundle, v1alpha1.RoleControlPlane, nil)) {
		t.Errorf("the configuration is not the one rendered: %v", err)
	}

	reboots := patched(t, running, "machine:\n  env:\n    PLANT: hall-4\n")

	result, err := admin.Apply(within(t), reboots, machine.ModeAuto, true)
	if err != nil || result.Mode != string(machine.ModeReboot) {
		t.Errorf("a dry run: %+v, %v", result, err)
	}

	if _, err := admin.Apply(within(t), reboots, machine.ModeNoReboot, false); machine.ClassOf(err) != machine.ClassRejected {
		t.Errorf("without a reboot: %v", err)
	}

	if result, err := admin.Apply(within(t), reboots, machine.ModeStaged, false); err != nil || result.Mode != string(machine.ModeStaged) {
		t.Errorf("staged: %+v, %v", result, err)
	}

	if err := session(t, control, bundle, machine.RoleOperator).Reboot(within(t)); err != nil {
		t.Fatal(err)
	}

	waitFor(t, "the session to be over", func() bool {
		_, err := admin.Status(within(t))

		return machine.ClassOf(err) == machine.ClassUnreachable
	})

	waitFor(t, "the next boot", func() bool { return control.Reboots() == 1 && control.Stage() == talosnode.StageRunning })

	if running, err := session(t, control, bundle, machine.RoleAdmin).Configuration(within(t)); err != nil || !bytes.Equal(running, reboots) {
		t.Errorf("the staged configuration does not run: %v", err)
	}
}
