package render

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/gendata"
	"go.yaml.in/yaml/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

func newBundle(t *testing.T) *secrets.Bundle {
	t.Helper()

	data, err := GenerateBundle("v1.13")
	if err != nil {
		t.Fatal(err)
	}

	bundle, err := ParseBundle(data)
	if err != nil {
		t.Fatal(err)
	}

	return bundle
}

func newInput(bundle *secrets.Bundle, change func(*v1alpha1.TalosClusterSpec, *v1alpha1.TalosMachineSpec)) Input {
	in := Input{
		Bundle: bundle,
		Cluster: &v1alpha1.TalosCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "plant"},
			Spec: v1alpha1.TalosClusterSpec{
				ControlPlaneEndpoint: "https://192.0.2.1:6443",
				TalosVersion:         "v1.13",
				KubernetesVersion:    "v1.36.0",
			},
		},
		Machine: &v1alpha1.TalosMachine{Spec: v1alpha1.TalosMachineSpec{
			Role:    v1alpha1.RoleWorker,
			Install: &v1alpha1.MachineInstall{Disk: "/dev/sda"},
		}},
	}

	if change != nil {
		change(&in.Cluster.Spec, &in.Machine.Spec)
	}

	return in
}

func mustRender(t *testing.T, in Input) config.Provider {
	t.Helper()

	data, err := Render(in)
	if err != nil {
		t.Fatal(err)
	}

	provider, err := configloader.NewFromBytes(data)
	if err != nil {
		t.Fatal(err)
	}

	return provider
}

// checkNoLeak fails when a text holds any value of the bundle.
func checkNoLeak(t *testing.T, bundle *secrets.Bundle, text string) {
	t.Helper()

	for _, value := range BundleMaterial(bundle) {
		if strings.Contains(text, value) {
			t.Fatalf("bundle material in %q", text)
		}
	}
}

// Req: T-11, T-15
func TestEachRoleGetsItsConfiguration(t *testing.T) {
	bundle := newBundle(t)

	for _, role := range []v1alpha1.MachineRole{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker} {
		in := newInput(bundle, func(_ *v1alpha1.TalosClusterSpec, m *v1alpha1.TalosMachineSpec) { m.Role = role })
		provider := mustRender(t, in)
		raw := provider.RawV1Alpha1()

		if raw.MachineConfig.MachineType != string(role) {
			t.Errorf("%s: machine type %q", role, raw.MachineConfig.MachineType)
		}

		if have := raw.ClusterConfig.ControlPlane.Endpoint.String(); have != "https://192.0.2.1:6443" {
			t.Errorf("%s: endpoint %s", role, have)
		}

		if raw.ClusterConfig.ClusterID != bundle.Cluster.ID || raw.MachineConfig.MachineToken != bundle.TrustdInfo.Token ||
			!bytes.Equal(raw.MachineConfig.MachineCA.Crt, bundle.Certs.OS.Crt) {
			t.Errorf("%s: not a member of the bundle's cluster", role)
		}

		if hasKey := len(raw.MachineConfig.MachineCA.Key) > 0; hasKey != (role == v1alpha1.RoleControlPlane) {
			t.Errorf("%s: has the CA's key: %v", role, hasKey)
		}

		if raw.MachineConfig.MachineInstall.InstallDisk != "/dev/sda" {
			t.Errorf("%s: disk %q", role, raw.MachineConfig.MachineInstall.InstallDisk)
		}

		if have := raw.MachineConfig.MachineInstall.InstallImage; !strings.HasPrefix(have, "factory.talos.dev/metal-installer/") || !strings.HasSuffix(have, ":"+gendata.VersionTag) {
			t.Errorf("%s: installer %q", role, have)
		}

		first, _ := Render(in)
		second, _ := Render(in)

		if !bytes.Equal(first, second) {
			t.Errorf("%s: two renderings of one input differ", role)
		}

		if bytes.Contains(first, []byte("# ")) {
			t.Errorf("%s: has comments", role)
		}
	}
}

// Req: T-11
func TestARoleIsNeverAssumed(t *testing.T) {
	bundle := newBundle(t)

	for role, want := range map[v1alpha1.MachineRole]string{
		"":              "render: machine role is not set",
		"init":          `render: machine role "init" is neither controlplane nor worker`,
		"join":          `render: machine role "join" is neither controlplane nor worker`,
		"unknown":       `render: machine role "unknown" is neither controlplane nor worker`,
		"Worker":        `render: machine role "Worker" is neither controlplane nor worker`,
		"controlplane ": `render: machine role "controlplane " is neither controlplane nor worker`,
	} {
		data, err := Render(newInput(bundle, func(_ *v1alpha1.TalosClusterSpec, m *v1alpha1.TalosMachineSpec) { m.Role = role }))
		if err == nil || err.Error() != want || data != nil {
			t.Errorf("%q: %v", role, err)
		}

		if errors.Is(err, ErrRoleNotSet) != (role == "") {
			t.Errorf("%q: is ErrRoleNotSet: %v", role, errors.Is(err, ErrRoleNotSet))
		}

		checkNoLeak(t, bundle, err.Error())
	}
}

