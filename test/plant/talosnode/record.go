package talosnode

import (
	"slices"
	"sync"
	"time"
)

// Received is one configuration that was sent to the node, accepted or not. Its content is not kept here.
type Received struct {
	At time.Time `json:"at"`
	// Bytes is the configuration's size.
	Bytes int `json:"bytes"`
	// Role is the machine type that the configuration names; "" when it could not be read.
	Role string `json:"role,omitempty"`
	// Mode is the mode that was asked for, Answer the one that the node chose.
	Mode   string `json:"mode"`
	Answer string `json:"answer,omitempty"`
	DryRun bool   `json:"dryRun,omitempty"`
	// Authenticated tells that the sender had a client certificate of the cluster.
	Authenticated bool `json:"authenticated,omitempty"`
	Accepted      bool `json:"accepted"`
	// Code is the gRPC status code of the answer, "dropped" when there was none and the configuration was not looked at.
	Code string `json:"code"`
}

// HandedOut is one reading of the node's identity by a peer.
type HandedOut struct {
	At     time.Time `json:"at"`
	Peer   string    `json:"peer"`
	UUID   string    `json:"uuid"`
	Serial string    `json:"serial"`
}

// record is what a node remembers of its peers.
type record struct {
	mu         sync.Mutex
	received   []Received
	identities []HandedOut
	calls      map[string]int
}

// Calls is how often a method of the machine API was called, refused calls included: "Bootstrap", "EtcdMemberList".
func (n *Node) Calls(method string) int {
	n.record.mu.Lock()
	defer n.record.mu.Unlock()

	return n.record.calls[method]
}

func (r *record) addCall(method string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.calls == nil {
		r.calls = make(map[string]int)
	}

	r.calls[method]++
}

// Configurations are all configurations that were ever sent to the node, in order.
func (n *Node) Configurations() []Received {
	n.record.mu.Lock()
	defer n.record.mu.Unlock()

	return slices.Clone(n.record.received)
}

// Identities are all readings of the node's identity, in order; the last 4096 are kept.
func (n *Node) Identities() []HandedOut {
	n.record.mu.Lock()
	defer n.record.mu.Unlock()

	return slices.Clone(n.record.identities)
}

func (r *record) addReceived(entry Received) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.received = append(r.received, entry)
}

func (r *record) addIdentity(entry HandedOut) {
	const most = 4096

	r.mu.Lock()
	defer r.mu.Unlock()

	if len(r.identities) == most {
		r.identities = slices.Delete(r.identities, 0, 1)
	}

	r.identities = append(r.identities, entry)
}
