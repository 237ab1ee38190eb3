package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"

// IOModule is a field device: something that is reached over Modbus TCP, OPC UA
// or EtherNet/IP, or a simulation of one. Its connectivity is measured by a
// probe pod and stands in status.state.
type IOModule struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// How the device is reached and watched.
	Spec IOModuleSpec `json:"spec" protobuf:"bytes,2,opt,name=spec"`
	// What the server measured. Written by the server's own controllers alone.
	Status IOModuleStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IOModuleList is a list of IOModules.
type IOModuleList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// The modules.
	Items []IOModule `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// Protocol is how a field device is spoken to.
// +enum
// +k8s:enum
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
	// +k8s:required
	Protocol Protocol `json:"protocol" protobuf:"bytes,1,opt,name=protocol,casttype=Protocol"`
	// Controller in the same namespace that the module is bound to. Required for
	// protocol simulation, optional for network protocols: without it the module
	// is watched by the namespace's shared probe.
	// +optional
	// +k8s:optional
	ControllerRef *ControllerReference `json:"controllerRef,omitempty" protobuf:"bytes,2,opt,name=controllerRef"`
	// Where the shared probe that watches this module must run. Only for network
	// protocols without controllerRef; by default any node.
	// +optional
	// +k8s:optional
	ProbePlacement *ProbePlacement `json:"probePlacement,omitempty" protobuf:"bytes,3,opt,name=probePlacement"`
	// Modbus TCP connection settings. Required for protocol modbus.
	// +optional
	// +k8s:optional
	Modbus *ModbusConnection `json:"modbus,omitempty" protobuf:"bytes,4,opt,name=modbus"`
	// OPC UA connection settings. Required for protocol opcua.
	// +optional
	// +k8s:optional
	OPCUA *OPCUAConnection `json:"opcua,omitempty" protobuf:"bytes,5,opt,name=opcua"`
	// EtherNet/IP connection settings. Required for protocol ethernetip.
	// +optional
	// +k8s:optional
	Ethernetip *EtherNetIPConnection `json:"ethernetip,omitempty" protobuf:"bytes,6,opt,name=ethernetip"`
	// Simulation settings. Only for protocol simulation.
	// +optional
	// +k8s:optional
	Simulation *SimulationSettings `json:"simulation,omitempty" protobuf:"bytes,7,opt,name=simulation"`
	// Channels that are declared rather than discovered: the register map of a
	// Modbus device, the channels of a simulation. At most 4096.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=name
	// +k8s:maxItems=4096
	Channels []Channel `json:"channels,omitempty" protobuf:"bytes,8,rep,name=channels"`
	// How often the probe asks and how many answers make a verdict.
	// +optional
	// +k8s:optional
	Probe *ProbeSettings `json:"probe,omitempty" protobuf:"bytes,9,opt,name=probe"`
}

// ControllerReference names a Controller in the same namespace.
type ControllerReference struct {
	// Name of the Controller.
	// +k8s:required
	// +k8s:format=k8s-long-name
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
}

// ProbePlacement pins the shared probe of a module to nodes of its zone.
type ProbePlacement struct {
	// Labels of the nodes from which the device is reachable. One shared probe
	// runs per distinct selector in the namespace. Empty is the same as absent.
	// +optional
	// +k8s:optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty" protobuf:"bytes,1,rep,name=nodeSelector"`
}

