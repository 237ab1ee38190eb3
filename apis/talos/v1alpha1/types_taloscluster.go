package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:method=RequestDiscovery,verb=create,subresource=discover,input=github.com/fieldplane/fieldplane/apis/talos/v1alpha1.DiscoveryRequest,result=github.com/fieldplane/fieldplane/apis/talos/v1alpha1.DiscoveryRequest
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"

// TalosCluster is a cluster of Talos Linux machines: what they are configured
// with, and the address ranges in which new ones are looked for.
type TalosCluster struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// What the machines are configured with and where new ones are looked for.
	Spec TalosClusterSpec `json:"spec" protobuf:"bytes,2,opt,name=spec"`
	// What discovery found and how the machines stand.
	Status TalosClusterStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosClusterList is a list of TalosClusters.
type TalosClusterList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// The clusters.
	Items []TalosCluster `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// TalosClusterSpec says what the machines are configured with and where new ones are looked for.
type TalosClusterSpec struct {
	// URL of the Kubernetes API of the cluster, as https://HOST[:PORT].
	// +k8s:required
	// +k8s:maxLength=512
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint" protobuf:"bytes,1,opt,name=controlPlaneEndpoint"`
	// Secret with the cluster's secrets bundle, in the format of `talosctl gen
	// secrets`, under the key "bundle". It is read in the namespace of the
	// fieldplane server, never in this object's namespace, and must carry the
	// label talos.fieldplane.dev/cluster: <namespace>.<name> of this TalosCluster.
	// Cannot be changed.
	// +k8s:immutable
	SecretsRef SecretReference `json:"secretsRef" protobuf:"bytes,2,opt,name=secretsRef"`
	// Talos version that configuration is generated for, for example v1.13. It
	// fixes the configuration's defaults (the version contract), so it stays as
	// it was at creation when the machines are upgraded. Cannot be changed.
	// +k8s:required
	// +k8s:immutable
	// +k8s:maxLength=32
	TalosVersion string `json:"talosVersion" protobuf:"bytes,3,opt,name=talosVersion"`
	// Kubernetes version of the cluster, for example v1.36.2.
	// +k8s:required
	// +k8s:maxLength=32
	KubernetesVersion string `json:"kubernetesVersion" protobuf:"bytes,4,opt,name=kubernetesVersion"`
	// Installer image; by default the one of the Talos version.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=512
	InstallImage string `json:"installImage,omitempty" protobuf:"bytes,5,opt,name=installImage"`
	// Talos configuration patches (YAML documents, strategic merge) for every
	// machine of the cluster; at most 32. JSON patches are not accepted.
	// +optional
	// +listType=atomic
	// +k8s:optional
	// +k8s:maxItems=32
	ConfigPatches []string `json:"configPatches,omitempty" protobuf:"bytes,6,rep,name=configPatches"`
	// Where machines in maintenance mode are looked for. Empty (the default): nowhere.
	// +optional
	Discovery TalosDiscovery `json:"discovery,omitempty" protobuf:"bytes,7,opt,name=discovery"`
	// Stops discovery, configuration and everything else that would touch a machine.
	// +optional
	// +k8s:optional
	Paused bool `json:"paused,omitempty" protobuf:"varint,8,opt,name=paused"`
}

// SecretReference names a Secret in the namespace of the fieldplane server.
type SecretReference struct {
	// Name of the Secret, in the namespace of the fieldplane server.
	// +k8s:required
	// +k8s:format=k8s-long-name
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
}

// TalosDiscovery declares the addresses at which machines are looked for, on
// Talos's port 50000. Nothing else is ever contacted.
type TalosDiscovery struct {
	// IPv4 addresses; at most 64.
	// +optional
	// +k8s:optional
	// +listType=atomic
	Addresses []string `json:"addresses,omitempty" protobuf:"bytes,1,rep,name=addresses"`
	// IPv4 CIDRs with a prefix of /24 or longer; at most 4.
	// +optional
	// +k8s:optional
	// +listType=atomic
	Cidrs []string `json:"cidrs,omitempty" protobuf:"bytes,2,rep,name=cidrs"`
}

