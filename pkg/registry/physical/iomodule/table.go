package iomodule

import (
	"strconv"

	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

type table = object.Table[*physical.IOModule]

// newTable returns what kubectl get shows of IOModules.
func newTable(clock clock.PassiveClock) table {
	table := table{Clock: clock}
	table.Columns = []object.Column[*physical.IOModule]{
		{Name: "Protocol", Description: "How the device is spoken to.", Cell: func(m *physical.IOModule) any { return string(m.Spec.Protocol) }},
		{Name: "Endpoint", Description: "Where the device is.", Cell: func(m *physical.IOModule) any { return endpoint(m) }},
		{Name: "State", Description: "Online, Fault, Offline or Unknown.", Cell: func(m *physical.IOModule) any { return string(m.Status.State) }},
		{Name: "Reason", Description: "Why it is in this state.", Cell: func(m *physical.IOModule) any { return m.Status.Reason }},
		{Name: "Since", Description: "Time since the last change of state.", Cell: func(m *physical.IOModule) any { return since(table, m) }},
		{Name: "Controller", Description: "Controller that the module is bound to.", Wide: true, Cell: func(m *physical.IOModule) any { return controllerName(m) }},
		{Name: "Health", Description: "NAMUR NE 107 status signal.", Wide: true, Cell: func(m *physical.IOModule) any { return string(m.Status.Health) }},
		{Name: "Channels", Description: "Number of channels.", Wide: true, Cell: func(m *physical.IOModule) any { return channels(m) }},
		{Name: "Probe", Description: "Pod that measures the module.", Wide: true, Cell: func(m *physical.IOModule) any { return m.Status.ProbePodName }},
		{Name: "Message", Description: "Why, in a sentence.", Wide: true, Cell: func(m *physical.IOModule) any { return m.Status.Message }},
	}
	return table
}

func endpoint(m *physical.IOModule) string {
	switch {
	case m.Spec.Modbus != nil:
		return m.Spec.Modbus.Endpoint
	case m.Spec.OPCUA != nil:
		return m.Spec.OPCUA.Endpoint
	case m.Spec.Ethernetip != nil:
		return m.Spec.Ethernetip.Endpoint
	}
	return ""
}

func channels(m *physical.IOModule) string {
	if m.Status.ChannelCount == nil {
		return ""
	}
	return strconv.Itoa(int(*m.Status.ChannelCount))
}

func since(table table, m *physical.IOModule) string {
	if m.Status.LastTransitionTime == nil {
		return ""
	}
	return table.Since(*m.Status.LastTransitionTime)
}