// WordOrder is the order of the bytes ABCD of a 32-bit value, A the most
// significant, in two consecutive registers. 64-bit values follow the same scheme.
// +enum
// +k8s:enum
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
// +enum
// +k8s:enum
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
	// +k8s:required
	// +k8s:maxLength=512
	Endpoint string `json:"endpoint" protobuf:"bytes,1,opt,name=endpoint"`
	// Unit id (0 to 255) behind the endpoint; several modules may share one
	// endpoint, and then share one TCP connection. Default 1.
	// +optional
	// +k8s:optional
	// +k8s:minimum=0
	// +k8s:maximum=255
	UnitID *int32 `json:"unitID,omitempty" protobuf:"varint,2,opt,name=unitID"`
	// Order of the registers and bytes of values wider than one register: ABCD
	// (default), CDAB, BADC or DCBA. A wrong order gives wrong values without an
	// error, so check it against a known reading.
	// +optional
	// +k8s:optional
	WordOrder WordOrder `json:"wordOrder,omitempty" protobuf:"bytes,3,opt,name=wordOrder,casttype=WordOrder"`
	// How channel addresses are written: zeroBased (default; "holding:100") or
	// reference ("40101").
	// +optional
	// +k8s:optional
	Addressing ModbusAddressing `json:"addressing,omitempty" protobuf:"bytes,4,opt,name=addressing,casttype=ModbusAddressing"`
	// Close the connection after each poll, for devices that serve one client at
	// a time and a slow poll period.
	// +optional
	// +k8s:optional
	CloseAfterPoll bool `json:"closeAfterPoll,omitempty" protobuf:"varint,5,opt,name=closeAfterPoll"`
	// How many TCP connections the device allows (1 to 64). Below the number of
	// clients, the probe owns the connection and everybody else asks the probe.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	// +k8s:maximum=64
	MaxConnections *int32 `json:"maxConnections,omitempty" protobuf:"varint,6,opt,name=maxConnections"`
}

// OPCUASecurityPolicy names an OPC UA security policy.
// +enum
// +k8s:enum
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
// +enum
// +k8s:enum
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
// +enum
// +k8s:enum
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
	// +k8s:required
	// +k8s:maxLength=512
	Endpoint string `json:"endpoint" protobuf:"bytes,1,opt,name=endpoint"`
	// Security policy: None, Basic256Sha256 (default), Aes128_Sha256_RsaOaep or
	// Aes256_Sha256_RsaPss. The server must offer exactly this one.
	// +optional
	// +k8s:optional
	SecurityPolicy OPCUASecurityPolicy `json:"securityPolicy,omitempty" protobuf:"bytes,2,opt,name=securityPolicy,casttype=OPCUASecurityPolicy"`
	// Message security mode: None, Sign or SignAndEncrypt (default, unless the
	// policy is None).
	// +optional
	// +k8s:optional
	SecurityMode OPCUASecurityMode `json:"securityMode,omitempty" protobuf:"bytes,3,opt,name=securityMode,casttype=OPCUASecurityMode"`
	// How the session is opened: Anonymous (default), UserName or Certificate.
	// +optional
	// +k8s:optional
	Identity OPCUAIdentity `json:"identity,omitempty" protobuf:"bytes,4,opt,name=identity,casttype=OPCUAIdentity"`
	// User name for identity UserName.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=256
	UserName string `json:"userName,omitempty" protobuf:"bytes,5,opt,name=userName"`
	// Key in the Secret fieldplane-device-credentials of this namespace that
	// holds the password (UserName) or the PEM certificate and key (Certificate).
	// +optional
	// +k8s:optional
	// +k8s:maxLength=253
	CredentialsKey string `json:"credentialsKey,omitempty" protobuf:"bytes,6,opt,name=credentialsKey"`
	// Allow a password over security policy None, where it travels in clear text.
	// +optional
	// +k8s:optional
	AllowInsecureAuth bool `json:"allowInsecureAuth,omitempty" protobuf:"varint,7,opt,name=allowInsecureAuth"`
	// SHA-1 or SHA-256 thumbprint (hex) of the one server certificate that is trusted.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=128
	TrustedThumbprint string `json:"trustedThumbprint,omitempty" protobuf:"bytes,8,opt,name=trustedThumbprint"`
	// Key in the Secret fieldplane-device-credentials of this namespace that
	// holds the PEM certificates (server or CA) that are trusted.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=253
	TrustedCertificateKey string `json:"trustedCertificateKey,omitempty" protobuf:"bytes,9,opt,name=trustedCertificateKey"`
	// How many sessions the server allows (1 to 1000). Below the number of
	// clients, the probe owns the session and everybody else asks the probe.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	// +k8s:maximum=1000
	MaxConnections *int32 `json:"maxConnections,omitempty" protobuf:"varint,10,opt,name=maxConnections"`
}

