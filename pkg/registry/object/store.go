package object

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

// Category is the name under which `kubectl get fieldplane` lists all our kinds.
const Category = "fieldplane"

// Kind is what the store of one kind is made of.
type Kind struct {
	// Resource and Singular are the plural and singular resource names.
	Resource, Singular schema.GroupResource
	// ShortNames are what kubectl accepts for it.
	ShortNames []string
	// New and NewList make empty internal objects.
	New, NewList func() runtime.Object
	// Attributes returns an object's labels and selectable fields.
	Attributes storage.AttrFunc
	// Strategy creates, updates and deletes.
	Strategy interface {
		rest.RESTCreateStrategy
		rest.RESTUpdateStrategy
		rest.RESTDeleteStrategy
		rest.ResetFieldsStrategy
	}
	// Table prints.
	Table rest.TableConvertor
}

// REST serves the main resource of a kind.
type REST struct {
	*genericregistry.Store
	shortNames []string
}

var (
	_ rest.ShortNamesProvider = &REST{}
	_ rest.CategoriesProvider = &REST{}
	_ rest.StandardStorage    = &REST{}
)

// NewREST opens the store of a kind. There is one per kind, however many
// versions are served.
func NewREST(kind Kind, options generic.RESTOptionsGetter) (*REST, error) {
	store := &genericregistry.Store{
		NewFunc:                   kind.New,
		NewListFunc:               kind.NewList,
		PredicateFunc:             predicate(kind.Attributes),
		DefaultQualifiedResource:  kind.Resource,
		SingularQualifiedResource: kind.Singular,
		CreateStrategy:            kind.Strategy,
		UpdateStrategy:            kind.Strategy,
		DeleteStrategy:            kind.Strategy,
		ResetFieldsStrategy:       kind.Strategy,
		TableConvertor:            kind.Table,
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options, AttrFunc: kind.Attributes}); err != nil {
		return nil, fmt.Errorf("store of %s: %w", kind.Resource, err)
	}
	return &REST{Store: store, shortNames: kind.ShortNames}, nil
}

func predicate(attributes storage.AttrFunc) func(labels.Selector, fields.Selector) storage.SelectionPredicate {
	return func(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
		return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: attributes}
	}
}

// ShortNames returns what kubectl accepts for the kind.
func (r *REST) ShortNames() []string { return r.shortNames }

// Categories returns the category of all our kinds.
func (*REST) Categories() []string { return []string{Category} }