// TalosClusterStatus says what discovery found and how the machines stand.
type TalosClusterStatus struct {
	// Generation of the spec that this status speaks of.
	// +optional
	// +k8s:optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`
	// The last sweep of the declared ranges and what it found.
	// +optional
	// +k8s:optional
	Discovery *DiscoveryStatus `json:"discovery,omitempty" protobuf:"bytes,2,opt,name=discovery"`
	// How many machines the cluster has, by phase.
	// +optional
	Machines MachineCounts `json:"machines,omitempty" protobuf:"bytes,3,opt,name=machines"`
	// Conditions: BundleReady, DiscoveryReady, Bootstrapped.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" protobuf:"bytes,4,rep,name=conditions"`
	// The one bootstrap of the cluster's etcd: recorded before it happens.
	// +optional
	// +k8s:optional
	Bootstrap *ClusterBootstrap `json:"bootstrap,omitempty" protobuf:"bytes,5,opt,name=bootstrap"`
	// SHA-256 of the secrets bundle as it was last read whole: it changes when
	// the Secret is rotated.
	// +optional
	// +k8s:optional
	BundleHash string `json:"bundleHash,omitempty" protobuf:"bytes,6,opt,name=bundleHash"`
}

// ClusterBootstrap is the one bootstrap of a cluster's etcd.
type ClusterBootstrap struct {
	// Control plane that is bootstrapped, or that had etcd already.
	// +optional
	// +k8s:optional
	MachineName string `json:"machineName,omitempty" protobuf:"bytes,1,opt,name=machineName"`
	// Address at which it is.
	// +optional
	// +k8s:optional
	Endpoint string `json:"endpoint,omitempty" protobuf:"bytes,2,opt,name=endpoint"`
	// When the intent to bootstrap it was recorded; absent when etcd ran already.
	// +optional
	// +k8s:optional
	IntendedAt *metav1.Time `json:"intendedAt,omitempty" protobuf:"bytes,3,opt,name=intendedAt"`
	// When etcd was known to be bootstrapped; absent until then.
	// +optional
	// +k8s:optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty" protobuf:"bytes,4,opt,name=completedAt"`
}

// DiscoveryStatus is the last sweep of the declared ranges and what it found.
type DiscoveryStatus struct {
	// When a sweep was last asked for by a user.
	// +optional
	// +k8s:optional
	RequestedAt *metav1.Time `json:"requestedAt,omitempty" protobuf:"bytes,1,opt,name=requestedAt"`
	// When the last sweep began.
	// +optional
	// +k8s:optional
	StartedAt *metav1.Time `json:"startedAt,omitempty" protobuf:"bytes,2,opt,name=startedAt"`
	// When the last sweep ended; absent while one runs.
	// +optional
	// +k8s:optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty" protobuf:"bytes,3,opt,name=completedAt"`
	// How many addresses were asked.
	// +optional
	// +k8s:optional
	Candidates int32 `json:"candidates,omitempty" protobuf:"varint,4,opt,name=candidates"`
	// How many answered in maintenance mode.
	// +optional
	// +k8s:optional
	Answered int32 `json:"answered,omitempty" protobuf:"varint,5,opt,name=answered"`
	// How many new machines were registered.
	// +optional
	// +k8s:optional
	Registered int32 `json:"registered,omitempty" protobuf:"varint,6,opt,name=registered"`
	// Machines without a full identity, newest first; at most 32. Nothing is created for them.
	// +optional
	// +k8s:optional
	// +listType=atomic
	Weak []WeakCandidate `json:"weak,omitempty" protobuf:"bytes,7,rep,name=weak"`
	// Machines that answered with the UUID of another, for which nothing was
	// created, and registered ones that share a serial or a MAC with another;
	// newest first, at most 32. Their reason tells which.
	// +optional
	// +k8s:optional
	// +listType=atomic
	Collisions []IdentityCollision `json:"collisions,omitempty" protobuf:"bytes,8,rep,name=collisions"`
	// How many addresses the running sweep has asked so far; absent while none runs.
	// +optional
	// +k8s:optional
	Asked int32 `json:"asked,omitempty" protobuf:"varint,9,opt,name=asked"`
}

