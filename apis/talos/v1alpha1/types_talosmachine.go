package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:method=UpdateApproval,verb=update,subresource=approval,input=github.com/fieldplane/fieldplane/apis/talos/v1alpha1.TalosMachine,result=github.com/fieldplane/fieldplane/apis/talos/v1alpha1.TalosMachine
// +genclient:method=UpdateEndpoint,verb=update,subresource=endpoint,input=github.com/fieldplane/fieldplane/apis/talos/v1alpha1.TalosMachine,result=github.com/fieldplane/fieldplane/apis/talos/v1alpha1.TalosMachine
// +genclient:method=RequestReboot,verb=create,subresource=reboot,input=github.com/fieldplane/fieldplane/apis/talos/v1alpha1.RebootRequest,result=github.com/fieldplane/fieldplane/apis/talos/v1alpha1.RebootRequest
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"
// +k8s:supportsSubresource="/approval"
// +k8s:supportsSubresource="/endpoint"

// TalosMachine is one machine of a TalosCluster, named by its SMBIOS UUID. It
// waits, pending and untouched, until it is approved.
type TalosMachine struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata. The name is the machine's UUID.
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// Which machine this is, whether it is approved, and what it is to become.
	Spec TalosMachineSpec `json:"spec" protobuf:"bytes,2,opt,name=spec"`
	// What was seen of the machine and how far it is.
	Status TalosMachineStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// TalosMachineList is a list of TalosMachines.