// Req: T-15, T-18
func TestWhatCannotBeRenderedSaysWhy(t *testing.T) {
	bundle := newBundle(t)

	type (
		clusterSpec = v1alpha1.TalosClusterSpec
		machineSpec = v1alpha1.TalosMachineSpec
	)

	key := string(bundle.Certs.OS.Key)

	for _, tc := range []struct {
		name   string
		change func(*clusterSpec, *machineSpec)
		want   string
	}{
		{"no install", func(_ *clusterSpec, m *machineSpec) { m.Install = nil }, "spec.install: neither disk nor diskSelector is set"},
		{"an empty install", func(_ *clusterSpec, m *machineSpec) { m.Install = &v1alpha1.MachineInstall{Wipe: true} }, "neither disk nor diskSelector"},
		{"an empty disk selector", func(_ *clusterSpec, m *machineSpec) {
			m.Install = &v1alpha1.MachineInstall{DiskSelector: &v1alpha1.DiskSelector{}}
		}, "at least one property"},
		{"disk and selector", func(_ *clusterSpec, m *machineSpec) {
			m.Install = &v1alpha1.MachineInstall{Disk: "/dev/sda", DiskSelector: &v1alpha1.DiskSelector{Model: "X"}}
		}, "must not both be set"},
		{"a capacity that is none", func(_ *clusterSpec, m *machineSpec) {
			m.Install = &v1alpha1.MachineInstall{DiskSelector: &v1alpha1.DiskSelector{Capacity: ">= many"}}
		}, "spec.install.diskSelector"},
		{"an unknown disk type", func(_ *clusterSpec, m *machineSpec) {
			m.Install = &v1alpha1.MachineInstall{DiskSelector: &v1alpha1.DiskSelector{Type: "floppy"}}
		}, "spec.install.diskSelector"},

		{"no Talos version", func(c *clusterSpec, _ *machineSpec) { c.TalosVersion = "" }, "spec.talosVersion"},
		{"a Talos version that is none", func(c *clusterSpec, _ *machineSpec) { c.TalosVersion = "latest" }, "spec.talosVersion"},
		{"a newer Talos version", func(c *clusterSpec, _ *machineSpec) { c.TalosVersion = "v1.14.0" }, "the newest that can be rendered is v1.13"},
		{"a Kubernetes version without patch", func(c *clusterSpec, _ *machineSpec) { c.KubernetesVersion = "v1.36" }, "full version"},
		{"a Kubernetes version that is none", func(c *clusterSpec, _ *machineSpec) { c.KubernetesVersion = "a.b.c" }, "spec.kubernetesVersion"},
		{"a Kubernetes version too old for Talos", func(c *clusterSpec, _ *machineSpec) { c.KubernetesVersion = "v1.25.0" }, `spec.kubernetesVersion "v1.25.0"`},
		{"a Kubernetes version too new for Talos", func(c *clusterSpec, _ *machineSpec) { c.KubernetesVersion = "v1.99.0" }, "spec.kubernetesVersion"},
		{"an endpoint without scheme", func(c *clusterSpec, _ *machineSpec) { c.ControlPlaneEndpoint = "192.0.2.1:6443" }, "spec.controlPlaneEndpoint"},
		{"an endpoint without TLS", func(c *clusterSpec, _ *machineSpec) { c.ControlPlaneEndpoint = "http://192.0.2.1:6443" }, "must be https://"},
		{"an endpoint with a path", func(c *clusterSpec, _ *machineSpec) { c.ControlPlaneEndpoint = "https://192.0.2.1:6443/x" }, "must be https://"},
		{"an endpoint with a password", func(c *clusterSpec, _ *machineSpec) { c.ControlPlaneEndpoint = "https://a:b@192.0.2.1" }, "must be https://"},

		{"a label that is none", func(_ *clusterSpec, m *machineSpec) { m.NodeLabels = map[string]string{"a b": "c"} }, "a b"},
		{"a taint with an unknown effect", func(_ *clusterSpec, m *machineSpec) {
			m.NodeTaints = []v1alpha1.NodeTaint{{Key: "a", Effect: "Never"}}
		}, "Never"},
		{"two taints with one key", func(_ *clusterSpec, m *machineSpec) {
			m.NodeTaints = []v1alpha1.NodeTaint{{Key: "a", Effect: "NoSchedule"}, {Key: "a", Effect: "NoExecute"}}
		}, "spec.nodeTaints[1]"},
		{"a host name that is too long", func(_ *clusterSpec, m *machineSpec) {
			m.Network = &v1alpha1.MachineNetwork{Hostname: strings.Repeat("a", 70)}
		}, "hostname"},
		{"a MAC that is none", func(_ *clusterSpec, m *machineSpec) {
			m.Network = &v1alpha1.MachineNetwork{Links: []v1alpha1.MachineLinkConfig{{PermanentMAC: `" || true`}}}
		}, "spec.network.links[0].permanentMAC"},
		{"a gateway with DHCP", func(_ *clusterSpec, m *machineSpec) {
			m.Network = &v1alpha1.MachineNetwork{Links: []v1alpha1.MachineLinkConfig{{PermanentMAC: "b4:45:06:aa:00:01", Gateway: "192.0.2.1"}}}
		}, "spec.network.links[0].gateway"},
		{"an address that is none", func(_ *clusterSpec, m *machineSpec) {
			m.Network = &v1alpha1.MachineNetwork{Links: []v1alpha1.MachineLinkConfig{{PermanentMAC: "b4:45:06:aa:00:01", Addresses: []string{"x"}}}}
		}, "x"},
		{"a disk role without selector", func(_ *clusterSpec, m *machineSpec) { m.DiskRoles = []v1alpha1.DiskRole{{Role: "data"}} }, "spec.diskRoles[0].diskSelector"},
		{"a disk role before Talos 1.10", func(c *clusterSpec, m *machineSpec) {
			c.TalosVersion, c.KubernetesVersion = "v1.9", "v1.31.0"
			m.DiskRoles = []v1alpha1.DiskRole{{Role: "data", DiskSelector: v1alpha1.DiskSelector{Model: "X"}}}
		}, "needs Talos 1.10"},

		{"a JSON patch", func(c *clusterSpec, _ *machineSpec) {
			c.ConfigPatches = []string{`[{"op":"add","path":"/machine/sysctls","value":{}}]`}
		}, "cluster spec.configPatches[0]: must not be a JSON patch"},
		{"an empty patch", func(_ *clusterSpec, m *machineSpec) { m.ConfigPatches = []string{"machine: {sysctls: {a: b}}", "---"} }, "machine spec.configPatches[1]: must not be empty"},
		{"a patch that is no configuration", func(c *clusterSpec, _ *machineSpec) { c.ConfigPatches = []string{"machine: {nonsense: 1}"} }, "configPatches[0]: must be a part of a Talos configuration"},
		{"a patch that names a file", func(c *clusterSpec, _ *machineSpec) { c.ConfigPatches = []string{"@/etc/hostname"} }, "configPatches[0]"},
		{"a patch that sets the type", func(c *clusterSpec, _ *machineSpec) { c.ConfigPatches = []string{"machine: {type: controlplane}"} }, "must not set machine.type, which the machine's spec.role decides"},
		{"a patch that sets the endpoint", func(c *clusterSpec, _ *machineSpec) {
			c.ConfigPatches = []string{"cluster: {controlPlane: {endpoint: 'https://203.0.113.1:6443'}}"}
		}, "cluster.controlPlane.endpoint"},
		{"a patch that sets the disk", func(c *clusterSpec, _ *machineSpec) {
			c.ConfigPatches = []string{"machine: {install: {disk: /dev/sdb}}"}
		}, "machine.install.disk"},
		{"a patch that deletes the token", func(c *clusterSpec, _ *machineSpec) { c.ConfigPatches = []string{"machine: {token: {$patch: delete}}"} }, "configPatches[0]"},
		{"a patch that deletes the machine section", func(c *clusterSpec, _ *machineSpec) { c.ConfigPatches = []string{"machine: {$patch: delete}"} }, "must not change machine.type"},
		{"a patch that deletes the cluster section", func(_ *clusterSpec, m *machineSpec) { m.ConfigPatches = []string{"cluster: {$patch: delete}"} }, "must not change cluster.id"},

		{"a patch that quotes a key", func(c *clusterSpec, _ *machineSpec) {
			c.ConfigPatches = []string{fmt.Sprintf("machine: {nonsense: %q}", key)}
		}, "configPatches[0]"},
		{"a patch that quotes a token", func(c *clusterSpec, _ *machineSpec) {
			c.ConfigPatches = []string{"machine: {type: " + bundle.TrustdInfo.Token + ", sysctls: " + bundle.Cluster.Secret + "}"}
		}, "configPatches[0]"},
		{"a label that quotes a token", func(_ *clusterSpec, m *machineSpec) {
			m.NodeLabels = map[string]string{"a": bundle.Secrets.BootstrapToken + "/"}
		}, "invalid"},
		{"a role that quotes a token", func(_ *clusterSpec, m *machineSpec) { m.Role = v1alpha1.MachineRole(bundle.Secrets.BootstrapToken) }, "neither"},
		{"a version that quotes a secret", func(c *clusterSpec, _ *machineSpec) { c.TalosVersion = bundle.Cluster.Secret }, "spec.talosVersion"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data, err := Render(newInput(bundle, tc.change))
			if err == nil {
				t.Fatal("rendered")
			}

			if data != nil || !strings.HasPrefix(err.Error(), "render: ") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("have %q, want %q in it", err, tc.want)
			}

			checkNoLeak(t, bundle, err.Error())
		})
	}

	if _, err := Render(newInput(nil, nil)); err == nil || err.Error() != "render: no secrets bundle" {
		t.Errorf("without a bundle: %v", err)
	}
}

