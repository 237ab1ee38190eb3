package probepod

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UnitAnnotation of a runtime's pod and ConfigMap names the Unit: its name may be too long for a label.
const UnitAnnotation = "fieldplane.dev/unit"

const (
	runtimePrefix = "unit-runtime-"
	// maxReadable is how much of a Unit's name stands in its runtime's. Names of pods have at most 253 characters.
	maxReadable = 200
	// hashDigits is the number of hex digits that stand for the name of a Unit that is longer.
	hashDigits = 10
)

// RuntimeName is the name of the pod and ConfigMap of a Unit's runtime, and of no other's (P-15). One that is cut is longer than any
// that is not.
func RuntimeName(unit string) string {
	if len(unit) <= maxReadable {
		return runtimePrefix + unit
	}
	readable := strings.TrimRight(unit[:maxReadable], "-.")
	readable += strings.Repeat("0", maxReadable-len(readable))
	sum := sha256.Sum256([]byte(unit))
	return runtimePrefix + readable + "-" + hex.EncodeToString(sum[:])[:hashDigits]
}

// UnitOf is the Unit for whose runtime this server made an object; false for an object that it did not make for one.
func UnitOf(object metav1.Object) (unit string, ours bool) {
	unit = object.GetAnnotations()[UnitAnnotation]
	return unit, IsOurs(object, Unit) && unit != "" && object.GetName() == RuntimeName(unit)
}