type TalosMachineList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// The machines.
	Items []TalosMachine `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// MachineRole is what a machine is in its cluster.
// +enum
// +k8s:enum
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
	// +k8s:immutable
	ClusterRef ClusterReference `json:"clusterRef" protobuf:"bytes,1,opt,name=clusterRef"`
	// Hardware identity; its uuid is the object's name. Cannot be changed.
	// +k8s:immutable
	Identity MachineIdentity `json:"identity" protobuf:"bytes,2,opt,name=identity"`
	// controlplane or worker. Never defaulted: whoever approves sets it. Changing
	// it on an approved machine needs the verb approve.
	// +optional
	// +k8s:optional
	Role MachineRole `json:"role,omitempty" protobuf:"bytes,3,opt,name=role,casttype=MachineRole"`
	// Whether the machine may be configured. Setting it needs the verb approve on
	// talosmachines/approval; leaving it out of a manifest keeps what is stored.
	// +optional
	// +k8s:optional
	Approved *bool `json:"approved,omitempty" protobuf:"varint,4,opt,name=approved"`
	// Set on a machine that must not be approved; it stays visible. Cleared
	// through the approval subresource.
	// +optional
	// +k8s:optional
	Rejected *MachineRejection `json:"rejected,omitempty" protobuf:"bytes,5,opt,name=rejected"`
	// IPv4 address of the machine: the only one that configuration is sent to. It
	// must be in the ranges that the cluster declares, unless the user may update
	// talosmachines/endpoint.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=15
	Endpoint string `json:"endpoint,omitempty" protobuf:"bytes,6,opt,name=endpoint"`
	// Labels of the Node.
	// +optional
	// +k8s:optional
	NodeLabels map[string]string `json:"nodeLabels,omitempty" protobuf:"bytes,7,rep,name=nodeLabels"`
	// Taints of the Node.
	// +optional
	// +listType=atomic
	// +k8s:optional
	// +k8s:maxItems=32
	NodeTaints []NodeTaint `json:"nodeTaints,omitempty" protobuf:"bytes,8,rep,name=nodeTaints"`
	// The disk that Talos is installed on. Never defaulted.
	// +optional
	// +k8s:optional
	Install *MachineInstall `json:"install,omitempty" protobuf:"bytes,9,opt,name=install"`
	// What the machine's other disks are for; at most 32.
	// +optional
	// +listType=map
	// +listMapKey=role
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=role
	// +k8s:maxItems=32
	DiskRoles []DiskRole `json:"diskRoles,omitempty" protobuf:"bytes,10,rep,name=diskRoles"`
	// Host name and addresses.
	// +optional
	// +k8s:optional
	Network *MachineNetwork `json:"network,omitempty" protobuf:"bytes,11,opt,name=network"`
	// Talos configuration patches (YAML documents, strategic merge) for this
	// machine, after those of the cluster; at most 32. JSON patches are not accepted.
	// +optional
	// +listType=atomic
	// +k8s:optional
	// +k8s:maxItems=32
	ConfigPatches []string `json:"configPatches,omitempty" protobuf:"bytes,12,rep,name=configPatches"`
	// Fingerprint of the maintenance-mode certificate, as the machine's console
	// shows it: configuration is sent to no other.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=128
	AcceptedFingerprint string `json:"acceptedFingerprint,omitempty" protobuf:"bytes,13,opt,name=acceptedFingerprint"`
	// Accepts that a control plane is configured without a fingerprint read off
	// its console. Recorded in status.approval.
	// +optional
	// +k8s:optional
	AcceptUnverifiedFingerprint bool `json:"acceptUnverifiedFingerprint,omitempty" protobuf:"varint,14,opt,name=acceptUnverifiedFingerprint"`
	// Accepts that this machine shares its serial or a MAC with another TalosMachine.
	// +optional
	// +k8s:optional
	AcceptSharedHardware bool `json:"acceptSharedHardware,omitempty" protobuf:"varint,15,opt,name=acceptSharedHardware"`
}

// ClusterReference names a TalosCluster in the same namespace.
type ClusterReference struct {
	// Name of the TalosCluster.
	// +k8s:required
	// +k8s:format=k8s-long-name
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
}

// MachineIdentity is a machine's hardware identity, as SMBIOS and its network cards tell it.
type MachineIdentity struct {
	// SMBIOS UUID, lower case.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=128
	UUID string `json:"uuid,omitempty" protobuf:"bytes,1,opt,name=uuid"`
	// SMBIOS serial number.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=256
	Serial string `json:"serial,omitempty" protobuf:"bytes,2,opt,name=serial"`
	// Permanent MAC addresses of the physical links, sorted.
	// +optional
	// +listType=atomic
	// +k8s:optional
	// +k8s:maxItems=64
	MACAddresses []string `json:"macAddresses,omitempty" protobuf:"bytes,3,rep,name=macAddresses"`
}

// MachineRejection says why a machine must not be approved.
type MachineRejection struct {
	// Why.
	// +k8s:required
	// +k8s:maxLength=1024
	Reason string `json:"reason" protobuf:"bytes,1,opt,name=reason"`
}

// TaintEffect is a taint's effect.
// +enum
// +k8s:enum
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
	// +k8s:required
	// +k8s:maxLength=317
	Key string `json:"key" protobuf:"bytes,1,opt,name=key"`
	// Value of the taint.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=63
	Value string `json:"value,omitempty" protobuf:"bytes,2,opt,name=value"`
	// NoSchedule, PreferNoSchedule or NoExecute.
	// +k8s:required
	Effect TaintEffect `json:"effect" protobuf:"bytes,3,opt,name=effect,casttype=TaintEffect"`
}

// MachineInstall says which disk Talos is installed on. Exactly one of disk and diskSelector is set.
type MachineInstall struct {
	// Device path, for example /dev/sda.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=256
	Disk string `json:"disk,omitempty" protobuf:"bytes,1,opt,name=disk"`
	// Properties that exactly one disk of the machine has.
	// +optional
	// +k8s:optional
	DiskSelector *DiskSelector `json:"diskSelector,omitempty" protobuf:"bytes,2,opt,name=diskSelector"`
	// Wipe the disk before installing.
	// +optional
	// +k8s:optional
	Wipe bool `json:"wipe,omitempty" protobuf:"varint,3,opt,name=wipe"`
}

// DiskType is a kind of disk.
// +enum
// +k8s:enum
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
	// +optional
	// +k8s:optional
	// +k8s:maxLength=64
	Capacity string `json:"capacity,omitempty" protobuf:"bytes,7,opt,name=capacity"`
	// Model; * matches any text.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=256
	Model string `json:"model,omitempty" protobuf:"bytes,2,opt,name=model"`
	// Serial number; * matches any text.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=256
	Serial string `json:"serial,omitempty" protobuf:"bytes,3,opt,name=serial"`
	// World Wide Identifier; * matches any text.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=256
	WWID string `json:"wwid,omitempty" protobuf:"bytes,4,opt,name=wwid"`
	// Bus path; * matches any text.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=256
	BusPath string `json:"busPath,omitempty" protobuf:"bytes,5,opt,name=busPath"`
	// hdd, ssd, nvme or sd.
	// +optional
	// +k8s:optional
	Type DiskType `json:"type,omitempty" protobuf:"bytes,6,opt,name=type,casttype=DiskType"`
}

// DiskRole gives a disk of the machine a purpose: it becomes a user volume of that name.
type DiskRole struct {
	// Name of the purpose and of the user volume.
	// +k8s:required
	// +k8s:format=k8s-short-name
	// +k8s:maxLength=34
	Role string `json:"role" protobuf:"bytes,1,opt,name=role"`
	// Properties that the disk has.
	DiskSelector DiskSelector `json:"diskSelector" protobuf:"bytes,2,opt,name=diskSelector"`
	// Smallest size of the volume, for example "10GiB".
	// +optional
	// +k8s:optional
	// +k8s:maxLength=32
	MinSize string `json:"minSize,omitempty" protobuf:"bytes,3,opt,name=minSize"`
	// Largest size of the volume, for example "100GiB"; by default the whole disk.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=32
	MaxSize string `json:"maxSize,omitempty" protobuf:"bytes,4,opt,name=maxSize"`
}

// MachineNetwork is the machine's host name and addresses.
type MachineNetwork struct {
	// Host name.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=253
	Hostname string `json:"hostname,omitempty" protobuf:"bytes,1,opt,name=hostname"`
	// Links, each found by its permanent MAC; at most 16.
	// +optional
	// +listType=map
	// +listMapKey=permanentMAC
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=permanentMAC
	// +k8s:maxItems=16
	Links []MachineLinkConfig `json:"links,omitempty" protobuf:"bytes,2,rep,name=links"`
	// Name servers; at most 8.
	// +optional
	// +listType=atomic
	// +k8s:optional
	// +k8s:maxItems=8
	Nameservers []string `json:"nameservers,omitempty" protobuf:"bytes,3,rep,name=nameservers"`
	// Time servers; at most 8.
	// +optional
	// +listType=atomic
	// +k8s:optional
	// +k8s:maxItems=8
	TimeServers []string `json:"timeServers,omitempty" protobuf:"bytes,4,rep,name=timeServers"`
}

// MachineLinkConfig configures one link of the machine.
type MachineLinkConfig struct {
	// Permanent MAC address of the link.
	// +k8s:required
	// +k8s:maxLength=17
	PermanentMAC string `json:"permanentMAC" protobuf:"bytes,1,opt,name=permanentMAC"`
	// Addresses with prefix, for example 10.1.2.3/24; at most 16. None: DHCP.
	// +optional
	// +listType=atomic
	// +k8s:optional
	// +k8s:maxItems=16
	Addresses []string `json:"addresses,omitempty" protobuf:"bytes,2,rep,name=addresses"`
	// Default gateway.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=45
	Gateway string `json:"gateway,omitempty" protobuf:"bytes,3,opt,name=gateway"`
	// MTU in bytes, 576 to 9216.
	// +optional
	// +k8s:optional
	// +k8s:minimum=576
	// +k8s:maximum=9216
	MTU *int32 `json:"mtu,omitempty" protobuf:"varint,4,opt,name=mtu"`
}

// MachinePhase is how far a machine is.
// +enum
// +k8s:enum
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
	// +optional
	// +k8s:optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`
	// Pending, Rejected, Approved, Configuring, Installing, Running or Failed.
	// +optional
	// +k8s:optional
	Phase MachinePhase `json:"phase,omitempty" protobuf:"bytes,2,opt,name=phase,casttype=MachinePhase"`
	// Address at which the machine last answered in maintenance mode. Configuration
	// is sent to spec.endpoint alone.
	// +optional
	// +k8s:optional
	ObservedEndpoint string `json:"observedEndpoint,omitempty" protobuf:"bytes,3,opt,name=observedEndpoint"`
	// What an approver needs to see.
	// +optional
	// +k8s:optional
	Hardware *MachineHardware `json:"hardware,omitempty" protobuf:"bytes,4,opt,name=hardware"`
	// Who approved, when, and for which identity and fingerprint. Written by the
	// server when the machine is approved.
	// +optional
	// +k8s:optional
	Approval *MachineApproval `json:"approval,omitempty" protobuf:"bytes,5,opt,name=approval"`
	// The sending of configuration: recorded before it happens.
	// +optional
	// +k8s:optional
	Configuration *MachineConfiguration `json:"configuration,omitempty" protobuf:"bytes,6,opt,name=configuration"`
	// SHA-256 of the configuration that the machine was sent.
	// +optional
	// +k8s:optional
	ConfigHash string `json:"configHash,omitempty" protobuf:"bytes,7,opt,name=configHash"`
	// Talos version that the machine runs.
	// +optional
	// +k8s:optional
	TalosVersion string `json:"talosVersion,omitempty" protobuf:"bytes,8,opt,name=talosVersion"`
	// Node that the machine became.
	// +optional
	// +k8s:optional
	NodeName string `json:"nodeName,omitempty" protobuf:"bytes,9,opt,name=nodeName"`
	// Conditions: Rendered, Configured, Ready, UpToDate, Drifted, RebootRequired,
	// BackInMaintenance, SharesHardware and those that name a problem.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" protobuf:"bytes,10,rep,name=conditions"`
	// A change of the running machine's configuration that is under way or waits.
	// +optional
	// +k8s:optional
	Update *MachineUpdate `json:"update,omitempty" protobuf:"bytes,11,opt,name=update"`
	// The last reboot that a user asked for.
	// +optional
	// +k8s:optional
	Reboot *MachineRebootStatus `json:"reboot,omitempty" protobuf:"bytes,12,opt,name=reboot"`
}