// EtherNetIPConnection says how an EtherNet/IP device is reached.
type EtherNetIPConnection struct {
	// Endpoint as tcp://HOST[:PORT]; the port is 44818 when absent.
	// +k8s:required
	// +k8s:maxLength=512
	Endpoint string `json:"endpoint" protobuf:"bytes,1,opt,name=endpoint"`
	// Route to the CPU as PORT,SLOT pairs: "1,0" is the backplane, slot 0. Empty
	// for devices that are addressed directly (Micro800, drives, I/O).
	// +optional
	// +k8s:optional
	// +k8s:maxLength=128
	Path string `json:"path,omitempty" protobuf:"bytes,2,opt,name=path"`
	// Ask for identity alone, for devices that refuse a Forward Open.
	// +optional
	// +k8s:optional
	IdentityOnly bool `json:"identityOnly,omitempty" protobuf:"varint,3,opt,name=identityOnly"`
	// How many CIP connections the device allows (1 to 256). Below the number of
	// clients, the probe owns the connection and everybody else asks the probe.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	// +k8s:maximum=256
	MaxConnections *int32 `json:"maxConnections,omitempty" protobuf:"varint,4,opt,name=maxConnections"`
}

// SimulationSettings shape a simulated module.
type SimulationSettings struct {
	// Seed of the simulated values, so that a drill can be repeated.
	// +optional
	// +k8s:optional
	Seed *int64 `json:"seed,omitempty" protobuf:"varint,1,opt,name=seed"`
}

// DataType is the type of a channel's or tag's value.
// +enum
// +k8s:enum
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
// +enum
// +k8s:enum
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
	// +k8s:required
	// +k8s:maxLength=253
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
	// Address in the protocol's own notation: Modbus "coil:0", "discrete:0",
	// "input:0" or "holding:0" (with addressing reference: "40001"); OPC UA a
	// NodeId; EtherNet/IP a tag name.
	// +k8s:required
	// +k8s:maxLength=1024
	Address string `json:"address" protobuf:"bytes,2,opt,name=address"`
	// Number of consecutive elements (1 to 2000; default 1).
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	// +k8s:maximum=2000
	Count *int32 `json:"count,omitempty" protobuf:"varint,3,opt,name=count"`
	// Type of one element: bool, int16, uint16, int32, uint32, int64, uint64,
	// float32, float64 or string.
	// +optional
	// +k8s:optional
	DataType DataType `json:"dataType,omitempty" protobuf:"bytes,4,opt,name=dataType,casttype=DataType"`
	// Order of registers and bytes, when it differs from the module's.
	// +optional
	// +k8s:optional
	WordOrder WordOrder `json:"wordOrder,omitempty" protobuf:"bytes,5,opt,name=wordOrder,casttype=WordOrder"`
	// Read, Write or ReadWrite.
	// +optional
	// +k8s:optional
	Access Access `json:"access,omitempty" protobuf:"bytes,6,opt,name=access,casttype=Access"`
	// From the raw value to engineering units.
	// +optional
	// +k8s:optional
	Scaling *Scaling `json:"scaling,omitempty" protobuf:"bytes,7,opt,name=scaling"`
	// Engineering unit as shown to people, for example "bar" or "°C".
	// +optional
	// +k8s:optional
	// +k8s:maxLength=32
	Unit string `json:"unit,omitempty" protobuf:"bytes,8,opt,name=unit"`
}

// Scaling turns a raw value into engineering units: raw × factor + offset.
type Scaling struct {
	// Factor; not zero. Default 1.
	// +optional
	// +k8s:optional
	Factor *float64 `json:"factor,omitempty" protobuf:"fixed64,1,opt,name=factor"`
	// Offset in engineering units. Default 0.
	// +optional
	// +k8s:optional
	Offset *float64 `json:"offset,omitempty" protobuf:"fixed64,2,opt,name=offset"`
}

