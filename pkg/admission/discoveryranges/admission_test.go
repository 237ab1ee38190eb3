package discoveryranges

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fieldplane/fieldplane/apis/talos"
)

func attributes(obj, old runtime.Object, resource, subresource string) admission.Attributes {
	op := admission.Create
	if old != nil {
		op = admission.Update
	}
	return admission.NewAttributesRecord(obj, old, schema.GroupVersionKind{}, "site-a", "c1",
		schema.GroupVersionResource{Group: talos.GroupName, Version: "v1alpha1", Resource: resource}, subresource, op, nil, false, nil)
}

func cluster(addresses, cidrs, patches []string) *talos.TalosCluster {
	return &talos.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: talos.TalosClusterSpec{
		Discovery: talos.TalosDiscovery{Addresses: addresses, Cidrs: cidrs}, ConfigPatches: patches,
	}}
}

func check(t *testing.T, err error, refused []string) {
	t.Helper()
	if len(refused) == 0 {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	if !apierrors.IsInvalid(err) {
		t.Fatalf("have %v", err)
	}
	for _, text := range refused {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

// Req: T-01
func TestDiscovery(t *testing.T) {
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf("192.0.2.%d", i)
	}
	for _, tc := range []struct {
		name             string
		addresses, cidrs []string
		refused          []string // what the message names; none: accepted
	}{
		{"nothing declared", nil, nil, nil},
		{"addresses and ranges", []string{"192.0.2.1"}, []string{"198.51.100.0/24"}, nil},
		{"64 addresses", many[:64], nil, nil},
		{"65 addresses", many, nil, []string{`TalosCluster.talos.fieldplane.dev "c1" is invalid`, "spec.discovery.addresses", "65", "at most 64"}},
		{"5 CIDRs", nil, []string{"10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24", "10.0.4.0/24"}, []string{"spec.discovery.cidrs", "5", "at most 4"}},
		{"a /23", nil, []string{"198.51.100.0/24", "198.18.0.0/23"}, []string{"spec.discovery.cidrs[1]", "198.18.0.0/23", "/24 or smaller"}},
		{"an IPv6 address", []string{"192.0.2.1", "2001:db8::1"}, nil, []string{"spec.discovery.addresses[1]", "2001:db8::1", "IPv6 is not supported"}},
		{"an IPv6 range", nil, []string{"2001:db8::/120"}, []string{"spec.discovery.cidrs[0]", "2001:db8::/120", "IPv6 is not supported"}},
		{"every broken entry is told", []string{"x"}, []string{"y"}, []string{"spec.discovery.addresses[0]", "spec.discovery.cidrs[0]"}},
	} {
		t.Run("create: "+tc.name, func(t *testing.T) {
			check(t, New().Validate(context.Background(), attributes(cluster(tc.addresses, tc.cidrs, nil), nil, "talosclusters", ""), nil), tc.refused)
		})
		t.Run("update: "+tc.name, func(t *testing.T) {
			old := cluster([]string{"203.0.113.1"}, nil, nil)
			check(t, New().Validate(context.Background(), attributes(cluster(tc.addresses, tc.cidrs, nil), old, "talosclusters", ""), nil), tc.refused)
		})
		t.Run("unchanged, of an older server: "+tc.name, func(t *testing.T) {
			stored := cluster(tc.addresses, tc.cidrs, nil)
			check(t, New().Validate(context.Background(), attributes(stored.DeepCopy(), stored, "talosclusters", ""), nil), nil)
		})
	}
}

// Req: A-04, T-15
func TestConfigPatches(t *testing.T) {
	const (
		good   = "machine:\n  sysctls:\n    net.ipv4.ip_forward: \"1\"\n"
		json   = `[{"op": "remove", "path": "/machine"}]`
		secret = "machine:\n  token: abcdef.0123456789abcdef\n"
	)
	for _, tc := range []struct {
		name            string
		stored, patches []string
		refused         []string
	}{
		{"no patches", nil, nil, nil},
		{"a part of a configuration", nil, []string{good}, nil},
		{"a JSON patch", nil, []string{good, json}, []string{"spec.configPatches[1]", "JSON patch"}},
		{"an empty patch", nil, []string{""}, []string{"spec.configPatches[0]", "must not be empty"}},
		{"a patch of what the bundle decides", nil, []string{secret}, []string{"spec.configPatches[0]", "machine.token"}},
		{"a patch of the role", nil, []string{"machine:\n  type: controlplane\n"}, []string{"spec.configPatches[0]", "machine.type", "spec.role"}},
		{"a patch that was there before", []string{json}, []string{json, good}, nil},
	} {
		t.Run("cluster: "+tc.name, func(t *testing.T) {
			check(t, New().Validate(context.Background(), attributes(cluster(nil, nil, tc.patches), cluster(nil, nil, tc.stored), "talosclusters", ""), nil), tc.refused)
		})
		t.Run("machine: "+tc.name, func(t *testing.T) {
			machine := func(patches []string) *talos.TalosMachine {
				return &talos.TalosMachine{Spec: talos.TalosMachineSpec{ConfigPatches: patches}}
			}
			err := New().Validate(context.Background(), attributes(machine(tc.patches), machine(tc.stored), "talosmachines", ""), nil)
			check(t, err, tc.refused)
			if err != nil && strings.Contains(err.Error(), "0123456789abcdef") {
				t.Errorf("%q repeats the patch", err)
			}
		})
	}
}

// Req: A-04, T-15
func TestVersionsThatDoNotGoTogetherAreRefused(t *testing.T) {
	of := func(talosVersion, kubernetesVersion string) *talos.TalosCluster {
		return &talos.TalosCluster{ObjectMeta: metav1.ObjectMeta{Name: "c1"}, Spec: talos.TalosClusterSpec{TalosVersion: talosVersion, KubernetesVersion: kubernetesVersion}}
	}
	for _, tc := range []struct {
		name           string
		stored, wanted *talos.TalosCluster
		refused        string
	}{
		{"a pair that Talos supports", nil, of("v1.13", "v1.36.2"), ""},
		{"a Kubernetes that is too old", nil, of("v1.13", "v1.20.0"), `spec.kubernetesVersion: Invalid value: "v1.20.0"`},
		{"a Kubernetes that is too new", nil, of("v1.9", "v1.36.2"), "spec.kubernetesVersion"},
		{"a Talos that cannot be rendered", nil, of("v1.99", "v1.36.2"), "the newest that can be rendered"},
		{"an upgrade that Talos does not support", of("v1.13", "v1.36.2"), of("v1.13", "v1.99.0"), `"v1.99.0"`},
		{"an upgrade", of("v1.13", "v1.36.1"), of("v1.13", "v1.36.2"), ""},
		{"what was stored before this was checked stays writable", of("v1.99", "v1.36.2"), of("v1.99", "v1.36.2"), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var stored runtime.Object
			if tc.stored != nil {
				stored = tc.stored
			}
			err := New().Validate(context.Background(), attributes(tc.wanted, stored, "talosclusters", ""), nil)
			if tc.refused == "" && err != nil || tc.refused != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.refused)) {
				t.Errorf("have %v", err)
			}
		})
	}
}

