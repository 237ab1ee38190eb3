package object

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Object is an internal API object.
type Object interface {
	runtime.Object
	metav1.Object
}

// SpecStatus says what a strategy needs to know of a kind with a spec and a status.
type SpecStatus[T Object, Spec, Status any] struct {
	// Spec and Status point into an object.
	Spec   func(T) *Spec
	Status func(T) *Status
	// InitialStatus is what a new object's status is; the zero value when nil.
	InitialStatus func(T) Status
	// Validate and ValidateUpdate hold the rules that no tag can express.
	Validate       func(T) field.ErrorList
	ValidateUpdate func(obj, old T) field.ErrorList
	// ValidateStatus checks a written status.
	ValidateStatus func(obj, old T) field.ErrorList
	// StatusRoom is how many bytes the status may take; everything else has what is left of what can be stored. 256 KiB when 0.
	StatusRoom int
}

// Main is the strategy of a kind's main resource: it writes everything but status.
type Main[T Object, Spec, Status any] struct {
	Strategy
	ResetStatus
	Of SpecStatus[T, Spec, Status]
	// Prepare, when set, settles further fields of an update, before validation and admission.
	Prepare func(ctx context.Context, obj, old T)
	// PrepareNew, when set, settles further fields of a new object.
	PrepareNew func(ctx context.Context, obj T)
}

// PrepareForCreate drops what the client wrote into status: nothing arrives already observed.
func (s Main[T, Spec, Status]) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	created := obj.(T)
	var status Status
	if s.Of.InitialStatus != nil {
		status = s.Of.InitialStatus(created)
	}
	*s.Of.Status(created) = status
	created.SetGeneration(1)
	if s.PrepareNew != nil {
		s.PrepareNew(ctx, created)
	}
}

// PrepareForUpdate keeps the stored status and counts changes of spec.
func (s Main[T, Spec, Status]) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	updated, stored := obj.(T), old.(T)
	*s.Of.Status(updated) = *s.Of.Status(stored.DeepCopyObject().(T))
	if s.Prepare != nil {
		s.Prepare(ctx, updated, stored)
	}
	NextGeneration(updated, stored, s.Of.Spec(updated), s.Of.Spec(stored))
}

// Validate applies the rules for new objects.
func (s Main[T, Spec, Status]) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	created := obj.(T)
	return append(s.Of.Validate(created), s.checkRoom(created, nil)...)
}

// ValidateUpdate applies the rules for changed objects.
func (s Main[T, Spec, Status]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	updated, stored := obj.(T), old.(T)
	return append(s.Of.ValidateUpdate(updated, stored), s.checkRoom(updated, &stored)...)
}

// StatusOnly is the strategy of a kind's status subresource: it writes nothing but status.
type StatusOnly[T Object, Spec, Status any] struct {
	Strategy
	Of SpecStatus[T, Spec, Status]
	// Prepare, when set, settles fields of status that no client writes.
	Prepare func(ctx context.Context, obj, old T)
}

// PrepareForUpdate restores everything but status.
func (s StatusOnly[T, Spec, Status]) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	updated, stored := obj.(T), old.DeepCopyObject().(T)
	KeepMetadata(updated, stored)
	*s.Of.Spec(updated) = *s.Of.Spec(stored)
	if s.Prepare != nil {
		s.Prepare(ctx, updated, stored)
	}
}

// ValidateUpdate checks the status.
func (s StatusOnly[T, Spec, Status]) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return s.Of.ValidateStatus(obj.(T), old.(T))
}
