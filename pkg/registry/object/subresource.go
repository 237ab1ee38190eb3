package object

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Subresource serves a part of a kind's objects under a path of its own: GET
// shows the whole object, PUT and PATCH change only that part.
type Subresource struct {
	store   *genericregistry.Store
	filters map[fieldpath.APIVersion]fieldpath.Filter
}

var (
	_ rest.Getter                    = &Subresource{}
	_ rest.Patcher                   = &Subresource{}
	_ rest.TableConvertor            = &Subresource{}
	_ rest.ResetFieldsFilterStrategy = &Subresource{}
)

// NewSubresource returns a subresource over the main resource's store. The
// strategy restores everything but the subresource's own fields; fields are
// these fields' paths, as server-side apply needs to know them for every
// served version (as group/version).
func NewSubresource(main *REST, strategy rest.RESTUpdateStrategy, versions []string, fields ...[]any) *Subresource {
	store := *main.Store
	store.UpdateStrategy = strategy
	store.ResetFieldsStrategy = nil
	matchers := make([]*fieldpath.SetMatcher, 0, len(fields))
	for _, path := range fields {
		matchers = append(matchers, fieldpath.MakePrefixMatcherOrDie(path...))
	}
	filters := map[fieldpath.APIVersion]fieldpath.Filter{}
	for _, version := range versions {
		filters[fieldpath.APIVersion(version)] = fieldpath.NewIncludeMatcherFilter(matchers...)
	}
	return &Subresource{store: &store, filters: filters}
}

// New returns an empty object of the kind.
func (s *Subresource) New() runtime.Object { return s.store.New() }

// Destroy does nothing: the store belongs to the main resource.
func (*Subresource) Destroy() {}

// Get returns the whole object.
func (s *Subresource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Update changes the subresource's part of an existing object; it never creates one.
func (s *Subresource) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc,
	_ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}

// ConvertToTable prints the object for kubectl get.
func (s *Subresource) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return s.store.ConvertToTable(ctx, obj, options)
}

// GetResetFieldsFilter returns, for server-side apply, which fields a write here changes.
func (s *Subresource) GetResetFieldsFilter() map[fieldpath.APIVersion]fieldpath.Filter {
	return s.filters
}

// ChangeStatus changes the status of a stored object on behalf of a request to another path, which has been let in; s is the
// kind's status subresource. What the change sees is the stored version, and it is written over no other: on a conflict it
// is asked again. Its error ends the request, and nothing is written then, nor by a dry run.
func (s *Subresource) ChangeStatus(ctx context.Context, name string, dryRun []string, change func(obj runtime.Object) error) (runtime.Object, error) {
	// What is validated is a status, and not the request.
	if info, ok := genericapirequest.RequestInfoFrom(ctx); ok {
		status := *info
		status.Verb, status.Subresource = "update", "status"
		ctx = genericapirequest.WithRequestInfo(ctx, &status)
	}
	changed := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, stored runtime.Object) (runtime.Object, error) {
		obj := stored.DeepCopyObject()
		return obj, change(obj)
	})
	obj, _, err := s.store.Update(ctx, name, changed, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{DryRun: dryRun})
	return obj, err
}
