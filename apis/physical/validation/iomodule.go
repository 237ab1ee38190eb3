package validation

import (
	"encoding/hex"
	"strings"
	"time"

	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	kubevalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// The bounds of spec.probe. A timeout above 1 s would break the promise that a silent device is Fault within 5 s (P-16).
const (
	minProbePeriod  = 250 * time.Millisecond
	maxProbePeriod  = 60 * time.Second
	minProbeTimeout = 50 * time.Millisecond
	maxProbeTimeout = time.Second
)

// ValidateIOModule checks a new IOModule (P-01, P-13). What concerns its binding is admission's (P-02, P-09).
func ValidateIOModule(module *physical.IOModule) field.ErrorList {
	return append(validateName(&module.ObjectMeta), validateIOModuleSpec(&module.Spec, field.NewPath("spec"))...)
}

// ValidateIOModuleUpdate checks a changed IOModule.
func ValidateIOModuleUpdate(module, _ *physical.IOModule) field.ErrorList {
	return validateIOModuleSpec(&module.Spec, field.NewPath("spec"))
}

// ValidateIOModuleStatusUpdate checks a changed status.
func ValidateIOModuleStatusUpdate(module, _ *physical.IOModule) field.ErrorList {
	path := field.NewPath("status")
	errs := metavalidation.ValidateConditions(module.Status.Conditions, path.Child("conditions"))
	if count := module.Status.ChannelCount; count != nil && *count < 0 {
		errs = append(errs, field.Invalid(path.Child("channelCount"), *count, "must not be negative"))
	}
	return errs
}

func validateIOModuleSpec(spec *physical.IOModuleSpec, path *field.Path) field.ErrorList {
	errs := validateProtocolMembers(spec, path)

	if modbus := spec.Modbus; modbus != nil {
		errs = append(errs, validateEndpoint(path.Child("modbus", "endpoint"), modbus.Endpoint, schemeTCP)...)
	}
	if opcua := spec.OPCUA; opcua != nil {
		errs = append(errs, validateOPCUA(opcua, path.Child("opcua"))...)
	}
	if ethernetip := spec.Ethernetip; ethernetip != nil {
		errs = append(errs, validateEndpoint(path.Child("ethernetip", "endpoint"), ethernetip.Endpoint, schemeTCP)...)
		errs = append(errs, validateCIPPath(path.Child("ethernetip", "path"), ethernetip.Path)...)
	}
	if placement := spec.ProbePlacement; placement != nil {
		errs = append(errs, validateNodeSelector(placement.NodeSelector, path.Child("probePlacement", "nodeSelector"))...)
	}
	for i := range spec.Channels {
		errs = append(errs, validateChannel(&spec.Channels[i], spec, path.Child("channels").Index(i))...)
	}
	if probe := spec.Probe; probe != nil {
		errs = append(errs, validateDuration(path.Child("probe", "period"), probe.Period, minProbePeriod, maxProbePeriod)...)
		errs = append(errs, validateDuration(path.Child("probe", "timeout"), probe.Timeout, minProbeTimeout, maxProbeTimeout)...)
	}
	return errs
}

// validateProtocolMembers checks that the member of the module's protocol is there, and no other's.
func validateProtocolMembers(spec *physical.IOModuleSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, member := range []struct {
		protocol physical.Protocol
		set      bool
		optional bool
	}{
		{protocol: physical.ProtocolModbus, set: spec.Modbus != nil},
		{protocol: physical.ProtocolOPCUA, set: spec.OPCUA != nil},
		{protocol: physical.ProtocolEtherNetIP, set: spec.Ethernetip != nil},
		{protocol: physical.ProtocolSimulation, set: spec.Simulation != nil, optional: true},
	} {
		child := path.Child(string(member.protocol))
		switch {
		case spec.Protocol == member.protocol && !member.set && !member.optional:
			errs = append(errs, field.Required(child, `spec.protocol is "`+string(spec.Protocol)+`", whose connection settings stand here`))
		case spec.Protocol != member.protocol && member.set:
			errs = append(errs, field.Forbidden(child, `spec.protocol is "`+string(spec.Protocol)+`": remove this member, or set spec.protocol to "`+string(member.protocol)+`"`))
		}
	}
	return errs
}

// validateOPCUA checks that security and identity can work together, so that no password ever travels in clear text
// unless somebody said so.
func validateOPCUA(opcua *physical.OPCUAConnection, path *field.Path) field.ErrorList {
	errs := validateEndpoint(path.Child("endpoint"), opcua.Endpoint, schemeOPCTCP)

	policyNone := opcua.SecurityPolicy == physical.OPCUASecurityPolicyNone
	modeNone := opcua.SecurityMode == physical.OPCUASecurityModeNone
	switch {
	case policyNone && !modeNone && opcua.SecurityMode != "":
		errs = append(errs, field.Invalid(path.Child("securityMode"), opcua.SecurityMode, `must be None when securityPolicy is None, which neither signs nor encrypts`))
	case modeNone && !policyNone && opcua.SecurityPolicy != "":
		errs = append(errs, field.Invalid(path.Child("securityMode"), opcua.SecurityMode, `must be Sign or SignAndEncrypt when securityPolicy is `+string(opcua.SecurityPolicy)+`; or set securityPolicy to None`))
	}

	userName, credentials := path.Child("userName"), path.Child("credentialsKey")
	switch opcua.Identity {
	case physical.OPCUAIdentityUserName:
		if opcua.UserName == "" {
			errs = append(errs, field.Required(userName, "identity is UserName"))
		}
		if opcua.CredentialsKey == "" {
			errs = append(errs, field.Required(credentials, "identity is UserName: name the key of the Secret fieldplane-device-credentials that holds the password"))
		}
		if policyNone && !opcua.AllowInsecureAuth {
			errs = append(errs, field.Invalid(path.Child("securityPolicy"), opcua.SecurityPolicy, "would send the password in clear text: choose another policy, or accept it with allowInsecureAuth: true"))
		}
	case physical.OPCUAIdentityCertificate:
		if opcua.CredentialsKey == "" {
			errs = append(errs, field.Required(credentials, "identity is Certificate: name the key of the Secret fieldplane-device-credentials that holds the PEM certificate and key"))
		}
		if opcua.UserName != "" {
			errs = append(errs, field.Invalid(userName, opcua.UserName, "must be absent when identity is Certificate"))
		}
	case physical.OPCUAIdentityAnonymous:
		if opcua.UserName != "" {
			errs = append(errs, field.Invalid(userName, opcua.UserName, "must be absent when identity is Anonymous; set identity to UserName"))
		}
		if opcua.CredentialsKey != "" {
			errs = append(errs, field.Invalid(credentials, opcua.CredentialsKey, "must be absent when identity is Anonymous; set identity to UserName or Certificate"))
		}
	}

	for _, key := range []struct {
		path  *field.Path
		value string
	}{{credentials, opcua.CredentialsKey}, {path.Child("trustedCertificateKey"), opcua.TrustedCertificateKey}} {
		if key.value == "" {
			continue
		}
		for _, rule := range kubevalidation.IsConfigMapKey(key.value) {
			errs = append(errs, field.Invalid(key.path, key.value, "must be a key of a Secret: "+rule))
		}
	}

	if print := opcua.TrustedThumbprint; print != "" {
		// Tools print thumbprints with and without colons, and in either case.
		raw, err := hex.DecodeString(strings.ReplaceAll(print, ":", ""))
		if err != nil || len(raw) != 20 && len(raw) != 32 {
			errs = append(errs, field.Invalid(path.Child("trustedThumbprint"), print, "must be the SHA-1 (40 digits) or SHA-256 (64 digits) of the server certificate in hexadecimal"))
		}
	}
	return errs
}
