package talosnode

import (
	"context"
	"fmt"
	"slices"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// etcd is one etcd; all of it is guarded by its Trustd's lock.
type etcd struct {
	token   string
	members []*member
}

// member is a member of an etcd; node is nil when its data is gone.
type member struct {
	node     *Node
	up       bool
	id       uint64
	hostname string
	ip       string
}

// healthy tells whether the etcd has a leader.
func (e *etcd) healthy() bool {
	up := 0

	for _, m := range e.members {
		if m.up {
			up++
		}
	}

	return up > len(e.members)/2
}

// bootstrap makes a new etcd of one node, even where its cluster has one: that is what the real call does.
func (t *Trustd) bootstrap(n *Node, token, hostname, ip string) {
	t.mu.Lock()
	defer t.mu.Unlock()

	e := &etcd{token: token}

	if t.etcds == nil {
		t.etcds, t.members = make(map[string]*etcd), make(map[*Node]*etcd)
	}

	if t.etcds[token] == nil {
		t.etcds[token] = e
	}

	t.addLocked(e, n, hostname, ip)
	t.changedLocked()
}

// addMember joins a node to its cluster's etcd; false when there is none or it has no leader.
func (t *Trustd) addMember(n *Node, token, hostname, ip string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	e := t.etcds[token]
	if e == nil || !e.healthy() {
		return false
	}

	if t.members[n] == nil {
		// Talos takes the place of a member of the same name whose data is gone.
		e.members = slices.DeleteFunc(e.members, func(m *member) bool { return m.node == nil && m.hostname == hostname })
		t.addLocked(e, n, hostname, ip)
	}

	return true
}

func (t *Trustd) addLocked(e *etcd, n *Node, hostname, ip string) {
	t.lastID++
	e.members = append(e.members, &member{node: n, up: true, id: 0x8e9e05c52164694d + t.lastID<<40, hostname: hostname, ip: ip})
	t.members[n] = e
}

// lose makes a node's data of etcd gone. The etcd goes with the last of its members.
func (t *Trustd) lose(n *Node) { t.part(n, false) }

// remove takes a node out of its etcd.
func (t *Trustd) remove(n *Node) { t.part(n, true) }

func (t *Trustd) part(n *Node, leave bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	e := t.members[n]
	if e == nil {
		return
	}

	delete(t.members, n)

	for i, m := range e.members {
		if m.node == n {
			if m.node, m.up = nil, false; leave {
				e.members = slices.Delete(e.members, i, i+1)
			}

			break
		}
	}

	if t.etcds[e.token] == e && !slices.ContainsFunc(e.members, func(m *member) bool { return m.node != nil }) {
		delete(t.etcds, e.token)
	}

	t.changedLocked()
}

// setUp tells whether a node's member runs.
func (t *Trustd) setUp(n *Node, up bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if e := t.members[n]; e != nil {
		for _, m := range e.members {
			if m.node == n {
				m.up = up
			}
		}

		t.changedLocked()
	}
}

func (t *Trustd) changedLocked() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// watch returns a channel that is closed at the next change.
func (t *Trustd) watch() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.changed == nil {
		t.changed = make(chan struct{})
	}

	return t.changed
}

// etcdOf is a cluster's etcd, nil when there is none.
func (t *Trustd) etcdOf(token string) *etcd {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.etcds[token]
}

// isMember tells whether a node has data of an etcd.
func (t *Trustd) isMember(n *Node) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.members[n] != nil
}

// list returns the members of a node's etcd, or of its cluster's, nil when there is none.
func (t *Trustd) list(n *Node, token string) (own bool, members []member, healthy bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	e := t.members[n]
	own = e != nil

	if e == nil {
		e = t.etcds[token]
	}

	if e == nil {
		return false, nil, false
	}

	for _, m := range e.members {
		members = append(members, *m)
	}

	return own, members, e.healthy()
}

// followEtcd has a control plane join its cluster's etcd, and every node know whether there is one, as long as apid is
// up.
func (n *Node) followEtcd(life context.Context, token string) {
	for {
		changed := n.options.Trustd.watch()
		exists := n.options.Trustd.etcdOf(token) != nil

		if exists && n.mayJoin(life) {
			if !sleep(life, n.options.EtcdJoin) {
				return
			}

			n.joinEtcd(life, token)
		}

		n.mu.Lock()

		if life.Err() != nil {
			n.mu.Unlock()

			return
		}

		if n.clusterUp != exists {
			n.clusterUp = exists

			if err := n.rebuildStateLocked(); err != nil {
				n.logf("%v", err)
			}
		}

		n.mu.Unlock()

		select {
		case <-changed:
		case <-life.Done():
			return
		}
	}
}

