package iomodule

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hosted"
	"github.com/fieldplane/fieldplane/pkg/controllers/networkprobe"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// facts are what the evidence of a module that a probe measures is taken from.
type facts struct {
	uid types.UID
	// connectionSince is the first generation that has the connection settings of today.
	connectionSince int64

	// listed: a probe's ConfigMap lists the module. tooLarge: none can.
	listed, tooLarge bool
	pod              podFacts
	// nodeLost is why the pod's node counts as lost, "" if it does not.
	nodeLost string
	// heard is how the stream of the probe's pod is doing.
	heard hearing
	// entry is what the probe says of the module; nil if nothing.
	entry *api.ModuleState
	// carried: the status has a verdict that the same pod gave to the server before this one.
	carried bool
}

// podFacts are what counts of a probe's pod; the zero value is no pod.
type podFacts struct {
	uid     types.UID
	address string
	// node is where it runs, "" before it is placed.
	node          string
	running       bool
	unschedulable bool
	// ended is true of a pod whose processes do not start again; evicted, if its node ended them.
	ended, evicted bool
	created        time.Time
}

// hearing is how a probe's stream is doing.
type hearing int

const (
	// awaiting: nothing was heard yet, and not for long.
	awaiting hearing = iota
	// hearsIt: the probe talks, or did so less than three heartbeats ago.
	hearsIt
	// silent: nothing was heard for three heartbeats.
	silent
	// distrusted: so it is, and a certificate was refused meanwhile.
	distrusted
)

// weigh takes the evidence from the facts. What is nearer to the device counts only if everything before it is in order.
//
// The config takes a moment from a module's spec to the probe. In that time the probe's verdict is of the generation before:
// it stays if the connection settings are the same, since the same device was measured; otherwise it says nothing of the
// device that the module names now.
func weigh(f facts) evidence {
	switch {
	case f.tooLarge:
		return tooLarge
	case !f.listed:
		return notListed
	case f.pod.uid == "":
		return probeAbsent
	case f.pod.unschedulable:
		return probeUnschedulable
	case f.pod.evicted:
		return probeEvicted
	case f.pod.ended:
		return probeEnded
	case f.pod.running && f.heard == awaiting && f.carried:
		return carriedOver
	case f.nodeLost != "" && (!f.pod.running || f.heard != hearsIt):
		return probeNodeLost
	case !f.pod.running || f.heard == awaiting:
		return probeStarting
	case f.heard == silent:
		return probeSilent
	case f.heard == distrusted:
		return probeDistrusted
	case f.entry == nil || f.entry.UID != string(f.uid) || f.entry.Generation < f.connectionSince:
		return notLoaded
	case !f.entry.Found:
		return notMeasured
	case f.entry.Stale:
		return stale
	case f.entry.Connected:
		return connected
	default:
		return disconnected
	}
}

// carries tells whether a module's status holds a verdict of this probe on the device that the module names.
func carries(module *v1alpha1.IOModule, probe string, connectionSince int64) bool {
	s := module.Status
	return s.ProbePodName == probe && s.ObservedGeneration >= connectionSince &&
		(s.State == v1alpha1.ModuleOnline || s.State == v1alpha1.ModuleFault)
}

// assessProbed judges a network module by the probe of its Controller, or by the shared one if controller is nil (P-04, P-06).
// keep is true when its status should stay as it is: a new server gives each probe three heartbeats to repeat its verdicts,
// lest every restart make the whole plant Unknown.
func (c *Controller) assessProbed(module *v1alpha1.IOModule, controller *v1alpha1.Controller) (v verdict, keep bool, err error) {
	owner := ""
	if controller != nil {
		owner = controller.Name
	}
	f := facts{uid: module.UID, connectionSince: c.connections.since(module)}
	var probe types.NamespacedName
	if probe, f.listed = c.assignments.probeOf(keyOf(module), owner); f.listed {
		if f.pod, err = c.podOf(probe); err != nil {
			return verdict{}, false, err
		}
		if controller != nil && f.pod.node != "" && f.pod.node != networkprobe.NodeOf(controller) {
			// The Controller has become another node, and its probe is not there yet.
			f.pod = podFacts{}
		}
		if f.nodeLost, err = c.lostNode(f.pod.node); err != nil {
			return verdict{}, false, err
		}
		f.heard, f.entry = c.streams.look(probe, f.pod.uid, module.Name)
		f.carried = f.pod.created.Before(c.started()) && carries(module, probe.Name, f.connectionSince)
	}
	if !f.listed {
		_, fits := networkprobe.Fits(module)
		f.tooLarge = !fits
	}
	e := weigh(f)
	if e == carriedOver {
		return verdict{}, true, nil
	}
	v = conclude(e, f.entry)
	v.observedGeneration = module.Generation
	v.otherDevice = e == notLoaded && f.entry != nil
	v.confirmed = e == connected
	if f.pod.uid != "" {
		v.probePod = probe.Name
	}
	if (e == connected || e == disconnected || e == notMeasured) && f.entry.Generation < module.Generation {
		v.observedGeneration = f.entry.Generation
	}
	if v.message == "" {
		v.message = c.explain(e, f, module, controller, probe)
	}
	return v, false, nil
}

