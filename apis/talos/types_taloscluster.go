package talos

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosCluster is a cluster of Talos Linux machines: what they are configured
// with, and the address ranges in which new ones are looked for.
type TalosCluster struct {
	metav1.TypeMeta
	// Standard object metadata.
	metav1.ObjectMeta

	// What the machines are configured with and where new ones are looked for.
	Spec TalosClusterSpec
	// What discovery found and how the machines stand.
	Status TalosClusterStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosClusterList is a list of TalosClusters.
type TalosClusterList struct {
	metav1.TypeMeta
	// Standard list metadata.
	metav1.ListMeta

	// The clusters.
	Items []TalosCluster
}

// TalosClusterSpec says what the machines are configured with and where new ones are looked for.
type TalosClusterSpec struct {
	// URL of the Kubernetes API of the cluster, as https://HOST[:PORT].
	ControlPlaneEndpoint string
	// Secret with the cluster's secrets bundle, in the format of `talosctl gen
	// secrets`, under the key "bundle". It is read in the namespace of the
	// fieldplane server, never in this object's namespace, and must carry the
	// label talos.fieldplane.dev/cluster: <namespace>.<name> of this TalosCluster.
	// Cannot be changed.
	SecretsRef SecretReference
	// Talos version that configuration is generated for, for example v1.13. It
	// fixes the configuration's defaults (the version contract), so it stays as
	// it was at creation when the machines are upgraded. Cannot be changed.
	TalosVersion string
	// Kubernetes version of the cluster, for example v1.36.2.
	KubernetesVersion string
	// Installer image; by default the one of the Talos version.
	InstallImage string
	// Talos configuration patches (YAML documents, strategic merge) for every
	// machine of the cluster; at most 32. JSON patches are not accepted.
	ConfigPatches []string
	// Where machines in maintenance mode are looked for. Empty (the default): nowhere.
	Discovery TalosDiscovery
	// Stops discovery, configuration and everything else that would touch a machine.
	Paused bool
}

// SecretReference names a Secret in the namespace of the fieldplane server.
type SecretReference struct {
	// Name of the Secret, in the namespace of the fieldplane server.
	Name string
}

// TalosDiscovery declares the addresses at which machines are looked for, on
// Talos's port 50000. Nothing else is ever contacted.
type TalosDiscovery struct {
	// IPv4 addresses; at most 64.
	Addresses []string
	// IPv4 CIDRs with a prefix of /24 or longer; at most 4.
	Cidrs []string
}

// TalosClusterStatus says what discovery found and how the machines stand.
type TalosClusterStatus struct {
	// Generation of the spec that this status speaks of.
	ObservedGeneration int64
	// The last sweep of the declared ranges and what it found.
	Discovery *DiscoveryStatus
	// How many machines the cluster has, by phase.
	Machines MachineCounts
	// Conditions: BundleReady, DiscoveryReady, Bootstrapped.
	Conditions []metav1.Condition
	// The one bootstrap of the cluster's etcd: recorded before it happens.
	Bootstrap *ClusterBootstrap
	// SHA-256 of the secrets bundle as it was last read whole: it changes when
	// the Secret is rotated.
	BundleHash string
}

// ClusterBootstrap is the one bootstrap of a cluster's etcd.
type ClusterBootstrap struct {
	// Control plane that is bootstrapped, or that had etcd already.
	MachineName string
	// Address at which it is.
	Endpoint string
	// When the intent to bootstrap it was recorded; absent when etcd ran already.
	IntendedAt *metav1.Time
	// When etcd was known to be bootstrapped; absent until then.
	CompletedAt *metav1.Time
}

// DiscoveryStatus is the last sweep of the declared ranges and what it found.
type DiscoveryStatus struct {
	// When a sweep was last asked for by a user.
	RequestedAt *metav1.Time
	// When the last sweep began.
	StartedAt *metav1.Time
	// When the last sweep ended; absent while one runs.
	CompletedAt *metav1.Time
	// How many addresses were asked.
	Candidates int32
	// How many answered in maintenance mode.
	Answered int32
	// How many new machines were registered.
	Registered int32
	// Machines without a full identity, newest first; at most 32. Nothing is created for them.
	Weak []WeakCandidate
	// Machines that answered with the UUID of another, for which nothing was
	// created, and registered ones that share a serial or a MAC with another;
	// newest first, at most 32. Their reason tells which.
	Collisions []IdentityCollision
	// How many addresses the running sweep has asked so far; absent while none runs.
	Asked int32
}

// WeakCandidate is a machine whose identity is incomplete.
type WeakCandidate struct {
	// Address at which it answered.
	Address string
	// What was read.
	Identity MachineIdentity
	// Manufacturer as read.
	Manufacturer string
	// Which parts are missing: uuid, serial, macAddresses.
	Missing []string
	// How to set what is missing.
	Hint string
	// When it was first seen so.
	SeenAt *metav1.Time
}

// IdentityCollision is a machine whose identity is, in part, that of another.
type IdentityCollision struct {
	// Address at which it answered.
	Address string
	// What was read.
	Identity MachineIdentity
	// The other machine.
	MachineName string
	// What differs, and whether it looks like changed hardware or another machine.
	Message string
	// When it was first seen so.
	SeenAt *metav1.Time
	// IdentityCollision: its UUID is that of a machine in this namespace.
	// IdentityClaimed: its UUID is that of a machine in another namespace.
	// SharesHardware: its serial number or a MAC address is another machine's too.
	Reason IdentityFinding
}

// IdentityFinding is in what a machine's identity is that of another.
type IdentityFinding string

const (
	// FindingIdentityCollision has the UUID of a machine in the same namespace.
	FindingIdentityCollision IdentityFinding = "IdentityCollision"
	// FindingIdentityClaimed has the UUID of a machine in another namespace.
	FindingIdentityClaimed IdentityFinding = "IdentityClaimed"
	// FindingSharesHardware has the serial number or a MAC address of another machine.
	FindingSharesHardware IdentityFinding = "SharesHardware"
)

// MachineCounts counts the machines of a cluster.
type MachineCounts struct {
	// All machines.
	Total int32
	// Machines that wait for approval.
	Pending int32
	// Machines that are approved.
	Approved int32
	// Machines that run.
	Running int32
	// Machines that failed.
	Failed int32
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// DiscoveryRequest asks for a sweep of a TalosCluster's declared ranges now. It
// is posted to talosclusters/discover and not stored; what it asks for is told in
// the cluster's status.discovery.requestedAt.
type DiscoveryRequest struct {
	metav1.TypeMeta
	// Object metadata; a name, if given, is that of the cluster.
	metav1.ObjectMeta

	// What came of the request.
	Status DiscoveryRequestStatus
}

// DiscoveryRequestStatus is what came of a request for a sweep.
type DiscoveryRequestStatus struct {
	// When the sweep was asked for: the sweep that answers it starts no earlier.
	RequestedAt *metav1.Time
}
