package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// SetDefaults_IOModuleSpec gives every module probe settings, whose values make
// a silent device Fault within 5 s (P-16).
func SetDefaults_IOModuleSpec(spec *IOModuleSpec) {
	if spec.Probe == nil {
		spec.Probe = &ProbeSettings{}
	}
}

// SetDefaults_ProbeSettings fills in the values of P-16: 1 s period and timeout, 3 failures, 2 successes.
func SetDefaults_ProbeSettings(probe *ProbeSettings) {
	if probe.Period == nil {
		probe.Period = &metav1.Duration{Duration: time.Second}
	}
	if probe.Timeout == nil {
		probe.Timeout = &metav1.Duration{Duration: time.Second}
	}
	if probe.FailureThreshold == nil {
		probe.FailureThreshold = ptr.To[int32](3)
	}
	if probe.SuccessThreshold == nil {
		probe.SuccessThreshold = ptr.To[int32](2)
	}
}

// SetDefaults_ModbusConnection fills in unit id 1, big-endian words and zero-based addresses.
func SetDefaults_ModbusConnection(modbus *ModbusConnection) {
	if modbus.UnitID == nil {
		modbus.UnitID = ptr.To[int32](1)
	}
	if modbus.WordOrder == "" {
		modbus.WordOrder = WordOrderABCD
	}
	if modbus.Addressing == "" {
		modbus.Addressing = ModbusAddressingZeroBased
	}
}

// SetDefaults_OPCUAConnection fills in the secure choice: signed, encrypted, Basic256Sha256.
func SetDefaults_OPCUAConnection(opcua *OPCUAConnection) {
	if opcua.SecurityPolicy == "" {
		opcua.SecurityPolicy = OPCUASecurityPolicyBasic256Sha256
	}
	if opcua.SecurityMode == "" {
		opcua.SecurityMode = OPCUASecurityModeSignAndEncrypt
		if opcua.SecurityPolicy == OPCUASecurityPolicyNone {
			opcua.SecurityMode = OPCUASecurityModeNone
		}
	}
	if opcua.Identity == "" {
		opcua.Identity = OPCUAIdentityAnonymous
	}
}

// SetDefaults_ControllerSpec lets the server keep simulation Controllers alive (P-05).
func SetDefaults_ControllerSpec(spec *ControllerSpec) {
	if spec.Simulation && spec.Heartbeat == "" {
		spec.Heartbeat = HeartbeatManaged
	}
}

// SetDefaults_Tag makes a tag a value that is read every second.
func SetDefaults_Tag(tag *Tag) {
	if tag.Access == "" {
		tag.Access = AccessRead
	}
	if tag.Period == nil {
		tag.Period = &metav1.Duration{Duration: time.Second}
	}
}

// SetDefaults_UnitSpec makes a Unit hold on Fault and Offline, and after 60 s of Unknown.
func SetDefaults_UnitSpec(spec *UnitSpec) {
	if len(spec.HoldOn) == 0 {
		spec.HoldOn = []ModuleState{ModuleFault, ModuleOffline}
	}
	if spec.UnknownHoldAfter == nil {
		spec.UnknownHoldAfter = &metav1.Duration{Duration: time.Minute}
	}
	if spec.HoldTimeout == nil {
		spec.HoldTimeout = &metav1.Duration{Duration: 30 * time.Second}
	}
}
