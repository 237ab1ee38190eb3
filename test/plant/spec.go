package plant

import (
	"fmt"
	"net"
	"os"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// Spec describes a plant; as a file it is YAML or JSON.
type Spec struct {
	Talos      []TalosSpec      `json:"talos,omitempty"`
	Modbus     []ModbusSpec     `json:"modbus,omitempty"`
	OPCUA      []OPCUASpec      `json:"opcua,omitempty"`
	EtherNetIP []EtherNetIPSpec `json:"ethernetip,omitempty"`
}

// TalosSpec describes a Talos node that starts in maintenance mode.
type TalosSpec struct {
	Name string `json:"name"`
	// Address is a loopback address, with port 50000 unless another is given.
	Address string `json:"address"`
	// Talos is the version, v1.13.9 by default; before v1.13 maintenance mode behaves differently.
	Talos string `json:"talos,omitempty"`

	// Install, Reboot, Boot and EtcdJoin are how long these take; 0 is the default of talosnode.Options.
	Install  metav1.Duration `json:"install,omitzero"`
	Reboot   metav1.Duration `json:"reboot,omitzero"`
	Boot     metav1.Duration `json:"boot,omitzero"`
	EtcdJoin metav1.Duration `json:"etcdJoin,omitzero"`
	// NoSMBIOSReads is how many readings find no system information at first.
	NoSMBIOSReads int `json:"noSMBIOSReads,omitempty"`

	talosnode.Hardware `json:",inline"`
}

// ModbusSpec describes a Modbus TCP device.
type ModbusSpec struct {
	Name string `json:"name"`
	// Address is a loopback address with port.
	Address string       `json:"address"`
	Units   []ModbusUnit `json:"units"`
	// MaxClients closes connections beyond this number; 0 is no limit.
	MaxClients int `json:"maxClients,omitempty"`
}

// ModbusUnit is one unit id of a device.
type ModbusUnit struct {
	ID uint8 `json:"id"`
	// Vendor, Product and Revision are its nameplate (function 43/14); a unit without any has none.
	Vendor   string `json:"vendor,omitempty"`
	Product  string `json:"product,omitempty"`
	Revision string `json:"revision,omitempty"`

	Registers []ModbusRegisters `json:"registers,omitempty"`
}

// ModbusRegisters is a run of registers.
type ModbusRegisters struct {
	// Table is holding, input, coil or discrete.
	Table   string   `json:"table"`
	Address uint16   `json:"address"`
	Values  []uint16 `json:"values"`
}

// OPCUASpec describes an OPC UA server that offers the policies None and Basic256Sha256, with the certificate of
// opcuatest.Thumbprint.
type OPCUASpec struct {
	Name string `json:"name"`
	// Address is a loopback address with port.
	Address string `json:"address"`
	Product string `json:"product,omitempty"`
	// Users are passwords by user name; without any, everybody may read.
	Users     map[string]string `json:"users,omitempty"`
	Variables []OPCUAVariable   `json:"variables,omitempty"`
}

// OPCUAVariable is a variable of a server.
type OPCUAVariable struct {
	// Path is where it lies below Objects, such as Line/Mixer/Temperature.
	Path string `json:"path"`
	// Value is a bool, a text or a number, which is a Double.
	Value any     `json:"value"`
	Unit  string  `json:"unit,omitempty"`
	Low   float64 `json:"low,omitempty"`
	High  float64 `json:"high,omitempty"`
	// Writable variables are not read-only.
	Writable bool `json:"writable,omitempty"`
}

// EtherNetIPSpec describes an EtherNet/IP controller.
type EtherNetIPSpec struct {
	Name string `json:"name"`
	// Address is a loopback address with port.
	Address string `json:"address"`
	Product string `json:"product,omitempty"`
	// Slot is the CPU's in its chassis, to which the path is "1,SLOT"; without one it is addressed directly.
	Slot *uint8          `json:"slot,omitempty"`
	Tags []EtherNetIPTag `json:"tags,omitempty"`
}

// EtherNetIPTag is a tag of a controller.
type EtherNetIPTag struct {
	// Name is the tag's, with a program in front of its own: Program:Main.Speed.
	Name string `json:"name"`
	// Type is BOOL, INT, DINT, REAL or STRING.
	Type string `json:"type"`
	// Size is how many elements an array has; 0 is no array.
	Size int `json:"size,omitempty"`
	// ReadOnly is the tag's external access.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// Load reads a plant's description from a file.
func Load(path string) (Spec, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Spec{}, err
	}

	var spec Spec
	if err := yaml.UnmarshalStrict(data, &spec); err != nil {
		return Spec{}, fmt.Errorf("%s: %w", path, err)
	}

	return spec, nil
}

// Example is the plant that comes with the project: a control plane and two workers to be, a virtual machine without a
// serial number, two boxes with one UUID, three Modbus devices, an OPC UA server and an EtherNet/IP controller.
func Example() Spec { return ExampleAt(50) }

// ExampleAt is the example plant with its Talos nodes in 127.0.<third>.0/24 and its devices in the next network, so that
// tests do not meet a plant that runs already. The UUIDs differ too: a machine belongs to one namespace.
func ExampleAt(third int) Spec {
	talos := func(last int) string { return fmt.Sprintf("127.0.%d.%d", third, last) }
	device := func(last int) string { return fmt.Sprintf("127.0.%d.%d:5020", third+1, last) }

	nic := func(mac string) []talosnode.Link {
		return []talosnode.Link{{Name: "eth0", MAC: mac, Driver: "igb"}, {Name: "lo0", Virtual: true}}
	}

	nvme := func(serial string) []talosnode.Disk {
		return []talosnode.Disk{
			{Path: "/dev/nvme0n1", SizeBytes: 512_110_190_592, Model: "SAMSUNG MZVL2512HCJQ", Serial: serial, WWID: "eui.00253845" + serial, Transport: "nvme"},
			{Path: "/dev/sda", SizeBytes: 2_000_398_934_016, Model: "ST2000NX0253", Serial: "W" + serial, Transport: "sata", Rotational: true},
		}
	}

	box := func(uuid, serial, mac, disk string) talosnode.Hardware {
		return talosnode.Hardware{
			UUID: uuid, Serial: serial, Manufacturer: "Advantech", Product: "ARK-3534", Links: nic(mac), Disks: nvme(disk),
		}
	}

	vm := talosnode.Hardware{
		UUID: "5a0e6c1e-3c1b-4d7e-9f0a-7c5d1b2e4f60", Manufacturer: "QEMU", Product: "Standard PC (Q35 + ICH9, 2009)",
		Links: []talosnode.Link{{Name: "ens18", MAC: "bc:24:11:5e:07:44", Driver: "virtio_net"}},
		Disks: []talosnode.Disk{{Path: "/dev/vda", SizeBytes: 34_359_738_368, Transport: "virtio"}},
	}

	uuid := func(last int) string {
		return fmt.Sprintf("3f1d2c%02x-5a69-4788-9c0d-1e2f3a4b5c%02d", (third+25)&0xff, last)
	}
	sharedUUID := fmt.Sprintf("b2f8a6%02x-1c3e-4a57-8d90-6e5f7a8b9c0d", (third+162)&0xff)

	line := func(id uint8, product string, values ...uint16) ModbusUnit {
		return ModbusUnit{
			ID: id, Vendor: "fieldplane", Product: product, Revision: "1.0",
			Registers: []ModbusRegisters{
				{Table: "holding", Address: 0, Values: values},
				{Table: "input", Address: 0, Values: values},
				{Table: "coil", Address: 0, Values: []uint16{1, 0, 1, 0}},
				{Table: "discrete", Address: 0, Values: []uint16{0, 1, 0, 1}},
			},
		}
	}

	return Spec{
		Talos: []TalosSpec{
			{Name: "control-1", Address: talos(1), Hardware: box(uuid(1), "ADV2345001", "c4:00:ad:10:50:01", "S64KNX0T100001")},
			{Name: "worker-1", Address: talos(2), Hardware: box(uuid(2), "ADV2345002", "c4:00:ad:10:50:02", "S64KNX0T100002")},
			{Name: "worker-2", Address: talos(3), Talos: "v1.12.9", Hardware: box(uuid(3), "ADV2345003", "c4:00:ad:10:50:03", "S64KNX0T100003")},
			{Name: "weak-1", Address: talos(4), Hardware: vm},
			{Name: "twin-a", Address: talos(5), Hardware: box(sharedUUID, "ADV2345005", "c4:00:ad:10:50:05", "S64KNX0T100005")},
			{Name: "twin-b", Address: talos(6), Hardware: box(sharedUUID, "ADV2345006", "c4:00:ad:10:50:06", "S64KNX0T100006")},
		},
		Modbus: []ModbusSpec{
			{Name: "mixer", Address: device(1), Units: []ModbusUnit{line(1, "Mixer", 215, 1480, 0, 37)}},
			{Name: "tank", Address: device(2), Units: []ModbusUnit{line(1, "Tank", 642, 88, 1, 0)}},
			{Name: "gateway", Address: device(3), Units: []ModbusUnit{line(1, "Pump", 55, 1), line(2, "Valve", 100, 0)}},
		},
		OPCUA:      []OPCUASpec{{Name: "press", Address: fmt.Sprintf("127.0.%d.4:4840", third+1), Product: "Press", Variables: pressVariables()}},
		EtherNetIP: []EtherNetIPSpec{{Name: "packer", Address: fmt.Sprintf("127.0.%d.5:44818", third+1), Product: "1756-L83E/B", Slot: new(uint8), Tags: packerTags()}},
	}
}

// pressVariables are those of a press with four cylinders: variables below objects and below variables.
func pressVariables() []OPCUAVariable {
	variables := []OPCUAVariable{
		{Path: "Press/State", Value: "Running"},
		{Path: "Press/Cycles", Value: 184_302.0},
		{Path: "Press/CycleTime", Value: 4.2, Unit: "s", High: 60},
		{Path: "Press/Force", Value: 812.5, Unit: "kN", High: 1000},
		{Path: "Press/Force/Setpoint", Value: 815.0, Unit: "kN", High: 1000, Writable: true},
		{Path: "Press/Doors/Front/Closed", Value: true},
		{Path: "Press/Doors/Rear/Closed", Value: true},
	}
	for i := range 4 {
		at := fmt.Sprintf("Press/Cylinders/%d/", i+1)
		variables = append(variables,
			OPCUAVariable{Path: at + "Pressure", Value: 148.0 + float64(i), Unit: "bar", High: 250},
			OPCUAVariable{Path: at + "Pressure/Limit", Value: 240.0, Unit: "bar", High: 250, Writable: true},
			OPCUAVariable{Path: at + "Position", Value: 12.5, Unit: "mm", Low: -5, High: 400},
			OPCUAVariable{Path: at + "Temperature", Value: 41.3, Unit: "°C", Low: -40, High: 150},
			OPCUAVariable{Path: at + "Valve/Open", Value: i%2 == 0},
			OPCUAVariable{Path: at + "Valve/Strokes", Value: 90_211.0},
		)
	}
	return variables
}

// packerTags are those of a packing machine's controller.
func packerTags() []EtherNetIPTag {
	tags := []EtherNetIPTag{
		{Name: "Running", Type: "BOOL"},
		{Name: "Speed", Type: "REAL"},
		{Name: "Batch", Type: "STRING"},
		{Name: "Rejects", Type: "DINT", Size: 8},
		{Name: "Program:Packing.Step", Type: "INT"},
		{Name: "Program:Packing.Cartons", Type: "DINT", ReadOnly: true},
	}
	for i := range 6 {
		tags = append(tags,
			EtherNetIPTag{Name: fmt.Sprintf("Axis%d_Position", i+1), Type: "REAL"},
			EtherNetIPTag{Name: fmt.Sprintf("Axis%d_Fault", i+1), Type: "DINT", ReadOnly: true},
		)
	}
	return tags
}

// loopback checks that an address is one that a plant may listen on, and adds a port to one that has none.
func loopback(address string, port int) (string, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host, address = address, net.JoinHostPort(address, strconv.Itoa(port))
	}

	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return "", fmt.Errorf("%q is no loopback address", host)
	}

	return address, nil
}
