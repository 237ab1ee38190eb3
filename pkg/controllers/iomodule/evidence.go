// Package iomodule keeps the state of every IOModule: of network modules from the probes of their namespace or of their
// Controller, of simulated ones from their Controller's heartbeat (P-04 to P-07).
//
// Data goes assignment (which probe lists the module) → stream (what that probe says) → evidence → verdict → status.
//
// RBAC: iomodules get, list, watch and iomodules/status update; controllers get, list, watch; in the host cluster pods
// and configmaps get, list, watch.
package iomodule

import (
	"regexp"
	"strings"
	"unicode"

	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// evidence is what is known about a module's connectivity, in one word.
type evidence int

const (
	// notListed: no probe's configuration lists the module yet.
	notListed evidence = iota
	// tooLarge: none ever will.
	tooLarge
	// probeAbsent: the probe has no pod.
	probeAbsent
	// probeUnschedulable: no node takes the probe's pod.
	probeUnschedulable
	// probeEvicted, probeEnded: the probe's pod has ended, and is about to be made anew.
	probeEvicted
	probeEnded
	// probeStarting: the probe's pod is there and has said nothing yet.
	probeStarting
	// carriedOver: the probe has said nothing yet to this server, and had given a verdict to the one before.
	carriedOver
	// probeSilent: the probe has stopped to answer, or never began.
	probeSilent
	// probeDistrusted: the probe, or this server, is not taken for what it is.
	probeDistrusted
	// probeNodeLost: the probe does not answer, and neither does its node.
	probeNodeLost
	// notLoaded: the probe does not know the module, or knows a former one: other connection settings, or another object
	// of the same name.
	notLoaded
	// notMeasured: the probe has no verdict of a full threshold.
	notMeasured
	// stale: the last measurement is older than three periods.
	stale
	// connected and disconnected are the probe's verdicts.
	connected
	disconnected

	// controllerNotFound: the Controller that the module names is absent.
	controllerNotFound
	// controllerAwaitingNode, controllerNotReady: the Controller has no node, or one that is not ready.
	controllerAwaitingNode
	controllerNotReady
	// controllerUnprobed: the Controller is a simulation, where no probe can run.
	controllerUnprobed
	// controllerReady: the Controller's probe has to say.
	controllerReady
	// heartNeverBeat, heartAwaited, heartBeats, heartStopped: the simulation Controller's status.lastAlive, which is absent,
	// too old since a moment before this server listened, young, or too old.
	heartNeverBeat
	heartAwaited
	heartBeats
	heartStopped

	evidences
)

// The reasons in status.reason that no driver gives.
const (
	ReasonConfigNotPropagated = "ConfigNotPropagated"
	ReasonNotMeasured         = "NotMeasured"
	ReasonProbePending        = "ProbePending"
	ReasonProbeUnschedulable  = "ProbeUnschedulable"
	ReasonProbeUnavailable    = "ProbeUnavailable"
	ReasonProbeEvicted        = "ProbeEvicted"
	ReasonProbeEnded          = "ProbeEnded"
	ReasonProbeDistrusted     = "ProbeDistrusted"
	ReasonProbeNodeLost       = "ProbeNodeLost"
	ReasonNotConnected        = "NotConnected"
	ReasonControllerNotFound  = "ControllerNotFound"
	ReasonAwaitingNode        = "AwaitingNode"
	ReasonControllerNotReady  = "ControllerNotReady"
	ReasonControllerAlive     = "ControllerAlive"
	ReasonControllerSilent    = "ControllerSilent"
	ReasonNeverSeen           = "NeverSeen"
)

// consequence is what evidence says of a module. A reason in it stands unless the probe gives a better one.
type consequence struct {
	state  v1alpha1.ModuleState
	reason string
	health v1alpha1.ModuleHealth
	// fromProbe: reason, message and health are the probe's, if it gives any.
	fromProbe bool
}

// consequences is the whole mapping (P-05 to P-07): Online and Fault are measured and Offline is determined; everything
// else is Unknown, which has no health. carriedOver has no consequence: the status stays as it is. Neither has
// controllerReady, which is not the last word.
var consequences = [evidences]consequence{
	notListed:          {state: v1alpha1.ModuleUnknown, reason: ReasonConfigNotPropagated},
	tooLarge:           {state: v1alpha1.ModuleUnknown, reason: string(driver.ReasonConfigurationError)},
	probeAbsent:        {state: v1alpha1.ModuleUnknown, reason: ReasonProbePending},
	probeUnschedulable: {state: v1alpha1.ModuleUnknown, reason: ReasonProbeUnschedulable},
	probeStarting:      {state: v1alpha1.ModuleUnknown, reason: ReasonProbePending},
	probeSilent:        {state: v1alpha1.ModuleUnknown, reason: ReasonProbeUnavailable},
	probeEvicted:       {state: v1alpha1.ModuleUnknown, reason: ReasonProbeEvicted},
	probeEnded:         {state: v1alpha1.ModuleUnknown, reason: ReasonProbeEnded},
	probeDistrusted:    {state: v1alpha1.ModuleUnknown, reason: ReasonProbeDistrusted},
	probeNodeLost:      {state: v1alpha1.ModuleUnknown, reason: ReasonProbeNodeLost},
	notLoaded:          {state: v1alpha1.ModuleUnknown, reason: ReasonConfigNotPropagated},
	notMeasured:        {state: v1alpha1.ModuleUnknown, reason: ReasonNotMeasured, fromProbe: true},
	stale:              {state: v1alpha1.ModuleUnknown, reason: ReasonProbeUnavailable},
	connected:          {state: v1alpha1.ModuleOnline, reason: api.ReasonConnected, health: v1alpha1.HealthNormal, fromProbe: true},
	disconnected:       {state: v1alpha1.ModuleFault, reason: ReasonNotConnected, health: v1alpha1.HealthFailure, fromProbe: true},

	controllerNotFound:     {state: v1alpha1.ModuleUnknown, reason: ReasonControllerNotFound},
	controllerAwaitingNode: {state: v1alpha1.ModuleUnknown, reason: ReasonAwaitingNode},
	controllerNotReady:     {state: v1alpha1.ModuleUnknown, reason: ReasonControllerNotReady},
	controllerUnprobed:     {state: v1alpha1.ModuleUnknown, reason: ReasonProbeUnavailable},
	heartAwaited:           {state: v1alpha1.ModuleUnknown, reason: ReasonNeverSeen},
	heartNeverBeat:         {state: v1alpha1.ModuleUnknown, reason: ReasonNeverSeen},
	heartBeats:             {state: v1alpha1.ModuleOnline, reason: ReasonControllerAlive, health: v1alpha1.HealthNormal},
	heartStopped:           {state: v1alpha1.ModuleOffline, reason: ReasonControllerSilent, health: v1alpha1.HealthFailure},
}

// probeReason is the probe's reason as the API has it: otherwise, if it gives none of the form that conditions want.
func probeReason(entry *api.ModuleState, otherwise string) string {
	if !entry.Found && entry.Reason == api.ReasonMeasuring || !reasonPattern.MatchString(entry.Reason) {
		return otherwise
	}
	return entry.Reason
}

// reasonPattern is what the reason of a metav1.Condition must match. One bad reason would stop every write of the status.
var reasonPattern = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?$`)

// probeMessage keeps a message within what a status should carry.
func probeMessage(entry *api.ModuleState) string {
	const limit = 1024
	message := entry.Message
	if len(message) > limit {
		message = message[:limit] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, message)
}

// probeIdentity keeps a nameplate within what a status should carry: printable, and as long as a driver makes it at most.
func probeIdentity(i *driver.Identity) *v1alpha1.DeviceIdentity {
	if i == nil {
		return nil
	}
	text := func(raw string) string {
		const limit = 128
		kept := 0
		return strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) || r == unicode.ReplacementChar || kept == limit {
				return -1
			}
			kept++
			return r
		}, raw)
	}
	return &v1alpha1.DeviceIdentity{Vendor: text(i.Vendor), Product: text(i.Product), Serial: text(i.Serial), Revision: text(i.Revision)}
}

// probeChannels is how many channels the probe found, within what a probe lists; nil before it looked.
func probeChannels(c api.ChannelSummary) *int32 {
	if c.Revision == "" {
		return nil
	}
	return ptr.To(int32(min(max(c.Count, 0), driver.MaxChannels)))
}

// health is the probe's NE 107 signal, if it is one.
func health(signal driver.Health, otherwise v1alpha1.ModuleHealth) v1alpha1.ModuleHealth {
	switch h := v1alpha1.ModuleHealth(signal); h {
	case v1alpha1.HealthNormal, v1alpha1.HealthFailure, v1alpha1.HealthFunctionCheck,
		v1alpha1.HealthOutOfSpecification, v1alpha1.HealthMaintenanceRequired:
		return h
	default:
		return otherwise
	}
}
