package validation

import (
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// check wants no error, or exactly one, of the field and with the value and the rule in its text.
func check(t *testing.T, errs field.ErrorList, wantField string, texts ...string) {
	t.Helper()
	if wantField == "" {
		if len(errs) > 0 {
			t.Errorf("refused: %v", errs)
		}
		return
	}
	if len(errs) != 1 {
		t.Fatalf("want one error, have %v", errs)
	}
	if errs[0].Field != wantField {
		t.Errorf("have %v, want one of %s", errs[0], wantField)
	}
	for _, text := range texts {
		if !strings.Contains(errs[0].Error(), text) {
			t.Errorf("%q does not say %q", errs[0], text)
		}
	}
}

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func modbusModule(endpoint string) *physical.IOModule {
	return &physical.IOModule{
		ObjectMeta: metav1.ObjectMeta{Name: "pump", Namespace: "site-a"},
		Spec:       physical.IOModuleSpec{Protocol: physical.ProtocolModbus, Modbus: &physical.ModbusConnection{Endpoint: endpoint, Addressing: physical.ModbusAddressingZeroBased}},
	}
}

// Req: A-04, P-01, P-13
func TestProtocolMembers(t *testing.T) {
	modbus := &physical.ModbusConnection{Endpoint: "tcp://192.0.2.1"}
	opcua := &physical.OPCUAConnection{Endpoint: "opc.tcp://192.0.2.1"}
	ethernetip := &physical.EtherNetIPConnection{Endpoint: "tcp://192.0.2.1"}

	for _, tc := range []struct {
		name  string
		spec  physical.IOModuleSpec
		field string
		texts []string
	}{
		{"modbus with its member", physical.IOModuleSpec{Protocol: physical.ProtocolModbus, Modbus: modbus}, "", nil},
		{"opcua with its member", physical.IOModuleSpec{Protocol: physical.ProtocolOPCUA, OPCUA: opcua}, "", nil},
		{"ethernetip with its member", physical.IOModuleSpec{Protocol: physical.ProtocolEtherNetIP, Ethernetip: ethernetip}, "", nil},
		{"simulation with its member", physical.IOModuleSpec{Protocol: physical.ProtocolSimulation, Simulation: &physical.SimulationSettings{}}, "", nil},
		{"simulation without its member, which is optional", physical.IOModuleSpec{Protocol: physical.ProtocolSimulation}, "", nil},
		{"modbus without its member", physical.IOModuleSpec{Protocol: physical.ProtocolModbus}, "spec.modbus", []string{"Required", `"modbus"`}},
		{"opcua without its member", physical.IOModuleSpec{Protocol: physical.ProtocolOPCUA}, "spec.opcua", []string{"Required", `"opcua"`}},
		{"ethernetip without its member", physical.IOModuleSpec{Protocol: physical.ProtocolEtherNetIP}, "spec.ethernetip", []string{"Required", `"ethernetip"`}},
		{"modbus with another member too", physical.IOModuleSpec{Protocol: physical.ProtocolModbus, Modbus: modbus, OPCUA: opcua}, "spec.opcua", []string{`"modbus"`, "remove this member"}},
		{"simulation with a network member", physical.IOModuleSpec{Protocol: physical.ProtocolSimulation, Ethernetip: ethernetip}, "spec.ethernetip", []string{`"simulation"`}},
		{"opcua with simulation settings", physical.IOModuleSpec{Protocol: physical.ProtocolOPCUA, OPCUA: opcua, Simulation: &physical.SimulationSettings{}}, "spec.simulation", []string{`"opcua"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			module := &physical.IOModule{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: tc.spec}
			check(t, ValidateIOModule(module), tc.field, tc.texts...)
			check(t, ValidateIOModuleUpdate(module, module), tc.field, tc.texts...)
		})
	}
}

// Req: A-04, P-13
func TestEndpoints(t *testing.T) {
	for _, tc := range []struct {
		endpoint string
		rule     string // "" is valid for tcp
		opcua    string // "" is valid for opc.tcp once the scheme is exchanged; "same" is the rule of tcp
	}{
		{"tcp://192.0.2.1", "", ""},
		{"tcp://192.0.2.1:502", "", ""},
		{"tcp://127.0.5.1:5020", "", ""},
		{"tcp://[2001:db8::1]:502", "", ""},
		{"tcp://pump.plant.example", "", ""},
		{"tcp://PUMP_7:502", "", ""},
		{"tcp://pump.plant.example.:65535", "", ""},
		{"tcp://192.0.2.1/server/path", "nothing may follow the port", ""},
		{"192.0.2.1:502", "it is no URL", "same"},
		{"pump", "must begin with", "same"},
		{"TCP://192.0.2.1", "", "must begin with"},
		{"udp://192.0.2.1", "must begin with", "same"},
		{"tcp:192.0.2.1", "has no host", "same"},
		{"tcp://", "has no host", "same"},
		{"tcp://:502", "must be an IP address or a host name", "same"},
		{"tcp://192.0.2.1:", "port is empty", "same"},
		{"tcp://192.0.2.1:0", "between 1 and 65535", "same"},
		{"tcp://192.0.2.1:65536", "between 1 and 65535", "same"},
		{"tcp://192.0.2.1:modbus", "it is no URL", "same"},
		{"tcp://user:pass@192.0.2.1", "user or password", "same"},
		{"tcp://192.0.2.1?x=1", "nothing may follow", "same"},
		{"tcp://192.0.2.1?", "nothing may follow", "same"},
		{"tcp://192.0.2.1#x", "nothing may follow", "same"},
		{"tcp://192.0.2.256", "neither an IP address nor a host name", "same"},
		{"tcp://10.1", "neither an IP address nor a host name", "same"},
		{"tcp://0.0.0.0", "address of one device", "same"},
		{"tcp://[::]", "address of one device", "same"},
		{"tcp://224.0.0.1", "address of one device", "same"},
		{"tcp://255.255.255.255", "address of one device", "same"},
		{"tcp://[fe80::1%25eth0]", "must not have a zone", "same"},
		{"tcp://a b", "it is no URL", "same"},
		{"tcp://-pump", "IP address or a host name", "same"},
		{"tcp://" + strings.Repeat("a.", 130) + "a", "IP address or a host name", "same"},
		{"tcp://192.0.2.1\n", "it is no URL", "same"},
	} {
		t.Run(tc.endpoint, func(t *testing.T) {
			path := field.NewPath("spec", "modbus", "endpoint")
			want := ""
			if tc.rule != "" {
				want = path.String()
			}
			check(t, ValidateIOModule(modbusModule(tc.endpoint)), want, "tcp://HOST[:PORT]", tc.rule)

			ethernetip := &physical.IOModule{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: physical.IOModuleSpec{
				Protocol: physical.ProtocolEtherNetIP, Ethernetip: &physical.EtherNetIPConnection{Endpoint: tc.endpoint}}}
			if want != "" {
				want = "spec.ethernetip.endpoint"
			}
			check(t, ValidateIOModule(ethernetip), want, "tcp://HOST[:PORT]", tc.rule)

			opcua := &physical.IOModule{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: physical.IOModuleSpec{
				Protocol: physical.ProtocolOPCUA, OPCUA: &physical.OPCUAConnection{Endpoint: strings.Replace(tc.endpoint, "tcp:", "opc.tcp:", 1)}}}
			rule := tc.opcua
			if rule == "same" {
				rule = tc.rule
			}
			want = ""
			if rule != "" {
				want = "spec.opcua.endpoint"
			}
			check(t, ValidateIOModule(opcua), want, "opc.tcp://HOST[:PORT][/PATH]", rule)
		})
	}
}

// Req: A-04, P-13
func TestOPCUASecurity(t *testing.T) {
	const (
		none, basic = physical.OPCUASecurityPolicyNone, physical.OPCUASecurityPolicyBasic256Sha256
		noMode      = physical.OPCUASecurityModeNone
		encrypt     = physical.OPCUASecurityModeSignAndEncrypt
	)
	for _, tc := range []struct {
		name  string
		opcua physical.OPCUAConnection
		field string
		texts []string
	}{
		{"encrypted and anonymous", physical.OPCUAConnection{SecurityPolicy: basic, SecurityMode: encrypt, Identity: "Anonymous"}, "", nil},
		{"in clear text and anonymous", physical.OPCUAConnection{SecurityPolicy: none, SecurityMode: noMode, Identity: "Anonymous"}, "", nil},
		{"policy None cannot encrypt", physical.OPCUAConnection{SecurityPolicy: none, SecurityMode: encrypt}, "spec.opcua.securityMode", []string{"SignAndEncrypt", "must be None"}},
		{"a policy needs a mode", physical.OPCUAConnection{SecurityPolicy: basic, SecurityMode: noMode}, "spec.opcua.securityMode", []string{"None", "Basic256Sha256"}},
		{"a user name, encrypted", physical.OPCUAConnection{SecurityPolicy: basic, SecurityMode: encrypt, Identity: "UserName", UserName: "u", CredentialsKey: "k"}, "", nil},
		{"a user name without a name", physical.OPCUAConnection{SecurityPolicy: basic, Identity: "UserName", CredentialsKey: "k"}, "spec.opcua.userName", []string{"Required"}},
		{"a user name without a password", physical.OPCUAConnection{SecurityPolicy: basic, Identity: "UserName", UserName: "u"}, "spec.opcua.credentialsKey", []string{"Required", "fieldplane-device-credentials"}},
		{"a password in clear text", physical.OPCUAConnection{SecurityPolicy: none, SecurityMode: noMode, Identity: "UserName", UserName: "u", CredentialsKey: "k"}, "spec.opcua.securityPolicy", []string{"None", "allowInsecureAuth"}},
		{"a password in clear text, accepted", physical.OPCUAConnection{SecurityPolicy: none, SecurityMode: noMode, Identity: "UserName", UserName: "u", CredentialsKey: "k", AllowInsecureAuth: true}, "", nil},
		{"a certificate", physical.OPCUAConnection{SecurityPolicy: basic, Identity: "Certificate", CredentialsKey: "k"}, "", nil},
		{"a certificate without its key", physical.OPCUAConnection{SecurityPolicy: basic, Identity: "Certificate"}, "spec.opcua.credentialsKey", []string{"Required"}},
		{"a certificate with a user name", physical.OPCUAConnection{SecurityPolicy: basic, Identity: "Certificate", CredentialsKey: "k", UserName: "u"}, "spec.opcua.userName", []string{`"u"`}},
		{"anonymous with a user name", physical.OPCUAConnection{Identity: "Anonymous", UserName: "u"}, "spec.opcua.userName", []string{"set identity to UserName"}},
		{"anonymous with credentials", physical.OPCUAConnection{Identity: "Anonymous", CredentialsKey: "k"}, "spec.opcua.credentialsKey", []string{"set identity to"}},
		{"a key that no Secret has", physical.OPCUAConnection{TrustedCertificateKey: "a/b"}, "spec.opcua.trustedCertificateKey", []string{`"a/b"`, "key of a Secret"}},
		{"a SHA-1 thumbprint", physical.OPCUAConnection{TrustedThumbprint: strings.Repeat("aB", 20)}, "", nil},
		{"a SHA-256 thumbprint with colons", physical.OPCUAConnection{TrustedThumbprint: strings.TrimSuffix(strings.Repeat("AB:", 32), ":")}, "", nil},
		{"a short thumbprint", physical.OPCUAConnection{TrustedThumbprint: "abcd"}, "spec.opcua.trustedThumbprint", []string{"abcd", "SHA-256"}},
		{"a thumbprint that is no hexadecimal", physical.OPCUAConnection{TrustedThumbprint: strings.Repeat("xy", 20)}, "spec.opcua.trustedThumbprint", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.opcua.Endpoint = "opc.tcp://192.0.2.1:4840"
			module := &physical.IOModule{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: physical.IOModuleSpec{Protocol: physical.ProtocolOPCUA, OPCUA: &tc.opcua}}
			check(t, ValidateIOModule(module), tc.field, tc.texts...)
		})
	}
}

func TestCIPPaths(t *testing.T) {
	for path, valid := range map[string]bool{
		"": true, "1,0": true, "1,16": true, "1,0,2,192.0.2.1,1,3": true,
		"1": false, "1,0,2": false, "0,0": false, "1,256": false, "256,0": false, "1,-1": false, "1, 0": false, "a,b": false, "1,2001:db8::1": false, "192.0.2.1,1": false, ",": false,
	} {
		module := &physical.IOModule{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: physical.IOModuleSpec{
			Protocol: physical.ProtocolEtherNetIP, Ethernetip: &physical.EtherNetIPConnection{Endpoint: "tcp://192.0.2.1", Path: path}}}
		t.Run(path, func(t *testing.T) {
			want := "spec.ethernetip.path"
			if valid {
				want = ""
			}
			check(t, ValidateIOModule(module), want, path, "PORT,SLOT")
		})
	}
}

// Req: A-04, P-13
func TestChannels(t *testing.T) {
	const reference = physical.ModbusAddressingReference
	for _, tc := range []struct {
		name       string
		addressing physical.ModbusAddressing
		channel    physical.Channel
		field      string // below spec.channels[0]
		texts      []string
	}{
		{"first coil", "", physical.Channel{Address: "coil:0"}, "", nil},
		{"last holding register", "", physical.Channel{Address: "holding:65535", DataType: "uint16"}, "", nil},
		{"discrete and input", "", physical.Channel{Address: "discrete:7", DataType: "bool", Access: "Read"}, "", nil},
		{"table:offset whatever the addressing", reference, physical.Channel{Address: "input:3"}, "", nil},
		{"a reference number", reference, physical.Channel{Address: "40001"}, "", nil},
		{"a reference number of six digits", reference, physical.Channel{Address: "465536"}, "", nil},
		{"a coil's reference number", reference, physical.Channel{Address: "00001", DataType: "bool"}, "", nil},
		{"an unknown table", "", physical.Channel{Address: "register:1"}, "address", []string{`"register:1"`, "coil, discrete, input or holding"}},
		{"a table in capitals", "", physical.Channel{Address: "Holding:1"}, "address", nil},
		{"an offset too large", "", physical.Channel{Address: "holding:65536"}, "address", []string{"0 to 65535"}},
		{"a negative offset", "", physical.Channel{Address: "holding:-1"}, "address", []string{"0 to 65535"}},
		{"a reference number without saying so", "", physical.Channel{Address: "40001"}, "address", []string{`"40001"`, "modbus.addressing"}},
		{"text", "", physical.Channel{Address: "pressure"}, "address", []string{"TABLE:OFFSET"}},
		{"text among reference numbers", reference, physical.Channel{Address: "4x001"}, "address", []string{"reference number"}},
		{"reference number 0", reference, physical.Channel{Address: "40000"}, "address", []string{"1 to 65536"}},
		{"a reference number of no table", reference, physical.Channel{Address: "20001"}, "address", []string{"0, 1, 3 or 4"}},
		{"a reference number beyond the table", reference, physical.Channel{Address: "465537"}, "address", []string{"1 to 65536"}},
		{"a reference number of four digits", reference, physical.Channel{Address: "4001"}, "address", []string{"five or six digits"}},
		{"a float from a coil", "", physical.Channel{Address: "coil:0", DataType: "float32"}, "dataType", []string{"float32", "one bit"}},
		{"a write to an input register", "", physical.Channel{Address: "input:0", Access: "ReadWrite"}, "access", []string{"ReadWrite", "cannot be written"}},
		{"a write to a discrete input", "", physical.Channel{Address: "discrete:0", Access: "Write"}, "access", []string{"cannot be written"}},
		{"a write to a coil", "", physical.Channel{Address: "coil:0", Access: "Write"}, "", nil},
		{"a float across the end", "", physical.Channel{Address: "holding:65535", DataType: "float32"}, "address", []string{"beyond the end"}},
		{"elements up to the end", "", physical.Channel{Address: "holding:65526", DataType: "int32", Count: ptr.To[int32](5)}, "", nil},
		{"elements across the end", "", physical.Channel{Address: "holding:65527", DataType: "int32", Count: ptr.To[int32](5)}, "address", []string{"beyond the end"}},
		{"a word order of its own", "", physical.Channel{Address: "holding:0", DataType: "int32", WordOrder: "CDAB"}, "", nil},
	} {
		t.Run("modbus: "+tc.name, func(t *testing.T) {
			module := modbusModule("tcp://192.0.2.1")
			if tc.addressing != "" {
				module.Spec.Modbus.Addressing = tc.addressing
			}
			tc.channel.Name = "c"
			module.Spec.Channels = []physical.Channel{tc.channel}
			want := tc.field
			if want != "" {
				want = "spec.channels[0]." + want
			}
			check(t, ValidateIOModule(module), want, tc.texts...)
		})
	}

	for _, tc := range []struct {
		protocol physical.Protocol
		channel  physical.Channel
		field    string
	}{
		{physical.ProtocolOPCUA, physical.Channel{Address: "i=2258"}, ""},
		{physical.ProtocolOPCUA, physical.Channel{Address: "ns=2;s=Boiler 1.Pressure;raw"}, ""},
		{physical.ProtocolOPCUA, physical.Channel{Address: "nsu=urn:plant:boiler;i=5"}, ""},
		{physical.ProtocolOPCUA, physical.Channel{Address: "ns=1;g=09087e75-8e5e-499b-954f-f2a9603db28a"}, ""},
		{physical.ProtocolOPCUA, physical.Channel{Address: "ns=1;b=M/RbKBsRVkePCePcx24oRA=="}, ""},
		{physical.ProtocolOPCUA, physical.Channel{Address: "holding:0"}, "address"},
		{physical.ProtocolOPCUA, physical.Channel{Address: "ns=2;x=1"}, "address"},
		{physical.ProtocolOPCUA, physical.Channel{Address: "s="}, "address"},
		{physical.ProtocolOPCUA, physical.Channel{Address: "i=1", WordOrder: "ABCD"}, "wordOrder"},
		{physical.ProtocolEtherNetIP, physical.Channel{Address: "Program:Main.Tag[2].Member"}, ""},
		{physical.ProtocolEtherNetIP, physical.Channel{Address: "Local:1:I.Data.0"}, ""},
		{physical.ProtocolEtherNetIP, physical.Channel{Address: "matrix[1,2,3]"}, ""},
		{physical.ProtocolEtherNetIP, physical.Channel{Address: "9tag"}, "address"},
		{physical.ProtocolEtherNetIP, physical.Channel{Address: "tag[]"}, "address"},
		{physical.ProtocolEtherNetIP, physical.Channel{Address: "a b"}, "address"},
		{physical.ProtocolSimulation, physical.Channel{Address: "anything at all"}, ""},
	} {
		t.Run(string(tc.protocol)+": "+tc.channel.Address, func(t *testing.T) {
			tc.channel.Name = "c"
			module := &physical.IOModule{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: physical.IOModuleSpec{Protocol: tc.protocol, Channels: []physical.Channel{tc.channel}}}
			switch tc.protocol {
			case physical.ProtocolOPCUA:
				module.Spec.OPCUA = &physical.OPCUAConnection{Endpoint: "opc.tcp://192.0.2.1"}
			case physical.ProtocolEtherNetIP:
				module.Spec.Ethernetip = &physical.EtherNetIPConnection{Endpoint: "tcp://192.0.2.1"}
			}
			want := tc.field
			if want != "" {
				want = "spec.channels[0]." + want
			}
			check(t, ValidateIOModule(module), want)
		})
	}
}

// Req: A-04
func TestScaling(t *testing.T) {
	for _, tc := range []struct {
		name     string
		dataType physical.DataType
		scaling  *physical.Scaling
		field    string
		texts    []string
	}{
		{"none", "int16", nil, "", nil},
		{"empty", "int16", &physical.Scaling{}, "", nil},
		{"factor and offset", "int16", &physical.Scaling{Factor: ptr.To(0.1), Offset: ptr.To(-40.0)}, "", nil},
		{"factor 0", "int16", &physical.Scaling{Factor: ptr.To(0.0)}, "factor", []string{"0", "other than 0"}},
		{"factor -0", "int16", &physical.Scaling{Factor: ptr.To(math.Copysign(0, -1))}, "factor", nil},
		{"factor NaN", "int16", &physical.Scaling{Factor: ptr.To(math.NaN())}, "factor", []string{"NaN", "finite"}},
		{"factor infinite", "int16", &physical.Scaling{Factor: ptr.To(math.Inf(1))}, "factor", []string{"+Inf", "finite"}},
		{"offset NaN", "int16", &physical.Scaling{Offset: ptr.To(math.NaN())}, "offset", []string{"NaN", "finite"}},
		{"offset infinite", "int16", &physical.Scaling{Offset: ptr.To(math.Inf(-1))}, "offset", []string{"-Inf"}},
		{"of a bool", "bool", &physical.Scaling{}, "", []string{"bool"}},
		{"of a string", "string", &physical.Scaling{}, "", []string{"string"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := func(prefix string) string {
				switch {
				case tc.field != "":
					return prefix + ".scaling." + tc.field
				case tc.texts != nil:
					return prefix + ".scaling"
				}
				return ""
			}
			module := modbusModule("tcp://192.0.2.1")
			module.Spec.Channels = []physical.Channel{{Name: "c", Address: "holding:0", DataType: tc.dataType, Scaling: tc.scaling}}
			check(t, ValidateIOModule(module), want("spec.channels[0]"), tc.texts...)

			control := &physical.ControlModule{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: physical.ControlModuleSpec{Tags: []physical.Tag{
				{Name: "t", DataType: tc.dataType, Scaling: tc.scaling, Access: "Write", HoldValue: ptr.To("1")}}}}
			check(t, ValidateControlModule(control), want("spec.tags[0]"), tc.texts...)
		})
	}
}

// Req: A-04, P-16
func TestDurations(t *testing.T) {
	type bounds struct {
		field     string
		validate  func(*metav1.Duration) field.ErrorList
		good, bad []time.Duration
		rule      string
	}
	probe := func(set func(*physical.ProbeSettings, *metav1.Duration)) func(*metav1.Duration) field.ErrorList {
		return func(d *metav1.Duration) field.ErrorList {
			module := modbusModule("tcp://192.0.2.1")
			module.Spec.Probe = &physical.ProbeSettings{}
			set(module.Spec.Probe, d)
			return ValidateIOModule(module)
		}
	}
	unit := func(set func(*physical.UnitSpec, *metav1.Duration)) func(*metav1.Duration) field.ErrorList {
		return func(d *metav1.Duration) field.ErrorList {
			u := &physical.Unit{ObjectMeta: metav1.ObjectMeta{Name: "u"}, Spec: physical.UnitSpec{HoldOn: []physical.ModuleState{physical.ModuleFault}}}
			set(&u.Spec, d)
			return ValidateUnit(u)
		}
	}
	for _, b := range []bounds{
		{"spec.probe.period", probe(func(p *physical.ProbeSettings, d *metav1.Duration) { p.Period = d }),
			[]time.Duration{250 * time.Millisecond, time.Second, time.Minute}, []time.Duration{0, 249 * time.Millisecond, time.Minute + 1, -time.Second}, "between 250ms and 1m"},
		{"spec.probe.timeout", probe(func(p *physical.ProbeSettings, d *metav1.Duration) { p.Timeout = d }),
			[]time.Duration{50 * time.Millisecond, time.Second}, []time.Duration{0, 49 * time.Millisecond, time.Second + 1}, "between 50ms and 1s"},
		{"spec.tags[0].period", func(d *metav1.Duration) field.ErrorList {
			return ValidateControlModule(&physical.ControlModule{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: physical.ControlModuleSpec{Tags: []physical.Tag{{Name: "t", Period: d}}}})
		}, []time.Duration{100 * time.Millisecond, time.Hour}, []time.Duration{0, 99 * time.Millisecond, time.Hour + 1}, "between 100ms and 1h"},
		{"spec.unknownHoldAfter", unit(func(u *physical.UnitSpec, d *metav1.Duration) { u.UnknownHoldAfter = d }),
			[]time.Duration{0, time.Second, 24 * time.Hour}, []time.Duration{-1, time.Millisecond, 25 * time.Hour}, "between 1s and 24h, or 0 for never"},
		{"spec.holdTimeout", unit(func(u *physical.UnitSpec, d *metav1.Duration) { u.HoldTimeout = d }),
			[]time.Duration{time.Second, time.Hour}, []time.Duration{0, 999 * time.Millisecond, time.Hour + 1}, "between 1s and 1h"},
	} {
		t.Run(b.field, func(t *testing.T) {
			check(t, b.validate(nil), "")
			for _, d := range b.good {
				check(t, b.validate(duration(d)), "")
			}
			for _, d := range b.bad {
				check(t, b.validate(duration(d)), b.field, d.String(), b.rule)
			}
		})
	}
}

// Req: P-03, P-05
func TestControllers(t *testing.T) {
	machine := &physical.MachineReference{Name: "4c4c4544-0042-3510-8051-b4c04f4b4c32"}
	for _, tc := range []struct {
		name  string
		spec  physical.ControllerSpec
		field string
		texts []string
	}{
		{"of nothing yet", physical.ControllerSpec{}, "", nil},
		{"of a node", physical.ControllerSpec{NodeName: "n"}, "", nil},
		{"of a machine", physical.ControllerSpec{MachineRef: machine}, "", nil},
		{"simulated", physical.ControllerSpec{Simulation: true, Heartbeat: "Managed"}, "", nil},
		{"of a node and a machine", physical.ControllerSpec{NodeName: "n", MachineRef: machine}, "spec", []string{"nodeName, machineRef", "at most one"}},
		{"simulated and of a node", physical.ControllerSpec{NodeName: "n", Simulation: true}, "spec", []string{"nodeName, simulation"}},
		{"all three", physical.ControllerSpec{NodeName: "n", MachineRef: machine, Simulation: true}, "spec", []string{"nodeName, machineRef, simulation"}},
		{"a heartbeat without simulation", physical.ControllerSpec{NodeName: "n", Heartbeat: "External"}, "spec.heartbeat", []string{"External", "simulation"}},
		{"a machine that is no UUID", physical.ControllerSpec{MachineRef: &physical.MachineReference{Name: "rack-3"}}, "spec.machineRef.name", []string{"rack-3", "UUID"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			controller := &physical.Controller{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: tc.spec}
			check(t, ValidateController(controller), tc.field, tc.texts...)
			check(t, ValidateControllerUpdate(controller, controller), tc.field, tc.texts...)
		})
	}
}

// Req: P-16b
func TestHoldValues(t *testing.T) {
	tenth := &physical.Scaling{Factor: ptr.To(0.1)}
	celsius := &physical.Scaling{Factor: ptr.To(0.5), Offset: ptr.To(-40.0)}
	for _, tc := range []struct {
		dataType physical.DataType
		value    string
		scaling  *physical.Scaling
		rule     string // "": valid
	}{
		{"bool", "true", nil, ""}, {"bool", "0", nil, ""}, {"bool", "off", nil, "must be a bool"}, {"bool", "", nil, "must be a bool"},
		{"string", "", nil, ""}, {"string", "closed", nil, ""}, {"", "anything", nil, ""},
		{"int16", "-32768", nil, ""}, {"int16", "32767", nil, ""}, {"int16", "32768", nil, "from -32768 to 32767"}, {"int16", "1.5", nil, "whole number"}, {"int16", "1e3", nil, ""},
		{"int16", "off", nil, "must be a number"}, {"int16", "", nil, "must be a number"}, {"int16", "NaN", nil, "must be a number"}, {"int16", "0x10", nil, "must be a number"},
		{"uint16", "65535", nil, ""}, {"uint16", "-1", nil, "from 0 to 65535"}, {"uint16", "65536", nil, "from 0 to 65535"},
		{"int32", "-2147483648", nil, ""}, {"int32", "2147483648", nil, "from -2147483648 to 2147483647"},
		{"uint32", "4294967295", nil, ""}, {"uint32", "4294967296", nil, "to 4294967295"},
		{"int64", "9223372036854775807", nil, ""}, {"int64", "9223372036854775808", nil, "to 9223372036854775807"}, {"int64", "-9223372036854775808", nil, ""},
		{"uint64", "18446744073709551615", nil, ""}, {"uint64", "18446744073709551616", nil, "to 18446744073709551615"},
		{"float32", "3.4e38", nil, ""}, {"float32", "3.5e38", nil, "must fit a float32"}, {"float32", "inf", nil, "must be a number"},
		{"float64", "1e308", nil, ""}, {"float64", "1e309", nil, "must be a number"},
		{"int16", "50.0", tenth, ""}, {"int16", "3276.7", tenth, ""}, {"int16", "3276.8", tenth, "from -32768 to 32767"}, {"uint16", "-0.1", tenth, "from 0 to 65535"},
		{"uint16", "-40", celsius, ""}, {"uint16", "-41", celsius, "is -2 as the raw value"}, {"uint32", "100000000", tenth, ""},
		{"float64", "1e308", tenth, "must be finite"}, {"float32", "1e38", tenth, "must fit a float32"},
	} {
		t.Run(string(tc.dataType)+" "+tc.value, func(t *testing.T) {
			module := &physical.ControlModule{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: physical.ControlModuleSpec{Tags: []physical.Tag{
				{Name: "t", DataType: tc.dataType, Access: physical.AccessWrite, Scaling: tc.scaling, HoldValue: &tc.value}}}}
			want := ""
			if tc.rule != "" {
				want = "spec.tags[0].holdValue"
			}
			check(t, ValidateControlModule(module), want, tc.value, tc.rule)
			check(t, ValidateControlModuleUpdate(module, module), want, tc.value, tc.rule)
		})
	}
	for access, valid := range map[physical.Access]bool{"": false, physical.AccessRead: false, physical.AccessWrite: true, physical.AccessReadWrite: true} {
		t.Run("access "+string(access), func(t *testing.T) {
			module := &physical.ControlModule{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: physical.ControlModuleSpec{Tags: []physical.Tag{
				{Name: "t", DataType: "bool", Access: access, HoldValue: ptr.To("false")}}}}
			want := "spec.tags[0].holdValue"
			if valid {
				want = ""
			}
			check(t, ValidateControlModule(module), want, "set access to Write")
		})
	}
}

// Req: P-16
func TestHoldOnAlwaysContainsFault(t *testing.T) {
	const fault, offline, unknown, online = physical.ModuleFault, physical.ModuleOffline, physical.ModuleUnknown, physical.ModuleOnline
	for _, tc := range []struct {
		name   string
		holdOn []physical.ModuleState
		field  string
		texts  []string
	}{
		{"fault", []physical.ModuleState{fault}, "", nil},
		{"all", []physical.ModuleState{unknown, offline, fault}, "", nil},
		{"none", nil, "spec.holdOn", []string{"must contain Fault"}},
		{"offline alone", []physical.ModuleState{offline}, "spec.holdOn", []string{"Offline", "must contain Fault"}},
		{"online", []physical.ModuleState{fault, online}, "spec.holdOn[1]", []string{"Online", "Fault"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			unit := &physical.Unit{ObjectMeta: metav1.ObjectMeta{Name: "u"}, Spec: physical.UnitSpec{HoldOn: tc.holdOn}}
			check(t, ValidateUnit(unit), tc.field, tc.texts...)
			check(t, ValidateUnitUpdate(unit, unit), tc.field, tc.texts...)
		})
	}
}

func TestNodeSelectorsAndNames(t *testing.T) {
	module := modbusModule("tcp://192.0.2.1")
	module.Spec.ProbePlacement = &physical.ProbePlacement{NodeSelector: map[string]string{"zone/a/b": "x"}}
	check(t, ValidateIOModule(module), "spec.probePlacement.nodeSelector", "zone/a/b")

	module = modbusModule("tcp://192.0.2.1")
	module.Spec.ProbePlacement = &physical.ProbePlacement{NodeSelector: map[string]string{"zone": "not a label"}}
	check(t, ValidateIOModule(module), "spec.probePlacement.nodeSelector", "not a label")

	unit := &physical.Unit{ObjectMeta: metav1.ObjectMeta{Name: "u"}, Spec: physical.UnitSpec{NodeSelector: map[string]string{"-": ""}, HoldOn: []physical.ModuleState{physical.ModuleFault}}}
	check(t, ValidateUnit(unit), "spec.nodeSelector", "-")

	module = modbusModule("tcp://192.0.2.1")
	module.Name = "Pump_7"
	check(t, ValidateIOModule(module), "metadata.name", "Pump_7", "lowercase")
	check(t, ValidateIOModuleUpdate(module, module), "")
}

func TestErrorsOfAMapComeInTheSameOrder(t *testing.T) {
	module := modbusModule("tcp://192.0.2.1")
	module.Spec.ProbePlacement = &physical.ProbePlacement{NodeSelector: map[string]string{"a b": "", "c d": "", "e f": "", "g h": "", "i j": ""}}
	first := ValidateIOModule(module).ToAggregate().Error()
	for range 50 {
		if again := ValidateIOModule(module).ToAggregate().Error(); again != first {
			t.Fatalf("%q, then %q", first, again)
		}
	}
}

func TestStatus(t *testing.T) {
	good := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Connected", LastTransitionTime: metav1.Now()}}
	bad := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "not a reason", LastTransitionTime: metav1.Now()}}
	for _, tc := range []struct {
		conditions []metav1.Condition
		field      string
	}{{nil, ""}, {good, ""}, {bad, "status.conditions[0].reason"}} {
		check(t, ValidateIOModuleStatusUpdate(&physical.IOModule{Status: physical.IOModuleStatus{Conditions: tc.conditions}}, nil), tc.field)
		check(t, ValidateControllerStatusUpdate(&physical.Controller{Status: physical.ControllerStatus{Conditions: tc.conditions}}, nil), tc.field)
		check(t, ValidateControlModuleStatusUpdate(&physical.ControlModule{Status: physical.ControlModuleStatus{Conditions: tc.conditions}}, nil), tc.field)
		check(t, ValidateUnitStatusUpdate(&physical.Unit{Status: physical.UnitStatus{Conditions: tc.conditions}}, nil), tc.field)
	}
	check(t, ValidateIOModuleStatusUpdate(&physical.IOModule{Status: physical.IOModuleStatus{ChannelCount: ptr.To[int32](-1)}}, nil), "status.channelCount", "-1")
}