// Req: T-13
func TestNoPatchOverridesWhatTheApprovalDecided(t *testing.T) {
	bundle := newBundle(t)

	for _, tc := range []struct {
		name, talos, patch string
		// want is "" where a patch only adds what the approval leaves open.
		want string
	}{
		{"wipes the disk", "v1.13", "machine: {install: {wipe: true}}", "machine.install.wipe, which the machine's spec.install decides"},
		{"moves a label", "v1.13", "machine: {nodeLabels: {line: other}}", "machine.nodeLabels.line, which the machine's spec.nodeLabels decides"},
		{"takes the labels away", "v1.13", "machine: {nodeLabels: {$patch: delete}}", "machine.nodeLabels, which"},
		{"changes a taint", "v1.13", "machine: {nodeTaints: {plant: 'other:NoSchedule'}}", "machine.nodeTaints.plant, which the machine's spec.nodeTaints decides"},
		{"names the host", "v1.13", "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: other", "HostnameConfig.hostname, which the machine's spec.network decides"},
		{"takes the host name away", "v1.13", "apiVersion: v1alpha1\nkind: HostnameConfig\n$patch: delete", "HostnameConfig, which"},
		{"adds an address to a link", "v1.13", "apiVersion: v1alpha1\nkind: LinkConfig\nname: fieldplane0\naddresses: [{address: 203.0.113.9/24}]", "LinkConfig/fieldplane0.addresses, which"},
		{"gives a link another card", "v1.13", "apiVersion: v1alpha1\nkind: LinkAliasConfig\nname: fieldplane0\nselector: {match: 'true'}", "LinkAliasConfig/fieldplane0.selector.match, which"},
		{"widens a volume's disk", "v1.13", "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\nprovisioning: {diskSelector: {match: 'true'}}", "UserVolumeConfig/data.provisioning.diskSelector.match, which the machine's spec.diskRoles decides"},
		{"takes a volume away", "v1.13", "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\n$patch: delete", "UserVolumeConfig/data, which"},
		{"names the host in older Talos", "v1.10", "machine: {network: {hostname: other}}", "machine.network.hostname, which the machine's spec.network decides"},

		{"says the same", "v1.13", "machine: {nodeLabels: {line: mixing}}", ""},
		{"adds labels", "v1.13", "machine: {nodeLabels: {floor: '2'}}", ""},
		{"adds a volume", "v1.13", "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: more\nprovisioning: {maxSize: 1GiB, diskSelector: {match: 'disk.rotational'}}", ""},
		{"adds resolvers", "v1.13", "apiVersion: v1alpha1\nkind: ResolverConfig\nnameservers: [{address: 192.0.2.53}]", ""},
		{"says which installer", "v1.13", "machine: {install: {image: 'ghcr.io/siderolabs/installer:v1.13.9'}}", ""},
	} {
		for _, owner := range []string{"cluster", "machine"} {
			t.Run(owner+" "+tc.name, func(t *testing.T) {
				_, err := Render(newInput(bundle, func(c *v1alpha1.TalosClusterSpec, m *v1alpha1.TalosMachineSpec) {
					c.TalosVersion = tc.talos
					if tc.talos == "v1.10" {
						c.KubernetesVersion = "v1.33.0"
					}

					m.NodeLabels = map[string]string{"line": "mixing"}
					m.NodeTaints = []v1alpha1.NodeTaint{{Key: "plant", Value: "mixing", Effect: "NoSchedule"}}
					m.Network = &v1alpha1.MachineNetwork{Hostname: "mixer-1", Links: []v1alpha1.MachineLinkConfig{{
						PermanentMAC: "b4:45:06:aa:00:01", Addresses: []string{"192.0.2.10/24"}, Gateway: "192.0.2.1",
					}}}
					m.DiskRoles = []v1alpha1.DiskRole{{Role: "data", MinSize: "10GiB", DiskSelector: v1alpha1.DiskSelector{Type: "ssd"}}}

					patches := map[string]*[]string{"cluster": &c.ConfigPatches, "machine": &m.ConfigPatches}
					*patches[owner] = []string{tc.patch}
				}))

				switch {
				case tc.want == "" && err != nil:
					t.Errorf("refused: %v", err)
				case tc.want != "" && err == nil:
					t.Error("rendered")
				case tc.want != "" && !strings.Contains(err.Error(), owner+" spec.configPatches[0]: must not change "+tc.want):
					t.Errorf("have %q, want %q in it", err, tc.want)
				}
			})
		}
	}
}

