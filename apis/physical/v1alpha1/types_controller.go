package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +k8s:supportsSubresource="/status"

// Controller is a compute node that joins the cluster to run control and I/O
// beside the process. It is not a source of tags, and a remote device is not one.
type Controller struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// Which node this Controller is.
	Spec ControllerSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`
	// What is known of the node.
	Status ControllerStatus `json:"status,omitempty" protobuf:"bytes,3,opt,name=status"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControllerList is a list of Controllers.
type ControllerList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// The Controllers.
	Items []Controller `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// HeartbeatMode says who keeps a simulation Controller alive.
// +enum
// +k8s:enum
type HeartbeatMode string

const (
	// HeartbeatManaged lets the server beat.
	HeartbeatManaged HeartbeatMode = "Managed"
	// HeartbeatExternal leaves it to a simulator that patches status.lastAlive.
	HeartbeatExternal HeartbeatMode = "External"
	// HeartbeatSuspended stops the heart, for drills.
	HeartbeatSuspended HeartbeatMode = "Suspended"
)

// ControllerSpec says which node the Controller is.
type ControllerSpec struct {
	// Name of the Node. At most one of nodeName, machineRef and simulation is set.
	// +optional
	// +k8s:optional
	// +k8s:format=k8s-long-name
	NodeName string `json:"nodeName,omitempty" protobuf:"bytes,1,opt,name=nodeName"`
	// TalosMachine whose Node this Controller is: the chain from bare metal. The
	// Node is found by the machine's SMBIOS UUID.
	// +optional
	// +k8s:optional
	MachineRef *MachineReference `json:"machineRef,omitempty" protobuf:"bytes,2,opt,name=machineRef"`
	// Marks a Controller without a node, whose heartbeat is its liveness.
	// +optional
	// +k8s:optional
	Simulation bool `json:"simulation,omitempty" protobuf:"varint,3,opt,name=simulation"`
	// Who keeps a simulation Controller alive: Managed (default; the server),
	// External (a simulator patches status.lastAlive) or Suspended (nobody, for drills).
	// +optional
	// +k8s:optional
	Heartbeat HeartbeatMode `json:"heartbeat,omitempty" protobuf:"bytes,4,opt,name=heartbeat,casttype=HeartbeatMode"`
}

// MachineReference names a TalosMachine in the same namespace.
type MachineReference struct {
	// Name of the TalosMachine, its UUID.
	// +k8s:required
	// +k8s:format=k8s-long-name
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`
}

// ControllerPhase is where a Controller stands.
// +enum
// +k8s:enum
type ControllerPhase string

const (
	// ControllerAwaitingNode has no Node yet.
	ControllerAwaitingNode ControllerPhase = "AwaitingNode"
	// ControllerReady has a Node that is Ready.
	ControllerReady ControllerPhase = "Ready"
	// ControllerNotReady has a Node that is not Ready.
	ControllerNotReady ControllerPhase = "NotReady"
	// ControllerSimulated has no node and needs none.
	ControllerSimulated ControllerPhase = "Simulated"
)

// ControllerStatus is what is known of the node.
type ControllerStatus struct {
	// Generation of the spec that this status speaks of.
	// +optional
	// +k8s:optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty" protobuf:"varint,1,opt,name=observedGeneration"`
	// AwaitingNode, Ready, NotReady or Simulated.
	// +optional
	// +k8s:optional
	Phase ControllerPhase `json:"phase,omitempty" protobuf:"bytes,2,opt,name=phase,casttype=ControllerPhase"`
	// When a simulation Controller last gave a sign of life; written at most
	// every 10 seconds.
	// +optional
	// +k8s:optional
	LastAlive *metav1.Time `json:"lastAlive,omitempty" protobuf:"bytes,3,opt,name=lastAlive"`
	// Name of the Node that this Controller is.
	// +optional
	// +k8s:optional
	NodeName string `json:"nodeName,omitempty" protobuf:"bytes,4,opt,name=nodeName"`
	// Conditions: Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +k8s:optional
	// +k8s:listType=map
	// +k8s:listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" protobuf:"bytes,5,rep,name=conditions"`
}
