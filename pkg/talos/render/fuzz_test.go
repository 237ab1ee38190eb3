package render

import (
	"bytes"
	"errors"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// FuzzRender: whatever a machine and a cluster say, nothing panics, no error holds a secret, and what comes out belongs to
// the cluster and has the approved role and disk.
//
// Req: T-11, T-15
func FuzzRender(f *testing.F) {
	type seed struct{ role, talos, kubernetes, endpoint, disk, hostname, mac, address, gateway, label, value, size, patch string }

	for _, s := range []seed{
		{role: "worker", talos: "v1.13", kubernetes: "v1.36.0", endpoint: "https://192.0.2.1:6443", disk: "/dev/sda"},
		{
			role: "controlplane", talos: "v1.11", kubernetes: "v1.34.1", endpoint: "https://[2001:db8::1]:6443", disk: "/dev/nvme0n1",
			hostname: "mixer-1", mac: "b4:45:06:aa:00:01", address: "192.0.2.7/24", gateway: "192.0.2.1",
			label: "line", value: "mixing", size: "10GiB", patch: "machine: {sysctls: {a: b}}",
		},
		{role: "join", talos: "v9", kubernetes: "1", endpoint: "://", disk: "*", mac: "x", address: "/", size: "-1", patch: "machine: {type: init}"},
		{role: "worker", talos: "v1.13", kubernetes: "v1.36.0", endpoint: "https://h", disk: "/dev/sda", hostname: "a b", mac: "b4:45:06:aa:00:01", patch: "cluster: {$patch: delete}"},
		{role: "worker", talos: "v1.13", kubernetes: "v1.36.0", endpoint: "https://h", disk: "/dev/sda", patch: "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: x"},
	} {
		f.Add(s.role, s.talos, s.kubernetes, s.endpoint, s.disk, s.hostname, s.mac, s.address, s.gateway, s.label, s.value, s.size, []byte(s.patch))
	}

	data, err := GenerateBundle("v1.13")
	if err != nil {
		f.Fatal(err)
	}

	bundle, err := ParseBundle(data)
	if err != nil {
		f.Fatal(err)
	}

	f.Fuzz(func(t *testing.T, role, talos, kubernetes, endpoint, disk, hostname, mac, address, gateway, label, value, size string, patch []byte) {
		in := newInput(bundle, func(c *v1alpha1.TalosClusterSpec, m *v1alpha1.TalosMachineSpec) {
			c.TalosVersion, c.KubernetesVersion, c.ControlPlaneEndpoint = talos, kubernetes, endpoint
			m.Role = v1alpha1.MachineRole(role)
			m.Install.Disk = disk
			m.Network = &v1alpha1.MachineNetwork{Hostname: hostname}

			if mac != "" {
				link := v1alpha1.MachineLinkConfig{PermanentMAC: mac, Gateway: gateway}
				if address != "" {
					link.Addresses = []string{address}
				}

				m.Network.Links = []v1alpha1.MachineLinkConfig{link}
			}

			if label != "" {
				m.NodeLabels = map[string]string{label: value}
				m.NodeTaints = []v1alpha1.NodeTaint{{Key: label, Value: value, Effect: v1alpha1.TaintNoSchedule}}
			}

			if size != "" {
				m.DiskRoles = []v1alpha1.DiskRole{{Role: "data", DiskSelector: v1alpha1.DiskSelector{Capacity: size}, MinSize: size}}
			}

			if len(patch) > 0 {
				c.ConfigPatches, m.ConfigPatches = []string{string(patch)}, []string{string(patch)}
			}
		})

		out, err := Render(in)

		switch {
		case role == "" && !errors.Is(err, ErrRoleNotSet):
			t.Fatalf("without a role: %v", err)
		case err != nil:
			checkNoLeak(t, bundle, err.Error())

			return
		}

		provider, err := configloader.NewFromBytes(out)
		if err != nil {
			t.Fatalf("what was rendered cannot be read: %v", err)
		}

		raw := provider.RawV1Alpha1()

		switch {
		case raw.MachineConfig.MachineType != role, role != string(v1alpha1.RoleControlPlane) && role != string(v1alpha1.RoleWorker):
			t.Errorf("role %q became %q", role, raw.MachineConfig.MachineType)
		case raw.MachineConfig.MachineInstall.InstallDisk != disk:
			t.Errorf("disk %q became %q", disk, raw.MachineConfig.MachineInstall.InstallDisk)
		case raw.ClusterConfig.ClusterID != bundle.Cluster.ID, raw.ClusterConfig.ClusterSecret != bundle.Cluster.Secret,
			raw.MachineConfig.MachineToken != bundle.TrustdInfo.Token, !bytes.Equal(raw.MachineConfig.MachineCA.Crt, bundle.Certs.OS.Crt):
			t.Error("the machine belongs to another cluster")
		}

		shown, err := RedactedConfig(out)
		if err != nil {
			t.Fatal(err)
		}

		checkNoKeys(t, bundle.Certs.OS.Key, shown)
	})
}

func checkNoKeys(t *testing.T, key, shown []byte) {
	t.Helper()

	for _, form := range pemForms(key) {
		if bytes.Contains(shown, []byte(form)) {
			t.Fatal("the redacted configuration holds a key")
		}
	}
}
