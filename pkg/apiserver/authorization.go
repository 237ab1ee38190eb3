package apiserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// NewAuthorizer asks the host cluster, and keeps its answers for as long as
// the options say. It is made here and not by the options because they
// let 200 reviews a second through, for all users together.
func NewAuthorizer(options *genericoptions.DelegatingAuthorizationOptions, reviews authorizationclient.AuthorizationV1Interface) (authorizer.Authorizer, error) {
	return newAuthorizer(options, reviews, options.AllowCacheTTL, options.DenyCacheTTL)
}

// NewUncachedAuthorizer asks the host cluster each time: a right that was
// revoked denies the next request (T-13).
func NewUncachedAuthorizer(options *genericoptions.DelegatingAuthorizationOptions, reviews authorizationclient.AuthorizationV1Interface) (authorizer.Authorizer, error) {
	return newAuthorizer(options, reviews, 0, 0)
}

func newAuthorizer(options *genericoptions.DelegatingAuthorizationOptions, reviews authorizationclient.AuthorizationV1Interface,
	allowTTL, denyTTL time.Duration,
) (authorizer.Authorizer, error) {
	paths, err := path.NewAuthorizer(options.AlwaysAllowPaths)
	if err != nil {
		return nil, fmt.Errorf("--authorization-always-allow-paths: %w", err)
	}
	delegated, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: reviews,
		AllowCacheTTL:             allowTTL,
		DenyCacheTTL:              denyTTL,
		WebhookRetryBackoff:       options.WebhookRetryBackoff,
	}.New()
	if err != nil {
		return nil, fmt.Errorf("delegated authorization: %w", err)
	}
	return union.New(
		union.NamedAuthorizer{AuthorizerName: "fieldplane.dev/always-allow-groups", Authorizer: authorizerfactory.NewPrivilegedGroups(options.AlwaysAllowGroups...)},
		union.NamedAuthorizer{AuthorizerName: "fieldplane.dev/always-allow-paths", Authorizer: paths},
		union.NamedAuthorizer{AuthorizerName: "fieldplane.dev/no-anonymous", Authorizer: authorizer.AuthorizerFunc(denyAnonymous)},
		union.NamedAuthorizer{AuthorizerName: "fieldplane.dev/host-cluster", Authorizer: delegated},
	)
}

// denyAnonymous keeps those whom nobody knows to the paths that are always
// allowed. The library lets them in whatever its options say, and host clusters
// grant them paths of their own, the version by default.
func denyAnonymous(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if u := a.GetUser(); u == nil || u.GetName() == user.Anonymous || slices.Contains(u.GetGroups(), user.AllUnauthenticated) {
		return authorizer.DecisionDeny, "who is not authenticated reaches health checks only", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}