// MachineUpdate is a change of a running machine's configuration.
type MachineUpdate struct {
	// SHA-256 of the configuration that the machine is to run.
	// +optional
	// +k8s:optional
	Hash string `json:"hash,omitempty" protobuf:"bytes,1,opt,name=hash"`
	// Since when the machine is to run it.
	// +optional
	// +k8s:optional
	Since *metav1.Time `json:"since,omitempty" protobuf:"bytes,2,opt,name=since"`
	// Whether the machine would have to reboot, as a dry run told; it then waits
	// for a request to talosmachines/reboot.
	// +optional
	// +k8s:optional
	RebootRequired bool `json:"rebootRequired,omitempty" protobuf:"varint,3,opt,name=rebootRequired"`
	// When the intent to send it was recorded; absent until then.
	// +optional
	// +k8s:optional
	IntendedAt *metav1.Time `json:"intendedAt,omitempty" protobuf:"bytes,4,opt,name=intendedAt"`
	// When the machine accepted it; absent until then.
	// +optional
	// +k8s:optional
	AppliedAt *metav1.Time `json:"appliedAt,omitempty" protobuf:"bytes,5,opt,name=appliedAt"`
}

// MachineRebootStatus is a reboot that a user asked for.
type MachineRebootStatus struct {
	// When.
	// +optional
	// +k8s:optional
	RequestedAt *metav1.Time `json:"requestedAt,omitempty" protobuf:"bytes,1,opt,name=requestedAt"`
	// Authenticated user who asked.
	// +optional
	// +k8s:optional
	RequestedBy string `json:"requestedBy,omitempty" protobuf:"bytes,2,opt,name=requestedBy"`
	// SHA-256 of the configuration for which it was asked: for another one it
	// has to be asked again.
	// +optional
	// +k8s:optional
	Hash string `json:"hash,omitempty" protobuf:"bytes,3,opt,name=hash"`
	// When the intent to reboot was recorded; absent until then.
	// +optional
	// +k8s:optional
	IntendedAt *metav1.Time `json:"intendedAt,omitempty" protobuf:"bytes,4,opt,name=intendedAt"`
	// When the machine was back with the configuration; absent until then.
	// +optional
	// +k8s:optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty" protobuf:"bytes,5,opt,name=completedAt"`
}

