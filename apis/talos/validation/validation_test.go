package validation

import (
	"encoding/base64"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos"
)

const (
	machineUUID = "4c4c4544-0042-3510-8051-b4c04f4b4c32"
	firstMAC    = "b4:45:06:aa:00:02"
	secondMAC   = "b4:45:06:aa:00:03"
)

// check wants no error, or exactly one, of the field and with the value and the rule in its text.
func check(t *testing.T, errs field.ErrorList, wantField string, texts ...string) {
	t.Helper()
	if wantField == "" {
		if len(errs) > 0 {
			t.Errorf("refused: %v", errs)
		}
		return
	}
	if len(errs) != 1 {
		t.Fatalf("want one error, have %v", errs)
	}
	if errs[0].Field != wantField {
		t.Errorf("have %v, want one of %s", errs[0], wantField)
	}
	for _, text := range texts {
		if !strings.Contains(errs[0].Error(), text) {
			t.Errorf("%q does not say %q", errs[0], text)
		}
	}
}

func cluster() *talos.TalosCluster {
	return &talos.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "site-a"},
		Spec: talos.TalosClusterSpec{
			ControlPlaneEndpoint: "https://192.0.2.1:6443",
			SecretsRef:           talos.SecretReference{Name: "c1-bundle"},
			TalosVersion:         "v1.13",
			KubernetesVersion:    "v1.36.2",
		},
	}
}

func pending() *talos.TalosMachine {
	return &talos.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: machineUUID, Namespace: "site-a"},
		Spec: talos.TalosMachineSpec{
			ClusterRef: talos.ClusterReference{Name: "c1"},
			Identity:   talos.MachineIdentity{UUID: machineUUID, Serial: "BKC5P2", MACAddresses: []string{firstMAC, secondMAC}},
			Endpoint:   "192.0.2.1",
		},
	}
}

func approved() *talos.TalosMachine {
	machine := pending()
	machine.Spec.Approved = ptr.To(true)
	machine.Spec.Role = talos.RoleWorker
	machine.Spec.Install = &talos.MachineInstall{Disk: "/dev/sda"}
	return machine
}

// checkMachine applies the rules that hold for a new machine and for a changed one.
func checkMachine(t *testing.T, machine *talos.TalosMachine, wantField string, texts ...string) {
	t.Helper()
	check(t, ValidateTalosMachine(machine), wantField, texts...)
	check(t, ValidateTalosMachineUpdate(machine, pending()), wantField, texts...)
}

