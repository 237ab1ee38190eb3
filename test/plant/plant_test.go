package plant_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua/opcuatest"
	"github.com/fieldplane/fieldplane/pkg/talos/identity"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
	"github.com/fieldplane/fieldplane/test/plant"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

func start(t *testing.T, spec plant.Spec) *plant.Plant {
	t.Helper()

	p, err := plant.Start(spec, t.Logf)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(p.Close)

	return p
}

func within(t *testing.T) context.Context {
	t.Helper()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	t.Cleanup(cancel)

	return ctx
}

// Req: T-04, T-05, T-07
func TestTheExamplePlantHasStrongWeakAndCollidingMachines(t *testing.T) {
	p := start(t, plant.ExampleAt(62))
	seen := map[string]identity.Identity{}

	for _, name := range []string{"control-1", "worker-1", "worker-2", "weak-1", "twin-a", "twin-b"} {
		session, err := maintenance.Dial(within(t), strings.TrimSuffix(p.Node(name).Address(), ":50000"))
		if err != nil {
			t.Fatal(err)
		}

		hw, err := session.Identity(within(t))
		if err != nil {
			t.Fatal(err)
		}

		session.Close() //nolint:errcheck

		seen[name] = hw.Identity()

		if strong := seen[name].Strong(); strong != (name != "weak-1") {
			t.Errorf("%s: strong is %v, misses %v", name, strong, seen[name].Missing())
		}
	}

	a, b := seen["twin-a"], seen["twin-b"]
	if a.UUID != b.UUID || identity.Same(a, b) || identity.Compare(a, b).Explain() == "" {
		t.Errorf("the twins do not collide: %+v, %+v", a, b)
	}

	if seen["control-1"].UUID == seen["worker-1"].UUID {
		t.Error("two machines have one UUID")
	}
}

func TestAPlantIsCommandedFromAnotherProcess(t *testing.T) {
	p := start(t, plant.ExampleAt(64))

	for _, address := range []string{filepath.Join(t.TempDir(), "plant.sock"), "127.0.65.100:50080"} {
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)

		listener, err := plant.Listen(address)
		if err != nil {
			t.Fatal(err)
		}

		if _, err := plant.Listen(address); err == nil {
			t.Error("two plants in one place")
		}

		go func() { served <- p.Serve(ctx, listener) }()

		remote := plant.Connect(address)

		list, err := remote.List(within(t))
		if err != nil || len(list) != 11 || list[0].Name != "control-1" || list[0].State != "maintenance" || list[0].Fingerprint != p.Node("control-1").Fingerprint() {
			t.Fatalf("list: %+v, %v", list, err)
		}

		if err := remote.Fault(within(t), "worker-1", "closed"); err != nil {
			t.Fatal(err)
		}

		if _, err := maintenance.Dial(within(t), p.Node("worker-1").Address()); maintenance.ClassOf(err) != maintenance.ClassUnreachable {
			t.Errorf("a closed node: %v", err)
		}

		if err := remote.Heal(within(t), "worker-1"); err != nil {
			t.Fatal(err)
		}

		if session, err := maintenance.Dial(within(t), p.Node("worker-1").Address()); err != nil {
			t.Errorf("a healed node: %v", err)
		} else {
			session.Close() //nolint:errcheck
		}

		for what, err := range map[string]error{
			"an unknown member":         remote.Fault(within(t), "nobody", "closed"),
			"an unknown fault":          remote.Fault(within(t), "worker-1", "tired"),
			"an unknown device's fault": remote.Fault(within(t), "mixer", "tired"),
			"no fault":                  remote.Fault(within(t), "mixer", ""),
			"healing nobody":            remote.Heal(within(t), "nobody"),
			"wiping a device":           remote.Wipe(within(t), "mixer"),
		} {
			if err == nil {
				t.Errorf("%s is accepted", what)
			}
		}

		if err := remote.Wipe(within(t), "worker-2"); err != nil {
			t.Error(err)
		}

		configs, err := remote.Configurations(within(t))
		if err != nil || len(configs) != 6 || len(configs["control-1"]) != 0 {
			t.Errorf("configurations: %+v, %v", configs, err)
		}

		cancel()

		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// Everything that an operator may do to a node is done to one in another process, too.
func TestTalosNodesAreCommandedFromAnotherProcess(t *testing.T) {
	p := start(t, plant.ExampleAt(60))
	socket := filepath.Join(t.TempDir(), "plant.sock")

	listener, err := plant.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)

	go func() { served <- p.Serve(ctx, listener) }()

	remote := plant.Connect(socket)

	status := func(name string) plant.Status {
		list, err := remote.List(within(t))
		if err != nil {
			t.Fatal(err)
		}

		for _, s := range list {
			if s.Name == name {
				return s
			}
		}

		t.Fatalf("no %s in %+v", name, list)

		return plant.Status{}
	}

	must := func(err error) {
		t.Helper()

		if err != nil {
			t.Fatal(err)
		}
	}

	before := status("control-1")

	must(remote.SetUUID(within(t), "control-1", "Press 4"))

	if have := status("control-1"); have.UUID != "Press 4" {
		t.Errorf("have %+v", have)
	}

	must(remote.SetUUID(within(t), "control-1", ""))
	must(remote.Swap(within(t), "control-1", "worker-1"))

	if have := status("worker-1"); have.Address != before.Address {
		t.Errorf("have %+v", have)
	}

	must(remote.Swap(within(t), "worker-1", "control-1"))
	must(remote.PowerCycle(within(t), "control-1"))

	for deadline := time.Now().Add(5 * time.Second); status("control-1").State != "maintenance"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("have %+v", status("control-1"))
		}
	}

	if have := status("control-1"); have.Fingerprint == before.Fingerprint || have.Address != before.Address || have.UUID != before.UUID {
		t.Errorf("have %+v", have)
	}

	for what, err := range map[string]error{
		"patching a node without configuration": remote.Patch(within(t), "control-1", "machine: {}"),
		"patching nobody":                       remote.Patch(within(t), "nobody", "machine: {}"),
		"swapping with a device":                remote.Swap(within(t), "control-1", "mixer"),
		"swapping with itself":                  remote.Swap(within(t), "control-1", "control-1"),
		"switching a device off":                remote.PowerCycle(within(t), "mixer"),
		"another UUID of a device":              remote.SetUUID(within(t), "mixer", "x"),
	} {
		if err == nil {
			t.Errorf("%s is accepted", what)
		}
	}

	cancel()
	must(<-served)
}