// Req: T-13, T-15
func TestTheApprovalsChoicesAreRendered(t *testing.T) {
	bundle := newBundle(t)
	mtu := int32(1400)

	provider := mustRender(t, newInput(bundle, func(c *v1alpha1.TalosClusterSpec, m *v1alpha1.TalosMachineSpec) {
		c.InstallImage = "registry.example/installer:v1"
		c.ConfigPatches = []string{"machine: {sysctls: {net.core.somaxconn: '1', vm.swappiness: '1'}}"}
		m.ConfigPatches = []string{"machine: {sysctls: {vm.swappiness: '2'}}", "apiVersion: v1alpha1\nkind: KmsgLogConfig\nname: remote\nurl: tcp://192.0.2.9:514\n"}
		m.NodeLabels = map[string]string{"topology.kubernetes.io/zone": "hall-3", "on": "true"}
		m.NodeTaints = []v1alpha1.NodeTaint{{Key: "dedicated", Value: "line-1", Effect: v1alpha1.TaintNoSchedule}, {Key: "quiet", Effect: v1alpha1.TaintNoExecute}}
		m.Install = &v1alpha1.MachineInstall{Wipe: true, DiskSelector: &v1alpha1.DiskSelector{Capacity: ">= 100GB", Type: v1alpha1.DiskTypeNVMe}}
		m.DiskRoles = []v1alpha1.DiskRole{{Role: "data", DiskSelector: v1alpha1.DiskSelector{Model: "SAMSUNG*"}, MinSize: "10GiB"}}
		m.Network = &v1alpha1.MachineNetwork{
			Hostname: "line-1",
			Links: []v1alpha1.MachineLinkConfig{
				{PermanentMAC: "B4:45:06:AA:00:01", Addresses: []string{"192.0.2.10/24"}, Gateway: "192.0.2.254", MTU: &mtu},
				{PermanentMAC: "b4:45:06:aa:00:02"},
			},
			Nameservers: []string{"192.0.2.53"},
			TimeServers: []string{"192.0.2.123"},
		}
	}))

	raw := provider.RawV1Alpha1().MachineConfig

	if raw.MachineNodeLabels["topology.kubernetes.io/zone"] != "hall-3" || raw.MachineNodeLabels["on"] != "true" {
		t.Errorf("labels %v", raw.MachineNodeLabels)
	}

	if raw.MachineNodeTaints["dedicated"] != "line-1:NoSchedule" || raw.MachineNodeTaints["quiet"] != ":NoExecute" {
		t.Errorf("taints %v", raw.MachineNodeTaints)
	}

	if raw.MachineSysctls["vm.swappiness"] != "2" || raw.MachineSysctls["net.core.somaxconn"] != "1" {
		t.Errorf("patches of the cluster come before those of the machine: %v", raw.MachineSysctls)
	}

	if raw.MachineInstall.InstallDisk != "" || raw.MachineInstall.InstallDiskSelector == nil || !raw.MachineInstall.Zero() || raw.MachineInstall.InstallImage != "registry.example/installer:v1" {
		t.Errorf("install %+v", raw.MachineInstall)
	}

	if have := provider.NetworkHostnameConfig().Hostname(); have != "line-1" {
		t.Errorf("host name %q", have)
	}

	kinds := map[string]int{}

	for _, doc := range provider.Documents() {
		kinds[doc.Kind()]++

		switch doc := doc.(type) {
		case *network.LinkAliasConfigV1Alpha1:
			if text := doc.Selector.Match.String(); !strings.Contains(text, `mac(link.permanent_addr) == "b4:45:06:aa:00:0`) {
				t.Errorf("alias %s matches %s", doc.Name(), text)
			}
		case *network.LinkConfigV1Alpha1:
			if static := len(doc.LinkAddresses) > 0; static != (doc.LinkMTU == 1400) || static != (len(doc.LinkRoutes) == 1) {
				t.Errorf("link %s: %+v", doc.Name(), doc.CommonLinkConfig)
			}
		case *block.UserVolumeConfigV1Alpha1:
			if text := doc.ProvisioningSpec.DiskSelectorSpec.Match.String(); doc.Name() != "data" || !strings.Contains(text, `glob("SAMSUNG*", disk.model)`) || !strings.Contains(text, "!system_disk") {
				t.Errorf("volume %s matches %s", doc.Name(), text)
			}
		}
	}

	for kind, want := range map[string]int{
		"v1alpha1": 1, "HostnameConfig": 1, "LinkAliasConfig": 2, "LinkConfig": 2, "DHCPv4Config": 1, "ResolverConfig": 1,
		"TimeSyncConfig": 1, "UserVolumeConfig": 1, "KmsgLogConfig": 1,
	} {
		if kinds[kind] != want {
			t.Errorf("%d documents of kind %s, want %d", kinds[kind], kind, want)
		}
	}
}