// Req: A-04
func TestClusters(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*talos.TalosClusterSpec)
		field  string
		texts  []string
	}{
		{"whole", func(*talos.TalosClusterSpec) {}, "", nil},
		{"an endpoint by name and without a port", func(s *talos.TalosClusterSpec) { s.ControlPlaneEndpoint = "https://api.plant.example" }, "", nil},
		{"an IPv6 endpoint", func(s *talos.TalosClusterSpec) { s.ControlPlaneEndpoint = "https://[2001:db8::1]:6443" }, "", nil},
		{"an endpoint over http", func(s *talos.TalosClusterSpec) { s.ControlPlaneEndpoint = "http://192.0.2.1:6443" }, "spec.controlPlaneEndpoint", []string{"http://192.0.2.1:6443", "https://"}},
		{"an endpoint that is an address", func(s *talos.TalosClusterSpec) { s.ControlPlaneEndpoint = "192.0.2.1:6443" }, "spec.controlPlaneEndpoint", []string{"https://HOST[:PORT]"}},
		{"an endpoint with a path", func(s *talos.TalosClusterSpec) { s.ControlPlaneEndpoint = "https://192.0.2.1:6443/" }, "spec.controlPlaneEndpoint", []string{"nothing may follow"}},
		{"an endpoint with a query", func(s *talos.TalosClusterSpec) { s.ControlPlaneEndpoint = "https://192.0.2.1?" }, "spec.controlPlaneEndpoint", []string{"nothing may follow"}},
		{"an endpoint with a password", func(s *talos.TalosClusterSpec) { s.ControlPlaneEndpoint = "https://u:p@192.0.2.1" }, "spec.controlPlaneEndpoint", []string{"user or password"}},
		{"an endpoint without a host", func(s *talos.TalosClusterSpec) { s.ControlPlaneEndpoint = "https://" }, "spec.controlPlaneEndpoint", []string{"no host"}},
		{"an endpoint with an empty port", func(s *talos.TalosClusterSpec) { s.ControlPlaneEndpoint = "https://a:" }, "spec.controlPlaneEndpoint", []string{"port is empty"}},
		{"an endpoint with port 0", func(s *talos.TalosClusterSpec) { s.ControlPlaneEndpoint = "https://a:0" }, "spec.controlPlaneEndpoint", []string{"1 and 65535"}},
		{"an endpoint that is nearly an address", func(s *talos.TalosClusterSpec) { s.ControlPlaneEndpoint = "https://192.0.2.256" }, "spec.controlPlaneEndpoint", []string{"neither"}},
		{"an endpoint anywhere", func(s *talos.TalosClusterSpec) { s.ControlPlaneEndpoint = "https://0.0.0.0:6443" }, "spec.controlPlaneEndpoint", []string{"one machine"}},
		{"an endpoint in capitals", func(s *talos.TalosClusterSpec) { s.ControlPlaneEndpoint = "https://API.example" }, "spec.controlPlaneEndpoint", []string{"lower-case"}},

		{"a Talos version with a patch", func(s *talos.TalosClusterSpec) { s.TalosVersion = "v1.13.9" }, "", nil},
		{"a Talos version before its release", func(s *talos.TalosClusterSpec) { s.TalosVersion = "v1.14.0-alpha.1" }, "", nil},
		{"a Talos version without v", func(s *talos.TalosClusterSpec) { s.TalosVersion = "1.13" }, "spec.talosVersion", []string{`"1.13"`, "v1.MINOR"}},
		{"another Talos", func(s *talos.TalosClusterSpec) { s.TalosVersion = "v2.0" }, "spec.talosVersion", nil},
		{"a Talos version with more after it", func(s *talos.TalosClusterSpec) { s.TalosVersion = "v1.13.9\n" }, "spec.talosVersion", nil},
		{"a Kubernetes version without a patch, which names no image", func(s *talos.TalosClusterSpec) { s.KubernetesVersion = "v1.36" }, "spec.kubernetesVersion", []string{`"v1.36"`, "v1.MINOR.PATCH"}},
		{"the latest Kubernetes version", func(s *talos.TalosClusterSpec) { s.KubernetesVersion = "latest" }, "spec.kubernetesVersion", nil},
		{"an image", func(s *talos.TalosClusterSpec) { s.InstallImage = "factory.talos.dev:443/metal-installer/3765:v1.13.9" }, "", nil},
		{"an image by digest", func(s *talos.TalosClusterSpec) {
			s.InstallImage = "ghcr.io/siderolabs/installer@sha256:" + strings.Repeat("0", 64)
		}, "", nil},
		{"an image with a blank", func(s *talos.TalosClusterSpec) { s.InstallImage = "ghcr.io/siderolabs/installer v1" }, "spec.installImage", []string{"image reference"}},
		{"an image by URL", func(s *talos.TalosClusterSpec) { s.InstallImage = "https://ghcr.io/siderolabs/installer?x" }, "spec.installImage", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := cluster()
			tc.change(&c.Spec)
			check(t, ValidateTalosCluster(c), tc.field, tc.texts...)
			check(t, ValidateTalosClusterUpdate(c, cluster()), tc.field, tc.texts...)
		})
	}
}

