package talosnode_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/identity"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// sharedBundle spares the tests that need any one bundle the making of it.
var sharedBundle = sync.OnceValues(func() ([]byte, error) { return render.GenerateBundle("v1.13") })

var server = talosnode.Hardware{
	UUID: "4c4c4544-0042-3510-8057-b4c04f4d3033", Serial: "7X9K2Q3", Manufacturer: "Dell Inc.", Product: "PowerEdge R650",
	Links: []talosnode.Link{
		{Name: "eth0", MAC: "b4:45:06:aa:00:01", Driver: "igb"}, {Name: "eth1", MAC: "b4:45:06:aa:00:02", Driver: "igb"},
		{Name: "usb0", MAC: "02:00:00:00:00:01", Driver: "cdc_ether"}, {Name: "dummy0", Virtual: true},
	},
	Disks: []talosnode.Disk{{Path: "/dev/nvme0n1", SizeBytes: 512_110_190_592, Model: "SAMSUNG MZVL2512", Serial: "S64KNX0", Transport: "nvme"}},
}

func start(t *testing.T, change func(*talosnode.Options)) *talosnode.Node {
	t.Helper()

	options := talosnode.Options{Name: t.Name(), Address: "127.0.60.1:0", Hardware: server, Install: 20 * time.Millisecond, Logf: t.Logf}
	if change != nil {
		change(&options)
	}

	node, err := talosnode.Start(options)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(node.Close)

	return node
}

func dial(t *testing.T, address string) maintenance.Client {
	t.Helper()

	session, err := maintenance.Dial(within(t), address)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { session.Close() }) //nolint:errcheck

	return session
}

// within is discovery's deadline for one candidate.
func within(t *testing.T) context.Context {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	t.Cleanup(cancel)

	return ctx
}

// newBundle makes a cluster's secrets; that takes a second or two, for its RSA key.
func newBundle(t *testing.T) *secrets.Bundle {
	t.Helper()

	return parse(t, func() ([]byte, error) { return render.GenerateBundle("v1.13") })
}

// anyBundle is the same one for all.
func anyBundle(t *testing.T) *secrets.Bundle {
	t.Helper()

	return parse(t, sharedBundle)
}

func parse(t *testing.T, make func() ([]byte, error)) *secrets.Bundle {
	t.Helper()

	data, err := make()
	if err != nil {
		t.Fatal(err)
	}

	bundle, err := render.ParseBundle(data)
	if err != nil {
		t.Fatal(err)
	}

	return bundle
}

func configuration(t *testing.T, bundle *secrets.Bundle, role v1alpha1.MachineRole, install *v1alpha1.MachineInstall) []byte {
	t.Helper()

	if install == nil {
		install = &v1alpha1.MachineInstall{Disk: "/dev/nvme0n1"}
	}

	data, err := render.Render(render.Input{
		Bundle: bundle,
		Cluster: &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "plant"}, Spec: v1alpha1.TalosClusterSpec{
			ControlPlaneEndpoint: "https://127.0.60.1:6443", TalosVersion: "v1.12", KubernetesVersion: "v1.34.1",
		}},
		Machine: &v1alpha1.TalosMachine{Spec: v1alpha1.TalosMachineSpec{Role: role, Install: install}},
	})
	if err != nil {
		t.Fatal(err)
	}

	return data
}

// mutual is a client of a configured node.
func mutual(t *testing.T, node *talosnode.Node, bundle *secrets.Bundle, roles ...role.Role) *client.Client {
	t.Helper()

	pair, err := bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(roles...), 15*time.Minute)
	if err != nil {
		t.Fatal(err)
	}

	config := clientconfig.NewConfig("plant", []string{node.Address()}, bundle.Certs.OS.Crt, pair)

	c, err := client.New(t.Context(), client.WithConfig(config), client.WithGRPCDialOptions(grpc.WithNoProxy()))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { c.Close() }) //nolint:errcheck

	return c
}

func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()

	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// Req: T-03
