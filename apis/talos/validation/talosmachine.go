package validation

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	kubevalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos"
)

// ValidateTalosMachine checks a new TalosMachine.
func ValidateTalosMachine(machine *talos.TalosMachine) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateIdentity(machine, path.Child("identity"))
	return append(errs, validateMachineSpec(&machine.Spec, path)...)
}

// ValidateTalosMachineUpdate checks a changed TalosMachine, on whatever path it was changed. Its identity cannot change,
// which the tags enforce.
func ValidateTalosMachineUpdate(machine, _ *talos.TalosMachine) field.ErrorList {
	return validateMachineSpec(&machine.Spec, field.NewPath("spec"))
}

// ValidateTalosMachineStatusUpdate checks a changed status.
func ValidateTalosMachineStatusUpdate(machine, _ *talos.TalosMachine) field.ErrorList {
	return metavalidation.ValidateConditions(machine.Status.Conditions, field.NewPath("status", "conditions"))
}

// validateIdentity checks that the machine is named by its UUID, and that its identity has the one form in which what is
// read off a machine can be compared with it (T-05, T-18). A serial or MACs may be missing: such a machine is never
// registered by discovery, but a person may.
func validateIdentity(machine *talos.TalosMachine, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	identity := &machine.Spec.Identity

	switch {
	case identity.UUID == "":
		errs = append(errs, field.Required(path.Child("uuid"), "the SMBIOS UUID names the machine"))
	case !uuid.MatchString(identity.UUID):
		errs = append(errs, field.Invalid(path.Child("uuid"), identity.UUID, `must be a UUID in lower case, such as "4c4c4544-0042-3510-8051-b4c04f4b4c32"`))
	case machine.Name != identity.UUID:
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), machine.Name, fmt.Sprintf("must equal spec.identity.uuid, which is %q", identity.UUID)))
	}

	if strings.ContainsFunc(identity.Serial, invisible) || strings.TrimSpace(identity.Serial) != identity.Serial {
		errs = append(errs, field.Invalid(path.Child("serial"), identity.Serial, "must not begin or end with blanks, or hold control or other invisible characters"))
	}

	macs := path.Child("macAddresses")
	for i, text := range identity.MACAddresses {
		if rule := checkMAC(text); rule != "" {
			errs = append(errs, field.Invalid(macs.Index(i), text, rule))
		} else if i > 0 && identity.MACAddresses[i-1] == text {
			errs = append(errs, field.Duplicate(macs.Index(i), text))
		}
	}
	if !slices.IsSorted(identity.MACAddresses) {
		errs = append(errs, field.Invalid(macs, identity.MACAddresses, "must be sorted: "+strings.Join(slices.Sorted(slices.Values(identity.MACAddresses)), ", ")))
	}
	return errs
}

// invisible characters could make one serial look like another, or rearrange on a terminal what stands beside it.
func invisible(r rune) bool { return !unicode.IsGraphic(r) }

func validateMachineSpec(spec *talos.TalosMachineSpec, path *field.Path) field.ErrorList {
	errs := validateApproval(spec, path)

	if spec.Endpoint != "" {
		if rule := checkMachineAddress(spec.Endpoint); rule != "" {
			errs = append(errs, field.Invalid(path.Child("endpoint"), spec.Endpoint, rule))
		}
	}
	errs = append(errs, validateNodeLabels(spec, path.Child("nodeLabels"))...)
	errs = append(errs, validateNodeTaints(spec.NodeTaints, path.Child("nodeTaints"))...)
	errs = append(errs, validateInstall(spec.Install, path.Child("install"))...)
	for i := range spec.DiskRoles {
		errs = append(errs, validateDiskRole(&spec.DiskRoles[i], path.Child("diskRoles").Index(i))...)
	}
	errs = append(errs, validateNetwork(spec.Network, path.Child("network"))...)

	if print := spec.AcceptedFingerprint; print != "" {
		if raw, err := base64.StdEncoding.DecodeString(print); err != nil || len(raw) != 32 {
			errs = append(errs, field.Invalid(path.Child("acceptedFingerprint"), print, "must be the fingerprint as the machine's console shows it: 44 characters of base64, a SHA-256"))
		}
	}
	return errs
}

// validateApproval checks that what is approved is whole: the role (T-11), the disk, and for a control plane, to which the
// cluster's keys are sent, how its certificate is known (T-18).
func validateApproval(spec *talos.TalosMachineSpec, path *field.Path) field.ErrorList {
	if !ptr.Deref(spec.Approved, false) {
		return nil
	}
	var errs field.ErrorList
	if spec.Rejected != nil {
		errs = append(errs, field.Invalid(path.Child("approved"), true, "must not be true while spec.rejected is set; clear spec.rejected through the approval subresource"))
	}
	if spec.Role == "" {
		errs = append(errs, field.Required(path.Child("role"), "spec.approved is true: an approved machine has a role, controlplane or worker, which is never defaulted"))
	}
	if spec.Install == nil {
		errs = append(errs, field.Required(path.Child("install"), "spec.approved is true: name the disk that Talos is installed on, with disk or diskSelector; none is ever defaulted"))
	}
	if spec.Role == talos.RoleControlPlane && spec.AcceptedFingerprint == "" && !spec.AcceptUnverifiedFingerprint {
		errs = append(errs, field.Required(path.Child("acceptedFingerprint"),
			"spec.approved is true and spec.role is controlplane: give the fingerprint that the machine's console shows, or set acceptUnverifiedFingerprint: true"))
	}
	return errs
}

// checkMachineAddress returns the rule that an endpoint breaks, or "".
func checkMachineAddress(endpoint string) string {
	addr, err := netip.ParseAddr(endpoint)
	if err != nil {
		if _, err := netip.ParseAddrPort(endpoint); err == nil {
			return "must be an IPv4 address without a port; the port is always 50000"
		}
		return "must be an IPv4 address, such as 192.0.2.10; names are not resolved"
	}
	if rule := checkUnicast(addr); rule != "" {
		return rule
	}
	if !addr.Is4() {
		return "must be an IPv4 address; IPv6 is not supported"
	}
	return ""
}

func validateNodeLabels(spec *talos.TalosMachineSpec, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateLabels(spec.NodeLabels, path)
	for key, value := range spec.NodeLabels {
		domain, _, _ := strings.Cut(key, "/")
		if spec.Role == talos.RoleWorker && (domain == "node-role.kubernetes.io" || domain == "node-restriction.kubernetes.io") {
			errs = append(errs, field.Invalid(path.Key(key), value, "must be absent: Kubernetes lets no worker set this label on itself, and Talos would try for ever; set it with kubectl once the Node is there"))
		}
	}
	// Maps have no order; messages do.
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

func validateNodeTaints(taints []talos.NodeTaint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	keys := map[string]bool{}
	for i, taint := range taints {
		key := path.Index(i).Child("key")
		if taint.Key != "" {
			errs = append(errs, metavalidation.ValidateLabelName(taint.Key, key)...)
		}
		for _, rule := range kubevalidation.IsValidLabelValue(taint.Value) {
			errs = append(errs, field.Invalid(path.Index(i).Child("value"), taint.Value, rule))
		}
		if keys[taint.Key] {
			errs = append(errs, &field.Error{Type: field.ErrorTypeDuplicate, Field: key.String(), BadValue: taint.Key, Detail: "Talos sets one taint for each key"})
		}
		keys[taint.Key] = true
	}
	return errs
}
