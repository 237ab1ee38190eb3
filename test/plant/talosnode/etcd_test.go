package talosnode_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	talosruntime "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// configured takes a node through its first configuration, and waits for apid.
func configured(t *testing.T, node *talosnode.Node, bundle *secrets.Bundle, role v1alpha1.MachineRole) {
	t.Helper()

	if _, err := dial(t, node.Address()).ApplyConfiguration(within(t), configuration(t, bundle, role, nil), maintenance.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}

	running(t, node)
}

func running(t *testing.T, node *talosnode.Node) {
	t.Helper()

	waitFor(t, "apid", func() bool { return node.Stage() == talosnode.StageRunning })
}

// machineStatus reads what the machine says of itself.
func machineStatus(t *testing.T, c *client.Client) talosruntime.MachineStatusSpec {
	t.Helper()

	status, err := safe.StateGetByID[*talosruntime.MachineStatus](within(t), c.COSI, talosruntime.MachineStatusID)
	if err != nil {
		t.Fatal(err)
	}

	return *status.TypedSpec()
}

func members(t *testing.T, c *client.Client, local bool) ([]string, error) {
	t.Helper()

	resp, err := c.EtcdMemberList(within(t), &machineapi.EtcdMemberListRequest{QueryLocal: local})
	if err != nil {
		return nil, err
	}

	var out []string
	for _, m := range resp.GetMessages()[0].GetMembers() {
		out = append(out, m.GetHostname())
	}

	return out, nil
}

// Req: T-15
func TestEtcdIsBootstrappedOnceAndJoinedByTheOthers(t *testing.T) {
	bundle, trustd := anyBundle(t), &talosnode.Trustd{}
	node := func(address string) *talosnode.Node {
		return start(t, func(o *talosnode.Options) { o.Trustd, o.Address, o.Name = trustd, address, address })
	}
	first, second, worker := node("127.0.60.11:0"), node("127.0.60.12:0"), node("127.0.60.13:0")

	configured(t, first, bundle, v1alpha1.RoleControlPlane)
	configured(t, second, bundle, v1alpha1.RoleControlPlane)
	configured(t, worker, bundle, v1alpha1.RoleWorker)

	admin, reader := mutual(t, first, bundle, role.Admin), mutual(t, second, bundle, role.Reader)
	ofWorker := mutual(t, worker, bundle, role.Reader)

	// Discovery is on in what is rendered here, so the node knows of control planes where no etcd listens.
	if _, err := members(t, reader, false); client.StatusCode(err) != codes.Unavailable || !strings.Contains(err.Error(), ":2379") {
		t.Errorf("members before the bootstrap: %v", err)
	}

	if _, err := members(t, reader, true); client.StatusCode(err) != codes.DeadlineExceeded {
		t.Errorf("local members before the bootstrap: %v", err)
	}

	if _, err := members(t, ofWorker, false); client.StatusCode(err) != codes.Unimplemented {
		t.Errorf("members of a worker: %v", err)
	}

	status := machineStatus(t, reader)
	if status.Stage != talosruntime.MachineStageBooting || status.Status.Ready || len(status.Status.UnmetConditions) == 0 || second.MachineStage() != "booting" {
		t.Errorf("a control plane without etcd: %+v", status)
	}

	if status := machineStatus(t, ofWorker); status.Stage != talosruntime.MachineStageRunning || status.Status.Ready {
		t.Errorf("a worker without Kubernetes: %+v", status)
	}

	for fault, want := range map[talosnode.Fault]string{talosnode.FaultNoTime: "time is not in sync yet", talosnode.FaultBusy: "bootstrap is not available yet"} {
		if err := first.Inject(fault); err != nil {
			t.Fatal(err)
		}

		if err := admin.Bootstrap(within(t), &machineapi.BootstrapRequest{}); client.StatusCode(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), want) {
			t.Errorf("bootstrap under %s: %v", fault, err)
		}
	}

	if err := first.Heal(); err != nil {
		t.Fatal(err)
	}

	if err := admin.Bootstrap(within(t), &machineapi.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}

	if err := admin.Bootstrap(within(t), &machineapi.BootstrapRequest{}); client.StatusCode(err) != codes.AlreadyExists {
		t.Errorf("a second bootstrap: %v", err)
	}

	// A control plane that is no member yet tells of those that are.
	if list, err := members(t, reader, false); err != nil || !slices.Contains(list, first.Hostname()) {
		t.Errorf("members: %q, %v", list, err)
	}

	waitFor(t, "the second member", func() bool { return len(second.EtcdMembers()) == 2 })

	if list, err := members(t, reader, true); err != nil || !slices.Equal(list, []string{first.Hostname(), second.Hostname()}) {
		t.Errorf("members: %q, %v", list, err)
	}

	ofSecond := mutual(t, second, bundle, role.Admin)
	if err := ofSecond.Bootstrap(within(t), &machineapi.BootstrapRequest{}); client.StatusCode(err) != codes.AlreadyExists {
		t.Errorf("bootstrap of a member: %v", err)
	}

	for _, c := range []*client.Client{admin, reader, ofWorker} {
		if status := machineStatus(t, c); status.Stage != talosruntime.MachineStageRunning || !status.Status.Ready {
			t.Errorf("after the bootstrap: %+v", status)
		}
	}

	if first.Bootstraps() != 1 || second.Bootstraps() != 0 || first.Calls("Bootstrap") != 4 || second.Calls("Bootstrap") != 1 {
		t.Errorf("bootstraps %d and %d of %d and %d calls", first.Bootstraps(), second.Bootstraps(), first.Calls("Bootstrap"), second.Calls("Bootstrap"))
	}

	// One of two is no majority.
	if err := first.Inject(talosnode.FaultClosed); err != nil {
		t.Fatal(err)
	}

	if _, err := members(t, reader, true); client.StatusCode(err) != codes.Unavailable || !strings.Contains(err.Error(), "no leader") {
		t.Errorf("members without a majority: %v", err)
	}

	if err := first.Heal(); err != nil {
		t.Fatal(err)
	}

	if err := second.Wipe(); err != nil {
		t.Fatal(err)
	}

	if err := first.Wipe(); err != nil {
		t.Fatal(err)
	}

	if first.EtcdMembers() != nil || second.EtcdMembers() != nil {
		t.Error("members of an etcd whose data is gone")
	}
}

