package talosnode_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

const (
	auto     = machineapi.ApplyConfigurationRequest_AUTO
	noReboot = machineapi.ApplyConfigurationRequest_NO_REBOOT
	reboot   = machineapi.ApplyConfigurationRequest_REBOOT
	staged   = machineapi.ApplyConfigurationRequest_STAGED
	try      = machineapi.ApplyConfigurationRequest_TRY
)

// patched is a configuration with a change.
func patched(t *testing.T, config []byte, change string) []byte {
	t.Helper()

	patch, err := configpatcher.LoadPatch([]byte(change))
	if err != nil {
		t.Fatal(err)
	}

	out, err := configpatcher.Apply(configpatcher.WithBytes(config), []configpatcher.Patch{patch})
	if err != nil {
		t.Fatal(err)
	}

	data, err := out.Bytes()
	if err != nil {
		t.Fatal(err)
	}

	return data
}

// configs are the configuration that a node runs with and the one that it boots with.
func configs(t *testing.T, c *client.Client) (active, persistent string) {
	t.Helper()

	read := func(id string) string {
		config, err := safe.StateGetByID[*talosconfig.MachineConfig](within(t), c.COSI, id)
		if err != nil {
			t.Fatal(err)
		}

		data, err := config.Provider().Bytes()
		if err != nil {
			t.Fatal(err)
		}

		return string(data)
	}

	return read(talosconfig.ActiveID), read(talosconfig.PersistentID)
}

// Req: T-18a
func TestAConfiguredNodeTakesChangesAsTheirModeTells(t *testing.T) {
	const (
		light   = "machine: {nodeLabels: {a: b}, sysctls: {net.core.somaxconn: \"4096\"}, kernel: {modules: [{name: nbd}]}}\n"
		cluster = "cluster: {network: {dnsDomain: plant.local}}\n"
		other   = "apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: a\nurl: tcp://127.0.0.1:514\n"
		heavy   = "machine: {env: {HTTPS_PROXY: http://127.0.0.1:3128}}\n"
		feature = "machine: {features: {diskQuotaSupport: false}}\n"
	)

	bundle := anyBundle(t)

	for _, tc := range []struct {
		name   string
		talos  string
		change string
		mode   machineapi.ApplyConfigurationRequest_Mode
		code   codes.Code
		// want is the mode of the answer; active and persistent tell where the change is then.
		want               machineapi.ApplyConfigurationRequest_Mode
		active, persistent bool
		reboots            int
	}{
		{"labels, sysctls and modules apply at once", "v1.13.9", light, auto, codes.OK, noReboot, true, true, 0},
		{"so does the cluster's part", "v1.12.9", cluster, auto, codes.OK, noReboot, true, true, 0},
		{"and every other document", "v1.13.9", other, noReboot, codes.OK, noReboot, true, true, 0},
		{"the environment needs a reboot", "v1.13.9", heavy, auto, codes.OK, reboot, true, true, 1},
		{"so does a feature", "v1.12.9", feature, auto, codes.OK, reboot, true, true, 1},
		{"without one it is refused", "v1.13.9", heavy, noReboot, codes.InvalidArgument, 0, false, false, 0},
		{"trying it is refused too", "v1.12.9", heavy, try, codes.InvalidArgument, 0, false, false, 0},
		{"staged it waits", "v1.13.9", heavy, staged, codes.OK, staged, false, true, 0},
		{"a light change can be staged too", "v1.13.9", light, staged, codes.OK, staged, false, true, 0},
		{"a light change can be rebooted for", "v1.12.9", light, reboot, codes.OK, reboot, true, true, 1},
		{"and tried", "v1.13.9", light, try, codes.OK, try, true, false, 0},
		{"Talos 1.14 never reboots", "v1.14.0", heavy, auto, codes.OK, noReboot, true, true, 0},
		{"not even if it is asked to", "v1.14.0", heavy, reboot, codes.Unimplemented, 0, false, false, 0},
		{"part of a configuration is refused", "v1.13.9", "", auto, codes.InvalidArgument, 0, false, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()

			node := start(t, func(o *talosnode.Options) { o.TalosVersion, o.Reboot = tc.talos, 20*time.Millisecond })
			configured(t, node, bundle, v1alpha1.RoleControlPlane)

			before := node.Configuration()
			change := []byte("apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: a\nurl: tcp://127.0.0.1:514\n")

			if tc.change != "" {
				change = patched(t, before, tc.change)
			}

			c := mutual(t, node, bundle, role.Admin)

			apply := func(dryRun bool) (*machineapi.ApplyConfiguration, error) {
				resp, err := c.ApplyConfiguration(within(t), &machineapi.ApplyConfigurationRequest{Data: change, Mode: tc.mode, DryRun: dryRun})
				if err != nil {
					return nil, err
				}

				return resp.GetMessages()[0], nil
			}

			dry, err := apply(true)
			if client.StatusCode(err) != tc.code || err == nil && (dry.GetMode() != tc.want || !strings.Contains(dry.GetModeDetails(), "skipped in dry-run")) {
				t.Errorf("dry run: %v, %v", dry, err)
			}

			if !bytes.Equal(node.Configuration(), before) || !bytes.Equal(node.PersistentConfiguration(), before) {
				t.Error("a dry run changed something")
			}

			answer, err := apply(false)
			if client.StatusCode(err) != tc.code || err == nil && answer.GetMode() != tc.want {
				t.Errorf("apply: %v, %v", answer, err)
			}

			waitFor(t, "the reboot", func() bool { return node.Reboots() == tc.reboots && node.Stage() == talosnode.StageRunning })

			active, persistent := configs(t, mutual(t, node, bundle, role.Admin))
			if (active == string(change)) != tc.active || (persistent == string(change)) != tc.persistent {
				t.Errorf("changed: running %v, persistent %v", active == string(change), persistent == string(change))
			}

			received := node.Configurations()
			if len(received) != 3 || !received[1].DryRun || received[2].Accepted != (tc.code == codes.OK) || err == nil && received[2].Answer != tc.want.String() {
				t.Errorf("received %+v", received)
			}

			if received[2].Mode != tc.mode.String() || !received[2].Authenticated {
				t.Errorf("received %+v", received[2])
			}
		})
	}
}

