package render

import (
	"bytes"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

func renderedBytes(t *testing.T, bundle *secrets.Bundle, change func(*v1alpha1.TalosClusterSpec, *v1alpha1.TalosMachineSpec)) []byte {
	t.Helper()

	data, err := Render(newInput(bundle, change))
	if err != nil {
		t.Fatal(err)
	}

	return data
}

// Req: T-15, T-18a
func TestTheSameConfigurationHasTheSameBytesHoweverItIsWritten(t *testing.T) {
	bundle := newBundle(t)

	for _, c := range []struct {
		name   string
		change func(*v1alpha1.TalosClusterSpec, *v1alpha1.TalosMachineSpec)
	}{
		{"a worker", nil},
		{"a control plane", func(_ *v1alpha1.TalosClusterSpec, m *v1alpha1.TalosMachineSpec) { m.Role = v1alpha1.RoleControlPlane }},
		{"with network, volumes and patches", func(cluster *v1alpha1.TalosClusterSpec, m *v1alpha1.TalosMachineSpec) {
			m.NodeLabels = map[string]string{"b": "1", "a": "2"}
			m.NodeTaints = []v1alpha1.NodeTaint{{Key: "k", Value: "v", Effect: v1alpha1.TaintNoSchedule}}
			m.DiskRoles = []v1alpha1.DiskRole{{Role: "data", DiskSelector: v1alpha1.DiskSelector{Model: "X*"}, MinSize: "1GiB"}}
			m.Network = &v1alpha1.MachineNetwork{
				Hostname: "n1", Nameservers: []string{"192.0.2.53"}, TimeServers: []string{"192.0.2.123"},
				Links: []v1alpha1.MachineLinkConfig{{PermanentMAC: "b4:45:06:00:00:01", Addresses: []string{"192.0.2.7/24"}, Gateway: "192.0.2.1"}},
			}
			cluster.ConfigPatches = []string{"machine:\n  sysctls:\n    vm.swappiness: \"1\"\n", "cluster:\n  network:\n    cni:\n      name: none\n"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rendered := renderedBytes(t, bundle, c.change)

			// What a node hands back may have comments, other indentation and other quotes.
			other := "# a comment\n" + strings.ReplaceAll(string(rendered), "debug: false", "debug:   false # no")
			if other == string(rendered) {
				t.Fatal("the test's own change did nothing")
			}

			for _, in := range [][]byte{rendered, []byte(other)} {
				normal, err := Normalise(in)
				if err != nil {
					t.Fatal(err)
				}

				if !bytes.Equal(normal, rendered) {
					t.Errorf("it became\n%s", normal)
				}
			}
		})
	}
}

// Req: T-15
func TestADifferenceNamesWhatDiffersAndNoSecret(t *testing.T) {
	bundle, other := newBundle(t), newBundle(t)
	controlPlane := func(_ *v1alpha1.TalosClusterSpec, m *v1alpha1.TalosMachineSpec) { m.Role = v1alpha1.RoleControlPlane }
	base := renderedBytes(t, bundle, controlPlane)

	key := "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7"
	edited := strings.Replace(string(base), "machine:\n",
		"machine:\n    sysctls:\n        vm.swappiness: \"1\"\n    files:\n        - path: /var/key\n          permissions: 0o600\n          op: create\n          content: |\n              "+key+"\n", 1)

	for _, c := range []struct {
		name     string
		old, new []byte
		want     []string
	}{
		{"nothing", base, base, nil},
		{"a setting, and a key in a file", base, []byte(edited), []string{"+        vm.swappiness: \"1\"", "/var/key", "***"}},
		{"secrets alone", base, bytes.ReplaceAll(base, []byte(bundle.TrustdInfo.Token), []byte(other.TrustdInfo.Token)), nil},
		{"everything", base, renderedBytes(t, other, nil), []string{"-    type: controlplane", "+    type: worker"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Difference(c.old, c.new)
			if err != nil {
				t.Fatal(err)
			}

			if (got == "") != (len(c.want) == 0) {
				t.Errorf("the difference is %q", got)
			}

			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in\n%s", want, got)
				}
			}

			// Certificates are public, and Talos does not redact them.
			for _, secret := range append(privateOf(bundle), append(privateOf(other), key)...) {
				if strings.Contains(got, secret) {
					t.Errorf("it tells a secret:\n%s", got)
				}
			}
		})
	}

	// Positive control: there was something to leak.
	for _, secret := range privateOf(bundle) {
		if !strings.Contains(string(base), secret) {
			t.Error("a secret that is looked for was never there")
		}
	}

	for _, broken := range []string{"machine: [", "x: " + bundle.TrustdInfo.Token} {
		if _, err := Difference(base, []byte(broken)); err == nil || strings.Contains(err.Error(), bundle.TrustdInfo.Token) {
			t.Errorf("of %q: %v", broken[:4], err)
		}

		if _, err := Normalise([]byte(broken)); err == nil || strings.Contains(err.Error(), bundle.TrustdInfo.Token) {
			t.Errorf("of %q: %v", broken[:4], err)
		}
	}
}

// privateOf is what a control plane's configuration has of a bundle that nobody may see.
func privateOf(bundle *secrets.Bundle) []string {
	out := []string{bundle.Cluster.Secret, bundle.TrustdInfo.Token, bundle.Secrets.BootstrapToken, bundle.Secrets.SecretboxEncryptionSecret}

	for _, key := range [][]byte{bundle.Certs.OS.Key, bundle.Certs.K8s.Key, bundle.Certs.Etcd.Key, bundle.Certs.K8sServiceAccount.Key} {
		out = append(out, pemForms(key)[1])
	}

	return out
}