func TestIdentityIsReadInMaintenanceMode(t *testing.T) {
	for _, variant := range []talosnode.Variant{talosnode.Since113, talosnode.Until112} {
		node := start(t, func(o *talosnode.Options) { o.Variant = variant })
		session := dial(t, node.Address())

		hw, err := session.Identity(within(t))
		if err != nil {
			t.Fatal(err)
		}

		id := hw.Identity()
		want := identity.Identity{UUID: server.UUID, Serial: server.Serial, MACs: []string{"b4:45:06:aa:00:01", "b4:45:06:aa:00:02"}}

		if !identity.Same(id, want) {
			t.Errorf("identity %+v", id)
		}

		if hw.Manufacturer != "Dell Inc." || hw.Product != "PowerEdge R650" || hw.Stage != "maintenance" || !strings.HasPrefix(hw.TalosVersion, "v1.1") {
			t.Errorf("hardware %+v", hw)
		}

		if len(hw.Disks) != 1 || hw.Disks[0].DevPath != "/dev/nvme0n1" || hw.Disks[0].SizeBytes != 512_110_190_592 || len(hw.Links) != 4 {
			t.Errorf("disks %+v, links %+v", hw.Disks, hw.Links)
		}

		if hw.Fingerprint != node.Fingerprint() || !maintenance.SameFingerprint(session.Fingerprint(), node.Fingerprint()) {
			t.Errorf("fingerprint %s, on the console %s", hw.Fingerprint, node.Fingerprint())
		}

		if out := node.Identities(); len(out) != 1 || out[0].UUID != server.UUID {
			t.Errorf("handed out %+v", out)
		}
	}
}

// Req: T-03, T-15, T-18
func TestAConfigurationTakesANodeOutOfMaintenance(t *testing.T) {
	for _, variant := range []talosnode.Variant{talosnode.Since113, talosnode.Until112} {
		bundle := anyBundle(t)
		node := start(t, func(o *talosnode.Options) { o.Variant = variant })
		session := dial(t, node.Address())
		config := configuration(t, bundle, v1alpha1.RoleControlPlane, nil)

		if _, err := session.ApplyConfiguration(within(t), config, maintenance.ApplyOptions{DryRun: true}); err != nil {
			t.Fatal(err)
		}

		if node.Stage() != talosnode.StageMaintenance {
			t.Fatal("a dry run configured the node")
		}

		result, err := session.ApplyConfiguration(within(t), config, maintenance.ApplyOptions{})
		if err != nil {
			t.Fatal(err)
		}

		if want := map[talosnode.Variant]string{talosnode.Since113: "NO_REBOOT", talosnode.Until112: "AUTO"}[variant]; result.Mode != want {
			t.Errorf("mode %q, want %q", result.Mode, want)
		}

		if _, err := session.ApplyConfiguration(within(t), config, maintenance.ApplyOptions{}); err == nil {
			t.Error("a second configuration was accepted")
		} else if class := maintenance.ClassOf(err); class != maintenance.ClassBusy && class != maintenance.ClassOutcomeUnknown {
			t.Errorf("a second configuration: %v", err)
		}

		waitFor(t, "apid", func() bool { return node.Stage() == talosnode.StageRunning })

		// The session was the only connection there ever was.
		if _, err := session.Identity(within(t)); maintenance.ClassOf(err) != maintenance.ClassUnreachable {
			t.Errorf("the old session: %v", err)
		}

		for range 20 {
			again, err := maintenance.Dial(within(t), node.Address())
			if err == nil {
				_, err = again.Identity(within(t))
				again.Close() //nolint:errcheck
			}

			if maintenance.ClassOf(err) != maintenance.ClassNotInMaintenance {
				t.Fatalf("a configured node: %v", err)
			}
		}

		admin := mutual(t, node, bundle, role.Admin)
		if _, err := admin.Version(within(t)); err != nil {
			t.Errorf("Version: %v", err)
		}

		if _, err := safe.StateGetByID[*hardware.SystemInformation](within(t), admin.COSI, hardware.SystemInformationID); err != nil {
			t.Errorf("identity over mutual TLS: %v", err)
		}

		running, err := safe.StateGetByID[*talosconfig.MachineConfig](within(t), admin.COSI, talosconfig.ActiveID)
		if err != nil || running.Config().Machine().Type().String() != "controlplane" {
			t.Errorf("machine configuration: %v", err)
		}

		if err := admin.Bootstrap(within(t), &machineapi.BootstrapRequest{}); err != nil {
			t.Errorf("Bootstrap: %v", err)
		}

		if err := admin.Bootstrap(within(t), &machineapi.BootstrapRequest{}); client.StatusCode(err) != codes.AlreadyExists {
			t.Errorf("a second Bootstrap: %v", err)
		}

		reader := mutual(t, node, bundle, role.Reader)
		if _, err := reader.Version(within(t)); err != nil {
			t.Errorf("Version as a reader: %v", err)
		}

		if err := reader.Bootstrap(within(t), &machineapi.BootstrapRequest{}); client.StatusCode(err) != codes.PermissionDenied {
			t.Errorf("Bootstrap as a reader: %v", err)
		}

		if _, err := safe.StateGetByID[*talosconfig.MachineConfig](within(t), reader.COSI, talosconfig.ActiveID); client.StatusCode(err) != codes.PermissionDenied {
			t.Errorf("machine configuration as a reader: %v", err)
		}

		stranger := mutual(t, node, newBundle(t), role.Admin)
		if _, err := stranger.Version(within(t)); err == nil {
			t.Error("another cluster's administrator is let in")
		}

		received := node.Configurations()
		if len(received) != 3 || !received[0].DryRun || received[0].Accepted || !received[1].Accepted || received[2].Accepted && received[2].Code == "OK" {
			if len(received) != 2 { // the second one may have come too late to be received at all
				t.Errorf("received %+v", received)
			}
		}

		if received[1].Role != "controlplane" || received[1].Bytes != len(config) || received[1].Authenticated {
			t.Errorf("received %+v", received[1])
		}
	}
}

