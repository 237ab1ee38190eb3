package apiserver

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Req: A-03
func TestWhoIsNotAuthenticatedIsDeniedWhateverTheHostGrants(t *testing.T) {
	for _, tc := range []struct {
		name string
		user user.Info
		want authorizer.Decision
	}{
		{"nobody at all", nil, authorizer.DecisionDeny},
		{"the anonymous user", &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}, authorizer.DecisionDeny},
		{"the anonymous user in other groups", &user.DefaultInfo{Name: user.Anonymous, Groups: []string{"plant"}}, authorizer.DecisionDeny},
		{"somebody in the group of the unauthenticated", &user.DefaultInfo{Name: "alice", Groups: []string{user.AllUnauthenticated}}, authorizer.DecisionDeny},
		{"somebody who is authenticated", &user.DefaultInfo{Name: "alice", Groups: []string{user.AllAuthenticated}}, authorizer.DecisionNoOpinion},
	} {
		t.Run(tc.name, func(t *testing.T) {
			have, _, err := denyAnonymous(t.Context(), authorizer.AttributesRecord{User: tc.user, Verb: "get", Path: "/version"})
			if have != tc.want || err != nil {
				t.Errorf("decision %v, %v; want %v", have, err, tc.want)
			}
		})
	}
}
