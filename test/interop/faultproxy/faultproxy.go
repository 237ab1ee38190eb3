// Package faultproxy is a network that fails on command: a TCP proxy on a loopback address before a device, so that
// each failure class of the field can be met with servers that are not ours. It knows no protocol.
package faultproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// dialTimeout bounds a connection to the device.
const dialTimeout = 2 * time.Second

// Proxy forwards what comes to Addr to its target. All methods may be called at any time, from any goroutine.
type Proxy struct {
	target  string
	ctx     context.Context
	cancel  context.CancelFunc
	serving sync.WaitGroup

	mu       sync.Mutex
	address  string
	listener net.Listener
	links    map[*link]struct{}
	accepted int
	carried  int

	// open is closed while traffic flows; a black hole replaces it by one that is not.
	open      chan struct{}
	delay     time.Duration
	delayNext []time.Duration
	pause     time.Duration
	rewrite   func(reply []byte) []byte
}

// link is one connection of a client, and the one to the device that belongs to it.
type link struct {
	client net.Conn
	// device is nil for a connection that was made in a black hole.
	device net.Conn
	// gone: the device's end is no more, and the client is not told.
	gone chan struct{}
	once sync.Once
}

// New returns a proxy to target (host:port) that listens on address; with port 0 the system chooses one. Close ends it.
func New(address, target string) (*Proxy, error) {
	p := &Proxy{target: target, address: address, links: map[*link]struct{}{}, open: make(chan struct{})}
	close(p.open)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if err := p.Accept(); err != nil {
		p.cancel()
		return nil, err
	}
	return p, nil
}

// Start returns a proxy to target (host:port) on a port of its own, which ends with the test.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := New("127.0.0.1:0", target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Addr is the host:port to which clients connect; it stays the same through Refuse and Accept.
func (p *Proxy) Addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.address
}

// Accept listens again after Refuse.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.ctx.Err() != nil {
		return nil
	}
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		return err
	}
	p.listener, p.address = listener, listener.Addr().String()
	p.serving.Go(func() { p.accept(listener) })
	return nil
}

// Refuse resets all connections and refuses new ones, as a host does whose program is gone.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	listener := p.listener
	p.listener = nil
	p.mu.Unlock()
	if listener != nil {
		_ = listener.Close()
	}
	p.Reset()
}

// Reset resets the connections that are open, on both sides; new ones are accepted.
func (p *Proxy) Reset() {
	for _, l := range p.all() {
		l.reset()
	}
}

// HalfOpen ends the device's side of the connections that are open and does not tell the clients, as when the device
// lost its power or a firewall its table: what they send is lost. New connections work.
func (p *Proxy) HalfOpen() {
	for _, l := range p.all() {
		l.once.Do(func() { close(l.gone) })
		reset(l.device)
	}
}

// Blackhole lets nothing through in either direction, as a cut cable does. When it ends, connections go on with what
// was on its way, as TCP does by retransmission; those that were made meanwhile never reached the device, and are reset.
func (p *Proxy) Blackhole(on bool) {
	p.mu.Lock()
	var stillborn []*link
	select {
	case <-p.open:
		if on {
			p.open = make(chan struct{})
		}
	default:
		if !on {
			close(p.open)
			for l := range p.links {
				if l.device == nil {
					stillborn = append(stillborn, l)
				}
			}
		}
	}
	p.mu.Unlock()
	for _, l := range stillborn {
		l.reset()
	}
}

// Delay holds back every reply; 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// DelayNext holds back the next reply only.
func (p *Proxy) DelayNext(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delayNext = append(p.delayNext, d)
}

// SlowBytes sends replies byte by byte with a pause between them; 0 ends it.
func (p *Proxy) SlowBytes(pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause = pause
}

// Rewrite passes each piece of a reply through f, to spoil it; nil ends it. What f is given is its own.
func (p *Proxy) Rewrite(f func(reply []byte) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rewrite = f
}

// Accepted is how many connections clients have made in all.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Reached is how many connections were made to the device in all.
func (p *Proxy) Reached() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.carried
}

// Open is how many connections of clients are open now.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Close resets everything and waits until nothing of the proxy runs.
func (p *Proxy) Close() {
	p.cancel()
	p.Refuse()
	p.serving.Wait()
}

func (p *Proxy) all() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		p.serving.Go(func() { p.serve(listener, client) })
	}
}

func (p *Proxy) serve(listener net.Listener, client net.Conn) {
	l := &link{client: client, gone: make(chan struct{})}
	defer func() {
		l.reset()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	}()

	p.mu.Lock()
	p.accepted++
	flows := isClosed(p.open)
	if p.listener != listener {
		p.mu.Unlock()
		return
	}
	if !flows {
		p.links[l] = struct{}{}
		p.mu.Unlock()
		_, _ = io.Copy(io.Discard, client)
		return
	}
	p.mu.Unlock()

	device, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	p.mu.Lock()
	l.device = device
	p.links[l] = struct{}{}
	p.carried++
	refused := p.listener != listener
	p.mu.Unlock()
	if refused {
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { p.requests(l) })
	pumps.Go(func() { p.replies(l) })
	pumps.Wait()
}

// requests carries what the client sends.
func (p *Proxy) requests(l *link) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buffer)
		if !p.flow() {
			return
		}
		if isClosed(l.gone) {
			if err != nil {
				return
			}
			continue
		}
		if n > 0 {
			if _, err := l.device.Write(buffer[:n]); err != nil && !isClosed(l.gone) {
				l.reset()
				return
			}
		}
		if err != nil {
			l.end(l.device, err)
			return
		}
	}
}

// replies carries what the device sends.
func (p *Proxy) replies(l *link) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.device.Read(buffer)
		if isClosed(l.gone) || !p.flow() {
			return
		}
		if n > 0 && !p.reply(l.client, append([]byte(nil), buffer[:n]...)) {
			l.reset()
			return
		}
		if err != nil {
			l.end(l.client, err)
			return
		}
	}
}

// reply sends one piece of a reply in the way that is in force.
func (p *Proxy) reply(client net.Conn, piece []byte) bool {
	p.mu.Lock()
	delay, pause, rewrite := p.delay, p.pause, p.rewrite
	if len(p.delayNext) > 0 {
		delay, p.delayNext = p.delayNext[0], p.delayNext[1:]
	}
	p.mu.Unlock()
	if rewrite != nil {
		piece = rewrite(piece)
	}
	if !p.sleep(delay) || !p.flow() {
		return false
	}
	if pause == 0 {
		_, err := client.Write(piece)
		return err == nil
	}
	for i := range piece {
		if i > 0 && !p.sleep(pause) {
			return false
		}
		if _, err := client.Write(piece[i : i+1]); err != nil {
			return false
		}
	}
	return true
}

// flow waits for the end of a black hole; false when the proxy ends first.
func (p *Proxy) flow() bool {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	select {
	case <-open:
		return true
	case <-p.ctx.Done():
		return false
	}
}

func (p *Proxy) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// end passes the end of one direction on: an orderly one as such, any other as a reset.
func (l *link) end(to net.Conn, err error) {
	if tcp, ok := to.(*net.TCPConn); ok && errors.Is(err, io.EOF) {
		_ = tcp.CloseWrite()
		return
	}
	l.reset()
}

func (l *link) reset() {
	reset(l.client)
	reset(l.device)
}

func reset(conn net.Conn) {
	if conn == nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
