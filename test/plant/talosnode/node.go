// Package talosnode is a simulated Talos node on a loopback address: first in maintenance mode, then, after a valid and
// complete configuration, an apid that asks for client certificates of the cluster. It speaks the real protocols (gRPC
// over TLS 1.3, COSI) and follows the measured behaviour of Talos 1.12 and 1.13.
//
// What it leaves out: everything below apid. Nothing is installed, no kubelet runs, and of the machine API only the
// calls that fieldplane makes are answered.
package talosnode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"google.golang.org/grpc"
)

// Variant is the behaviour of a range of Talos versions in maintenance mode.
type Variant int

// The variants.
const (
	// Since113 is Talos 1.13 and 1.14: apid itself serves maintenance mode, with the role of a reader.
	Since113 Variant = iota
	// Until112 is Talos 1.9 to 1.12: a small service of its own, most of whose calls are unimplemented.
	Until112
)

// Link is a network link of the node. MAC is its permanent address; a Virtual link has none and is not physical.
type Link struct {
	Name    string `json:"name"`
	MAC     string `json:"mac,omitempty"`
	Driver  string `json:"driver,omitempty"`
	Virtual bool   `json:"virtual,omitempty"`
}

// Disk is a disk of the node.
type Disk struct {
	Path       string `json:"path"`
	SizeBytes  uint64 `json:"sizeBytes"`
	Model      string `json:"model,omitempty"`
	Serial     string `json:"serial,omitempty"`
	WWID       string `json:"wwid,omitempty"`
	Transport  string `json:"transport,omitempty"`
	Rotational bool   `json:"rotational,omitempty"`
}

// Hardware is what the node shows of itself.
type Hardware struct {
	UUID         string `json:"uuid,omitempty"`
	Serial       string `json:"serial,omitempty"`
	Manufacturer string `json:"manufacturer,omitempty"`
	Product      string `json:"product,omitempty"`
	Links        []Link `json:"links,omitempty"`
	Disks        []Disk `json:"disks,omitempty"`
	// NoSMBIOS has the node without any system information, as on boards without SMBIOS and early in the boot.
	NoSMBIOS bool `json:"noSMBIOS,omitempty"`
	// MetaUUID overrides UUID as META key 0x0f does, with any text.
	MetaUUID string `json:"metaUUID,omitempty"`
}

// Options describe a node.
type Options struct {
	// Name is for logs.
	Name string
	// Address is a loopback address with port: 127.0.50.1:50000. Port 0 takes a free one.
	Address  string
	Hardware Hardware
	Variant  Variant
	// TalosVersion is v1.13.9 by default, v1.12.9 for Until112.
	TalosVersion string
	// Install is how long the node is away between its configuration and apid; 200 ms by default.
	Install time.Duration
	// Slow is how long each call takes under the fault Slow; 3 s by default, above discovery's 2 s.
	Slow time.Duration
	// Trustd connects workers with the control planes that sign their certificates; without one a worker never comes
	// back after its configuration.
	Trustd *Trustd
	// Logf is told what happens; nil is silent. It never gets any content of a configuration.
	Logf func(format string, args ...any)
}

// Stage is how far the node is.
type Stage string

// The stages.
const (
	// StageMaintenance waits for a configuration.
	StageMaintenance Stage = "maintenance"
	// StageInstalling has its configuration and listens nowhere.
	StageInstalling Stage = "installing"
	// StageRunning serves apid with mutual TLS.
	StageRunning Stage = "running"
)

// Node is a running simulated node.
type Node struct {
	options Options
	address net.TCPAddr

	cancel context.CancelFunc
	ctx    context.Context
	wait   sync.WaitGroup

	states stateSwitch
	record record

	mu       sync.Mutex
	stage    Stage
	fault    Fault
	hardware Hardware
	listener net.Listener
	conns    map[net.Conn]struct{}
	server   *server
	leaf     *tls.Certificate
	// configured is the accepted configuration, configData its bytes.
	configured   config.Provider
	configData   []byte
	bootstrapped int

	slow atomic.Int64
}

// Start runs a node until Close.
func Start(options Options) (*Node, error) {
	addr, err := net.ResolveTCPAddr("tcp4", options.Address)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", options.Name, err)
	}

	if !addr.IP.IsLoopback() {
		return nil, fmt.Errorf("node %s: %s is no loopback address", options.Name, addr.IP)
	}

	if options.TalosVersion == "" {
		options.TalosVersion = "v1.13.9"
		if options.Variant == Until112 {
			options.TalosVersion = "v1.12.9"
		}
	}

	if options.Install == 0 {
		options.Install = 200 * time.Millisecond
	}

	if options.Slow == 0 {
		options.Slow = 3 * time.Second
	}

	if options.Logf == nil {
		options.Logf = func(string, ...any) {}
	}

	ctx, cancel := context.WithCancel(context.Background())

	n := &Node{
		options:  options,
		address:  *addr,
		ctx:      ctx,
		cancel:   cancel,
		stage:    StageMaintenance,
		hardware: options.Hardware,
		conns:    make(map[net.Conn]struct{}),
	}

	if err := n.start(); err != nil {
		cancel()

		return nil, fmt.Errorf("node %s: %w", options.Name, err)
	}

	n.logf("in maintenance mode on %s, fingerprint %s", n.Address(), n.Fingerprint())

	return n, nil
}

func (n *Node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()

	if err := n.newLeafLocked(); err != nil {
		return err
	}

	if err := n.rebuildStateLocked(); err != nil {
		return err
	}

	// The first listener fixes the port, so that it is the same after an installation.
	if err := n.listenLocked(); err != nil {
		return err
	}

	n.serveLocked(n.maintenanceServer())

	return nil
}