// Req: T-16
func TestAClusterCanBeNamedByALabel(t *testing.T) {
	for _, tc := range []struct {
		name, namespace string
		field           string
		texts           []string
	}{
		{"c1", "site-a", "", nil},
		{strings.Repeat("c", 56), "site-a", "", nil},
		{strings.Repeat("c", 57), "site-a", "metadata.name", []string{"at most 56 characters", `"site-a"`, "talos.fieldplane.dev/cluster"}},
		{"c", strings.Repeat("n", 63), "metadata.name", []string{"at most 0 characters"}},
		{"C1", "site-a", "metadata.name", []string{"C1", "lowercase"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := cluster()
			c.Name, c.Namespace = tc.name, tc.namespace
			check(t, ValidateTalosCluster(c), tc.field, tc.texts...)
			check(t, ValidateTalosClusterUpdate(c, c), "")
		})
	}
}

// Req: T-05
func TestIdentity(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*talos.TalosMachine)
		field  string
		texts  []string
	}{
		{"strong", func(*talos.TalosMachine) {}, "", nil},
		{"weak, registered by hand", func(m *talos.TalosMachine) { m.Spec.Identity = talos.MachineIdentity{UUID: machineUUID} }, "", nil},
		{"another name", func(m *talos.TalosMachine) { m.Name = "rack-3" }, "metadata.name", []string{"rack-3", "must equal spec.identity.uuid", machineUUID}},
		{"no UUID", func(m *talos.TalosMachine) { m.Spec.Identity.UUID = "" }, "spec.identity.uuid", []string{"Required"}},
		{"a UUID in capitals", func(m *talos.TalosMachine) {
			m.Name, m.Spec.Identity.UUID = strings.ToUpper(machineUUID), strings.ToUpper(machineUUID)
		}, "spec.identity.uuid", []string{"4C4C", "lower case"}},
		{"no UUID at all", func(m *talos.TalosMachine) { m.Name, m.Spec.Identity.UUID = "my-machine", "my-machine" }, "spec.identity.uuid", []string{"my-machine"}},
		{"a UUID with a line break", func(m *talos.TalosMachine) { m.Spec.Identity.UUID += "\n" }, "spec.identity.uuid", nil},
		{"a serial with blanks around", func(m *talos.TalosMachine) { m.Spec.Identity.Serial = " x " }, "spec.identity.serial", []string{"blanks"}},
		{"a serial with blanks within, as VMware's", func(m *talos.TalosMachine) { m.Spec.Identity.Serial = "VMware-56 4d" }, "", nil},
		{"a serial that moves the cursor", func(m *talos.TalosMachine) { m.Spec.Identity.Serial = "a\x1b[2Jb" }, "spec.identity.serial", []string{"invisible characters"}},
		{"a serial that turns the direction of text", func(m *talos.TalosMachine) { m.Spec.Identity.Serial = "a\u202eb" }, "spec.identity.serial", []string{"invisible characters"}},
		{"a MAC in capitals", func(m *talos.TalosMachine) { m.Spec.Identity.MACAddresses = []string{"B4:45:06:AA:00:02"} }, "spec.identity.macAddresses[0]", []string{"B4:45:06:AA:00:02", "lower-case"}},
		{"a MAC with dashes", func(m *talos.TalosMachine) { m.Spec.Identity.MACAddresses = []string{"b4-45-06-aa-00-02"} }, "spec.identity.macAddresses[0]", nil},
		{"a MAC of eight bytes", func(m *talos.TalosMachine) { m.Spec.Identity.MACAddresses = []string{"b4:45:06:aa:00:02:00:01"} }, "spec.identity.macAddresses[0]", nil},
		{"a MAC of zeros", func(m *talos.TalosMachine) { m.Spec.Identity.MACAddresses = []string{"00:00:00:00:00:00"} }, "spec.identity.macAddresses[0]", []string{"without an address"}},
		{"a multicast MAC", func(m *talos.TalosMachine) { m.Spec.Identity.MACAddresses = []string{"01:00:5e:00:00:01"} }, "spec.identity.macAddresses[0]", []string{"multicast"}},
		{"a locally administered MAC", func(m *talos.TalosMachine) { m.Spec.Identity.MACAddresses = []string{"52:54:00:00:00:01"} }, "", nil},
		{"MACs out of order", func(m *talos.TalosMachine) { m.Spec.Identity.MACAddresses = []string{secondMAC, firstMAC} }, "spec.identity.macAddresses", []string{"must be sorted: " + firstMAC + ", " + secondMAC}},
		{"a MAC twice", func(m *talos.TalosMachine) { m.Spec.Identity.MACAddresses = []string{firstMAC, firstMAC} }, "spec.identity.macAddresses[1]", []string{"Duplicate", firstMAC}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			machine := pending()
			tc.change(machine)
			check(t, ValidateTalosMachine(machine), tc.field, tc.texts...)
			check(t, ValidateTalosMachineUpdate(machine, machine), "") // identity cannot change
		})
	}
}