func TestModbusDevicesHaveFaults(t *testing.T) {
	p := start(t, plant.ExampleAt(66))
	address := p.Modbus("mixer").Addr()

	// Read holding register 0 of unit 1.
	request := []byte{0, 1, 0, 0, 0, 6, 1, 3, 0, 0, 0, 1}

	ask := func() string {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return "refused"
		}
		defer conn.Close() //nolint:errcheck

		conn.SetDeadline(time.Now().Add(300 * time.Millisecond)) //nolint:errcheck
		conn.Write(request)                                      //nolint:errcheck

		reply := make([]byte, 64)

		n, err := conn.Read(reply)

		switch {
		case err != nil:
			return "no answer"
		case n > 8 && reply[7] == 0x83:
			return "exception"
		case n == 11 && reply[9] == 0 && reply[10] == 215:
			return "value"
		default:
			return "nonsense"
		}
	}

	for _, step := range []struct{ fault, want string }{
		{"", "value"}, {"closed", "refused"}, {"", "value"}, {"silent", "no answer"}, {"slow", "no answer"},
		{"exception", "exception"}, {"closed", "refused"}, {"silent", "no answer"}, {"reset", "value"}, {"", "value"},
	} {
		var err error
		if step.fault == "" {
			err = p.Heal("mixer")
		} else {
			err = p.Fault("mixer", step.fault)
		}

		if err != nil {
			t.Fatal(err)
		}

		if have := ask(); have != step.want {
			t.Errorf("%q: %s, want %s", step.fault, have, step.want)
		}
	}
}

