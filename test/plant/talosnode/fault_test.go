package talosnode_test

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	talosruntime "github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

func inject(t *testing.T, node *talosnode.Node, fault talosnode.Fault) {
	t.Helper()

	if err := node.Inject(fault); err != nil {
		t.Fatal(err)
	}
}

func unreachable(t *testing.T, node *talosnode.Node) bool {
	t.Helper()

	return maintenance.ClassOf(maintenance.Predial(within(t), node.Address())) == maintenance.ClassUnreachable
}

func TestEveryFaultTellsItsEffect(t *testing.T) {
	for _, fault := range talosnode.Faults() {
		if fault.Effect() == "" {
			t.Errorf("%s: no effect", fault)
		}
	}
}

// Req: T-18
func TestAConfigurationMeetsFaults(t *testing.T) {
	bundle := anyBundle(t)

	for _, tc := range []struct {
		fault talosnode.Fault
		want  maintenance.Class
		// taken tells that the node has the configuration, gone that it is away until it is healed.
		taken, gone bool
	}{
		{talosnode.FaultRefuse, maintenance.ClassRejected, false, false},
		{talosnode.FaultBusy, maintenance.ClassBusy, false, false},
		{talosnode.FaultDropped, maintenance.ClassOutcomeUnknown, false, false},
		{talosnode.FaultUnanswered, maintenance.ClassOutcomeUnknown, true, false},
		{talosnode.FaultLost, "", true, true},
		{talosnode.FaultLostUnanswered, maintenance.ClassOutcomeUnknown, true, true},
	} {
		for _, variant := range []talosnode.Variant{talosnode.Since113, talosnode.Until112} {
			t.Run(fmt.Sprint(tc.fault, variant), func(t *testing.T) {
				t.Parallel()

				node := start(t, func(o *talosnode.Options) { o.Variant = variant })
				inject(t, node, tc.fault)

				config := configuration(t, bundle, v1alpha1.RoleControlPlane, nil)

				_, err := dial(t, node.Address()).ApplyConfiguration(within(t), config, maintenance.ApplyOptions{})
				if maintenance.ClassOf(err) != tc.want || (err == nil) != (tc.want == "") {
					t.Errorf("have %v", err)
				}

				received := node.Configurations()
				if len(received) != 1 || received[0].Accepted != tc.taken || received[0].Bytes != len(config) {
					t.Errorf("received %+v", received)
				}

				if tc.gone {
					waitFor(t, "the node to be gone", func() bool { return unreachable(t, node) })
					time.Sleep(100 * time.Millisecond) // longer than an installation

					if node.Stage() != talosnode.StageInstalling || !unreachable(t, node) || node.Waits() == "" {
						t.Errorf("the node is %s, waits %q", node.Stage(), node.Waits())
					}
				}

				if tc.taken && !tc.gone {
					running(t, node)
				}

				if err := node.Heal(); err != nil {
					t.Fatal(err)
				}

				if tc.taken {
					running(t, node)

					if _, err := mutual(t, node, bundle, role.Reader).Version(within(t)); err != nil {
						t.Error(err)
					}
				} else {
					configured(t, node, bundle, v1alpha1.RoleControlPlane)
				}
			})
		}
	}
}

// Req: T-15
func TestARefusalQuotesTheConfiguration(t *testing.T) {
	bundle := anyBundle(t)
	node := start(t, nil)
	inject(t, node, talosnode.FaultRefuse)

	c, err := client.New(t.Context(), client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}),
		client.WithEndpoints(node.Address()), client.WithGRPCDialOptions(grpc.WithNoProxy()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck

	config := configuration(t, bundle, v1alpha1.RoleControlPlane, nil)

	_, err = c.ApplyConfiguration(within(t), &machineapi.ApplyConfigurationRequest{Data: config})
	if client.StatusCode(err) != codes.InvalidArgument || !strings.Contains(err.Error(), bundle.TrustdInfo.Token) {
		t.Errorf("have %v", client.StatusCode(err))
	}

	_, err = dial(t, node.Address()).ApplyConfiguration(within(t), config, maintenance.ApplyOptions{})
	for _, value := range render.BundleMaterial(bundle) {
		if strings.Contains(err.Error(), value) {
			t.Fatal("our client hands it on")
		}
	}
}

