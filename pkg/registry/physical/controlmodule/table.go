package controlmodule

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

type table = object.Table[*physical.ControlModule]

// newTable returns what kubectl get shows of ControlModules.
func newTable(clock clock.PassiveClock) table {
	table := table{Clock: clock}
	table.Columns = []object.Column[*physical.ControlModule]{
		{Name: "Unit", Description: "Unit that the module belongs to.", Cell: func(m *physical.ControlModule) any { return m.Spec.UnitRef.Name }},
		{Name: "Tags", Description: "Number of tags.", Type: "integer", Cell: func(m *physical.ControlModule) any { return int64(len(m.Spec.Tags)) }},
		{Name: "References", Description: "Resolved, or what the module refers to in vain.", Cell: func(m *physical.ControlModule) any { return references(m).Reason }},
		{Name: "Message", Description: "Why, in a sentence.", Wide: true, Cell: func(m *physical.ControlModule) any { return references(m).Message }},
	}
	return table
}

// references is the condition ReferencesResolved, the zero one before it is told (P-14).
func references(m *physical.ControlModule) metav1.Condition {
	if c := meta.FindStatusCondition(m.Status.Conditions, "ReferencesResolved"); c != nil {
		return *c
	}
	return metav1.Condition{}
}
