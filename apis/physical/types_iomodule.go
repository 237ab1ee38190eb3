package physical

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IOModule is a field device: something that is reached over Modbus TCP, OPC UA
// or EtherNet/IP, or a simulation of one. Its connectivity is measured by a
// probe pod and stands in status.state.
type IOModule struct {
	metav1.TypeMeta
	// Standard object metadata.
	metav1.ObjectMeta

	// How the device is reached and watched.
	Spec IOModuleSpec
	// What the server measured. Written by the server's own controllers alone.
	Status IOModuleStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IOModuleList is a list of IOModules.
type IOModuleList struct {
	metav1.TypeMeta
	// Standard list metadata.
	metav1.ListMeta

	// The modules.
	Items []IOModule
}

// Protocol is how a field device is spoken to.
type Protocol string

const (
	// ProtocolSimulation has no device: a simulation Controller's heartbeat stands for it.
	ProtocolSimulation Protocol = "simulation"
	// ProtocolModbus is Modbus TCP.
	ProtocolModbus Protocol = "modbus"
	// ProtocolEtherNetIP is EtherNet/IP (CIP over TCP).
	ProtocolEtherNetIP Protocol = "ethernetip"
	// ProtocolOPCUA is OPC UA over opc.tcp.
	ProtocolOPCUA Protocol = "opcua"
)

// IOModuleSpec says how the device is reached and watched.
type IOModuleSpec struct {
	// Protocol of the device: simulation, modbus, ethernetip or opcua. The member
	// of the same name holds its connection settings.
	Protocol Protocol
	// Controller in the same namespace that the module is bound to. Required for
	// protocol simulation, optional for network protocols: without it the module
	// is watched by the namespace's shared probe.
	ControllerRef *ControllerReference
	// Where the shared probe that watches this module must run. Only for network
	// protocols without controllerRef; by default any node.
	ProbePlacement *ProbePlacement
	// Modbus TCP connection settings. Required for protocol modbus.
	Modbus *ModbusConnection
	// OPC UA connection settings. Required for protocol opcua.
	OPCUA *OPCUAConnection
	// EtherNet/IP connection settings. Required for protocol ethernetip.
	Ethernetip *EtherNetIPConnection
	// Simulation settings. Only for protocol simulation.
	Simulation *SimulationSettings
	// Channels that are declared rather than discovered: the register map of a
	// Modbus device, the channels of a simulation. At most 4096.
	Channels []Channel
	// How often the probe asks and how many answers make a verdict.
	Probe *ProbeSettings
}

// ControllerReference names a Controller in the same namespace.
type ControllerReference struct {
	// Name of the Controller.
	Name string
}

// ProbePlacement pins the shared probe of a module to nodes of its zone.
type ProbePlacement struct {
	// Labels of the nodes from which the device is reachable. One shared probe
	// runs per distinct selector in the namespace. Empty is the same as absent.
	NodeSelector map[string]string
}

// WordOrder is the order of the bytes ABCD of a 32-bit value, A the most
// significant, in two consecutive registers. 64-bit values follow the same scheme.
type WordOrder string

const (
	// WordOrderABCD is big-endian, as the Modbus specification has it.
	WordOrderABCD WordOrder = "ABCD"
	// WordOrderCDAB has the least significant register first.
	WordOrderCDAB WordOrder = "CDAB"
	// WordOrderBADC has the bytes of each register swapped.
	WordOrderBADC WordOrder = "BADC"
	// WordOrderDCBA is little-endian throughout.
	WordOrderDCBA WordOrder = "DCBA"
)

// ModbusAddressing is how register addresses are written.
type ModbusAddressing string

const (
	// ModbusAddressingZeroBased is the address of the protocol: holding:0 is the first holding register.
	ModbusAddressingZeroBased ModbusAddressing = "zeroBased"
	// ModbusAddressingReference is the reference number of the data sheet: 40001 is the first holding register.
	ModbusAddressingReference ModbusAddressing = "reference"
)

// ModbusConnection says how a Modbus TCP device is reached.
type ModbusConnection struct {
	// Endpoint as tcp://HOST[:PORT]; the port is 502 when absent.
	Endpoint string
	// Unit id (0 to 255) behind the endpoint; several modules may share one
	// endpoint, and then share one TCP connection. Default 1.
	UnitID *int32
	// Order of the registers and bytes of values wider than one register: ABCD
	// (default), CDAB, BADC or DCBA. A wrong order gives wrong values without an
	// error, so check it against a known reading.
	WordOrder WordOrder
	// How channel addresses are written: zeroBased (default; "holding:100") or
	// reference ("40101").
	Addressing ModbusAddressing
	// Close the connection after each poll, for devices that serve one client at
	// a time and a slow poll period.
	CloseAfterPoll bool
	// How many TCP connections the device allows (1 to 64). Below the number of
	// clients, the probe owns the connection and everybody else asks the probe.
	MaxConnections *int32
}

// OPCUASecurityPolicy names an OPC UA security policy.
type OPCUASecurityPolicy string

const (
	// OPCUASecurityPolicyNone neither signs nor encrypts.
	OPCUASecurityPolicyNone OPCUASecurityPolicy = "None"
	// OPCUASecurityPolicyBasic256Sha256 is Basic256Sha256.
	OPCUASecurityPolicyBasic256Sha256 OPCUASecurityPolicy = "Basic256Sha256"
	// OPCUASecurityPolicyAes128Sha256RsaOaep is Aes128_Sha256_RsaOaep.
	OPCUASecurityPolicyAes128Sha256RsaOaep OPCUASecurityPolicy = "Aes128_Sha256_RsaOaep"
	// OPCUASecurityPolicyAes256Sha256RsaPss is Aes256_Sha256_RsaPss.
	OPCUASecurityPolicyAes256Sha256RsaPss OPCUASecurityPolicy = "Aes256_Sha256_RsaPss"
)

// OPCUASecurityMode names an OPC UA message security mode.
type OPCUASecurityMode string

const (
	// OPCUASecurityModeNone leaves messages as they are.
	OPCUASecurityModeNone OPCUASecurityMode = "None"
	// OPCUASecurityModeSign signs messages.
	OPCUASecurityModeSign OPCUASecurityMode = "Sign"
	// OPCUASecurityModeSignAndEncrypt signs and encrypts messages.
	OPCUASecurityModeSignAndEncrypt OPCUASecurityMode = "SignAndEncrypt"
)

// OPCUAIdentity is the kind of user identity token that opens a session.
type OPCUAIdentity string

const (
	// OPCUAIdentityAnonymous opens an anonymous session.
	OPCUAIdentityAnonymous OPCUAIdentity = "Anonymous"
	// OPCUAIdentityUserName opens a session with a user name and password.
	OPCUAIdentityUserName OPCUAIdentity = "UserName"
	// OPCUAIdentityCertificate opens a session with a user certificate.
	OPCUAIdentityCertificate OPCUAIdentity = "Certificate"
)

// OPCUAConnection says how an OPC UA server is reached and trusted.
type OPCUAConnection struct {
	// Endpoint as opc.tcp://HOST[:PORT][/PATH]; the port is 4840 when absent. The
	// server is dialled here, whatever host name it advertises.
	Endpoint string
	// Security policy: None, Basic256Sha256 (default), Aes128_Sha256_RsaOaep or
	// Aes256_Sha256_RsaPss. The server must offer exactly this one.
	SecurityPolicy OPCUASecurityPolicy
	// Message security mode: None, Sign or SignAndEncrypt (default, unless the
	// policy is None).
	SecurityMode OPCUASecurityMode
	// How the session is opened: Anonymous (default), UserName or Certificate.
	Identity OPCUAIdentity
	// User name for identity UserName.
	UserName string
	// Key in the Secret fieldplane-device-credentials of this namespace that
	// holds the password (UserName) or the PEM certificate and key (Certificate).
	CredentialsKey string
	// Allow a password over security policy None, where it travels in clear text.
	AllowInsecureAuth bool
	// SHA-1 or SHA-256 thumbprint (hex) of the one server certificate that is trusted.
	TrustedThumbprint string
	// Key in the Secret fieldplane-device-credentials of this namespace that
	// holds the PEM certificates (server or CA) that are trusted.
	TrustedCertificateKey string
	// How many sessions the server allows (1 to 1000). Below the number of
	// clients, the probe owns the session and everybody else asks the probe.
	MaxConnections *int32
}

// EtherNetIPConnection says how an EtherNet/IP device is reached.
type EtherNetIPConnection struct {
	// Endpoint as tcp://HOST[:PORT]; the port is 44818 when absent.
	Endpoint string
	// Route to the CPU as PORT,SLOT pairs: "1,0" is the backplane, slot 0. Empty
	// for devices that are addressed directly (Micro800, drives, I/O).
	Path string
	// Ask for identity alone, for devices that refuse a Forward Open.
	IdentityOnly bool
	// How many CIP connections the device allows (1 to 256). Below the number of
	// clients, the probe owns the connection and everybody else asks the probe.
	MaxConnections *int32
}

// SimulationSettings shape a simulated module.
type SimulationSettings struct {
	// Seed of the simulated values, so that a drill can be repeated.
	Seed *int64
}

// DataType is the type of a channel's or tag's value.
type DataType string

// The data types, named as in IEC 61131-3 where it has a name.
const (
	DataTypeBool    DataType = "bool"
	DataTypeInt16   DataType = "int16"
	DataTypeUint16  DataType = "uint16"
	DataTypeInt32   DataType = "int32"
	DataTypeUint32  DataType = "uint32"
	DataTypeInt64   DataType = "int64"
	DataTypeUint64  DataType = "uint64"
	DataTypeFloat32 DataType = "float32"
	DataTypeFloat64 DataType = "float64"
	DataTypeString  DataType = "string"
)

// Access says whether a value may be read, written or both.
type Access string

const (
	// AccessRead allows reading.
	AccessRead Access = "Read"
	// AccessWrite allows writing.
	AccessWrite Access = "Write"
	// AccessReadWrite allows both.
	AccessReadWrite Access = "ReadWrite"
)

// Channel is one declared value of a device.
type Channel struct {
	// Name of the channel, unique in the module.
	Name string
	// Address in the protocol's own notation: Modbus "coil:0", "discrete:0",
	// "input:0" or "holding:0" (with addressing reference: "40001"); OPC UA a
	// NodeId; EtherNet/IP a tag name.
	Address string
	// Number of consecutive elements (1 to 2000; default 1).
	Count *int32
	// Type of one element: bool, int16, uint16, int32, uint32, int64, uint64,
	// float32, float64 or string.
	DataType DataType
	// Order of registers and bytes, when it differs from the module's.
	WordOrder WordOrder
	// Read, Write or ReadWrite.
	Access Access
	// From the raw value to engineering units.
	Scaling *Scaling
	// Engineering unit as shown to people, for example "bar" or "°C".
	Unit string
}

// Scaling turns a raw value into engineering units: raw × factor + offset.
type Scaling struct {
	// Factor; not zero. Default 1.
	Factor *float64
	// Offset in engineering units. Default 0.
	Offset *float64
}

// ProbeSettings say how often the probe asks and how many answers make a verdict.
type ProbeSettings struct {
	// Time between two checks, 250ms to 60s. Default 1s.
	Period *metav1.Duration
	// Time the device has for one answer, 50ms to 1s. Default 1s.
	Timeout *metav1.Duration
	// Consecutive failures (1 to 10) that make the module Fault. Default 3.
	FailureThreshold *int32
	// Consecutive successes (1 to 10) that make the module Online. Default 2.
	SuccessThreshold *int32
}

// ModuleState is what is known of a module's connectivity.
type ModuleState string

const (
	// ModuleUnknown was not measured.
	ModuleUnknown ModuleState = "Unknown"
	// ModuleOnline answers.
	ModuleOnline ModuleState = "Online"
	// ModuleFault was measured and does not answer.
	ModuleFault ModuleState = "Fault"
	// ModuleOffline was determined by the system itself to be off.
	ModuleOffline ModuleState = "Offline"
)

// ModuleHealth is the NAMUR NE 107 status signal of a device.
type ModuleHealth string

const (
	// HealthNormal needs nothing.
	HealthNormal ModuleHealth = "Normal"
	// HealthFailure gives no valid output.
	HealthFailure ModuleHealth = "Failure"
	// HealthFunctionCheck is being worked on: its output is not valid for now.
	HealthFunctionCheck ModuleHealth = "FunctionCheck"
	// HealthOutOfSpecification works outside its specified range.
	HealthOutOfSpecification ModuleHealth = "OutOfSpecification"
	// HealthMaintenanceRequired works, and needs maintenance soon.
	HealthMaintenanceRequired ModuleHealth = "MaintenanceRequired"
)

// IOModuleStatus is what the server measured.
type IOModuleStatus struct {
	// Generation of the spec that this status speaks of.
	ObservedGeneration int64
	// Online (answers), Fault (measured, does not answer), Offline (determined by
	// the system itself) or Unknown (not measured).
	State ModuleState
	// Why, in one word: for example Connected, Refused, Timeout, UnitNotResponding, ProbeUnavailable.
	Reason string
	// Why, in a sentence.
	Message string
	// NAMUR NE 107 status signal.
	Health ModuleHealth
	// What the device says of itself.
	Identity *DeviceIdentity
	// Number of channels, declared or discovered.
	ChannelCount *int32
	// Time of the last change of state.
	LastTransitionTime *metav1.Time
	// Pod that measures this module.
	ProbePodName string
	// Conditions: Ready, ControllerFound, ...
	Conditions []metav1.Condition
}

// DeviceIdentity is what a device says of itself.
type DeviceIdentity struct {
	// Vendor name.
	Vendor string
	// Product name or code.
	Product string
	// Serial number.
	Serial string
	// Hardware or firmware revision.
	Revision string
}