// explain says in a sentence what no probe could say.
func (c *Controller) explain(e evidence, f facts, module *v1alpha1.IOModule, controller *v1alpha1.Controller, probe types.NamespacedName) string {
	switch e {
	case notListed:
		return "no probe's configuration lists the module yet"
	case tooLarge:
		size, _ := networkprobe.Fits(module)
		return fmt.Sprintf("the specification takes %d bytes of a probe's configuration, which holds %d", size, networkprobe.MaxConfigBytes)
	case probeAbsent:
		if problem := c.assignments.problemOf(probe); problem != "" {
			return problem
		}
		if controller != nil {
			return fmt.Sprintf("probe %s has no pod on node %s yet", probe.Name, networkprobe.NodeOf(controller))
		}
		return fmt.Sprintf("probe %s has no pod yet", probe.Name)
	case probeUnschedulable:
		if controller != nil {
			return fmt.Sprintf("node %s does not take probe %s", networkprobe.NodeOf(controller), probe.Name)
		}
		if placement := module.Spec.ProbePlacement; placement != nil && len(placement.NodeSelector) > 0 {
			return fmt.Sprintf("no node with %s takes probe %s", labels.Set(placement.NodeSelector), probe.Name)
		}
		return fmt.Sprintf("no node takes probe %s", probe.Name)
	case probeStarting:
		return fmt.Sprintf("probe %s is starting", probe.Name)
	case probeSilent:
		return fmt.Sprintf("probe %s does not answer", probe.Name)
	case probeEvicted:
		return fmt.Sprintf("probe %s was evicted by node %s, and is made anew", probe.Name, f.pod.node)
	case probeEnded:
		return fmt.Sprintf("probe %s has ended, and is made anew", probe.Name)
	case probeDistrusted:
		return fmt.Sprintf("probe %s and this server do not take each other's certificates", probe.Name)
	case probeNodeLost:
		return fmt.Sprintf("%s, and probe %s with it", f.nodeLost, probe.Name)
	case notLoaded:
		return fmt.Sprintf("probe %s has not loaded the module's configuration yet", probe.Name)
	case notMeasured:
		return "no full threshold of checks has given a verdict yet"
	case stale:
		return fmt.Sprintf("probe %s has not measured the module for more than three periods", probe.Name)
	case connected:
		return "the device answers"
	case disconnected:
		return "the device does not answer"
	default:
		return ""
	}
}

// lostNode says why a node counts as lost. One that is not known is not: it may have just joined.
func (c *Controller) lostNode(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	node, err := c.nodes.Get(name)
	if err != nil {
		return "", ignoreNotFound(err)
	}
	return hosted.HealthOf(node).Why, nil
}

func (c *Controller) podOf(probe types.NamespacedName) (podFacts, error) {
	pod, err := c.pods.Pods(probe.Namespace).Get(probe.Name)
	if err != nil {
		return podFacts{}, ignoreNotFound(err)
	}
	return factsOfPod(pod), nil
}

// reasonEvicted is the reason that a kubelet gives in the status of a pod that it ended to have room.
const reasonEvicted = "Evicted"

// factsOfPod sees no pod in one that is not ours, whatever its name.
func factsOfPod(pod *corev1.Pod) podFacts {
	if pod == nil || !probepod.IsProbe(pod) {
		return podFacts{}
	}
	f := podFacts{
		uid:     pod.UID,
		address: pod.Status.PodIP,
		node:    pod.Spec.NodeName,
		running: pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "",
		created: pod.CreationTimestamp.Time,
	}
	f.ended = pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	f.evicted = f.ended && pod.Status.Reason == reasonEvicted
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled {
			f.unschedulable = condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable
		}
	}
	return f
}

// assignedBy is what a ConfigMap says, if it is a probe's.
func assignedBy(configMap *corev1.ConfigMap) assigned {
	is := assigned{
		controller: networkprobe.ControllerOf(configMap),
		modules:    networkprobe.ListedModules(configMap),
		problem:    configMap.Annotations[networkprobe.ProblemAnnotation],
	}
	if probepod.IsOurs(configMap, probepod.Network) || is.controller != "" {
		return is
	}
	return assigned{}
}