// MachineHardware is what an approver needs to see of a machine.
type MachineHardware struct {
	// Manufacturer of the machine.
	// +optional
	// +k8s:optional
	Manufacturer string `json:"manufacturer,omitempty" protobuf:"bytes,1,opt,name=manufacturer"`
	// Product name of the machine.
	// +optional
	// +k8s:optional
	Product string `json:"product,omitempty" protobuf:"bytes,2,opt,name=product"`
	// Fingerprint of the maintenance-mode certificate: base64 of the SHA-256 of
	// its public key, as the machine's console shows it.
	// +optional
	// +k8s:optional
	Fingerprint string `json:"fingerprint,omitempty" protobuf:"bytes,3,opt,name=fingerprint"`
	// Disks; at most 64 are listed.
	// +optional
	// +k8s:optional
	// +listType=atomic
	Disks []MachineDisk `json:"disks,omitempty" protobuf:"bytes,4,rep,name=disks"`
	// Physical links; at most 64 are listed.
	// +optional
	// +k8s:optional
	// +listType=atomic
	Links []MachineLink `json:"links,omitempty" protobuf:"bytes,5,rep,name=links"`
}

// MachineDisk is a disk as the machine reports it.
type MachineDisk struct {
	// Device path.
	// +optional
	// +k8s:optional
	Path string `json:"path,omitempty" protobuf:"bytes,1,opt,name=path"`
	// Size in bytes.
	// +optional
	// +k8s:optional
	SizeBytes int64 `json:"sizeBytes,omitempty" protobuf:"varint,2,opt,name=sizeBytes"`
	// Model.
	// +optional
	// +k8s:optional
	Model string `json:"model,omitempty" protobuf:"bytes,3,opt,name=model"`
	// Serial number.
	// +optional
	// +k8s:optional
	Serial string `json:"serial,omitempty" protobuf:"bytes,4,opt,name=serial"`
	// World Wide Identifier.
	// +optional
	// +k8s:optional
	WWID string `json:"wwid,omitempty" protobuf:"bytes,5,opt,name=wwid"`
	// Transport, for example sata or nvme.
	// +optional
	// +k8s:optional
	Transport string `json:"transport,omitempty" protobuf:"bytes,6,opt,name=transport"`
	// Whether the disk rotates.
	// +optional
	// +k8s:optional
	Rotational bool `json:"rotational,omitempty" protobuf:"varint,7,opt,name=rotational"`
	// Bus path.
	// +optional
	// +k8s:optional
	BusPath string `json:"busPath,omitempty" protobuf:"bytes,8,opt,name=busPath"`
}

