package object

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// largest is what etcd stores as one object, 1.5 MiB with what stands around it.
	largest = 3<<19 - 32<<10
	// defaultStatusRoom is how much of it is kept for the status of a kind that does not say.
	defaultStatusRoom = 256 << 10
)

// checkRoom refuses what would leave no room for the status: whoever may write labels or a spec could otherwise keep the
// server from storing that a device has failed, or that a Unit is held (P-16, P-16a). What was stored before there was
// this rule may stay as large as it is.
func (s Main[T, Spec, Status]) checkRoom(obj T, old *T) field.ErrorList {
	room := s.Of.StatusRoom
	if room == 0 {
		room = defaultStatusRoom
	}
	size := s.sizeWithoutStatus(obj)
	if size <= largest-room || old != nil && size <= s.sizeWithoutStatus(*old) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata"), fmt.Sprintf(
		"the object takes %d bytes without its status, managedFields included, and may take %d: take out labels, annotations or parts of the spec, so that its status can always be stored",
		size, largest-room))}
}

// sizeWithoutStatus is what an object takes as it is stored, in bytes.
func (s Main[T, Spec, Status]) sizeWithoutStatus(obj T) int {
	if s.Scheme == nil || len(s.Versions) == 0 {
		return 0
	}
	version, err := schema.ParseGroupVersion(s.Versions[0])
	if err != nil {
		return 0
	}
	bare := obj.DeepCopyObject().(T)
	var none Status
	*s.Of.Status(bare) = none
	versioned, err := s.Scheme.UnsafeConvertToVersion(runtime.Object(bare), version)
	if err != nil {
		return 0
	}
	stored, ok := versioned.(interface{ Size() int })
	if !ok {
		return 0
	}
	return stored.Size()
}