// Req: T-15
func TestOlderTalosGetsItsNetworkInTheMachineSection(t *testing.T) {
	data, err := Render(newInput(newBundle(t), func(c *v1alpha1.TalosClusterSpec, m *v1alpha1.TalosMachineSpec) {
		c.TalosVersion, c.KubernetesVersion = "v1.11.5", "v1.34.1"
		m.Network = &v1alpha1.MachineNetwork{
			Hostname:    "line-1",
			Links:       []v1alpha1.MachineLinkConfig{{PermanentMAC: "b4:45:06:aa:00:01", Addresses: []string{"192.0.2.10/24"}, Gateway: "192.0.2.254"}},
			Nameservers: []string{"192.0.2.53"},
			TimeServers: []string{"192.0.2.123"},
		}
	}))
	if err != nil {
		t.Fatal(err)
	}

	var rendered struct {
		Machine struct {
			Network struct {
				Hostname    string
				Nameservers []string
				Interfaces  []struct {
					DeviceSelector struct {
						PermanentAddr string `yaml:"permanentAddr"`
					} `yaml:"deviceSelector"`
					Addresses []string
				}
			}
			Time    struct{ Servers []string }
			Install struct{ Image string }
		}
	}

	decoder := yaml.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&rendered); err != nil {
		t.Fatal(err)
	}

	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		t.Errorf("has more than one document: %v", err)
	}

	m := rendered.Machine
	if m.Network.Hostname != "line-1" || !slices.Equal(m.Network.Nameservers, []string{"192.0.2.53"}) ||
		!slices.Equal(m.Time.Servers, []string{"192.0.2.123"}) || len(m.Network.Interfaces) != 1 ||
		m.Network.Interfaces[0].DeviceSelector.PermanentAddr != "b4:45:06:aa:00:01" || !slices.Equal(m.Network.Interfaces[0].Addresses, []string{"192.0.2.10/24"}) {
		t.Errorf("machine section %+v", m)
	}

	if !strings.HasSuffix(m.Install.Image, ":v1.11.5") {
		t.Errorf("installer %q", m.Install.Image)
	}
}

