package unitguard

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// What is in force where a stored object says nothing (P-16, docs/design.md).
const (
	defaultUnknownHoldAfter = time.Minute
	defaultPeriod           = time.Second
	defaultTimeout          = time.Second
	defaultFailures         = 3
	defaultSuccesses        = 2
)

// disarmUnit lists what an update of a Unit does that keeps a fault from holding it, or lets it run on for longer (P-16a).
func disarmUnit(stored, updated *physical.Unit) []string {
	var fields []string
	for _, state := range stored.Spec.HoldOn {
		if !slices.Contains(updated.Spec.HoldOn, state) {
			fields = append(fields, "spec.holdOn")
			break
		}
	}
	was, is := duration(stored.Spec.UnknownHoldAfter, defaultUnknownHoldAfter), duration(updated.Spec.UnknownHoldAfter, defaultUnknownHoldAfter)
	// 0 is never.
	if was != 0 && (is == 0 || is > was) {
		fields = append(fields, "spec.unknownHoldAfter")
	}
	return fields
}

// disarmControlModule lists what an update of a ControlModule does that takes a tag from its Unit, has it read from elsewhere,
// or changes what it is set to by a hold (P-16a, P-16b).
func disarmControlModule(stored, updated *physical.ControlModule) []string {
	var fields []string
	if stored.Spec.UnitRef != updated.Spec.UnitRef {
		fields = append(fields, "spec.unitRef")
	}
	tags := make(map[string]*physical.Tag, len(updated.Spec.Tags))
	for i := range updated.Spec.Tags {
		tags[updated.Spec.Tags[i].Name] = &updated.Spec.Tags[i]
	}
	for i := range stored.Spec.Tags {
		was := &stored.Spec.Tags[i]
		path := fmt.Sprintf("spec.tags[%s]", was.Name)
		is, kept := tags[was.Name]
		if !kept {
			fields = append(fields, path)
			continue
		}
		for _, member := range []struct {
			name string
			same bool
		}{
			{"ioModuleRef", was.IOModuleRef == is.IOModuleRef},
			{"address", was.Address == is.Address},
			{"dataType", was.DataType == is.DataType},
			// One that is added arms.
			{"holdValue", was.HoldValue == nil || is.HoldValue != nil && *was.HoldValue == *is.HoldValue},
			// A hold value is in engineering units.
			{"scaling", was.HoldValue == nil || equality.Semantic.DeepEqual(was.Scaling, is.Scaling)},
		} {
			if !member.same {
				fields = append(fields, path+"."+member.name)
			}
		}
	}
	return fields
}

// disarmIOModule lists what an update of an IOModule does that makes it another device, or has a failure noticed later or
// forgiven sooner (P-16a).
func disarmIOModule(stored, updated *physical.IOModule) []string {
	was, is := &stored.Spec, &updated.Spec
	before, after := probeOf(was.Probe), probeOf(is.Probe)
	var fields []string
	for _, member := range []struct {
		name string
		fine bool
	}{
		{"spec.protocol", was.Protocol == is.Protocol},
		{"spec.controllerRef", equality.Semantic.DeepEqual(was.ControllerRef, is.ControllerRef)},
		{"spec.probePlacement", maps.Equal(placement(was), placement(is))},
		{"spec.modbus", sameModbus(was.Modbus, is.Modbus)},
		{"spec.opcua", sameOPCUA(was.OPCUA, is.OPCUA)},
		{"spec.ethernetip", sameEtherNetIP(was.Ethernetip, is.Ethernetip)},
		{"spec.probe.period", after.period <= before.period},
		{"spec.probe.timeout", after.timeout <= before.timeout},
		{"spec.probe.failureThreshold", after.failures <= before.failures},
		{"spec.probe.successThreshold", after.successes >= before.successes},
	} {
		if !member.fine {
			fields = append(fields, member.name)
		}
	}
	for _, address := range redeclared(was, is) {
		fields = append(fields, fmt.Sprintf("%s[%s]", channels, address))
	}
	return fields
}

// channels begins what is told of declared channels.
const channels = "spec.channels"

// redeclared are the addresses at which values, hold values too, would be read and written in another form: the first channel
// that is declared for an address says of which type, order and number its elements are, for tags too.
func redeclared(was, is *physical.IOModuleSpec) []string {
	before, after := declarations(was.Channels), declarations(is.Channels)
	var addresses []string
	for address, declared := range before {
		if now, still := after[address]; !still || now != declared {
			addresses = append(addresses, address)
		}
	}
	for address := range after {
		if _, already := before[address]; !already {
			addresses = append(addresses, address)
		}
	}
	slices.Sort(addresses)
	return addresses
}

type declaration struct {
	dataType  physical.DataType
	wordOrder physical.WordOrder
	count     int32
}

func declarations(channels []physical.Channel) map[string]declaration {
	first := map[string]declaration{}
	for _, c := range channels {
		if _, already := first[c.Address]; !already {
			first[c.Address] = declaration{c.DataType, c.WordOrder, ptr.Deref(c.Count, 1)}
		}
	}
	return first
}

// placement is the selector; an empty one is none (P-09).
func placement(spec *physical.IOModuleSpec) map[string]string {
	if spec.ProbePlacement == nil {
		return nil
	}
	return spec.ProbePlacement.NodeSelector
}

// How many connections a device allows, and whether one is closed after each poll, make it no other device.
func sameModbus(was, is *physical.ModbusConnection) bool {
	if was == nil || is == nil {
		return was == is
	}
	a, b := was.DeepCopy(), is.DeepCopy()
	a.MaxConnections, b.MaxConnections, a.CloseAfterPoll, b.CloseAfterPoll = nil, nil, false, false
	return equality.Semantic.DeepEqual(a, b)
}

// Which user opens a session makes it no other server; which certificates are trusted does.
func sameOPCUA(was, is *physical.OPCUAConnection) bool {
	if was == nil || is == nil {
		return was == is
	}
	a, b := was.DeepCopy(), is.DeepCopy()
	for _, c := range []*physical.OPCUAConnection{a, b} {
		c.MaxConnections, c.Identity, c.UserName, c.CredentialsKey = nil, "", "", ""
	}
	return equality.Semantic.DeepEqual(a, b)
}

func sameEtherNetIP(was, is *physical.EtherNetIPConnection) bool {
	if was == nil || is == nil {
		return was == is
	}
	a, b := was.DeepCopy(), is.DeepCopy()
	a.MaxConnections, b.MaxConnections = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}

type thresholds struct {
	period, timeout     time.Duration
	failures, successes int32
}

func probeOf(settings *physical.ProbeSettings) thresholds {
	if settings == nil {
		settings = &physical.ProbeSettings{}
	}
	return thresholds{
		period:    duration(settings.Period, defaultPeriod),
		timeout:   duration(settings.Timeout, defaultTimeout),
		failures:  ptr.Deref(settings.FailureThreshold, defaultFailures),
		successes: ptr.Deref(settings.SuccessThreshold, defaultSuccesses),
	}
}

func duration(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}