func TestUnexpectedObjectsAreRefused(t *testing.T) {
	for _, resource := range []string{"talosclusters", "talosmachines"} {
		if err := New().Validate(context.Background(), attributes(&metav1.Status{}, nil, resource, ""), nil); !apierrors.IsInternalError(err) {
			t.Errorf("%s: have %v", resource, err)
		}
	}
	other := admission.NewAttributesRecord(&metav1.Status{}, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{Resource: "talosclusters"}, "", admission.Create, nil, false, nil)
	if err := New().Validate(context.Background(), other, nil); err != nil {
		t.Errorf("another group: %v", err)
	}
	for subresource, request := range map[string]admission.Attributes{
		"discover": attributes(&talos.DiscoveryRequest{}, nil, "talosclusters", "discover"), "reboot": attributes(&talos.RebootRequest{}, nil, "talosmachines", "reboot"),
	} {
		if err := New().Validate(context.Background(), request, nil); err != nil {
			t.Errorf("a request to %s: %v", subresource, err)
		}
	}
}

func TestRegistration(t *testing.T) {
	plugins := admission.NewPlugins()
	Register(plugins)
	plugin, err := plugins.InitPlugin(PluginName, nil, admission.PluginInitializers{})
	if err != nil {
		t.Fatal(err)
	}
	if !plugin.Handles(admission.Create) || !plugin.Handles(admission.Update) || plugin.Handles(admission.Delete) {
		t.Error("handles the wrong operations")
	}
}