// Req: A-04, T-13
func TestValidatePatch(t *testing.T) {
	for _, tc := range []struct{ name, patch, want string }{
		{"a machine section", "machine: {sysctls: {a: b}}", ""},
		{"a document of its own", "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\nauto: off", ""},
		{"several documents", "machine: {sysctls: {a: b}}\n---\napiVersion: v1alpha1\nkind: KmsgLogConfig\nname: a\nurl: tcp://192.0.2.1:514", ""},
		{"a deletion", "machine: {sysctls: {$patch: delete}}", ""},
		{"JSON for a strategic merge", `{"machine": {"sysctls": {"a": "b"}}}`, ""},
		{"an installer image", "machine: {install: {image: x}}", ""},

		{"nothing", "", "must not be empty"},
		{"blanks", " \n\t", "must not be empty"},
		{"a separator", "---", "must not be empty"},
		{"two separators", "---\n---\n", "must not be empty"},
		{"a comment", "# later", "must not be empty"},
		{"an empty mapping", "{}", "must not be empty"},
		{"null", "null", "must not be empty"},
		{"a JSON patch", `[{"op": "remove", "path": "/machine/token"}]`, "JSON patch"},
		{"a JSON patch in YAML", "- op: remove\n  path: /machine/token", "JSON patch"},
		{"a JSON patch as a second document", "machine: {sysctls: {a: b}}\n---\n- op: remove\n  path: /machine/token", "JSON patch"},
		{"an empty list", "[]", "JSON patch"},
		{"a file", "@patch.yaml", "must be a part"},
		{"a file without @", "patch.yaml", "must be a part"},
		{"broken YAML", "machine: [", "must be a part"},
		{"an unknown field", "machine: {nonsense: 1}", "must be a part"},
		{"an unknown kind", "apiVersion: v1alpha1\nkind: Nonsense", "must be a part"},

		{"the type", "machine: {type: worker}", "machine.type"},
		{"the machine token", "machine: {token: a}", "machine.token"},
		{"the machine CA", "machine: {ca: {crt: YQ==, key: YQ==}}", "machine.ca"},
		{"accepted CAs", "machine: {acceptedCAs: [{crt: YQ==}]}", "machine.acceptedCAs"},
		{"the install disk", "machine: {install: {disk: /dev/sda}}", "spec.install"},
		{"the install disk selector", "machine: {install: {diskSelector: {model: X}}}", "spec.install"},
		{"the cluster id", "cluster: {id: a}", "cluster.id"},
		{"the cluster secret", "cluster: {secret: a}", "cluster.secret"},
		{"the bootstrap token", "cluster: {token: a.b}", "cluster.token"},
		{"the cluster CA", "cluster: {ca: {crt: YQ==, key: YQ==}}", "cluster.ca"},
		{"accepted cluster CAs", "cluster: {acceptedCAs: [{crt: YQ==}]}", "cluster.acceptedCAs"},
		{"the aggregator CA", "cluster: {aggregatorCA: {crt: YQ==, key: YQ==}}", "cluster.aggregatorCA"},
		{"the service account key", "cluster: {serviceAccount: {key: YQ==}}", "cluster.serviceAccount"},
		{"the etcd CA", "cluster: {etcd: {ca: {crt: YQ==, key: YQ==}}}", "cluster.etcd.ca"},
		{"the secretbox key", "cluster: {secretboxEncryptionSecret: a}", "cluster.secretboxEncryptionSecret"},
		{"the AES key", "cluster: {aescbcEncryptionSecret: a}", "cluster.aescbcEncryptionSecret"},
		{"the endpoint", "cluster: {controlPlane: {endpoint: 'https://203.0.113.1'}}", "spec.controlPlaneEndpoint"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := ValidatePatch([]byte(tc.patch))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("have %v, want %q", err, tc.want)
			}

			if err != nil && strings.ContainsAny(err.Error(), "\n") {
				t.Errorf("the error has several lines: %q", err)
			}
		})
	}
}