// Req: P-13, P-16
func TestDevicesOfOtherProtocolsHaveTheSameFaultsAndTellThemAsTheFieldDoes(t *testing.T) {
	p := start(t, plant.ExampleAt(72))

	var dialer net.Dialer

	limit := driver.NewConnectLimit(20)
	press, err := opcua.New(dialer.DialContext, limit, opcua.Options{}).Open(opcua.Config{
		Endpoint: p.OPCUA("press").Endpoint(), SecurityPolicy: opcua.PolicyBasic256Sha256, SecurityMode: opcua.ModeSignAndEncrypt,
		TrustedThumbprint: opcuatest.Thumbprint, Timeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}

	packer, err := ethernetip.New(dialer.DialContext, limit, 1).Open(ethernetip.Config{
		Endpoint: p.EtherNetIP("packer").Endpoint(), Path: "1,0", Timeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}

	for name, device := range map[string]driver.Device{"press": press, "packer": packer} {
		t.Run(name, func(t *testing.T) {
			defer device.Close() //nolint:errcheck

			ask := func() driver.Reason {
				answer, err := device.Check(t.Context())
				if err != nil {
					return driver.ReasonOf(err)
				}

				return answer.Reason
			}

			for _, step := range []struct {
				fault string
				want  driver.Reason
			}{
				{"", ""}, {"closed", driver.ReasonRefused}, {"", ""}, {"silent", driver.ReasonTimeout}, {"slow", driver.ReasonTimeout},
				{"closed", driver.ReasonRefused}, {"reset", ""}, {"", ""},
			} {
				var err error
				if step.fault == "" {
					err = p.Heal(name)
				} else {
					err = p.Fault(name, step.fault)
				}

				if err != nil {
					t.Fatal(err)
				}

				have := ask()
				// The first answer may be that of the connection that a fault has ended.
				for deadline := time.Now().Add(10 * time.Second); have != step.want && time.Now().Before(deadline); {
					have = ask()
				}

				if have != step.want {
					t.Errorf("%q: %q, want %q", step.fault, have, step.want)
				}
			}

			if err := p.Fault(name, "exception"); err == nil {
				t.Error("a fault of Modbus alone is accepted")
			}

			list, err := device.Channels(t.Context(), 1000)
			if err != nil || len(list.Items) < 18 || list.Truncated {
				t.Errorf("%d channels, %v", len(list.Items), err)
			}
		})
	}
}

func TestAPlantIsReadFromAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plant.yaml")

	text := `
talos:
- name: board
  address: 127.0.68.1
  talos: v1.12.9
  noSMBIOS: true
  noSMBIOSReads: 2
  install: 1s
  boot: 300ms
  links: [{name: end0, mac: "dc:a6:32:00:00:01"}]
  disks: [{path: /dev/mmcblk0, sizeBytes: 32000000000, transport: mmc}]
modbus:
- name: pump
  address: 127.0.69.1:5020
  units:
  - id: 7
    vendor: ACME
    registers: [{table: holding, address: 100, values: [1, 2]}]
opcua:
- name: press
  address: 127.0.69.2:4840
  users: {probe: secret}
  variables: [{path: Line/Force, value: 1.5, unit: kN, high: 10}, {path: Line/On, value: true}]
ethernetip:
- name: packer
  address: 127.0.69.3:44818
  slot: 2
  tags: [{name: Rejects, type: DINT, size: 4}]
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	spec, err := plant.Load(path)
	if err != nil {
		t.Fatal(err)
	}

	p := start(t, spec)

	if p.Node("board").Stage() != talosnode.StageMaintenance || p.Modbus("pump").Unit(7).Holding(101) != 2 {
		t.Errorf("have %+v", p.List())
	}

	if p.OPCUA("press").Addr() != "127.0.69.2:4840" || p.EtherNetIP("packer").Addr() != "127.0.69.3:44818" {
		t.Errorf("have %+v", p.List())
	}

	if p.Node("nobody") != nil || p.Modbus("nobody") != nil || p.OPCUA("pump") != nil || p.EtherNetIP("press") != nil {
		t.Error("members that are not there")
	}
}

func TestWrongDescriptionsAreRefused(t *testing.T) {
	for name, spec := range map[string]plant.Spec{
		"not loopback":        {Talos: []plant.TalosSpec{{Name: "a", Address: "192.0.2.1"}}},
		"a host name":         {Modbus: []plant.ModbusSpec{{Name: "a", Address: "localhost:5020"}}},
		"two of one name":     {Talos: []plant.TalosSpec{{Name: "a", Address: "127.0.70.1"}, {Name: "a", Address: "127.0.70.2"}}},
		"no name":             {Talos: []plant.TalosSpec{{Address: "127.0.70.1"}}},
		"no version":          {Talos: []plant.TalosSpec{{Name: "a", Address: "127.0.70.1", Talos: "new"}}},
		"an unknown table":    {Modbus: []plant.ModbusSpec{{Name: "a", Address: "127.0.70.1:5020", Units: []plant.ModbusUnit{{Registers: []plant.ModbusRegisters{{Table: "x"}}}}}}},
		"no variable":         {OPCUA: []plant.OPCUASpec{{Name: "a", Address: "127.0.70.1:4840", Variables: []plant.OPCUAVariable{{}}}}},
		"an unknown type":     {EtherNetIP: []plant.EtherNetIPSpec{{Name: "a", Address: "127.0.70.1:44818", Tags: []plant.EtherNetIPTag{{Name: "a", Type: "x"}}}}},
		"one name for two":    {OPCUA: []plant.OPCUASpec{{Name: "a", Address: "127.0.70.1:4840"}}, EtherNetIP: []plant.EtherNetIPSpec{{Name: "a", Address: "127.0.70.1:44818"}}},
		"one address for two": {Talos: []plant.TalosSpec{{Name: "a", Address: "127.0.70.1"}, {Name: "b", Address: "127.0.70.1"}}},
	} {
		if p, err := plant.Start(spec, nil); err == nil {
			p.Close()
			t.Errorf("%s: started", name)
		}
	}
}