// Req: T-18a
func TestAStagedConfigurationWaitsForAReboot(t *testing.T) {
	bundle := anyBundle(t)
	node := start(t, func(o *talosnode.Options) { o.Reboot = 150 * time.Millisecond })
	configured(t, node, bundle, v1alpha1.RoleControlPlane)

	admin, operator, reader := mutual(t, node, bundle, role.Admin), mutual(t, node, bundle, role.Operator), mutual(t, node, bundle, role.Reader)
	change := patched(t, node.Configuration(), "machine: {env: {A: b}}\n")

	if err := admin.Bootstrap(within(t), &machineapi.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}

	if _, err := admin.ApplyConfiguration(within(t), &machineapi.ApplyConfigurationRequest{Data: change, Mode: staged}); err != nil {
		t.Fatal(err)
	}

	if err := reader.Reboot(within(t)); client.StatusCode(err) != codes.PermissionDenied {
		t.Errorf("reboot as a reader: %v", err)
	}

	if err := operator.Reboot(within(t)); err != nil {
		t.Fatal(err)
	}

	if node.Stage() != talosnode.StageRebooting || node.Reboots() != 1 {
		t.Errorf("the node is %s after %d reboots", node.Stage(), node.Reboots())
	}

	waitFor(t, "the port to close", func() bool {
		return maintenance.ClassOf(maintenance.Predial(within(t), node.Address())) == maintenance.ClassUnreachable
	})

	running(t, node)

	if active, _ := configs(t, mutual(t, node, bundle, role.Admin)); active != string(change) {
		t.Error("runs with the old configuration")
	}

	if len(node.EtcdMembers()) != 1 || node.MachineStage() != "running" {
		t.Errorf("the node is %s, in an etcd of %q", node.MachineStage(), node.EtcdMembers())
	}
}