// What a client must not do: a real node cannot tell either.
func TestAControlPlaneThatHasNotJoinedStartsAnEtcdOfItsOwn(t *testing.T) {
	bundle, trustd := anyBundle(t), &talosnode.Trustd{}
	node := func(address string) *talosnode.Node {
		return start(t, func(o *talosnode.Options) {
			o.Trustd, o.Address, o.Name, o.EtcdJoin = trustd, address, address, time.Hour
		})
	}
	first, second := node("127.0.60.14:0"), node("127.0.60.15:0")

	for _, n := range []*talosnode.Node{first, second} {
		configured(t, n, bundle, v1alpha1.RoleControlPlane)

		if err := mutual(t, n, bundle, role.Admin).Bootstrap(within(t), &machineapi.BootstrapRequest{}); err != nil {
			t.Fatal(err)
		}
	}

	if len(first.EtcdMembers()) != 1 || len(second.EtcdMembers()) != 1 || first.Bootstraps()+second.Bootstraps() != 2 {
		t.Errorf("members %q and %q", first.EtcdMembers(), second.EtcdMembers())
	}
}

func TestEtcdWaitsForTheBoot(t *testing.T) {
	bundle := anyBundle(t)
	node := start(t, func(o *talosnode.Options) { o.Boot = 300 * time.Millisecond })
	configured(t, node, bundle, v1alpha1.RoleControlPlane)

	admin := mutual(t, node, bundle, role.Admin)
	if err := admin.Bootstrap(within(t), &machineapi.BootstrapRequest{}); client.StatusCode(err) != codes.FailedPrecondition {
		t.Errorf("bootstrap while booting: %v", err)
	}

	waitFor(t, "bootstrap", func() bool { return admin.Bootstrap(within(t), &machineapi.BootstrapRequest{}) == nil })
}