// MachineLink is a physical link as the machine reports it.
type MachineLink struct {
	// Name, for example eth0.
	// +optional
	// +k8s:optional
	Name string `json:"name,omitempty" protobuf:"bytes,1,opt,name=name"`
	// Permanent MAC address.
	// +optional
	// +k8s:optional
	PermanentMAC string `json:"permanentMAC,omitempty" protobuf:"bytes,2,opt,name=permanentMAC"`
	// Driver.
	// +optional
	// +k8s:optional
	Driver string `json:"driver,omitempty" protobuf:"bytes,3,opt,name=driver"`
	// Whether a cable is connected.
	// +optional
	// +k8s:optional
	Up bool `json:"up,omitempty" protobuf:"varint,4,opt,name=up"`
}

// MachineApproval is who approved a machine, when, and for which identity.
type MachineApproval struct {
	// Authenticated user who approved.
	User string `json:"user" protobuf:"bytes,1,opt,name=user"`
	// When.
	Time metav1.Time `json:"time" protobuf:"bytes,2,opt,name=time"`
	// The identity that was approved.
	Identity MachineIdentity `json:"identity" protobuf:"bytes,3,opt,name=identity"`
	// The fingerprint that was accepted, if one was.
	// +optional
	// +k8s:optional
	Fingerprint string `json:"fingerprint,omitempty" protobuf:"bytes,4,opt,name=fingerprint"`
	// Whether sending without a verified fingerprint was accepted.
	// +optional
	// +k8s:optional
	UnverifiedFingerprint bool `json:"unverifiedFingerprint,omitempty" protobuf:"varint,5,opt,name=unverifiedFingerprint"`
	// The role that was approved.
	// +optional
	// +k8s:optional
	Role MachineRole `json:"role,omitempty" protobuf:"bytes,6,opt,name=role,casttype=MachineRole"`
	// The disk, of those that the machine had reported, that spec.install meant
	// when it was approved: Talos is installed on no other. Absent when the
	// machine had reported none that it could mean.
	// +optional
	// +k8s:optional
	InstallDisk *MachineDisk `json:"installDisk,omitempty" protobuf:"bytes,7,opt,name=installDisk"`
	// Whether it was accepted that the machine shares a serial number or a MAC
	// address with another.
	// +optional
	// +k8s:optional
	SharedHardware bool `json:"sharedHardware,omitempty" protobuf:"varint,8,opt,name=sharedHardware"`
}