// Req: T-15
func TestAWorkerWaitsForAControlPlane(t *testing.T) {
	bundle, trustd := anyBundle(t), &talosnode.Trustd{}

	worker := start(t, func(o *talosnode.Options) { o.Trustd = trustd })
	control := start(t, func(o *talosnode.Options) { o.Trustd, o.Address = trustd, "127.0.60.2:0" })

	if _, err := dial(t, worker.Address()).ApplyConfiguration(within(t), configuration(t, bundle, v1alpha1.RoleWorker, nil), maintenance.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}

	time.Sleep(300 * time.Millisecond)

	if worker.Stage() != talosnode.StageInstalling {
		t.Errorf("the worker is %s without any control plane", worker.Stage())
	}

	if _, err := maintenance.Dial(within(t), worker.Address()); maintenance.ClassOf(err) != maintenance.ClassUnreachable {
		t.Errorf("a worker without certificate: %v", err)
	}

	if _, err := dial(t, control.Address()).ApplyConfiguration(within(t), configuration(t, bundle, v1alpha1.RoleControlPlane, nil), maintenance.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}

	waitFor(t, "the worker", func() bool { return worker.Stage() == talosnode.StageRunning })

	admin := mutual(t, worker, bundle, role.Admin)
	if _, err := admin.Version(within(t)); err != nil {
		t.Errorf("Version: %v", err)
	}

	if err := admin.Bootstrap(within(t), &machineapi.BootstrapRequest{}); client.StatusCode(err) != codes.FailedPrecondition {
		t.Errorf("Bootstrap of a worker: %v", err)
	}
}

// Req: T-09
func TestWhatAnswersInsteadIsClassified(t *testing.T) {
	for _, tc := range []struct {
		fault talosnode.Fault
		want  maintenance.Class
		// predial tells whether the TCP connection alone succeeds.
		predial bool
	}{
		{talosnode.FaultSilent, maintenance.ClassUnreachable, true},
		{talosnode.FaultClosed, maintenance.ClassUnreachable, false},
		{talosnode.FaultNotTLS, maintenance.ClassNotTalos, true},
		{talosnode.FaultSlow, maintenance.ClassUnreachable, true},
		{talosnode.FaultNoSMBIOS, maintenance.ClassIdentityAbsent, true},
	} {
		t.Run(string(tc.fault), func(t *testing.T) {
			t.Parallel()

			node := start(t, nil)
			before := dial(t, node.Address())

			if err := node.Inject(tc.fault); err != nil {
				t.Fatal(err)
			}

			if err := maintenance.Predial(within(t), node.Address()); (err == nil) != tc.predial {
				t.Errorf("predial: %v", err)
			}

			ctx := within(t)
			begin := time.Now()

			session, err := maintenance.Dial(ctx, node.Address())
			if err == nil {
				defer session.Close() //nolint:errcheck

				var hw maintenance.Hardware
				hw, err = session.Identity(ctx)

				if tc.fault == talosnode.FaultNoSMBIOS && (len(hw.Links) == 0 || len(hw.Disks) == 0) {
					t.Errorf("the rest was not read: %+v", hw)
				}
			}

			if maintenance.ClassOf(err) != tc.want {
				t.Errorf("have %v, want %s", err, tc.want)
			}

			if took := time.Since(begin); took > 2500*time.Millisecond {
				t.Errorf("took %s", took)
			}

			if _, err := before.Identity(within(t)); err == nil {
				t.Error("a session from before still works")
			}

			if err := node.Heal(); err != nil {
				t.Fatal(err)
			}

			if _, err := dial(t, node.Address()).Identity(within(t)); err != nil {
				t.Errorf("after healing: %v", err)
			}
		})
	}
}

