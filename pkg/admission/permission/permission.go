// Package permission asks whether the user of a request may do more than the request's own path needs.
package permission

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Permission is one verb on a subresource.
type Permission struct {
	// Verb is the RBAC verb.
	Verb string
	// Resource whose subresource the verb is asked on, in the request's group; empty for the request's own.
	Resource string
	// Subresource that the verb is asked on.
	Subresource string
	// Name of the object. It is taken from the object rather than from the path, which has none when something is created.
	// Empty: of every object, so that a right to single ones is not enough.
	Name string
	// Object is the name of what the request writes, where that is not Name.
	Object string
	// To says what the permission is needed for, to end the sentence "… needs … to ".
	To string
}

// Require returns nil when the user of the request has the permission, a 403 that names it when the user has not, and
// a 503 when nobody could say: then the user has done nothing wrong and trying again helps (T-13, T-14).
func Require(ctx context.Context, authz authorizer.UnconditionalAuthorizer, a admission.Attributes, p Permission) error {
	resource := a.GetResource().GroupResource()
	if p.Resource != "" {
		resource.Resource = p.Resource
	}
	decision, reason, err := authz.Authorize(ctx, authorizer.AttributesRecord{
		User:            a.GetUserInfo(),
		Verb:            p.Verb,
		Namespace:       a.GetNamespace(),
		APIGroup:        resource.Group,
		APIVersion:      a.GetResource().Version,
		Resource:        resource.Resource,
		Subresource:     p.Subresource,
		Name:            p.Name,
		ResourceRequest: true,
	})

	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		return apierrors.NewServiceUnavailable(fmt.Sprintf("could not ask for the verb %q on %s/%s in API group %q for %s/%s, try again: %v",
			p.Verb, resource.Resource, p.Subresource, resource.Group, a.GetNamespace(), p.Name, err))
	}

	var who string
	if u := a.GetUserInfo(); u != nil {
		who = u.GetName()
	}
	refusal := fmt.Errorf("user %q needs the verb %q on resource %q in API group %q in the namespace %q to %s",
		who, p.Verb, resource.Resource+"/"+p.Subresource, resource.Group, a.GetNamespace(), p.To)
	if reason != "" {
		refusal = fmt.Errorf("%w: %s", refusal, reason)
	}
	name := cmp.Or(p.Object, p.Name, a.GetName())
	return apierrors.NewForbidden(a.GetResource().GroupResource(), name, refusal)
}