// MachineConfiguration is the sending of a configuration.
type MachineConfiguration struct {
	// SHA-256 of the configuration.
	// +optional
	// +k8s:optional
	Hash string `json:"hash,omitempty" protobuf:"bytes,1,opt,name=hash"`
	// Address that it is sent to.
	// +optional
	// +k8s:optional
	Endpoint string `json:"endpoint,omitempty" protobuf:"bytes,2,opt,name=endpoint"`
	// When the intent to send was recorded.
	// +optional
	// +k8s:optional
	IntendedAt *metav1.Time `json:"intendedAt,omitempty" protobuf:"bytes,3,opt,name=intendedAt"`
	// When the machine accepted it; absent until then.
	// +optional
	// +k8s:optional
	AppliedAt *metav1.Time `json:"appliedAt,omitempty" protobuf:"bytes,4,opt,name=appliedAt"`
	// SHA-256 of the secrets bundle that it was made with.
	// +optional
	// +k8s:optional
	BundleHash string `json:"bundleHash,omitempty" protobuf:"bytes,5,opt,name=bundleHash"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// RebootRequest asks for a TalosMachine to be rebooted into the configuration
// that waits for it. It is posted to talosmachines/reboot and not stored; the
// machine's status.reboot tells how it goes.
type RebootRequest struct {
	metav1.TypeMeta `json:",inline"`
	// Object metadata; a name, if given, is that of the machine.
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// What is asked for.
	Spec RebootRequestSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`
	// What came of the request.
	Status RebootRequestStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// RebootRequestSpec is what is asked for.
type RebootRequestSpec struct {
	// SHA-256 of the configuration to reboot into, as status.update.hash of the
	// machine tells it; by default whatever waits.
	// +optional
	// +k8s:optional
	// +k8s:maxLength=64
	Hash string `json:"hash,omitempty" protobuf:"bytes,1,opt,name=hash"`
}

// RebootRequestStatus is what came of a request for a reboot.
type RebootRequestStatus struct {
	// When the reboot was asked for.
	// +optional
	// +k8s:optional
	RequestedAt *metav1.Time `json:"requestedAt,omitempty" protobuf:"bytes,1,opt,name=requestedAt"`
	// SHA-256 of the configuration that the machine will reboot into.
	// +optional
	// +k8s:optional
	Hash string `json:"hash,omitempty" protobuf:"bytes,2,opt,name=hash"`
}
