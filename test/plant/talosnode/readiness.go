package talosnode

import (
	"encoding/base32"
	"hash/fnv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// Readiness is what a running machine says of itself.
type Readiness struct {
	Ready bool
	// Unmet are the conditions that keep it from being ready.
	Unmet []Unmet
}

// Unmet is an unmet condition, and why it is.
type Unmet struct {
	Name   string
	Reason string
}

// SetReadiness makes the machine say this of itself whenever it runs; nil has it tell the truth again: it is ready as
// soon as its cluster has an etcd, and Kubernetes with it.
func (n *Node) SetReadiness(readiness *Readiness) error {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.readiness = readiness

	return n.rebuildStateLocked()
}

// MachineStage is the stage that the machine's status tells: a control plane is "booting" until it is a member of an
// etcd, as its boot ends with the start of its services.
func (n *Node) MachineStage() string {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.stage != StageMaintenance && n.stage != StageRunning {
		return string(n.stage)
	}

	return n.machineStatusLocked().Stage.String()
}

func (n *Node) machineStatusLocked() runtime.MachineStatusSpec {
	out := runtime.MachineStatusSpec{Stage: runtime.MachineStageMaintenance}

	unmet := func(name, reason string) {
		out.Status.UnmetConditions = append(out.Status.UnmetConditions, runtime.UnmetCondition{Name: name, Reason: reason})
	}

	if n.stage == StageMaintenance || n.fault == FaultTakeover || n.active.Provider == nil {
		return out
	}

	out.Stage = runtime.MachineStageRunning

	waitsForEtcd := n.active.Machine().Type().IsControlPlane() && !n.options.Trustd.isMember(n)
	if !n.booted || waitsForEtcd {
		out.Stage = runtime.MachineStageBooting
	}

	if n.readiness != nil && out.Stage == runtime.MachineStageRunning {
		out.Status.Ready = n.readiness.Ready
		for _, u := range n.readiness.Unmet {
			unmet(u.Name, u.Reason)
		}

		return out
	}

	if n.fault == FaultNoTime {
		unmet("time", "time is not synced")
	}

	if waitsForEtcd {
		unmet("services", "etcd not healthy")
	}

	if !n.booted || n.fault == FaultUnready {
		unmet("services", "kubelet not healthy")
	}

	if !n.clusterUp {
		unmet("nodeReady", "node status is not available yet")
	}

	out.Status.Ready = len(out.Status.UnmetConditions) == 0

	return out
}

// Hostname is the machine's host name: as configured, else one that stays the same for the machine.
func (n *Node) Hostname() string {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.hostnameLocked()
}

func (n *Node) hostnameLocked() string {
	if n.active.Provider != nil {
		if cfg := n.active.NetworkHostnameConfig(); cfg != nil && cfg.Hostname() != "" {
			return cfg.Hostname()
		}
	}

	sum := fnv.New64a()
	sum.Write([]byte(n.options.Hardware.UUID + n.options.Hardware.Serial + n.options.Name)) //nolint:errcheck // never fails

	text := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum.Sum(nil)))

	return "talos-" + text[:3] + "-" + text[3:6]
}