// WeakCandidate is a machine whose identity is incomplete.
type WeakCandidate struct {
	// Address at which it answered.
	Address string `json:"address" protobuf:"bytes,1,opt,name=address"`
	// What was read.
	// +optional
	Identity MachineIdentity `json:"identity,omitempty" protobuf:"bytes,2,opt,name=identity"`
	// Manufacturer as read.
	// +optional
	// +k8s:optional
	Manufacturer string `json:"manufacturer,omitempty" protobuf:"bytes,3,opt,name=manufacturer"`
	// Which parts are missing: uuid, serial, macAddresses.
	// +optional
	// +k8s:optional
	// +listType=atomic
	Missing []string `json:"missing,omitempty" protobuf:"bytes,4,rep,name=missing"`
	// How to set what is missing.
	// +optional
	// +k8s:optional
	Hint string `json:"hint,omitempty" protobuf:"bytes,5,opt,name=hint"`
	// When it was first seen so.
	// +optional
	// +k8s:optional
	SeenAt *metav1.Time `json:"seenAt,omitempty" protobuf:"bytes,6,opt,name=seenAt"`
}

// IdentityCollision is a machine whose identity is, in part, that of another.
type IdentityCollision struct {
	// Address at which it answered.
	Address string `json:"address" protobuf:"bytes,1,opt,name=address"`
	// What was read.
	// +optional
	Identity MachineIdentity `json:"identity,omitempty" protobuf:"bytes,2,opt,name=identity"`
	// The other machine.
	// +optional
	// +k8s:optional
	MachineName string `json:"machineName,omitempty" protobuf:"bytes,3,opt,name=machineName"`
	// What differs, and whether it looks like changed hardware or another machine.
	// +optional
	// +k8s:optional
	Message string `json:"message,omitempty" protobuf:"bytes,4,opt,name=message"`
	// When it was first seen so.
	// +optional
	// +k8s:optional
	SeenAt *metav1.Time `json:"seenAt,omitempty" protobuf:"bytes,5,opt,name=seenAt"`
	// IdentityCollision: its UUID is that of a machine in this namespace.
	// IdentityClaimed: its UUID is that of a machine in another namespace.
	// SharesHardware: its serial number or a MAC address is another machine's too.
	// +optional
	// +k8s:optional
	Reason IdentityFinding `json:"reason,omitempty" protobuf:"bytes,6,opt,name=reason,casttype=IdentityFinding"`
}

// IdentityFinding is in what a machine's identity is that of another.
// +enum
// +k8s:enum
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
	// +optional
	// +k8s:optional
	Total int32 `json:"total,omitempty" protobuf:"varint,1,opt,name=total"`
	// Machines that wait for approval.
	// +optional
	// +k8s:optional
	Pending int32 `json:"pending,omitempty" protobuf:"varint,2,opt,name=pending"`
	// Machines that are approved.
	// +optional
	// +k8s:optional
	Approved int32 `json:"approved,omitempty" protobuf:"varint,3,opt,name=approved"`
	// Machines that run.
	// +optional
	// +k8s:optional
	Running int32 `json:"running,omitempty" protobuf:"varint,4,opt,name=running"`
	// Machines that failed.
	// +optional
	// +k8s:optional
	Failed int32 `json:"failed,omitempty" protobuf:"varint,5,opt,name=failed"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// DiscoveryRequest asks for a sweep of a TalosCluster's declared ranges now. It
// is posted to talosclusters/discover and not stored; what it asks for is told in
// the cluster's status.discovery.requestedAt.
type DiscoveryRequest struct {
	metav1.TypeMeta `json:",inline"`
	// Object metadata; a name, if given, is that of the cluster.
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// What came of the request.
	Status DiscoveryRequestStatus `json:"status,omitempty" protobuf:"bytes,2,opt,name=status"`
}

// DiscoveryRequestStatus is what came of a request for a sweep.
type DiscoveryRequestStatus struct {
	// When the sweep was asked for: the sweep that answers it starts no earlier.
	// +optional
	// +k8s:optional
	RequestedAt *metav1.Time `json:"requestedAt,omitempty" protobuf:"bytes,1,opt,name=requestedAt"`
}
