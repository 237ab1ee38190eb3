package machinestate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// peer is another machine of the cluster.
type peer struct {
	machine *v1alpha1.TalosMachine
	// want is the hash of what is rendered for it, "" when it cannot be.
	want string
}

// neighbours is what the machines of a cluster say when they are asked.
type neighbours struct {
	// unready is the first machine beside this one that ran and is not ready now, and why; "" when each is.
	unready string
	// etcd is what each control plane that ran says of etcd, this machine among them if it is one.
	etcd []etcdView
}

// etcdView is what one control plane says of its etcd.
type etcdView struct {
	machine string
	members []uint64
	// learners is how many of them have no vote yet.
	learners int
	// none tells that etcd has never run there.
	none bool
	// problem is why it said nothing.
	problem string
}

// mayGo tells whether it is this machine's turn: nobody else has it, control planes come last, every other machine that
// ran is ready, and etcd is whole (T-18a). A reboot that somebody asked for does not wait for its place in the row.
func (d *decision) mayGo(askedFor bool) bool {
	if d.withheld != nil {
		d.set(d.withheld.reason, d.withheld.message)

		return false
	}

	if holder := turnHolder(d.peers); holder != "" {
		d.set(reasonWaitingForTurn, turnTaken(holder))

		return false
	}

	if d.machine.Spec.Role == v1alpha1.RoleControlPlane && !askedFor {
		if first := waitingWorker(d.peers); first != "" {
			d.set(reasonWaitingForTurn, "control planes are changed last: TalosMachine "+first+" comes first")

			return false
		}
	}

	// Before there is an etcd nothing is ready, and nothing is to be kept up.
	if bootstrapped(d.cluster) {
		if first := unreadyPeer(d.peers); first != "" {
			d.set(reasonWaitingForHealth, "a change waits until every machine of the cluster is ready: TalosMachine "+first+" is not")

			return false
		}
	}

	if d.asked == nil {
		d.step = stepAskPeers

		return false
	}

	running, problem := judgeEtcd(d.asked.etcd, bootstrapped(d.cluster))
	if problem == "" && running && d.asked.unready != "" {
		problem = d.asked.unready
	}

	if problem != "" {
		d.set(reasonWaitingForHealth, "a change waits until every machine of the cluster is ready: "+problem)

		return false
	}

	return true
}

func turnTaken(holder string) string {
	return "a change waits for its turn: TalosMachine " + holder + " is being changed"
}

func turnHolder(peers []peer) string {
	for _, p := range peers {
		if holdsTurn(p.machine) {
			return p.machine.Name
		}
	}

	return ""
}

// waitingWorker is a worker that gets a change without anybody having to do something, and has not yet.
func waitingWorker(peers []peer) string {
	for _, p := range peers {
		m := p.machine
		if m.Spec.Role == v1alpha1.RoleControlPlane || !ran(m) || p.want == "" || p.want == m.Status.ConfigHash {
			continue
		}

		switch reasonOf(&m.Status, ConditionUpToDate) {
		case reasonAnswersElsewhere, reasonBundleRotated:
			continue
		case reasonRefused, reasonRebootRequired, reasonRebootFailed:
			// Of this very change, not of one before.
			if u := m.Status.Update; u != nil && u.Hash == p.want {
				continue
			}
		}

		return m.Name
	}

	return ""
}

func unreadyPeer(peers []peer) string {
	for _, p := range peers {
		if ran(p.machine) && !meta.IsStatusConditionTrue(p.machine.Status.Conditions, ConditionReady) {
			return p.machine.Name
		}
	}

	return ""
}

// judgeEtcd tells whether etcd runs, and what is wrong with it: every control plane that ran has to answer, with the same
// members, all of which vote, and as many as there are control planes.
func judgeEtcd(views []etcdView, bootstrapped bool) (running bool, problem string) {
	none := 0

	for _, v := range views {
		if v.problem != "" {
			return true, v.problem
		}

		if v.none {
			none++
		}
	}

	if none == len(views) && !bootstrapped {
		return false, ""
	}

	for _, v := range views {
		switch {
		case v.none:
			return true, "etcd does not run on TalosMachine " + v.machine
		case v.learners > 0:
			return true, "a member of etcd has no vote yet, as TalosMachine " + v.machine + " says"
		case len(v.members) != len(views):
			return true, fmt.Sprintf("etcd has %d members, as TalosMachine %s says, and the cluster %d control planes that run",
				len(v.members), v.machine, len(views))
		case !slices.Equal(sorted(v.members), sorted(views[0].members)):
			return true, "TalosMachines " + strings.Join([]string{views[0].machine, v.machine}, " and ") + " have other members of etcd"
		}
	}

	return true, ""
}

func sorted(ids []uint64) []uint64 { return slices.Sorted(slices.Values(ids)) }
