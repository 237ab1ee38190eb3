// Package object holds what the stores of all our kinds share: the strategy's
// constants, the store itself, its subresources and its tables. What is a
// kind's own stands in pkg/registry/<group>/<resource>.
package object

import (
	"context"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/operation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Strategy is the part of a create and update strategy that is the same for
// every kind: namespaced, never created by an update, never updated without a
// resourceVersion, validated by the generated rules beside its own.
type Strategy struct {
	rest.DeclarativeValidation
	names.NameGenerator
}

// NewStrategy returns the shared part of a strategy for kinds of the scheme.
func NewStrategy(scheme *runtime.Scheme) Strategy {
	return Strategy{rest.DeclarativeValidation{Scheme: scheme}, names.SimpleNameGenerator}
}

// maxErrors is how many errors of one object are told. A list of many thousand is of no use to anybody, and the library
// compares and joins them in a time that grows with their square: one request would hold a core for minutes.
const maxErrors = 64

// ValidateDeclaratively applies the generated rules beside the strategy's own, and tells at most maxErrors errors of
// both.
func (s Strategy) ValidateDeclaratively(ctx context.Context, obj, old runtime.Object, errs field.ErrorList, op operation.Type, config rest.DeclarativeValidationConfig) field.ErrorList {
	shown := errs[:min(len(errs), maxErrors)]
	all := s.DeclarativeValidation.ValidateDeclaratively(ctx, obj, old, shown, op, config)
	omitted := len(errs) - len(shown) + max(0, len(all)-maxErrors)
	if omitted == 0 {
		return all
	}
	all = all[:min(len(all), maxErrors)]
	return append(all, &field.Error{
		Type: field.ErrorTypeTooMany, Field: all[len(all)-1].Field, BadValue: field.OmitValueType{},
		Detail: fmt.Sprintf("and %d more errors", omitted),
	})
}

// NamespaceScoped says that all our kinds are namespaced.
func (Strategy) NamespaceScoped() bool { return true }

// AllowCreateOnUpdate refuses to create by PUT; apply creates by its own path.
func (Strategy) AllowCreateOnUpdate(context.Context) bool { return false }

// AllowUnconditionalUpdate refuses a PUT without resourceVersion, so that
// nobody overwrites what he has not seen (T-13).
func (Strategy) AllowUnconditionalUpdate(context.Context) bool { return false }

// Canonicalize changes nothing.
func (Strategy) Canonicalize(runtime.Object) {}

// WarningsOnCreate returns none.
func (Strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }

// WarningsOnUpdate returns none.
func (Strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}

// ResetStatus makes server-side apply on the main resource of the versions
// leave status to others.
type ResetStatus struct {
	// Versions are all served versions of the kind, as group/version.
	Versions []string
}

// GetResetFields returns the fields that a write of the main resource does not change.
func (r ResetStatus) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	fields := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, version := range r.Versions {
		fields[fieldpath.APIVersion(version)] = fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	}
	return fields
}

// KeepMetadata undoes what a write to a subresource did to the metadata, but
// for the record of who manages which field.
func KeepMetadata(obj, old metav1.Object) {
	managed := obj.GetManagedFields()
	resourceVersion := obj.GetResourceVersion()
	*metaOf(obj) = *metaOf(old).DeepCopy()
	obj.SetManagedFields(managed)
	// The version that the writer saw decides whether it conflicts.
	obj.SetResourceVersion(resourceVersion)
}

func metaOf(obj metav1.Object) *metav1.ObjectMeta {
	return obj.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
}

// NextGeneration bumps the generation when the spec has changed: it counts
// what was asked for, not what was observed.
func NextGeneration(obj, old metav1.Object, spec, oldSpec any) {
	obj.SetGeneration(old.GetGeneration())
	if !apiequality.Semantic.DeepEqual(spec, oldSpec) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
}