// Every role × every member that approval needs.
//
// Req: T-11, T-13, T-18
func TestApproval(t *testing.T) {
	fingerprint := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for _, tc := range []struct {
		name   string
		change func(*talos.TalosMachineSpec)
		field  string
		texts  []string
	}{
		{"a worker", func(*talos.TalosMachineSpec) {}, "", nil},
		{"a worker by disk selector", func(s *talos.TalosMachineSpec) {
			s.Install = &talos.MachineInstall{DiskSelector: &talos.DiskSelector{Serial: "x"}}
		}, "", nil},
		{"without a role", func(s *talos.TalosMachineSpec) { s.Role = "" }, "spec.role", []string{"Required", "spec.approved is true", "controlplane or worker"}},
		{"without a disk", func(s *talos.TalosMachineSpec) { s.Install = nil }, "spec.install", []string{"Required", "spec.approved is true", "disk or diskSelector"}},
		{"rejected", func(s *talos.TalosMachineSpec) { s.Rejected = &talos.MachineRejection{Reason: "spare"} }, "spec.approved", []string{"true", "spec.rejected"}},
		{"a control plane without a fingerprint", func(s *talos.TalosMachineSpec) { s.Role = talos.RoleControlPlane }, "spec.acceptedFingerprint", []string{"Required", "controlplane", "acceptUnverifiedFingerprint: true"}},
		{"a control plane with a fingerprint", func(s *talos.TalosMachineSpec) { s.Role, s.AcceptedFingerprint = talos.RoleControlPlane, fingerprint }, "", nil},
		{"a control plane that is taken unverified", func(s *talos.TalosMachineSpec) { s.Role, s.AcceptUnverifiedFingerprint = talos.RoleControlPlane, true }, "", nil},
		{"a worker with a fingerprint", func(s *talos.TalosMachineSpec) { s.AcceptedFingerprint = fingerprint }, "", nil},
		{"a fingerprint in hexadecimal", func(s *talos.TalosMachineSpec) { s.AcceptedFingerprint = strings.Repeat("ab", 32) }, "spec.acceptedFingerprint", []string{"base64"}},
		{"a short fingerprint", func(s *talos.TalosMachineSpec) { s.AcceptedFingerprint = "YWJj" }, "spec.acceptedFingerprint", []string{"YWJj", "SHA-256"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			machine := approved()
			tc.change(&machine.Spec)
			checkMachine(t, machine, tc.field, tc.texts...)

			// What is incomplete may be prepared: nothing of it acts before approval.
			if tc.field != "spec.acceptedFingerprint" || machine.Spec.AcceptedFingerprint == "" {
				for _, not := range []*bool{nil, ptr.To(false)} {
					machine.Spec.Approved = not
					checkMachine(t, machine, "")
				}
			}
		})
	}
	t.Run("everything missing is told at once", func(t *testing.T) {
		machine := pending()
		machine.Spec.Approved = ptr.To(true)
		machine.Spec.Rejected = &talos.MachineRejection{Reason: "spare"}
		if errs := ValidateTalosMachine(machine); len(errs) != 3 {
			t.Errorf("have %v", errs)
		}
	})
}