func (n *Node) mayJoin(life context.Context) bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return life.Err() == nil && n.active.Machine().Type().IsControlPlane() && !n.options.Trustd.isMember(n)
}

func (n *Node) joinEtcd(life context.Context, token string) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if life.Err() != nil || !n.options.Trustd.addMember(n, token, n.hostnameLocked(), n.address.IP.String()) {
		return
	}

	n.options.Trustd.setUp(n, n.reachableLocked())

	n.clusterUp = true
	n.logf("member of etcd")

	if err := n.rebuildStateLocked(); err != nil {
		n.logf("%v", err)
	}
}

// bootstrap is the call.
func (n *Node) bootstrap() error {
	n.mu.Lock()
	defer n.mu.Unlock()

	switch {
	case n.stage != StageRunning || !n.booted || n.fault == FaultBusy:
		return status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	case !n.active.Machine().Type().IsControlPlane():
		return status.Error(codes.FailedPrecondition, "bootstrap can only be performed on a control plane node")
	case n.fault == FaultNoTime:
		return status.Error(codes.FailedPrecondition, "time is not in sync yet")
	case n.options.Trustd.isMember(n):
		return status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}

	n.options.Trustd.bootstrap(n, n.active.RawV1Alpha1().MachineConfig.MachineToken, n.hostnameLocked(), n.address.IP.String())

	n.bootstraps++
	n.clusterUp = true
	n.logf("bootstrapped")

	if err := n.rebuildStateLocked(); err != nil {
		return status.Error(codes.Internal, err.Error())
	}

	return nil
}

// etcdMembers is the call: of the node's own etcd, or of whichever control plane answers.
func (n *Node) etcdMembers(local bool) (*machineapi.EtcdMembers, error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if err := n.controlPlaneLocked("member list"); err != nil {
		return nil, err
	}

	own, members, healthy := n.options.Trustd.list(n, n.active.RawV1Alpha1().MachineConfig.MachineToken)

	switch {
	case local && !own:
		return nil, errNoLocalEtcd
	case members == nil && !n.active.Cluster().Discovery().Enabled():
		// Without discovery a node learns of control planes from Kubernetes, which is not there either.
		return nil, status.Error(codes.Unknown, "no controlplane endpoints discovered yet")
	case members == nil:
		return nil, status.Errorf(codes.Unavailable,
			"connection error: desc = \"transport: Error while dialing: dial tcp %s:2379: connect: connection refused\"", n.address.IP)
	case !healthy:
		return nil, status.Error(codes.Unavailable, "etcdserver: no leader")
	}

	out := &machineapi.EtcdMembers{}

	for _, m := range members {
		out.LegacyMembers = append(out.LegacyMembers, m.hostname)
		out.Members = append(out.Members, &machineapi.EtcdMember{
			Id: m.id, Hostname: m.hostname,
			PeerUrls: []string{fmt.Sprintf("https://%s:2380", m.ip)}, ClientUrls: []string{fmt.Sprintf("https://%s:2379", m.ip)},
		})
	}

	return out, nil
}

func (n *Node) etcdStatus() (*machineapi.EtcdMemberStatus, error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if err := n.controlPlaneLocked("etcd status"); err != nil {
		return nil, err
	}

	own, members, healthy := n.options.Trustd.list(n, "")
	if !own {
		return nil, errNoLocalEtcd
	}

	out := &machineapi.EtcdMemberStatus{ProtocolVersion: "3.6.4", StorageVersion: "3.6.0", DbSize: 1 << 20, RaftTerm: 2, RaftIndex: 1000}

	for _, m := range members {
		if m.node == n {
			out.MemberId = m.id
		}

		if m.up && healthy && out.Leader == 0 {
			out.Leader = m.id
		}
	}

	return out, nil
}

func (n *Node) controlPlaneLocked(call string) error {
	if !n.active.Machine().Type().IsControlPlane() {
		return status.Errorf(codes.Unimplemented, "%s is only available on control plane nodes", call)
	}

	return nil
}

// EtcdMembers are the host names of the etcd that the node is a member of, in the order in which they joined; nil when it
// is a member of none.
func (n *Node) EtcdMembers() []string {
	own, members, _ := n.options.Trustd.list(n, "")
	if !own {
		return nil
	}

	var out []string
	for _, m := range members {
		out = append(out, m.hostname)
	}

	return out
}

// errNoLocalEtcd comes after five seconds on a real node.
var errNoLocalEtcd = status.Error(codes.DeadlineExceeded, "error building etcd client: context deadline exceeded")