// Req: T-18
func TestAnotherMachineOnTheSameConnectionShows(t *testing.T) {
	node := start(t, nil)
	session := dial(t, node.Address())

	first, err := session.Identity(within(t))
	if err != nil {
		t.Fatal(err)
	}

	if err := node.Inject(talosnode.FaultIdentity); err != nil {
		t.Fatal(err)
	}

	second, err := session.Identity(within(t))
	if err != nil {
		t.Fatal(err)
	}

	if identity.Same(first.Identity(), second.Identity()) {
		t.Error("the change does not show")
	}

	if second.Fingerprint != first.Fingerprint {
		t.Error("the fingerprint of one connection changed")
	}
}

// Req: T-18
func TestASessionNeverMovesToAnotherMachine(t *testing.T) {
	node := start(t, nil)
	session := dial(t, node.Address())

	if _, err := session.Identity(within(t)); err != nil {
		t.Fatal(err)
	}

	if err := node.Inject(talosnode.FaultTakeover); err != nil {
		t.Fatal(err)
	}

	config := configuration(t, anyBundle(t), v1alpha1.RoleWorker, nil)

	for range 5 {
		if _, err := session.ApplyConfiguration(within(t), config, maintenance.ApplyOptions{}); maintenance.ClassOf(err) != maintenance.ClassOutcomeUnknown {
			t.Errorf("have %v", err)
		}
	}

	if received := node.Configurations(); len(received) != 0 {
		t.Errorf("the machine that took over received %+v", received)
	}

	if after := dial(t, node.Address()); after.Fingerprint() == session.Fingerprint() {
		t.Error("the machine that took over has the same key")
	}
}

// Req: T-18
func TestARotatedKeyConcernsNewSessionsOnly(t *testing.T) {
	node := start(t, nil)
	session := dial(t, node.Address())

	if err := node.RotateKey(); err != nil {
		t.Fatal(err)
	}

	if _, err := session.Identity(within(t)); err != nil {
		t.Error(err)
	}

	if dial(t, node.Address()).Fingerprint() == session.Fingerprint() {
		t.Error("a new session has the old key")
	}
}

// Req: T-15
func TestRefusedConfigurationsLeakNothing(t *testing.T) {
	bundle := anyBundle(t)
	good := configuration(t, bundle, v1alpha1.RoleControlPlane, nil)

	for _, tc := range []struct {
		name   string
		config []byte
		want   string
	}{
		{"an unknown field whose value is a token", append([]byte("nonsense: "+bundle.TrustdInfo.Token+"\n"), good...), ""},
		{"without an endpoint", good[:bytes.Index(good, []byte("    controlPlane:"))], "endpoint"},
		{"no disk matches", configuration(t, bundle, v1alpha1.RoleControlPlane, &v1alpha1.MachineInstall{DiskSelector: &v1alpha1.DiskSelector{Model: "WDC*"}}), "no disks matched the expression"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := start(t, nil)

			_, err := dial(t, node.Address()).ApplyConfiguration(within(t), tc.config, maintenance.ApplyOptions{})
			if maintenance.ClassOf(err) != maintenance.ClassRejected || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("have %v", err)
			}

			for _, value := range render.BundleMaterial(bundle) {
				if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), value) {
					t.Fatalf("bundle material in %v", err)
				}
			}

			if received := node.Configurations(); len(received) != 1 || received[0].Accepted || received[0].Code != "InvalidArgument" {
				t.Errorf("received %+v", received)
			}

			if node.Stage() != talosnode.StageMaintenance {
				t.Errorf("the node is %s", node.Stage())
			}
		})
	}
}