// Req: A-04
func TestAPatchThatTakesLongToReadIsRefusedAtOnce(t *testing.T) {
	keys := func(n int) string {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "\n    k%d: v", i)
		}

		return text.String()
	}

	for name, tc := range map[string]struct{ patch, want string }{
		"many keys":              {"machine:\n  sysctls:" + keys(30_000), "at most 1024 keys in one mapping, and has 30000 in the one at line 3"},
		"many keys in a list":    {"machine:\n  kernel:\n    modules: [{name: x}, {name: y,\n" + strings.ReplaceAll(keys(20_000), "v", "v,") + "}]", "at most 1024 keys"},
		"many keys elsewhere":    {"machine: {sysctls: {a: b}}\n---\napiVersion: v1alpha1\nkind: X\nmore:" + keys(20_000), "at most 1024 keys"},
		"many keys, one broken":  {"machine:\n  sysctls:" + keys(20_000) + "\n---\n}", "at most 1024 keys"},
		"one key often":          {"machine:\n  sysctls:" + strings.Repeat("\n    a: b", 1000), "must have each key once in a mapping, and has one twice at line 4"},
		"one key often, in many": {"machine:\n  kernel: {modules: [" + strings.Repeat("{"+strings.Repeat("a: ,", 1000)+"},", 100) + "]}", "each key once"},
		"lists for keys":         {"machine: {sysctls: {" + strings.Repeat("? [a] : b,", 1000) + "}}", "must have text for keys"},
		"very long":              {"#" + strings.Repeat("x", 1<<20), "at most 512 KiB, and has 1025"},
		"a thousand keys":        {"machine:\n  sysctls:" + keys(1000), ""},
		"a long text":            {"machine: {files: [{op: create, path: /var/x, permissions: 0o600, content: " + strings.Repeat("x", 400<<10) + "}]}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()

			err := ValidatePatch([]byte(tc.patch))
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("have %v, want %q", err, tc.want)
			}

			// Without the bounds each takes many seconds.
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// Req: T-15
func TestRedactedConfigHoldsNoKey(t *testing.T) {
	bundle := newBundle(t)

	data, err := Render(newInput(bundle, func(_ *v1alpha1.TalosClusterSpec, m *v1alpha1.TalosMachineSpec) { m.Role = v1alpha1.RoleControlPlane }))
	if err != nil {
		t.Fatal(err)
	}

	redactedData, err := RedactedConfig(data)
	if err != nil {
		t.Fatal(err)
	}

	for name, secret := range map[string]string{
		"machine token":   bundle.TrustdInfo.Token,
		"bootstrap token": bundle.Secrets.BootstrapToken,
		"cluster secret":  bundle.Cluster.Secret,
		"secretbox":       bundle.Secrets.SecretboxEncryptionSecret,
	} {
		if bytes.Contains(redactedData, []byte(secret)) {
			t.Errorf("%s is left", name)
		}
	}

	for _, key := range [][]byte{bundle.Certs.OS.Key, bundle.Certs.K8s.Key, bundle.Certs.K8sAggregator.Key, bundle.Certs.Etcd.Key, bundle.Certs.K8sServiceAccount.Key} {
		for _, form := range pemForms(key) {
			if bytes.Contains(redactedData, []byte(form)) {
				t.Error("a key is left")
			}
		}
	}

	if _, err := RedactedConfig([]byte("machine: {token: abcdef.0123456789abcdef, x: [")); err == nil || strings.Contains(err.Error(), "abcdef") {
		t.Errorf("an unreadable configuration: %v", err)
	}
}

// Req: T-15, T-16
func TestParseBundle(t *testing.T) {
	good, err := GenerateBundle("v1.13")
	if err != nil {
		t.Fatal(err)
	}

	bundle, err := ParseBundle(good)
	if err != nil {
		t.Fatal(err)
	}

	if bundle.Clock == nil {
		t.Error("has no clock")
	}

	without := func(section string) []byte {
		var out []string

		skipping := false

		for line := range strings.Lines(string(good)) {
			if !strings.HasPrefix(line, " ") {
				skipping = strings.HasPrefix(line, section+":")
			}

			if !skipping {
				out = append(out, line)
			}
		}

		return []byte(strings.Join(out, ""))
	}

	for _, tc := range []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "not YAML"},
		{"an empty mapping", []byte("{}"), "cluster is required"},
		{"a word", []byte(bundle.Cluster.Secret), "not YAML"},
		{"cut off in a key", good[:len(good)/2], ""},
		{"two documents", append(slices.Clone(good), "\n---\na: b\n"...), "not YAML"},
		{"an unknown field", append(slices.Clone(good), "extra: x\n"...), "not YAML"},
		{"no cluster", without("cluster"), "cluster is required"},
		{"no secrets", without("secrets"), "secrets is required"},
		{"no trustd", without("trustdinfo"), "trustdinfo is required"},
		{"no certificates", without("certs"), "certs is required"},
		{"a certificate that is none", bytes.Replace(good, []byte("        crt: LS0t"), []byte("        crt: aGVs"), 1), ""},
		{"a key that is no base64", bytes.Replace(good, []byte("        key: LS0t"), []byte("        key: '%%%'#"), 1), "not YAML"},
		{"a machine configuration", []byte("version: v1alpha1\nmachine: {type: worker}\n"), "not YAML"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			have, err := ParseBundle(tc.data)
			if err == nil || have != nil || !strings.HasPrefix(err.Error(), "render: ") || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("have %v, want %q", err, tc.want)
			}

			checkNoLeak(t, bundle, err.Error())
		})
	}

	if _, err := GenerateBundle("latest"); err == nil {
		t.Error("made a bundle for no version")
	}
}

