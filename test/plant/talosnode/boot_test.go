package talosnode_test

import (
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

func TestAResetNodeIsInMaintenanceAgain(t *testing.T) {
	bundle := anyBundle(t)
	partition := func(label string) *machineapi.ResetPartitionSpec {
		return &machineapi.ResetPartitionSpec{Label: label, Wipe: true}
	}

	for _, tc := range []struct {
		name string
		req  *machineapi.ResetRequest
		want talosnode.Stage
	}{
		{"with its state", &machineapi.ResetRequest{Graceful: true, Reboot: true, SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{partition("STATE"), partition("EPHEMERAL")}}, talosnode.StageMaintenance},
		{"whole", &machineapi.ResetRequest{Reboot: true}, talosnode.StageMaintenance},
		{"its data only", &machineapi.ResetRequest{Reboot: true, SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{partition("EPHEMERAL")}}, talosnode.StageRunning},
		{"without a reboot", &machineapi.ResetRequest{}, talosnode.StageOff},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()

			node := start(t, func(o *talosnode.Options) { o.Reboot = 50 * time.Millisecond })
			before := node.Fingerprint()
			configured(t, node, bundle, v1alpha1.RoleControlPlane)

			admin, operator := mutual(t, node, bundle, role.Admin), mutual(t, node, bundle, role.Operator)

			if err := admin.Bootstrap(within(t), &machineapi.BootstrapRequest{}); err != nil {
				t.Fatal(err)
			}

			if err := operator.ResetGeneric(within(t), tc.req); client.StatusCode(err) != codes.PermissionDenied {
				t.Errorf("as an operator: %v", err)
			}

			if err := admin.ResetGeneric(within(t), &machineapi.ResetRequest{SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{partition("WINDOWS")}}); err == nil {
				t.Error("a partition that is not there was reset")
			}

			if err := admin.ResetGeneric(within(t), tc.req); err != nil {
				t.Fatal(err)
			}

			waitFor(t, string(tc.want), func() bool { return node.Stage() == tc.want })

			if node.EtcdMembers() != nil {
				t.Error("still a member of etcd")
			}

			switch tc.want {
			case talosnode.StageOff:
				if !unreachable(t, node) || node.Waits() == "" {
					t.Error("off, and answers")
				}

				if err := node.PowerCycle(); err != nil {
					t.Fatal(err)
				}

				waitFor(t, "maintenance", func() bool { return node.Stage() == talosnode.StageMaintenance })

				fallthrough
			case talosnode.StageMaintenance:
				hw, err := dial(t, node.Address()).Identity(within(t))
				if err != nil || hw.Stage != "maintenance" || hw.Fingerprint == before || node.Configuration() != nil || node.SystemDisk() != "" {
					t.Errorf("have %+v, %v", hw, err)
				}
			case talosnode.StageRunning:
				if node.MachineStage() != "booting" {
					t.Errorf("the machine is %s without its data of etcd", node.MachineStage())
				}
			}
		})
	}
}

func TestANodeComesBackAsItWasWhenItsPowerDoes(t *testing.T) {
	bundle, trustd := anyBundle(t), &talosnode.Trustd{}
	node := func(address string) *talosnode.Node {
		return start(t, func(o *talosnode.Options) {
			o.Trustd, o.Address, o.Name, o.Reboot = trustd, address, address, 50*time.Millisecond
		})
	}
	control, worker := node("127.0.60.31:0"), node("127.0.60.32:0")

	cycle := func(n *talosnode.Node) {
		if err := n.PowerCycle(); err != nil {
			t.Fatal(err)
		}
	}

	before := control.Fingerprint()
	cycle(control)
	waitFor(t, "maintenance", func() bool { return control.Stage() == talosnode.StageMaintenance })

	if hw, err := dial(t, control.Address()).Identity(within(t)); err != nil || hw.Fingerprint == before {
		t.Errorf("have %+v, %v", hw, err)
	}

	configured(t, control, bundle, v1alpha1.RoleControlPlane)
	configured(t, worker, bundle, v1alpha1.RoleWorker)

	// A worker needs a control plane at every boot.
	if err := control.Inject(talosnode.FaultLost); err != nil {
		t.Fatal(err)
	}

	if err := mutual(t, control, bundle, role.Admin).Reboot(within(t)); err != nil {
		t.Fatal(err)
	}

	cycle(worker)
	waitFor(t, "the worker to wait", func() bool { return worker.Waits() != "" })

	if err := control.Heal(); err != nil {
		t.Fatal(err)
	}

	running(t, control)
	running(t, worker)

	if worker.Waits() != "" || control.Reboots() != 1 || worker.Reboots() != 0 {
		t.Errorf("the worker waits %q; reboots %d and %d", worker.Waits(), control.Reboots(), worker.Reboots())
	}
}