// Req: T-14
func TestMachineEndpoint(t *testing.T) {
	for endpoint, rule := range map[string]string{
		"": "", "192.0.2.1": "", "127.0.50.1": "",
		"192.0.2.1:50000": "without a port", "[2001:db8::1]:50000": "without a port", "2001:db8::1": "IPv6 is not supported", "fe80::1%eth0": "zone", "::ffff:192.0.2.1": "write 192.0.2.1",
		"0.0.0.0": "one machine", "224.0.0.1": "one machine", "255.255.255.255": "one machine", "node-1": "names are not resolved", "192.0.2": "IPv4 address", "192.0.2.01": "IPv4 address", "192.0.2.0/24": "IPv4 address",
	} {
		t.Run(endpoint, func(t *testing.T) {
			machine := pending()
			machine.Spec.Endpoint = endpoint
			want := ""
			if rule != "" {
				want = "spec.endpoint"
			}
			checkMachine(t, machine, want, endpoint, rule)
		})
	}
}

// Req: A-04, T-13
func TestLabelsTaintsDisksAndNetwork(t *testing.T) {
	link := func(change func(*talos.MachineLinkConfig)) func(*talos.TalosMachineSpec) {
		return func(s *talos.TalosMachineSpec) {
			l := talos.MachineLinkConfig{PermanentMAC: firstMAC, Addresses: []string{"10.1.2.3/24"}, Gateway: "10.1.2.1"}
			change(&l)
			s.Network = &talos.MachineNetwork{Links: []talos.MachineLinkConfig{l}}
		}
	}
	network := func(n talos.MachineNetwork) func(*talos.TalosMachineSpec) {
		return func(s *talos.TalosMachineSpec) { s.Network = &n }
	}
	disk := func(path string) func(*talos.TalosMachineSpec) {
		return func(s *talos.TalosMachineSpec) { s.Install = &talos.MachineInstall{Disk: path} }
	}
	selector := func(d talos.DiskSelector) func(*talos.TalosMachineSpec) {
		return func(s *talos.TalosMachineSpec) { s.Install = &talos.MachineInstall{DiskSelector: &d} }
	}
	role := func(r talos.DiskRole) func(*talos.TalosMachineSpec) {
		return func(s *talos.TalosMachineSpec) { r.Role = "data"; s.DiskRoles = []talos.DiskRole{r} }
	}
	nvme := talos.DiskSelector{Type: talos.DiskTypeNVMe}

	for _, tc := range []struct {
		name   string
		change func(*talos.TalosMachineSpec)
		field  string
		texts  []string
	}{
		{"labels", func(s *talos.TalosMachineSpec) {
			s.NodeLabels = map[string]string{"zone": "a", "topology.kubernetes.io/zone": "b"}
		}, "", nil},
		{"a label that is none", func(s *talos.TalosMachineSpec) { s.NodeLabels = map[string]string{"a/b/c": "x"} }, "spec.nodeLabels", []string{"a/b/c"}},
		{"a role label on a worker", func(s *talos.TalosMachineSpec) {
			s.NodeLabels = map[string]string{"node-role.kubernetes.io/edge": ""}
		}, "spec.nodeLabels[node-role.kubernetes.io/edge]", []string{"no worker", "with kubectl"}},
		{"a role label on a machine without a role", func(s *talos.TalosMachineSpec) {
			s.Approved, s.Role, s.NodeLabels = nil, "", map[string]string{"node-role.kubernetes.io/edge": ""}
		}, "", nil},

		{"a taint", func(s *talos.TalosMachineSpec) {
			s.NodeTaints = []talos.NodeTaint{{Key: "plant.example/edge", Value: "a", Effect: talos.TaintNoSchedule}}
		}, "", nil},
		{"a taint with a key that is none", func(s *talos.TalosMachineSpec) { s.NodeTaints = []talos.NodeTaint{{Key: "a b"}} }, "spec.nodeTaints[0].key", []string{"a b"}},
		{"a taint with a value that is none", func(s *talos.TalosMachineSpec) { s.NodeTaints = []talos.NodeTaint{{Key: "a", Value: "x:y"}} }, "spec.nodeTaints[0].value", []string{"x:y"}},
		{"two taints of one key", func(s *talos.TalosMachineSpec) {
			s.NodeTaints = []talos.NodeTaint{{Key: "a", Effect: talos.TaintNoSchedule}, {Key: "a", Effect: talos.TaintNoExecute}}
		}, "spec.nodeTaints[1].key", []string{"Duplicate", "one taint for each key"}},

		{"a disk", disk("/dev/disk/by-id/ata-1"), "", nil},
		{"a disk without its path", disk("sda"), "spec.install.disk", []string{`"sda"`, "/dev/sda"}},
		{"a disk by pattern", disk("/dev/sd*"), "spec.install.disk", nil},
		{"neither disk nor selector", func(s *talos.TalosMachineSpec) { s.Install = &talos.MachineInstall{Wipe: true} }, "spec.install", []string{"exactly one of disk and diskSelector"}},
		{"disk and selector", func(s *talos.TalosMachineSpec) {
			s.Install = &talos.MachineInstall{Disk: "/dev/sda", DiskSelector: &nvme}
		}, "spec.install.disk", []string{"/dev/sda", "exactly one"}},
		{"a selector of nothing", selector(talos.DiskSelector{}), "spec.install.diskSelector", []string{"every disk matches"}},
		{"a capacity", selector(talos.DiskSelector{Capacity: "4GB"}), "", nil},
		{"a capacity with an operator", selector(talos.DiskSelector{Capacity: ">= 1.5TiB"}), "", nil},
		{"a capacity in words", selector(talos.DiskSelector{Capacity: "large"}), "spec.install.diskSelector.capacity", []string{"large", ">= 100GB"}},
		{"a capacity with an unknown operator", selector(talos.DiskSelector{Capacity: "!= 4GB"}), "spec.install.diskSelector.capacity", nil},

		{"a disk role", role(talos.DiskRole{DiskSelector: nvme, MinSize: "10GiB", MaxSize: "100GiB"}), "", nil},
		{"a disk role of equal sizes", role(talos.DiskRole{DiskSelector: nvme, MinSize: "1GiB", MaxSize: "1024MiB"}), "", nil},
		{"a disk role of any disk", role(talos.DiskRole{}), "spec.diskRoles[0].diskSelector", []string{"every disk"}},
		{"a disk role without a size", role(talos.DiskRole{DiskSelector: nvme, MinSize: "some"}), "spec.diskRoles[0].minSize", []string{"some", "10GiB"}},
		{"a disk role of size 0", role(talos.DiskRole{DiskSelector: nvme, MaxSize: "0"}), "spec.diskRoles[0].maxSize", nil},
		{"a disk role that cannot be", role(talos.DiskRole{DiskSelector: nvme, MinSize: "1GiB", MaxSize: "1GB"}), "spec.diskRoles[0].maxSize", []string{"1GB", "minSize", "1GiB"}},

		{"a network", network(talos.MachineNetwork{Hostname: "w1.plant.example", Nameservers: []string{"192.0.2.53", "2001:db8::53"}, TimeServers: []string{"time.plant.example", "192.0.2.123"}}), "", nil},
		{"a host name in capitals", network(talos.MachineNetwork{Hostname: "W1"}), "spec.network.hostname", []string{"W1"}},
		{"a name server by name", network(talos.MachineNetwork{Nameservers: []string{"192.0.2.53", "dns.example"}}), "spec.network.nameservers[1]", []string{"dns.example", "IP address"}},
		{"a time server that is none", network(talos.MachineNetwork{TimeServers: []string{"a b"}}), "spec.network.timeServers[0]", []string{"a b"}},
		{"a link", link(func(*talos.MachineLinkConfig) {}), "", nil},
		{"a link by DHCP", link(func(l *talos.MachineLinkConfig) { l.Addresses, l.Gateway = nil, "" }), "", nil},
		{"a link of two families", link(func(l *talos.MachineLinkConfig) {
			l.Addresses, l.Gateway = []string{"10.1.2.3/24", "2001:db8::3/64"}, "2001:db8::1"
		}), "", nil},
		{"a link by a MAC in capitals", link(func(l *talos.MachineLinkConfig) { l.PermanentMAC = "B4:45:06:AA:00:02" }), "spec.network.links[0].permanentMAC", []string{"B4:45"}},
		{"an address without its prefix", link(func(l *talos.MachineLinkConfig) { l.Addresses = []string{"10.1.2.3"} }), "spec.network.links[0].addresses[0]", []string{"10.1.2.3/24"}},
		{"an address of many", link(func(l *talos.MachineLinkConfig) { l.Addresses = []string{"10.1.2.3/24", "224.0.0.1/24"} }), "spec.network.links[0].addresses[1]", []string{"one machine"}},
		{"a gateway by name", link(func(l *talos.MachineLinkConfig) { l.Gateway = "gw" }), "spec.network.links[0].gateway", []string{"gw", "IP address"}},
		{"a gateway with DHCP", link(func(l *talos.MachineLinkConfig) { l.Addresses = nil }), "spec.network.links[0].gateway", []string{"10.1.2.1", "DHCP"}},
		{"a gateway of another family", link(func(l *talos.MachineLinkConfig) { l.Gateway = "2001:db8::1" }), "spec.network.links[0].gateway", []string{"family"}},
		{"a gateway that is the machine", link(func(l *talos.MachineLinkConfig) { l.Gateway = "10.1.2.3" }), "spec.network.links[0].gateway", []string{"link itself"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			machine := approved()
			tc.change(&machine.Spec)
			checkMachine(t, machine, tc.field, tc.texts...)
		})
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]float64{
		"1": 1, "1B": 1, "1kB": 1000, "1 KB": 1000, "1KiB": 1024, "2Mi": 2 << 20, "1.5gib": 1.5 * (1 << 30), "4GB": 4e9, "1TB": 1e12, "1PiB": 1 << 50, "3M": 3e6,
	} {
		if have, ok := parseSize(text); !ok || have != want {
			t.Errorf("%q: have %v, %v", text, have, ok)
		}
	}
	for _, text := range []string{"", "GB", "-1GB", "1 0GB", "1XB", "1GiBB", "1e3", "1iB", "1GB\n", " 1GB"} {
		if have, ok := parseSize(text); ok {
			t.Errorf("%q: have %v", text, have)
		}
	}
}

