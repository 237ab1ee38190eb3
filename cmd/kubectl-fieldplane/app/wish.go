package app

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// wish is what the flags of approve say the machine is to become.
type wish struct {
	role     v1alpha1.MachineRole
	labels   map[string]string
	taints   []v1alpha1.NodeTaint
	hostname string
	install  *v1alpha1.MachineInstall

	fingerprint      string
	acceptUnverified bool
	acceptShared     bool
}

// on returns the machine as it would be after the approval. What the flags do not speak of stays as it is stored, with
// one exception: that a control plane goes unverified, or that hardware is shared, is for the approver to accept, not for
// whoever wrote the manifest (T-18).
func (w wish) on(stored *v1alpha1.TalosMachine) *v1alpha1.TalosMachine {
	machine := stored.DeepCopy()
	spec := &machine.Spec
	spec.Approved = ptr.To(true)
	if w.role != "" {
		spec.Role = w.role
	}
	for key, value := range w.labels {
		if spec.NodeLabels == nil {
			spec.NodeLabels = map[string]string{}
		}
		spec.NodeLabels[key] = value
	}
	for _, taint := range w.taints {
		// Talos keeps one taint for each key.
		spec.NodeTaints = slices.DeleteFunc(spec.NodeTaints, func(old v1alpha1.NodeTaint) bool { return old.Key == taint.Key })
		spec.NodeTaints = append(spec.NodeTaints, taint)
	}
	// In another order it is not another wish.
	if sameTaints(spec.NodeTaints, stored.Spec.NodeTaints) {
		spec.NodeTaints = stored.DeepCopy().Spec.NodeTaints
	}
	if w.hostname != "" {
		if spec.Network == nil {
			spec.Network = &v1alpha1.MachineNetwork{}
		}
		spec.Network.Hostname = w.hostname
	}
	// Another disk is a new decision: whether to wipe the old one says nothing of it.
	if w.install != nil && !sameDisk(w.install, spec.Install) {
		spec.Install = w.install.DeepCopy()
	}
	switch {
	case w.fingerprint != "":
		spec.AcceptUnverifiedFingerprint = false
		if !sameFingerprint(w.fingerprint, spec.AcceptedFingerprint) {
			spec.AcceptedFingerprint = w.fingerprint
		}
	case w.acceptUnverified:
		spec.AcceptedFingerprint, spec.AcceptUnverifiedFingerprint = "", true
	case !approved(stored):
		spec.AcceptUnverifiedFingerprint = false
	}
	switch {
	case w.acceptShared:
		spec.AcceptSharedHardware = true
	case !approved(stored):
		spec.AcceptSharedHardware = false
	}
	return machine
}

func approved(machine *v1alpha1.TalosMachine) bool {
	return ptr.Deref(machine.Spec.Approved, false)
}

func sameDisk(a, b *v1alpha1.MachineInstall) bool {
	return a != nil && b != nil && a.Disk == b.Disk && equality.Semantic.DeepEqual(a.DiskSelector, b.DiskSelector)
}

func sameTaints(a, b []v1alpha1.NodeTaint) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(taint v1alpha1.NodeTaint) bool { return !slices.Contains(b, taint) })
}

// sameFingerprint compares two fingerprints by what they encode; no fingerprint equals none.
func sameFingerprint(a, b string) bool {
	decodedA, errA := decodeFingerprint(a)
	decodedB, errB := decodeFingerprint(b)
	return errA == nil && errB == nil && slices.Equal(decodedA, decodedB)
}

func decodeFingerprint(text string) ([]byte, error) {
	const sha256Bytes = 32
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(decoded) != sha256Bytes {
		return nil, fmt.Errorf("%q is not the base64 form of a SHA-256 (44 characters, the last one =)", text)
	}
	return decoded, nil
}

func parseLabels(texts []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, text := range texts {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not KEY=VALUE", text)
		}
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		if len(problems) > 0 {
			return nil, fmt.Errorf("%q: %s", text, problems[0])
		}
		if other, twice := labels[key]; twice && other != value {
			return nil, fmt.Errorf("%q: the key %s is given twice", text, key)
		}
		labels[key] = value
	}
	return labels, nil
}

// parseTaints reads KEY[=VALUE]:EFFECT, as kubectl taint does.
func parseTaints(texts []string) ([]v1alpha1.NodeTaint, error) {
	var taints []v1alpha1.NodeTaint
	for _, text := range texts {
		name, effect, ok := strings.Cut(text, ":")
		key, value, _ := strings.Cut(name, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not KEY[=VALUE]:EFFECT", text)
		}
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		if len(problems) > 0 {
			return nil, fmt.Errorf("%q: %s", text, problems[0])
		}
		taint := v1alpha1.NodeTaint{Key: key, Value: value, Effect: v1alpha1.TaintEffect(effect)}
		switch taint.Effect {
		case v1alpha1.TaintNoSchedule, v1alpha1.TaintPreferNoSchedule, v1alpha1.TaintNoExecute:
		default:
			return nil, fmt.Errorf("%q: the effect is none of NoSchedule, PreferNoSchedule, NoExecute", text)
		}
		if slices.ContainsFunc(taints, func(other v1alpha1.NodeTaint) bool { return other.Key == key }) {
			return nil, fmt.Errorf("%q: Talos sets one taint for each key, and %s is given twice", text, key)
		}
		taints = append(taints, taint)
	}
	return taints, nil
}