// Req: T-18a
func TestATriedConfigurationIsTakenBack(t *testing.T) {
	t.Parallel()

	bundle := anyBundle(t)
	node := start(t, nil)
	configured(t, node, bundle, v1alpha1.RoleControlPlane)

	before := node.Configuration()

	_, err := mutual(t, node, bundle, role.Admin).ApplyConfiguration(within(t), &machineapi.ApplyConfigurationRequest{
		Data: patched(t, before, "machine: {sysctls: {a.b: c}}\n"), Mode: try, TryModeTimeout: durationpb.New(time.Second),
	})
	if err != nil || bytes.Equal(node.Configuration(), before) {
		t.Fatalf("not tried: %v", err)
	}

	waitFor(t, "the old configuration", func() bool { return bytes.Equal(node.Configuration(), before) })
}

// The answer to the call that takes a node down is never lost with it, however slow the machine is.
func TestANodeAnswersBeforeItGoesDown(t *testing.T) {
	bundle := anyBundle(t)
	config := configuration(t, bundle, v1alpha1.RoleControlPlane, nil)

	for range 20 {
		node := start(t, func(o *talosnode.Options) { o.Install, o.Reboot = time.Nanosecond, time.Nanosecond })

		if _, err := dial(t, node.Address()).ApplyConfiguration(within(t), config, maintenance.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}

		running(t, node)

		if err := mutual(t, node, bundle, role.Operator).Reboot(within(t)); err != nil {
			t.Fatal(err)
		}

		running(t, node)
		node.Close()
	}
}

// Req: T-18a
func TestAConfigurationChangesFromOutside(t *testing.T) {
	bundle := anyBundle(t)
	node := start(t, nil)

	if err := node.PatchConfiguration([]byte("machine: {sysctls: {a.b: c}}\n")); err == nil {
		t.Error("a node without configuration was patched")
	}

	configured(t, node, bundle, v1alpha1.RoleControlPlane)

	admin := mutual(t, node, bundle, role.Admin)

	if err := node.PatchConfiguration([]byte("machine: {sysctls: {a.b: c}}\n---\napiVersion: v1alpha1\nkind: HostnameConfig\nauto: \"off\"\nhostname: press-4\n")); err != nil {
		t.Fatal(err)
	}

	active, persistent := configs(t, admin)
	if !strings.Contains(active, "a.b: c") || active != persistent || len(node.Configurations()) != 1 {
		t.Error("the change does not show")
	}

	if _, err := configloader.NewFromBytes([]byte(active)); err != nil {
		t.Error(err)
	}

	hostname, err := safe.StateGetByID[*network.HostnameStatus](within(t), admin.COSI, network.HostnameID)
	if err != nil || hostname.TypedSpec().Hostname != "press-4" || node.Hostname() != "press-4" {
		t.Errorf("host name %+v, %v", hostname, err)
	}
}

// Req: T-14
func TestTheSystemDiskIsTheOneThatTheConfigurationSelects(t *testing.T) {
	bundle := anyBundle(t)
	hw := server
	hw.Disks = append([]talosnode.Disk{{Path: "/dev/sda", SizeBytes: 2_000_398_934_016, Model: "ST2000NX0253", Serial: "W1", Transport: "sata"}}, server.Disks...)

	node := start(t, func(o *talosnode.Options) { o.Hardware = hw })
	config := configuration(t, bundle, v1alpha1.RoleControlPlane, &v1alpha1.MachineInstall{DiskSelector: &v1alpha1.DiskSelector{Serial: "S64KNX0"}})

	if _, err := dial(t, node.Address()).ApplyConfiguration(within(t), config, maintenance.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}

	running(t, node)

	disk, err := safe.StateGetByID[*block.SystemDisk](within(t), mutual(t, node, bundle, role.Reader).COSI, block.SystemDiskID)
	if err != nil || disk.TypedSpec().DevPath != "/dev/nvme0n1" || node.SystemDisk() != "/dev/nvme0n1" {
		t.Errorf("system disk %+v, %v", disk, err)
	}
}