// What anybody may do in maintenance mode, and what nobody may.
func TestMaintenanceModesAccessPolicy(t *testing.T) {
	for variant, want := range map[talosnode.Variant]struct{ version, reboot codes.Code }{
		talosnode.Since113: {codes.OK, codes.PermissionDenied},
		talosnode.Until112: {codes.Unimplemented, codes.Unimplemented},
	} {
		node := start(t, func(o *talosnode.Options) { o.Variant = variant })

		c, err := client.New(t.Context(), client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}),
			client.WithEndpoints(node.Address()), client.WithGRPCDialOptions(grpc.WithNoProxy()))
		if err != nil {
			t.Fatal(err)
		}

		defer c.Close() //nolint:errcheck

		if _, err := c.Version(within(t)); client.StatusCode(err) != want.version {
			t.Errorf("Version: %v", err)
		}

		if err := c.Reboot(within(t)); client.StatusCode(err) != want.reboot {
			t.Errorf("Reboot: %v", err)
		}

		if _, err := safe.StateListAll[*network.LinkSpec](within(t), c.COSI); client.StatusCode(err) != codes.PermissionDenied {
			t.Errorf("a sensitive type: %v", err)
		}

		if _, err := safe.StateListAll[*network.RouteStatus](within(t), c.COSI); client.StatusCode(err) != codes.PermissionDenied {
			t.Errorf("an unknown type: %v", err)
		}

		if err := c.COSI.Destroy(within(t), hardware.NewSystemInformation(hardware.SystemInformationID).Metadata()); err == nil {
			t.Error("a write was allowed")
		}

		partial := []byte("apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: a\nurl: tcp://127.0.0.1:514\n")

		_, err = c.ApplyConfiguration(within(t), &machineapi.ApplyConfigurationRequest{Data: partial, Mode: machineapi.ApplyConfigurationRequest_AUTO})
		if (err == nil) != (variant == talosnode.Since113) || node.Stage() != talosnode.StageMaintenance {
			t.Errorf("a partial configuration: %v, node is %s", err, node.Stage())
		}

		_, err = c.ApplyConfiguration(within(t), &machineapi.ApplyConfigurationRequest{Data: partial, Mode: machineapi.ApplyConfigurationRequest_STAGED})
		if (client.StatusCode(err) == codes.Unimplemented) != (variant == talosnode.Until112) {
			t.Errorf("STAGED: %v", err)
		}
	}
}

func TestAWipedNodeIsInMaintenanceAgain(t *testing.T) {
	bundle := anyBundle(t)
	node := start(t, nil)
	before := node.Fingerprint()

	if _, err := dial(t, node.Address()).ApplyConfiguration(within(t), configuration(t, bundle, v1alpha1.RoleControlPlane, nil), maintenance.ApplyOptions{}); err != nil {
		t.Fatal(err)
	}

	waitFor(t, "apid", func() bool { return node.Stage() == talosnode.StageRunning })

	if err := node.Wipe(); err != nil {
		t.Fatal(err)
	}

	if hw, err := dial(t, node.Address()).Identity(within(t)); err != nil || hw.Stage != "maintenance" || hw.Fingerprint == before {
		t.Errorf("have %+v, %v", hw, err)
	}
}

func TestOnlyLoopbackIsServed(t *testing.T) {
	if node, err := talosnode.Start(talosnode.Options{Address: "0.0.0.0:0"}); err == nil {
		node.Close()
		t.Error("listens everywhere")
	}
}

func TestCloseLeavesNothingRunning(t *testing.T) {
	before := runtime.NumGoroutine()

	for range 5 {
		node, err := talosnode.Start(talosnode.Options{Address: "127.0.60.9:0", Hardware: server})
		if err != nil {
			t.Fatal(err)
		}

		session, err := maintenance.Dial(within(t), node.Address())
		if err != nil {
			t.Fatal(err)
		}

		if _, err := session.Identity(within(t)); err != nil {
			t.Fatal(err)
		}

		session.Close() //nolint:errcheck
		node.Close()
	}

	waitFor(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before+2 })
}