// ProbeSettings say how often the probe asks and how many answers make a verdict.
type ProbeSettings struct {
	// Time between two checks, 250ms to 60s. Default 1s.
	// +optional
	// +k8s:optional
	Period *metav1.Duration `json:"period,omitempty" protobuf:"bytes,1,opt,name=period"`
	// Time the device has for one answer, 50ms to 1s. Default 1s.
	// +optional
	// +k8s:optional
	Timeout *metav1.Duration `json:"timeout,omitempty" protobuf:"bytes,2,opt,name=timeout"`
	// Consecutive failures (1 to 10) that make the module Fault. Default 3.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	// +k8s:maximum=10
	FailureThreshold *int32 `json:"failureThreshold,omitempty" protobuf:"varint,3,opt,name=failureThreshold"`
	// Consecutive successes (1 to 10) that make the module Online. Default 2.
	// +optional
	// +k8s:optional
	// +k8s:minimum=1
	// +k8s:maximum=10
	SuccessThreshold *int32 `json:"successThreshold,omitempty" protobuf:"varint,4,opt,name=successThreshold"`
}

// ModuleState is what is known of a module's connectivity.
// +enum
// +k8s:enum
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
// +enum
// +k8s:enum
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
	// +optional
	// +k8s:optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`
	// Online (answers), Fault (measured, does not answer), Offline (determined by
	// the system itself) or Unknown (not measured).
	// +optional
	// +k8s:optional
	State ModuleState `json:"state,omitempty" protobuf:"bytes,2,opt,name=state,casttype=ModuleState"`
	// Why, in one word: for example Connected, Refused, Timeout, UnitNotResponding, ProbeUnavailable.
	// +optional
	// +k8s:optional
	Reason string `json:"reason,omitempty" protobuf:"bytes,3,opt,name=reason"`
	// Why, in a sentence.
	// +optional
	// +k8s:optional
	Message string `json:"message,omitempty" protobuf:"bytes,4,opt,name=message"`
	// NAMUR NE 107 status signal.
	// +optional
	// +k8s:optional
	Health ModuleHealth `json:"health,omitempty" protobuf:"bytes,5,opt,name=health,casttype=ModuleHealth"`
	// What the device says of itself.
	// +optional
	// +k8s:optional
	Identity *DeviceIdentity `json:"identity,omitempty" protobuf:"bytes,6,opt,name=identity"`
	// Number of channels, declared or discovered.
	// +optional
	// +k8s:optional
	ChannelCount *int32 `json:"channelCount,omitempty" protobuf:"varint,7,opt,name=channelCount"`
	// Time of the last change of state.
	// +optional
	// +k8s:optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty" protobuf:"bytes,8,opt,name=lastTransitionTime"`
	// Pod that measures this module.
	// +optional
	// +k8s:optional
	ProbePodName string `json:"probePodName,omitempty" protobuf:"bytes,9,opt,name=probePodName"`
	// Conditions: Ready, ControllerFound, ...
	// +optional
	// +listType=map
	// +listMapKey=type
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" protobuf:"bytes,10,rep,name=conditions"`
}

// DeviceIdentity is what a device says of itself.
type DeviceIdentity struct {
	// Vendor name.
	// +optional
	// +k8s:optional
	Vendor string `json:"vendor,omitempty" protobuf:"bytes,1,opt,name=vendor"`
	// Product name or code.
	// +optional
	// +k8s:optional
	Product string `json:"product,omitempty" protobuf:"bytes,2,opt,name=product"`
	// Serial number.
	// +optional
	// +k8s:optional
	Serial string `json:"serial,omitempty" protobuf:"bytes,3,opt,name=serial"`
	// Hardware or firmware revision.
	// +optional
	// +k8s:optional
	Revision string `json:"revision,omitempty" protobuf:"bytes,4,opt,name=revision"`
}
