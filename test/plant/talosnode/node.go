// Package talosnode is a simulated Talos node on a loopback address: first in maintenance mode, then, after a valid and
// complete configuration, an apid that asks for client certificates of the cluster. It speaks the real protocols (gRPC
// over TLS 1.3, COSI) and follows the measured behaviour of Talos 1.12 and 1.13.
//
// What it leaves out: everything below apid. Nothing is installed, no etcd and no kubelet run (who is a member of which
// etcd is kept by Trustd), and of the machine API only the calls that fieldplane makes are answered.
package talosnode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
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
	// Reboot is how long the node is away when it reboots; 200 ms by default.
	Reboot time.Duration
	// Boot is how long apid is up before etcd can be bootstrapped; 0 by default.
	Boot time.Duration
	// EtcdJoin is how long a control plane takes to join its cluster's etcd once there is one; 100 ms by default. As on
	// a real node it would accept a Bootstrap of its own until then.
	EtcdJoin time.Duration
	// NoSMBIOSReads is how many readings find no system information, as early in the boot.
	NoSMBIOSReads int
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
	// StageInstalling has its configuration and listens nowhere; a worker stays so until a control plane of its cluster
	// signs its certificate.
	StageInstalling Stage = "installing"
	// StageRunning serves apid with mutual TLS. How far the machine itself is, MachineStage tells.
	StageRunning Stage = "running"
	// StageRebooting listens nowhere, and comes back as it was.
	StageRebooting Stage = "rebooting"
	// StageResetting listens nowhere, and comes back in maintenance mode.
	StageResetting Stage = "resetting"
	// StageOff was reset without a reboot, and waits for PowerCycle.
	StageOff Stage = "off"
)

// Node is a running simulated node.
type Node struct {
	options Options
	// since114 is the apply behaviour of Talos 1.14.
	since114 bool

	cancel context.CancelFunc
	ctx    context.Context
	wait   sync.WaitGroup

	states stateSwitch
	record record

	mu       sync.Mutex
	address  net.TCPAddr
	stage    Stage
	fault    Fault
	hardware Hardware
	listener net.Listener
	conns    map[net.Conn]struct{}
	server   *server
	leaf     *tls.Certificate
	// active is the configuration that the node runs with, persistent the one that it boots with; they differ while one
	// is staged or tried.
	active, persistent configuration
	// systemDisk is the path of the disk that the node was installed on.
	systemDisk string
	// epoch counts the times that the node went down; whoever brings it up for an earlier one is too late.
	epoch int
	// life ends with the present time that apid is up.
	life    context.Context
	endLife context.CancelFunc
	// lost is a node that went down in the middle of a change, until it is healed.
	lost bool
	// booted tells that etcd can be bootstrapped, clusterUp that the cluster has an etcd.
	booted, clusterUp bool
	readiness         *Readiness
	revert            *time.Timer

	bootstraps, reboots int

	slow atomic.Int64
}

// configuration is a machine configuration and the bytes that it was read from.
type configuration struct {
	config.Provider

	data []byte
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

	if options.Reboot == 0 {
		options.Reboot = 200 * time.Millisecond
	}

	if options.EtcdJoin == 0 {
		options.EtcdJoin = 100 * time.Millisecond
	}

	if options.Trustd == nil {
		options.Trustd = &Trustd{}
	}

	if options.Slow == 0 {
		options.Slow = 3 * time.Second
	}

	if options.Logf == nil {
		options.Logf = func(string, ...any) {}
	}

	contract, err := config.ParseContractFromVersion(options.TalosVersion)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", options.Name, err)
	}

	ctx, cancel := context.WithCancel(context.Background())

	n := &Node{
		options:  options,
		since114: contract.Greater(config.TalosVersion1_13),
		address:  *addr,
		ctx:      ctx,
		cancel:   cancel,
		stage:    StageMaintenance,
		hardware: options.Hardware,
		conns:    make(map[net.Conn]struct{}),
		life:     ctx,
		endLife:  func() {},
	}

	n.states.absent.Store(int64(options.NoSMBIOSReads))

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

	n.options.Trustd.leave(n)
}

// Name is the node's name.
func (n *Node) Name() string { return n.options.Name }

// Address is where the node listens, with port.
func (n *Node) Address() string {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.address.String()
}

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

// SetMetaUUID overrides the node's UUID for good, as META key 0x0f does; "" takes the override away.
func (n *Node) SetMetaUUID(text string) error {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.options.Hardware.MetaUUID, n.hardware.MetaUUID = text, text

	return n.rebuildStateLocked()
}

// Bootstraps is how often Bootstrap was accepted, since the node was made. Over all nodes of a cluster that is once.
func (n *Node) Bootstraps() int {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.bootstraps
}

// Reboots is how often the node rebooted because it was told to, by Reboot or by a configuration.
func (n *Node) Reboots() int {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.reboots
}

func (n *Node) logf(format string, args ...any) {
	n.options.Logf("%s: "+format, append([]any{n.options.Name}, args...)...)
}

// server is a gRPC server and the queue of connections that it takes.
type server struct {
	grpc  *grpc.Server
	queue *connQueue
}

// goLocked runs a part of the node that Close waits for.
func (n *Node) goLocked(part func()) {
	if n.ctx.Err() == nil {
		n.wait.Go(part)
	}
}

// serveLocked makes a server the node's one.
func (n *Node) serveLocked(s *server) {
	n.server = s

	n.goLocked(func() {
		s.grpc.Serve(s.queue) //nolint:errcheck // ends when the server is stopped
	})
}

// listenLocked opens the port and accepts.
func (n *Node) listenLocked() error {
	listener, err := net.ListenTCP("tcp4", &n.address)

	// A program that this process is just starting holds all that was open for a moment, a port that was closed meanwhile
	// too.
	for range 100 {
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}

		time.Sleep(10 * time.Millisecond)

		listener, err = net.ListenTCP("tcp4", &n.address)
	}

	if err != nil {
		return err
	}

	if n.address.Port == 0 {
		n.address.Port = listener.Addr().(*net.TCPAddr).Port
	}

	n.listener = listener

	n.goLocked(func() { n.accept(listener) })

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
		n.goLocked(func() {
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

	n.breakConnectionsLocked()
}

func (n *Node) breakConnectionsLocked() {
	for conn := range n.conns {
		delete(n.conns, conn)
		conn.(*trackedConn).Conn.Close() //nolint:errcheck // the peer sees it
	}
}

// resumeLocked makes the port answer as the stage and the fault have it.
func (n *Node) resumeLocked() error {
	if n.fault == FaultClosed || n.lost || n.ctx.Err() != nil {
		return nil
	}

	if n.server == nil {
		switch {
		case n.stage == StageMaintenance || n.fault == FaultTakeover:
			n.serveLocked(n.maintenanceServer())
		case n.stage == StageRunning:
			server, err := n.apidServerLocked(n.active)
			if err != nil {
				return err
			}

			n.serveLocked(server)
		default:
			return nil
		}
	}

	if n.listener == nil {
		return n.listenLocked()
	}

	return nil
}

// reachableLocked tells whether the node's peers in its cluster reach it.
func (n *Node) reachableLocked() bool {
	return n.stage == StageRunning && !n.lost && !breaksConnections(n.fault) && n.ctx.Err() == nil
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
