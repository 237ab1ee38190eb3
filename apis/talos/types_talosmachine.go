package talos

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosMachine is one machine of a TalosCluster, named by its SMBIOS UUID. It
// waits, pending and untouched, until it is approved.
type TalosMachine struct {
	metav1.TypeMeta
	// Standard object metadata. The name is the machine's UUID.
	metav1.ObjectMeta

	// Which machine this is, whether it is approved, and what it is to become.
	Spec TalosMachineSpec
	// What was seen of the machine and how far it is.
	Status TalosMachineStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosMachineList is a list of TalosMachines.
type TalosMachineList struct {
	metav1.TypeMeta
	// Standard list metadata.
	metav1.ListMeta

	// The machines.
	Items []TalosMachine
}

// MachineRole is what a machine is in its cluster.
type MachineRole string

const (
	// RoleControlPlane runs etcd and the Kubernetes control plane.
	RoleControlPlane MachineRole = "controlplane"
	// RoleWorker runs workloads.
	RoleWorker MachineRole = "worker"
)

// TalosMachineSpec says which machine this is, whether it is approved, and what it is to become.
type TalosMachineSpec struct {
	// TalosCluster in the same namespace that the machine belongs to. Cannot be changed.
	ClusterRef ClusterReference
	// Hardware identity; its uuid is the object's name. Cannot be changed.
	Identity MachineIdentity
	// controlplane or worker. Never defaulted: whoever approves sets it. Changing
	// it on an approved machine needs the verb approve.
	Role MachineRole
	// Whether the machine may be configured. Setting it needs the verb approve on
	// talosmachines/approval; leaving it out of a manifest keeps what is stored.
	Approved *bool
	// Set on a machine that must not be approved; it stays visible. Cleared
	// through the approval subresource.
	Rejected *MachineRejection
	// IPv4 address of the machine: the only one that configuration is sent to. It
	// must be in the ranges that the cluster declares, unless the user may update
	// talosmachines/endpoint.
	Endpoint string
	// Labels of the Node.
	NodeLabels map[string]string
	// Taints of the Node.
	NodeTaints []NodeTaint
	// The disk that Talos is installed on. Never defaulted.
	Install *MachineInstall
	// What the machine's other disks are for; at most 32.
	DiskRoles []DiskRole
	// Host name and addresses.
	Network *MachineNetwork
	// Talos configuration patches (YAML documents, strategic merge) for this
	// machine, after those of the cluster; at most 32. JSON patches are not accepted.
	ConfigPatches []string
	// Fingerprint of the maintenance-mode certificate, as the machine's console
	// shows it: configuration is sent to no other.
	AcceptedFingerprint string
	// Accepts that a control plane is configured without a fingerprint read off
	// its console. Recorded in status.approval.
	AcceptUnverifiedFingerprint bool
	// Accepts that this machine shares its serial or a MAC with another TalosMachine.
	AcceptSharedHardware bool
}

// ClusterReference names a TalosCluster in the same namespace.
type ClusterReference struct {
	// Name of the TalosCluster.
	Name string
}

// MachineIdentity is a machine's hardware identity, as SMBIOS and its network cards tell it.
type MachineIdentity struct {
	// SMBIOS UUID, lower case.
	UUID string
	// SMBIOS serial number.
	Serial string
	// Permanent MAC addresses of the physical links, sorted.
	MACAddresses []string
}

// MachineRejection says why a machine must not be approved.
type MachineRejection struct {
	// Why.
	Reason string
}

// TaintEffect is a taint's effect.
type TaintEffect string

const (
	// TaintNoSchedule keeps new pods away.
	TaintNoSchedule TaintEffect = "NoSchedule"
	// TaintPreferNoSchedule keeps new pods away where possible.
	TaintPreferNoSchedule TaintEffect = "PreferNoSchedule"
	// TaintNoExecute also evicts running pods.
	TaintNoExecute TaintEffect = "NoExecute"
)

// NodeTaint is a taint of the Node.
type NodeTaint struct {
	// Key of the taint.
	Key string
	// Value of the taint.
	Value string
	// NoSchedule, PreferNoSchedule or NoExecute.
	Effect TaintEffect
}

// MachineInstall says which disk Talos is installed on. Exactly one of disk and diskSelector is set.
type MachineInstall struct {
	// Device path, for example /dev/sda.
	Disk string
	// Properties that exactly one disk of the machine has.
	DiskSelector *DiskSelector
	// Wipe the disk before installing.
	Wipe bool
}

// DiskType is a kind of disk.
type DiskType string

const (
	// DiskTypeHDD rotates.
	DiskTypeHDD DiskType = "hdd"
	// DiskTypeSSD does not rotate; NVMe disks match too.
	DiskTypeSSD DiskType = "ssd"
	// DiskTypeNVMe is on NVMe.
	DiskTypeNVMe DiskType = "nvme"
	// DiskTypeSD is an SD card.
	DiskTypeSD DiskType = "sd"
)

// DiskSelector finds a disk by its properties; all that are set must match.
type DiskSelector struct {
	// Capacity with an operator, for example ">= 100GB" or "4GB".
	Capacity string
	// Model; * matches any text.
	Model string
	// Serial number; * matches any text.
	Serial string
	// World Wide Identifier; * matches any text.
	WWID string
	// Bus path; * matches any text.
	BusPath string
	// hdd, ssd, nvme or sd.
	Type DiskType
}

// DiskRole gives a disk of the machine a purpose: it becomes a user volume of that name.
type DiskRole struct {
	// Name of the purpose and of the user volume.
	Role string
	// Properties that the disk has.
	DiskSelector DiskSelector
	// Smallest size of the volume, for example "10GiB".
	MinSize string
	// Largest size of the volume, for example "100GiB"; by default the whole disk.
	MaxSize string
}

// MachineNetwork is the machine's host name and addresses.
type MachineNetwork struct {
	// Host name.
	Hostname string
	// Links, each found by its permanent MAC; at most 16.
	Links []MachineLinkConfig
	// Name servers; at most 8.
	Nameservers []string
	// Time servers; at most 8.
	TimeServers []string
}

// MachineLinkConfig configures one link of the machine.
type MachineLinkConfig struct {
	// Permanent MAC address of the link.
	PermanentMAC string
	// Addresses with prefix, for example 10.1.2.3/24; at most 16. None: DHCP.
	Addresses []string
	// Default gateway.
	Gateway string
	// MTU in bytes, 576 to 9216.
	MTU *int32
}

// MachinePhase is how far a machine is.
type MachinePhase string

const (
	// MachinePending waits for approval.
	MachinePending MachinePhase = "Pending"
	// MachineRejected was rejected.
	MachineRejected MachinePhase = "Rejected"
	// MachineApproved is approved and not configured yet.
	MachineApproved MachinePhase = "Approved"
	// MachineConfiguring is being sent its configuration.
	MachineConfiguring MachinePhase = "Configuring"
	// MachineInstalling was sent its configuration and has not come back yet.
	MachineInstalling MachinePhase = "Installing"
	// MachineRunning runs what was rendered.
	MachineRunning MachinePhase = "Running"
	// MachineFailed cannot go on; a condition says why.
	MachineFailed MachinePhase = "Failed"
)

// TalosMachineStatus is what was seen of the machine and how far it is.
type TalosMachineStatus struct {
	// Generation of the spec that this status speaks of.
	ObservedGeneration int64
	// Pending, Rejected, Approved, Configuring, Installing, Running or Failed.
	Phase MachinePhase
	// Address at which the machine last answered in maintenance mode. Configuration
	// is sent to spec.endpoint alone.
	ObservedEndpoint string
	// What an approver needs to see.
	Hardware *MachineHardware
	// Who approved, when, and for which identity and fingerprint. Written by the
	// server when the machine is approved.
	Approval *MachineApproval
	// The sending of configuration: recorded before it happens.
	Configuration *MachineConfiguration
	// SHA-256 of the configuration that the machine was sent.
	ConfigHash string
	// Talos version that the machine runs.
	TalosVersion string
	// Node that the machine became.
	NodeName string
	// Conditions: Rendered, Configured, Ready, UpToDate, Drifted, RebootRequired,
	// BackInMaintenance, SharesHardware and those that name a problem.
	Conditions []metav1.Condition
	// A change of the running machine's configuration that is under way or waits.
	Update *MachineUpdate
	// The last reboot that a user asked for.
	Reboot *MachineRebootStatus
}

// MachineUpdate is a change of a running machine's configuration.
type MachineUpdate struct {
	// SHA-256 of the configuration that the machine is to run.
	Hash string
	// Since when the machine is to run it.
	Since *metav1.Time
	// Whether the machine would have to reboot, as a dry run told; it then waits
	// for a request to talosmachines/reboot.
	RebootRequired bool
	// When the intent to send it was recorded; absent until then.
	IntendedAt *metav1.Time
	// When the machine accepted it; absent until then.
	AppliedAt *metav1.Time
}

// MachineRebootStatus is a reboot that a user asked for.
type MachineRebootStatus struct {
	// When.
	RequestedAt *metav1.Time
	// Authenticated user who asked.
	RequestedBy string
	// SHA-256 of the configuration for which it was asked: for another one it
	// has to be asked again.
	Hash string
	// When the intent to reboot was recorded; absent until then.
	IntendedAt *metav1.Time
	// When the machine was back with the configuration; absent until then.
	CompletedAt *metav1.Time
}

// MachineHardware is what an approver needs to see of a machine.
type MachineHardware struct {
	// Manufacturer of the machine.
	Manufacturer string
	// Product name of the machine.
	Product string
	// Fingerprint of the maintenance-mode certificate: base64 of the SHA-256 of
	// its public key, as the machine's console shows it.
	Fingerprint string
	// Disks; at most 64 are listed.
	Disks []MachineDisk
	// Physical links; at most 64 are listed.
	Links []MachineLink
}

// MachineDisk is a disk as the machine reports it.
type MachineDisk struct {
	// Device path.
	Path string
	// Size in bytes.
	SizeBytes int64
	// Model.
	Model string
	// Serial number.
	Serial string
	// World Wide Identifier.
	WWID string
	// Transport, for example sata or nvme.
	Transport string
	// Whether the disk rotates.
	Rotational bool
	// Bus path.
	BusPath string
}

// MachineLink is a physical link as the machine reports it.
type MachineLink struct {
	// Name, for example eth0.
	Name string
	// Permanent MAC address.
	PermanentMAC string
	// Driver.
	Driver string
	// Whether a cable is connected.
	Up bool
}

// MachineApproval is who approved a machine, when, and for which identity.
type MachineApproval struct {
	// Authenticated user who approved.
	User string
	// When.
	Time metav1.Time
	// The identity that was approved.
	Identity MachineIdentity
	// The fingerprint that was accepted, if one was.
	Fingerprint string
	// Whether sending without a verified fingerprint was accepted.
	UnverifiedFingerprint bool
	// The role that was approved.
	Role MachineRole
	// The disk, of those that the machine had reported, that spec.install meant
	// when it was approved: Talos is installed on no other. Absent when the
	// machine had reported none that it could mean.
	InstallDisk *MachineDisk
	// Whether it was accepted that the machine shares a serial number or a MAC
	// address with another.
	SharedHardware bool
}

// MachineConfiguration is the sending of a configuration.
type MachineConfiguration struct {
	// SHA-256 of the configuration.
	Hash string
	// Address that it is sent to.
	Endpoint string
	// When the intent to send was recorded.
	IntendedAt *metav1.Time
	// When the machine accepted it; absent until then.
	AppliedAt *metav1.Time
	// SHA-256 of the secrets bundle that it was made with.
	BundleHash string
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// RebootRequest asks for a TalosMachine to be rebooted into the configuration
// that waits for it. It is posted to talosmachines/reboot and not stored; the
// machine's status.reboot tells how it goes.
type RebootRequest struct {
	metav1.TypeMeta
	// Object metadata; a name, if given, is that of the machine.
	metav1.ObjectMeta

	// What is asked for.
	Spec RebootRequestSpec
	// What came of the request.
	Status RebootRequestStatus
}

// RebootRequestSpec is what is asked for.
type RebootRequestSpec struct {
	// SHA-256 of the configuration to reboot into, as status.update.hash of the
	// machine tells it; by default whatever waits.
	Hash string
}

// RebootRequestStatus is what came of a request for a reboot.
type RebootRequestStatus struct {
	// When the reboot was asked for.
	RequestedAt *metav1.Time
	// SHA-256 of the configuration that the machine will reboot into.
	Hash string
}