func TestErrorsOfAMapComeInTheSameOrder(t *testing.T) {
	machine := approved()
	machine.Spec.NodeLabels = map[string]string{"a b": "", "c d": "", "node-role.kubernetes.io/x": "", "node-restriction.kubernetes.io/y": "", "e f": ""}
	first := ValidateTalosMachine(machine).ToAggregate().Error()
	for range 50 {
		if again := ValidateTalosMachine(machine).ToAggregate().Error(); again != first {
			t.Fatalf("%q, then %q", first, again)
		}
	}
}

func TestStatus(t *testing.T) {
	good := []metav1.Condition{{Type: "Rendered", Status: metav1.ConditionTrue, Reason: "Rendered", LastTransitionTime: metav1.Now()}}
	bad := []metav1.Condition{{Type: "Rendered", Status: metav1.ConditionTrue, Reason: "not a reason", LastTransitionTime: metav1.Now()}}
	for _, tc := range []struct {
		conditions []metav1.Condition
		field      string
	}{{nil, ""}, {good, ""}, {bad, "status.conditions[0].reason"}} {
		check(t, ValidateTalosClusterStatusUpdate(&talos.TalosCluster{Status: talos.TalosClusterStatus{Conditions: tc.conditions}}, nil), tc.field)
		check(t, ValidateTalosMachineStatusUpdate(&talos.TalosMachine{Status: talos.TalosMachineStatus{Conditions: tc.conditions}}, nil), tc.field)
	}
}
