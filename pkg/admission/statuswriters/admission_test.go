package statuswriters

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/pkg/admission/initializer"
)

// Req: A-05
func TestWhoWritesWhichStatus(t *testing.T) {
	const serviceAccount, loopback = "system:serviceaccount:fieldplane-system:fieldplane-apiserver", "system:apiserver"

	for _, tc := range []struct {
		name        string
		group       string
		resource    string
		subresource string
		users       []string
		refused     bool
	}{
		{"a module's status is not for users", physical.GroupName, "iomodules", "status", []string{"alice", "system:admin", ""}, true},
		{"a unit's status is not for users", physical.GroupName, "units", "status", []string{"alice", "system:admin", ""}, true},
		{"the server writes a module's status", physical.GroupName, "iomodules", "status", []string{serviceAccount, loopback}, false},
		{"the server writes a unit's status", physical.GroupName, "units", "status", []string{serviceAccount, loopback}, false},
		{"a simulator writes a Controller's status", physical.GroupName, "controllers", "status", []string{"simulator"}, false},
		{"a ControlModule's status is RBAC's to guard", physical.GroupName, "controlmodules", "status", []string{"alice"}, false},
		{"a machine's status is not for users", talos.GroupName, "talosmachines", "status", []string{"alice", "system:admin", ""}, true},
		{"a cluster's status is not for users", talos.GroupName, "talosclusters", "status", []string{"alice", "system:admin", ""}, true},
		{"the server writes a machine's status", talos.GroupName, "talosmachines", "status", []string{serviceAccount, loopback}, false},
		{"the server writes a cluster's status", talos.GroupName, "talosclusters", "status", []string{serviceAccount, loopback}, false},
		{"a machine's approval is another plugin's", talos.GroupName, "talosmachines", "approval", []string{"alice"}, false},
		{"asking for a sweep is RBAC's to guard", talos.GroupName, "talosclusters", "discover", []string{"alice"}, false},
		{"a module's spec is for users", physical.GroupName, "iomodules", "", []string{"alice"}, false},
		{"units of another group are not ours", "example.com", "units", "status", []string{"alice"}, false},
	} {
		for _, name := range tc.users {
			for _, dryRun := range []bool{false, true} {
				t.Run(tc.name, func(t *testing.T) {
					plugin := New()
					plugin.SetServerIdentity(initializer.NewServerIdentity(serviceAccount, loopback))
					err := plugin.Validate(context.Background(), admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "site-a", "x",
						schema.GroupVersionResource{Group: tc.group, Version: "v1alpha1", Resource: tc.resource}, tc.subresource, admission.Update, nil, dryRun, &user.DefaultInfo{Name: name}), nil)
					if !tc.refused {
						if err != nil {
							t.Errorf("refused: %v", err)
						}
						return
					}
					if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "status of "+tc.resource) {
						t.Errorf("have %v", err)
					}
				})
			}
		}
	}
}

func TestInitialization(t *testing.T) {
	plugins := admission.NewPlugins()
	Register(plugins)
	plugin, err := plugins.InitPlugin(PluginName, nil, initializer.New(nil, nil, nil, initializer.NewServerIdentity("system:apiserver")))
	if err != nil {
		t.Fatal(err)
	}
	if !plugin.Handles(admission.Update) || plugin.Handles(admission.Delete) {
		t.Error("handles the wrong operations")
	}
	if _, err := plugins.InitPlugin(PluginName, nil, initializer.New(nil, nil, nil, initializer.NewServerIdentity())); err == nil {
		t.Error("initialized without an identity")
	}
}
