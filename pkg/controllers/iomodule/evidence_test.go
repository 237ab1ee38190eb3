package iomodule

import (
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// Req: P-05, P-06, P-07
func TestWhatEachEvidenceSaysOfAModule(t *testing.T) {
	const (
		unknown = v1alpha1.ModuleUnknown
		online  = v1alpha1.ModuleOnline
		fault   = v1alpha1.ModuleFault
		offline = v1alpha1.ModuleOffline
	)
	found := func(connected bool, reason string, health driver.Health) *api.ModuleState {
		return &api.ModuleState{Found: true, Connected: connected, Reason: reason, Health: health, Message: "as the probe says"}
	}
	// The one keeps the status, the other is not the last word: they conclude nothing.
	covered := map[evidence]bool{carriedOver: true, controllerReady: true}
	for _, tc := range []struct {
		name     string
		evidence evidence
		entry    *api.ModuleState
		state    v1alpha1.ModuleState
		reason   string
		health   v1alpha1.ModuleHealth
		ready    metav1.ConditionStatus
	}{
		{"not listed", notListed, nil, unknown, "ConfigNotPropagated", "", metav1.ConditionUnknown},
		{"too large to be listed", tooLarge, nil, unknown, "ConfigurationError", "", metav1.ConditionUnknown},
		{"no pod", probeAbsent, nil, unknown, "ProbePending", "", metav1.ConditionUnknown},
		{"no node takes the pod", probeUnschedulable, nil, unknown, "ProbeUnschedulable", "", metav1.ConditionUnknown},
		{"the pod starts", probeStarting, nil, unknown, "ProbePending", "", metav1.ConditionUnknown},
		{"the probe does not answer: never Fault, never Offline", probeSilent, nil, unknown, "ProbeUnavailable", "", metav1.ConditionUnknown},
		{"the node has ended the probe", probeEvicted, nil, unknown, "ProbeEvicted", "", metav1.ConditionUnknown},
		{"the probe has ended", probeEnded, nil, unknown, "ProbeEnded", "", metav1.ConditionUnknown},
		{"a certificate is refused", probeDistrusted, nil, unknown, "ProbeDistrusted", "", metav1.ConditionUnknown},
		{"the probe's node is lost", probeNodeLost, nil, unknown, "ProbeNodeLost", "", metav1.ConditionUnknown},
		{"the probe does not know the module", notLoaded, nil, unknown, "ConfigNotPropagated", "", metav1.ConditionUnknown},
		{"no full threshold yet", notMeasured, &api.ModuleState{Reason: api.ReasonMeasuring}, unknown, "NotMeasured", "", metav1.ConditionUnknown},
		{"the module cannot be measured", notMeasured, &api.ModuleState{Reason: "ConfigurationError"}, unknown, "ConfigurationError", "", metav1.ConditionUnknown},
		{"measured too long ago", stale, found(true, "Connected", "Normal"), unknown, "ProbeUnavailable", "", metav1.ConditionUnknown},
		{"found and connected", connected, found(true, "Connected", "Normal"), online, "Connected", "Normal", metav1.ConditionTrue},
		{"found and connected, with a reason of the device", connected, found(true, "DeviceBusy", "MaintenanceRequired"), online, "DeviceBusy", "MaintenanceRequired", metav1.ConditionTrue},
		{"found and connected, by a probe that gives no more", connected, found(true, "", ""), online, "Connected", "Normal", metav1.ConditionTrue},
		{"found and not connected", disconnected, found(false, "Timeout", "Failure"), fault, "Timeout", "Failure", metav1.ConditionFalse},
		{"found and not connected, by a probe that gives no more", disconnected, found(false, "", "Normal"), fault, "NotConnected", "Failure", metav1.ConditionFalse},
		{"a reason that no condition takes", disconnected, found(false, "no route!", ""), fault, "NotConnected", "Failure", metav1.ConditionFalse},
		{"a health that is none", connected, found(true, "Connected", "Fine"), online, "Connected", "Normal", metav1.ConditionTrue},

		{"the Controller is absent", controllerNotFound, nil, unknown, "ControllerNotFound", "", metav1.ConditionUnknown},
		{"the Controller has no node", controllerAwaitingNode, nil, unknown, "AwaitingNode", "", metav1.ConditionUnknown},
		{"the Controller's node is not ready", controllerNotReady, nil, unknown, "ControllerNotReady", "", metav1.ConditionUnknown},
		{"the Controller is a simulation, where no probe runs", controllerUnprobed, nil, unknown, "ProbeUnavailable", "", metav1.ConditionUnknown},
		{"the simulation never lived", heartNeverBeat, nil, unknown, "NeverSeen", "", metav1.ConditionUnknown},
		{"the simulation was not heard since the start", heartAwaited, nil, unknown, "NeverSeen", "", metav1.ConditionUnknown},
		{"the simulation lives", heartBeats, nil, online, "ControllerAlive", "Normal", metav1.ConditionTrue},
		{"the simulation stopped", heartStopped, nil, offline, "ControllerSilent", "Failure", metav1.ConditionFalse},
	} {
		t.Run(tc.name, func(t *testing.T) {
			covered[tc.evidence] = true
			v := conclude(tc.evidence, tc.entry)
			if v.state != tc.state || v.reason != tc.reason || v.health != tc.health {
				t.Errorf("got %s, %s, health %q; want %s, %s, %q", v.state, v.reason, v.health, tc.state, tc.reason, tc.health)
			}
			if got := readiness(v.state); got != tc.ready {
				t.Errorf("Ready is %s, want %s", got, tc.ready)
			}
		})
	}
	for e := range evidences {
		if !covered[e] {
			t.Errorf("evidence %d is not tested", e)
		}
	}
}

// Every combination of facts: a state that claims something rests on everything being in order.
//
// Req: P-06, P-07
func TestEveryCombinationOfFacts(t *testing.T) {
	entries := map[string]*api.ModuleState{
		"none":               nil,
		"another object":     {UID: "other", Generation: 5, Found: true, Connected: true},
		"another device":     {UID: "u", Generation: 2, Found: true, Connected: true},
		"not found":          {UID: "u", Generation: 5},
		"stale":              {UID: "u", Generation: 5, Found: true, Connected: true, Stale: true},
		"stale fault":        {UID: "u", Generation: 5, Found: true, Stale: true},
		"connected":          {UID: "u", Generation: 5, Found: true, Connected: true},
		"disconnected":       {UID: "u", Generation: 5, Found: true},
		"connected before":   {UID: "u", Generation: 3, Found: true, Connected: true},
		"disconnected after": {UID: "u", Generation: 6, Found: true},
	}
	ofEntry := map[string]evidence{
		"none": notLoaded, "another object": notLoaded, "another device": notLoaded, "not found": notMeasured,
		"stale": stale, "stale fault": stale, "connected": connected, "disconnected": disconnected,
		"connected before": connected, "disconnected after": disconnected,
	}
	pods := map[string]podFacts{
		"none":          {},
		"unschedulable": {uid: "p", unschedulable: true},
		"pending":       {uid: "p"},
		"running":       {uid: "p", running: true, address: "192.0.2.1"},
		"evicted":       {uid: "p", ended: true, evicted: true},
		"ended":         {uid: "p", ended: true},
	}
	cells := 0
	for _, listed := range []bool{false, true} {
		for podName, pod := range pods {
			for _, heard := range []hearing{awaiting, hearsIt, silent, distrusted} {
				for entryName, entry := range entries {
					for variant := range 4 {
						carried, nodeLost := variant%2 == 1, []string{"", "node n is not ready"}[variant/2]
						cells++
						var want evidence
						switch {
						case !listed:
							want = notListed
						case podName == "none":
							want = probeAbsent
						case podName == "unschedulable":
							want = probeUnschedulable
						case podName == "evicted":
							want = probeEvicted
						case podName == "ended":
							want = probeEnded
						case podName == "pending" && nodeLost != "":
							want = probeNodeLost
						case podName == "pending":
							want = probeStarting
						case heard == awaiting && carried:
							want = carriedOver
						case heard != hearsIt && nodeLost != "":
							want = probeNodeLost
						case heard == awaiting:
							want = probeStarting
						case heard == silent:
							want = probeSilent
						case heard == distrusted:
							want = probeDistrusted
						default:
							want = ofEntry[entryName]
						}
						got := weigh(facts{uid: "u", connectionSince: 3, listed: listed, pod: pod, heard: heard, entry: entry, carried: carried, nodeLost: nodeLost})
						if got != want {
							t.Errorf("listed %t, pod %s, hearing %d, entry %s, carried %t, lost %q: evidence %d, want %d", listed, podName, heard, entryName, carried, nodeLost, got, want)
						}
					}
				}
			}
		}
	}
	if cells != 2*6*4*10*4 {
		t.Errorf("walked %d cells", cells)
	}
}

// Req: P-06
func TestALongMessageIsCut(t *testing.T) {
	v := conclude(disconnected, &api.ModuleState{Found: true, Reason: "Timeout", Message: strings.Repeat("ü", 5000)})
	if len(v.message) > 1100 || !strings.HasSuffix(v.message, "ü…") {
		t.Errorf("%d bytes, ends with %q", len(v.message), v.message[len(v.message)-5:])
	}
}

// Req: P-12 (a probe is in the hands of whoever may edit its namespace)
func TestWhatAProbeSaysIsBoundedAndPrintable(t *testing.T) {
	hostile := "\x1b[2J\u202eevil\u0000\xff\n" + strings.Repeat("ä", 1<<20)
	v := conclude(connected, &api.ModuleState{Found: true, Connected: true, Message: hostile, Reason: hostile, Health: driver.Health(hostile),
		Identity: &driver.Identity{Vendor: hostile, Product: hostile, Serial: hostile, Revision: hostile}})
	for name, text := range map[string]string{
		"message": v.message, "reason": v.reason, "health": string(v.health),
		"vendor": v.identity.Vendor, "product": v.identity.Product, "serial": v.identity.Serial, "revision": v.identity.Revision,
	} {
		if len(text) > 1100 || !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\u202e\u0000\n\ufffd") {
			t.Errorf("the %s of %d bytes begins with %.20q", name, len(text), text)
		}
	}
	if !strings.HasPrefix(v.identity.Vendor, "[2Jevil") || !strings.HasPrefix(v.message, "[2Jevil") {
		t.Errorf("what is printable is lost: %.20q, %.20q", v.identity.Vendor, v.message)
	}
}