// Req: T-15
func TestBootstrapAndRebootMeetFaults(t *testing.T) {
	bundle := anyBundle(t)

	for _, tc := range []struct {
		fault                 talosnode.Fault
		answered, taken, gone bool
	}{
		{talosnode.FaultDropped, false, false, false},
		{talosnode.FaultUnanswered, false, true, false},
		{talosnode.FaultLost, true, true, true},
		{talosnode.FaultLostUnanswered, false, true, true},
	} {
		t.Run(string(tc.fault), func(t *testing.T) {
			t.Parallel()

			node := start(t, func(o *talosnode.Options) { o.Reboot = 20 * time.Millisecond })
			configured(t, node, bundle, v1alpha1.RoleControlPlane)

			times := 0
			if tc.taken {
				times = 1
			}

			for what, do := range map[string]func(*client.Client) (int, error){
				"Bootstrap": func(c *client.Client) (int, error) {
					err := c.Bootstrap(within(t), &machineapi.BootstrapRequest{})

					return node.Bootstraps(), err
				},
				"Reboot": func(c *client.Client) (int, error) {
					err := c.Reboot(within(t))

					return node.Reboots(), err
				},
			} {
				inject(t, node, tc.fault)

				count, err := do(mutual(t, node, bundle, role.Admin))
				if (err == nil) != tc.answered || !tc.answered && client.StatusCode(err) != codes.Unavailable || count != times {
					t.Errorf("%s: %v, taken %d times", what, err, count)
				}

				if tc.gone {
					waitFor(t, "the node to be gone", func() bool { return unreachable(t, node) })
				}

				if err := node.Heal(); err != nil {
					t.Fatal(err)
				}

				running(t, node)
			}
		})
	}
}

// Req: T-18
func TestTheAddressIsTakenOverWhenAConfigurationComes(t *testing.T) {
	node := start(t, nil)
	inject(t, node, talosnode.FaultLateTakeover)

	session := dial(t, node.Address())

	before, err := session.Identity(within(t))
	if err != nil || before.Serial != server.Serial {
		t.Fatalf("have %+v, %v", before, err)
	}

	_, err = session.ApplyConfiguration(within(t), configuration(t, anyBundle(t), v1alpha1.RoleWorker, nil), maintenance.ApplyOptions{})
	if maintenance.ClassOf(err) != maintenance.ClassOutcomeUnknown || len(node.Configurations()) != 0 {
		t.Errorf("have %v, received %+v", err, node.Configurations())
	}

	after, err := dial(t, node.Address()).Identity(within(t))
	if err != nil || after.Serial == server.Serial || after.Fingerprint == before.Fingerprint {
		t.Errorf("have %+v, %v", after, err)
	}
}

// Req: T-18
func TestAnotherMachineHasTheAddressOfAConfiguredOne(t *testing.T) {
	bundle := anyBundle(t)
	node := start(t, nil)
	configured(t, node, bundle, v1alpha1.RoleControlPlane)
	inject(t, node, talosnode.FaultTakeover)

	hw, err := dial(t, node.Address()).Identity(within(t))
	if err != nil || hw.Stage != "maintenance" || hw.Serial == server.Serial {
		t.Errorf("have %+v, %v", hw, err)
	}

	if err := node.Heal(); err != nil {
		t.Fatal(err)
	}

	if _, err := mutual(t, node, bundle, role.Reader).Version(within(t)); err != nil {
		t.Error(err)
	}
}

