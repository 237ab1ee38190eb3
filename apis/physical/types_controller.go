package physical

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// Controller is a compute node that joins the cluster to run control and I/O
// beside the process. It is not a source of tags, and a remote device is not one.
type Controller struct {
	metav1.TypeMeta
	// Standard object metadata.
	metav1.ObjectMeta

	// Which node this Controller is.
	Spec ControllerSpec
	// What is known of the node.
	Status ControllerStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ControllerList is a list of Controllers.
type ControllerList struct {
	metav1.TypeMeta
	// Standard list metadata.
	metav1.ListMeta

	// The Controllers.
	Items []Controller
}

// HeartbeatMode says who keeps a simulation Controller alive.
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
	NodeName string
	// TalosMachine whose Node this Controller is: the chain from bare metal. The
	// Node is found by the machine's SMBIOS UUID.
	MachineRef *MachineReference
	// Marks a Controller without a node, whose heartbeat is its liveness.
	Simulation bool
	// Who keeps a simulation Controller alive: Managed (default; the server),
	// External (a simulator patches status.lastAlive) or Suspended (nobody, for drills).
	Heartbeat HeartbeatMode
}

// MachineReference names a TalosMachine in the same namespace.
type MachineReference struct {
	// Name of the TalosMachine, its UUID.
	Name string
}

// ControllerPhase is where a Controller stands.
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
	ObservedGeneration int64
	// AwaitingNode, Ready, NotReady or Simulated.
	Phase ControllerPhase
	// When a simulation Controller last gave a sign of life; written at most
	// every 10 seconds.
	LastAlive *metav1.Time
	// Name of the Node that this Controller is.
	NodeName string
	// Conditions: Ready.
	Conditions []metav1.Condition
}
