// Package talosmachine stores TalosMachines. Four strategies share one store:
// the main resource, status, approval and endpoint, each of which writes its
// own fields and no other's. Two more subresources store nothing of their own:
// config shows, and reboot asks.
package talosmachine

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/apis/talos/validation"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

type (
	main       = object.Main[*talos.TalosMachine, talos.TalosMachineSpec, talos.TalosMachineStatus]
	statusOnly = object.StatusOnly[*talos.TalosMachine, talos.TalosMachineSpec, talos.TalosMachineStatus]
)

var versions = []string{v1alpha1.SchemeGroupVersion.String()}

func parts() object.SpecStatus[*talos.TalosMachine, talos.TalosMachineSpec, talos.TalosMachineStatus] {
	return object.SpecStatus[*talos.TalosMachine, talos.TalosMachineSpec, talos.TalosMachineStatus]{
		Spec:   func(machine *talos.TalosMachine) *talos.TalosMachineSpec { return &machine.Spec },
		Status: func(machine *talos.TalosMachine) *talos.TalosMachineStatus { return &machine.Status },
		InitialStatus: func(*talos.TalosMachine) talos.TalosMachineStatus {
			return talos.TalosMachineStatus{Phase: talos.MachinePending}
		},
		Validate:       validation.ValidateTalosMachine,
		ValidateUpdate: validation.ValidateTalosMachineUpdate,
		ValidateStatus: validation.ValidateTalosMachineStatusUpdate,
	}
}

func newMain(scheme *runtime.Scheme, clock clock.PassiveClock) main {
	return main{
		Strategy:    object.NewStrategy(scheme),
		ResetStatus: object.ResetStatus{Versions: versions},
		Of:          parts(),
		PrepareNew: func(ctx context.Context, machine *talos.TalosMachine) {
			recordApproval(ctx, clock, machine, &talos.TalosMachine{})
		},
		Prepare: func(ctx context.Context, machine, stored *talos.TalosMachine) {
			keepAbsentApproval(&machine.Spec, stored.DeepCopy().Spec)
			recordApproval(ctx, clock, machine, stored)
		},
	}
}

func newStatusOnly(scheme *runtime.Scheme) statusOnly {
	return statusOnly{
		Strategy: object.NewStrategy(scheme),
		Of:       parts(),
		// Who approved is known from the request that did, and from nothing else.
		Prepare: func(_ context.Context, machine, stored *talos.TalosMachine) {
			machine.Status.Approval = stored.Status.Approval
		},
	}
}

// partOfSpec is the strategy of a subresource that writes some fields of spec.
type partOfSpec struct {
	object.Strategy
	clock clock.PassiveClock
	// copy takes over the subresource's fields.
	copy func(to, from *talos.TalosMachineSpec)
}

func newApproval(scheme *runtime.Scheme, clock clock.PassiveClock) partOfSpec {
	return partOfSpec{Strategy: object.NewStrategy(scheme), clock: clock, copy: copyApproval}
}

func newEndpoint(scheme *runtime.Scheme, clock clock.PassiveClock) partOfSpec {
	return partOfSpec{Strategy: object.NewStrategy(scheme), clock: clock, copy: func(to, from *talos.TalosMachineSpec) {
		to.Endpoint = from.Endpoint
	}}
}

// PrepareForUpdate restores everything but the subresource's fields.
func (s partOfSpec) PrepareForUpdate(ctx context.Context, obj, old runtime.Object) {
	machine, stored := obj.(*talos.TalosMachine), old.(*talos.TalosMachine)
	object.KeepMetadata(machine, stored)
	kept := stored.DeepCopy()
	spec := machine.Spec
	machine.Spec, machine.Status = kept.Spec, kept.Status
	s.copy(&machine.Spec, &spec)
	recordApproval(ctx, s.clock, machine, stored)
	object.NextGeneration(machine, stored, machine.Spec, stored.Spec)
}

// ValidateUpdate applies the rules of the whole machine.
func (partOfSpec) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateTalosMachineUpdate(obj.(*talos.TalosMachine), old.(*talos.TalosMachine))
}

// approvalFields are the members of spec that the approval subresource carries (T-13).
func approvalFields() [][]any {
	names := []string{
		"approved", "rejected", "role", "nodeLabels", "nodeTaints", "install", "diskRoles", "network",
		"acceptedFingerprint", "acceptUnverifiedFingerprint", "acceptSharedHardware",
	}
	paths := make([][]any, len(names))
	for i, name := range names {
		paths[i] = []any{"spec", name}
	}
	return paths
}

// copyApproval takes over the approval set, whether a member is set or not.
func copyApproval(to, from *talos.TalosMachineSpec) {
	to.Approved = from.Approved
	to.Rejected = from.Rejected
	to.Role = from.Role
	to.NodeLabels = from.NodeLabels
	to.NodeTaints = from.NodeTaints
	to.Install = from.Install
	to.DiskRoles = from.DiskRoles
	to.Network = from.Network
	to.AcceptedFingerprint = from.AcceptedFingerprint
	to.AcceptUnverifiedFingerprint = from.AcceptUnverifiedFingerprint
	to.AcceptSharedHardware = from.AcceptSharedHardware
}

// keepAbsentApproval keeps each stored member of the approval set that a write
// of the main resource leaves out, so that a manifest which does not speak of
// approval never takes it back (T-13).
func keepAbsentApproval(spec *talos.TalosMachineSpec, stored talos.TalosMachineSpec) {
	if spec.Approved == nil {
		spec.Approved = stored.Approved
	}
	if spec.Rejected == nil {
		spec.Rejected = stored.Rejected
	}
	if spec.Role == "" {
		spec.Role = stored.Role
	}
	if spec.NodeLabels == nil {
		spec.NodeLabels = stored.NodeLabels
	}
	if spec.NodeTaints == nil {
		spec.NodeTaints = stored.NodeTaints
	}
	if spec.Install == nil {
		spec.Install = stored.Install
	}
	if spec.DiskRoles == nil {
		spec.DiskRoles = stored.DiskRoles
	}
	if spec.Network == nil {
		spec.Network = stored.Network
	}
	if spec.AcceptedFingerprint == "" {
		spec.AcceptedFingerprint = stored.AcceptedFingerprint
	}
	spec.AcceptUnverifiedFingerprint = spec.AcceptUnverifiedFingerprint || stored.AcceptUnverifiedFingerprint
	spec.AcceptSharedHardware = spec.AcceptSharedHardware || stored.AcceptSharedHardware
}

// attributes returns the labels and selectable fields of a TalosMachine.
func attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	machine, ok := obj.(*talos.TalosMachine)
	if !ok {
		return nil, nil, fmt.Errorf("not a TalosMachine: %T", obj)
	}
	return machine.Labels, generic.AddObjectMetaFieldsSet(fields.Set{
		v1alpha1.MachineClusterRefField: machine.Spec.ClusterRef.Name,
		v1alpha1.MachineApprovedField:   strconv.FormatBool(talos.IsApproved(machine)),
		v1alpha1.MachineRoleField:       string(machine.Spec.Role),
		v1alpha1.MachinePhaseField:      string(machine.Status.Phase),
	}, &machine.ObjectMeta, true), nil
}