// Req: T-15
func TestBundleMaterialIsEveryValue(t *testing.T) {
	bundle := newBundle(t)
	material := BundleMaterial(bundle)

	// 4 tokens and secrets with two halves, the id, the secretbox key, and 9 certificates and keys in three forms.
	if len(material) < 35 {
		t.Errorf("only %d values", len(material))
	}

	config, err := Render(newInput(bundle, func(_ *v1alpha1.TalosClusterSpec, m *v1alpha1.TalosMachineSpec) { m.Role = v1alpha1.RoleControlPlane }))
	if err != nil {
		t.Fatal(err)
	}

	if text := Redact(string(config), bundle); strings.Contains(text, "LS0t") {
		t.Error("a scrubbed configuration still holds a certificate or key")
	}

	if have := BundleMaterial(nil); have != nil {
		t.Errorf("no bundle has %v", have)
	}
}

// Req: T-15. What a node says is cut to its length before anybody knows which secrets may be in it.
func TestTheBeginningOfASecretAtTheEndOfATextIsTakenOutToo(t *testing.T) {
	bundle := newBundle(t)
	key := base64.StdEncoding.EncodeToString(bundle.Certs.OS.Key)

	for _, tc := range []struct{ name, text, want string }{
		{"a whole one", "the key " + key + " is bad", "the key *** is bad"},
		{"the first half", "the key " + key[:len(key)/2], "the key ***"},
		{"all but the last", "the token " + strings.TrimSuffix(bundle.TrustdInfo.Token, bundle.TrustdInfo.Token[len(bundle.TrustdInfo.Token)-1:]), "the token ***"},
		{"nothing of one", "the machine is not ready", "the machine is not ready"},
		{"nothing", "", ""},
	} {
		if have := Redact(tc.text, bundle); have != tc.want {
			t.Errorf("%s: %q", tc.name, have)
		}
	}

	if have := Redact("text", nil); have != "text" {
		t.Errorf("without a bundle: %q", have)
	}
}

// Req: T-15. A condition, an event and a line of the plugin are one line.
func TestAnErrorIsOneLineWithoutBulletsAndCounts(t *testing.T) {
	for _, tc := range []struct{ said, want string }{
		{"no role", "no role"},
		{"1 error occurred:\n\t* v1alpha1.Config: 1 error occurred:\n\t* a and b can't be used together\n\n\n", "v1alpha1.Config: a and b can't be used together"},
		{"2 errors occurred:\n\t* first\n\t* second:\n\t  more\n\n", "first; second: more"},
	} {
		if have := oneLine(errors.New(tc.said)); have != tc.want {
			t.Errorf("have %q, want %q", have, tc.want)
		}
	}

	_, err := Render(newInput(newBundle(t), func(_ *v1alpha1.TalosClusterSpec, m *v1alpha1.TalosMachineSpec) {
		m.ConfigPatches = []string{"machine: {install: {extraKernelArgs: [quiet]}}"}
	}))
	if err == nil || strings.ContainsAny(err.Error(), "\n\t*") || strings.Contains(err.Error(), "occurred") {
		t.Errorf("have %q", err)
	}
}

func FuzzValidatePatch(f *testing.F) {
	for _, seed := range []string{"machine: {sysctls: {a: b}}", "[]", "---", "@x", "machine: {$patch: delete}", "a: &a [*a]"} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, patch []byte) {
		if ValidatePatch(patch) != nil {
			return
		}

		if strings.TrimSpace(string(patch)) == "" {
			t.Error("an empty patch passed")
		}
	})
}