// Req: T-18
func TestTwoNodesSwapTheirAddresses(t *testing.T) {
	bundle, trustd := anyBundle(t), &talosnode.Trustd{}
	node := func(address, serial string) *talosnode.Node {
		return start(t, func(o *talosnode.Options) {
			o.Trustd, o.Address, o.Name, o.Hardware.Serial = trustd, address, address, serial
		})
	}
	a, b := node("127.0.60.21:0", "A"), node("127.0.60.22:0", "B")
	atA, atB := a.Address(), b.Address()
	session, key := dial(t, atA), b.Fingerprint()

	swap := func() {
		if err := talosnode.Swap(a, b); err != nil {
			t.Fatal(err)
		}
	}

	swap()

	if _, err := session.Identity(within(t)); maintenance.ClassOf(err) != maintenance.ClassUnreachable {
		t.Errorf("a session from before: %v", err)
	}

	for address, want := range map[string]string{atA: "B", atB: "A"} {
		if hw, err := dial(t, address).Identity(within(t)); err != nil || hw.Serial != want || hw.Fingerprint == key {
			t.Errorf("at %s %+v, %v", address, hw, err)
		}
	}

	configured(t, a, bundle, v1alpha1.RoleControlPlane)
	configured(t, b, bundle, v1alpha1.RoleWorker)
	swap()

	if a.Address() != atA || b.Address() != atB {
		t.Errorf("at %s and %s", a.Address(), b.Address())
	}

	for n, want := range map[*talosnode.Node]string{a: "A", b: "B"} {
		system, err := safe.StateGetByID[*hardware.SystemInformation](within(t), mutual(t, n, bundle, role.Reader).COSI, hardware.SystemInformationID)
		if err != nil || system.TypedSpec().SerialNumber != want {
			t.Errorf("have %+v, %v", system, err)
		}
	}

	if talosnode.Swap(a, a) == nil {
		t.Error("a node swapped with itself")
	}
}

// Req: T-03
func TestSystemInformationComesLate(t *testing.T) {
	node := start(t, func(o *talosnode.Options) { o.NoSMBIOSReads = 2 })

	for range 2 {
		for i := range 5 {
			hw, err := dial(t, node.Address()).Identity(within(t))
			if err == nil && hw.Serial == server.Serial {
				if i < 2 {
					t.Errorf("after %d readings", i)
				}

				break
			}

			if maintenance.ClassOf(err) != maintenance.ClassIdentityAbsent || i > 3 {
				t.Fatalf("reading %d: %v", i, err)
			}
		}

		inject(t, node, talosnode.FaultEarlyBoot)
	}
}

// Req: T-04
func TestTheUUIDIsOverridden(t *testing.T) {
	node := start(t, nil)

	uuid := func() string {
		hw, err := dial(t, node.Address()).Identity(within(t))
		if err != nil {
			t.Fatal(err)
		}

		return hw.UUID
	}

	inject(t, node, talosnode.FaultUUID)

	if uuid() == server.UUID {
		t.Error("the fault does not show")
	}

	if err := node.SetMetaUUID("Press 4"); err != nil {
		t.Fatal(err)
	}

	if err := node.Heal(); err != nil {
		t.Fatal(err)
	}

	if have := uuid(); !strings.EqualFold(have, "Press 4") {
		t.Errorf("have %q", have)
	}

	if err := node.SetMetaUUID(""); err != nil || uuid() != server.UUID {
		t.Errorf("the override stays: %v", err)
	}
}

func TestReadinessIsAsTold(t *testing.T) {
	bundle := anyBundle(t)
	node := start(t, nil)
	configured(t, node, bundle, v1alpha1.RoleControlPlane)

	admin := mutual(t, node, bundle, role.Admin)
	if err := admin.Bootstrap(within(t), &machineapi.BootstrapRequest{}); err != nil {
		t.Fatal(err)
	}

	is := func(ready bool, unmet string) {
		t.Helper()

		status := machineStatus(t, admin)
		if status.Stage != talosruntime.MachineStageRunning || status.Status.Ready != ready || !strings.Contains(fmt.Sprint(status.Status.UnmetConditions), unmet) {
			t.Errorf("have %+v", status)
		}
	}

	is(true, "")
	inject(t, node, talosnode.FaultUnready)
	is(false, "kubelet")
	inject(t, node, talosnode.FaultNone)

	if err := node.SetReadiness(&talosnode.Readiness{Unmet: []talosnode.Unmet{{Name: "staticPods", Reason: "kube-apiserver not ready"}}}); err != nil {
		t.Fatal(err)
	}

	is(false, "kube-apiserver not ready")

	if err := node.SetReadiness(nil); err != nil {
		t.Fatal(err)
	}

	is(true, "")
}