// Close stops the node and waits for it.
func (n *Node) Close() {
	n.cancel()

	n.mu.Lock()
	n.silenceLocked()
	n.mu.Unlock()

	n.wait.Wait()

	if n.options.Trustd != nil {
		n.options.Trustd.leave(n)
	}
}

// Name is the node's name.
func (n *Node) Name() string { return n.options.Name }

// Address is where the node listens, with port.
func (n *Node) Address() string { return n.address.String() }

// Stage is how far the node is.
func (n *Node) Stage() Stage {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.stage
}

// Hardware is what the node shows of itself just now.
func (n *Node) Hardware() Hardware {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.hardware
}

// SetHardware makes the node show other hardware from the next read on, on open connections too.
func (n *Node) SetHardware(hardware Hardware) error {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.hardware = hardware

	return n.rebuildStateLocked()
}

// Configuration is the configuration that the node runs with, nil before it has one. It holds secrets: for tests that
// look for them elsewhere.
func (n *Node) Configuration() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()

	return append([]byte(nil), n.configData...)
}

// Bootstraps is how often Bootstrap was accepted: never more than once.
func (n *Node) Bootstraps() int {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.bootstrapped
}

// Wipe takes the node back to maintenance mode, as a reset does, with a new key. What was received stays on record.
func (n *Node) Wipe() error {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.silenceLocked()

	n.stage, n.configured, n.configData, n.bootstrapped = StageMaintenance, nil, nil, 0

	if n.options.Trustd != nil {
		n.options.Trustd.leave(n)
	}

	if err := n.newLeafLocked(); err != nil {
		return err
	}

	if err := n.rebuildStateLocked(); err != nil {
		return err
	}

	return n.resumeLocked()
}

func (n *Node) logf(format string, args ...any) {
	n.options.Logf("%s: "+format, append([]any{n.options.Name}, args...)...)
}

// server is a gRPC server and the queue of connections that it takes.
type server struct {
	grpc  *grpc.Server
	queue *connQueue
}

// serveLocked makes a server the node's one.
func (n *Node) serveLocked(s *server) {
	n.server = s

	n.wait.Go(func() {
		s.grpc.Serve(s.queue) //nolint:errcheck // ends when the server is stopped
	})
}

// listenLocked opens the port and accepts.
func (n *Node) listenLocked() error {
	listener, err := net.ListenTCP("tcp4", &n.address)
	if err != nil {
		return err
	}

	if n.address.Port == 0 {
		n.address.Port = listener.Addr().(*net.TCPAddr).Port
	}

	n.listener = listener

	n.wait.Go(func() { n.accept(listener) })

	return nil
}

func (n *Node) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}

		n.dispatch(conn)
	}
}

// dispatch gives a connection to whoever answers in the node's present state.
func (n *Node) dispatch(conn net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.ctx.Err() != nil {
		conn.Close() //nolint:errcheck // nothing was said yet

		return
	}

	tracked := &trackedConn{Conn: conn, node: n}
	n.conns[tracked] = struct{}{}

	switch n.fault {
	case FaultSilent:
		// Held open; whoever waits gives up.
	case FaultNotTLS:
		n.wait.Go(func() {
			conn.Write([]byte("SSH-2.0-OpenSSH_9.9\r\n")) //nolint:errcheck // the peer may be gone
		})
	default:
		if n.server == nil {
			delete(n.conns, tracked)
			conn.Close() //nolint:errcheck // nothing was said yet

			return
		}

		n.server.queue.put(tracked)
	}
}

// silenceLocked closes the port, every connection and the server.
func (n *Node) silenceLocked() {
	n.closePortLocked()

	if n.server != nil {
		server := n.server
		n.server = nil

		n.wait.Go(server.grpc.Stop)
	}
}

func (n *Node) closePortLocked() {
	if n.listener != nil {
		n.listener.Close() //nolint:errcheck // only ever closed here
		n.listener = nil
	}

	for conn := range n.conns {
		delete(n.conns, conn)
		conn.(*trackedConn).Conn.Close() //nolint:errcheck // the peer sees it
	}
}

// resumeLocked makes the port answer as the stage and the fault have it.
func (n *Node) resumeLocked() error {
	if n.fault == FaultClosed || n.ctx.Err() != nil {
		return nil
	}

	if n.server == nil {
		switch n.stage {
		case StageMaintenance:
			n.serveLocked(n.maintenanceServer())
		case StageRunning:
			server, err := n.apidServerLocked()
			if err != nil {
				return err
			}

			n.serveLocked(server)
		case StageInstalling:
			return nil
		}
	}

	if n.listener == nil {
		return n.listenLocked()
	}

	return nil
}

// trackedConn leaves the node's set when it is closed.
type trackedConn struct {
	net.Conn

	node *Node
}

func (c *trackedConn) Close() error {
	c.node.mu.Lock()
	delete(c.node.conns, c)
	c.node.mu.Unlock()

	return c.Conn.Close()
}

// connQueue is the listener of a server whose connections are accepted elsewhere.
type connQueue struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   net.Addr
}

func newConnQueue(addr net.Addr) *connQueue {
	return &connQueue{conns: make(chan net.Conn, 1024), closed: make(chan struct{}), addr: addr}
}

func (q *connQueue) put(conn *trackedConn) {
	select {
	case q.conns <- conn:
	default:
		delete(conn.node.conns, conn) // the node's lock is held
		conn.Conn.Close()             //nolint:errcheck // a full backlog refuses
	}
}

func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case conn := <-q.conns:
		return conn, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

func (q *connQueue) Close() error {
	q.once.Do(func() { close(q.closed) })

	return nil
}

func (q *connQueue) Addr() net.Addr { return q.addr }

var errNoCertificate = errors.New("no certificate yet")
