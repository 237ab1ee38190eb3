// Package opcuatest is an OPC UA server in the test's own process, with nested variables, units and ranges, users, and
// faults on command. It shares no code with the driver: the wire is gopcua's.
//
// It leaves out discovery beyond GetEndpoints, subscriptions, methods, history, continuation points and user certificates.
// Whatever a server may do wrong is in the driver's own fixture, and whatever it may have, in the interoperability tests.
package opcuatest

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	_ "embed" // the server's certificate and key
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/gopcua/opcua/uacp"
	"github.com/gopcua/opcua/uasc"
)

// identity is the certificate and key of every server that is given no other: its thumbprint can be written down. It is
// no secret.
//
//go:embed identity.pem
var identity []byte

// Thumbprint is the SHA-256 thumbprint of every server's certificate.
const Thumbprint = "c18c3dc7134a396657c8e37de13140ec03d9712c1edb129562dada270e11f15f"

// Options describe a server.
type Options struct {
	// Address is host:port; with port 0 the first Start chooses one and keeps it.
	Address string
	// Name is its product name.
	Name string
	// Variables are what it has below Objects.
	Variables []Variable
	// Users are passwords by user name. Without any, everybody may read; with any, nobody else.
	Users map[string]string
}

// Server is an OPC UA server that offers the policies None and Basic256Sha256 (Sign, SignAndEncrypt). All methods may be
// called at any time, from any goroutine.
type Server struct {
	certificate []byte
	key         *rsa.PrivateKey

	mu       sync.Mutex
	address  string
	name     string
	users    map[string]string
	nodes    map[string]*node
	listener net.Listener
	conns    map[net.Conn]struct{}
	serving  sync.WaitGroup
	stop     context.CancelFunc
	stopped  context.Context

	sessions map[string]*session
	last     uint32

	blackhole          bool
	delay              time.Duration
	accepted, requests int
}

// New returns a server that is not yet started.
func New(o Options) (*Server, error) {
	s := &Server{address: o.Address, name: o.Name, users: map[string]string{}, conns: map[net.Conn]struct{}{}, sessions: map[string]*session{}}
	for name, password := range o.Users {
		s.users[name] = password
	}
	block, rest := pem.Decode(identity)
	s.certificate = block.Bytes
	block, _ = pem.Decode(rest)
	var err error
	if s.key, err = x509.ParsePKCS1PrivateKey(block.Bytes); err != nil {
		return nil, err
	}
	s.nodes, err = addressSpace(o.Name, o.Variables)
	return s, err
}

// Start listens, the first time or again after Stop. What a server that stopped knew of sessions is forgotten.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	s.listener, s.address = listener, listener.Addr().String()
	s.stopped, s.stop = context.WithCancel(context.Background())
	clear(s.sessions)
	s.serving.Go(func() { s.accept(listener) })
	return nil
}

// Stop refuses connections and resets those that are open, as a device does whose program died.
func (s *Server) Stop() {
	s.mu.Lock()
	listener := s.listener
	if s.listener = nil; listener != nil {
		_ = listener.Close()
		s.stop()
	}
	s.mu.Unlock()
	s.Reset()
	s.serving.Wait()
}

// Addr is the host:port on which the server listens or listened.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
}

// Endpoint is the address as an IOModule names it.
func (s *Server) Endpoint() string { return "opc.tcp://" + s.Addr() }

// Reset sends an RST on every open connection.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}

// Blackhole accepts TCP connections and never answers, on open connections neither; requests of that time are lost.
func (s *Server) Blackhole(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blackhole = on
}

// Delay delays every reply.
func (s *Server) Delay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// SetPassword changes a user's password, and ends every session: the next one needs the new password.
func (s *Server) SetPassword(user, password string) {
	s.mu.Lock()
	s.users[user] = password
	clear(s.sessions)
	s.mu.Unlock()
	s.Reset()
}

// Requests is how many requests were received in all, those that opened channels not counted.
func (s *Server) Requests() int { return s.count(func() int { return s.requests }) }

// Accepted is how many TCP connections were accepted in all.
func (s *Server) Accepted() int { return s.count(func() int { return s.accepted }) }

// Open is how many TCP connections are open now.
func (s *Server) Open() int { return s.count(func() int { return len(s.conns) }) }

// Sessions is how many sessions are activated now.
func (s *Server) Sessions() int {
	return s.count(func() int {
		n := 0
		for _, session := range s.sessions {
			if session.active {
				n++
			}
		}
		return n
	})
}

func (s *Server) count(n func() int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return n()
}

func (s *Server) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.listener != listener {
			s.mu.Unlock()
			_ = conn.Close()
			continue
		}
		s.accepted++
		s.last++
		id, ctx := s.last, s.stopped
		s.conns[conn] = struct{}{}
		s.serving.Go(func() {
			defer func() {
				_ = conn.Close()
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.conns, conn)
			}()
			_ = s.serve(ctx, conn.(*net.TCPConn), id)
		})
		s.mu.Unlock()
	}
}

// turn waits as long as a reply is to be delayed, and tells whether there is to be one.
func (s *Server) turn(ctx context.Context) bool {
	s.mu.Lock()
	blackhole, delay := s.blackhole, s.delay
	s.mu.Unlock()
	if delay > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
	return !blackhole && ctx.Err() == nil
}

// serve answers on one connection until it ends.
func (s *Server) serve(ctx context.Context, tcp *net.TCPConn, id uint32) error {
	ack := *uacp.DefaultServerACK
	conn, err := uacp.NewConn(tcp, &ack)
	if err != nil {
		return err
	}
	// The listener of uacp shakes hands while nobody else is accepted, and answers in a black hole.
	hello, err := conn.Receive()
	if err != nil {
		return err
	}
	if len(hello) < 4 || string(hello[:4]) != "HELF" {
		return errors.New("no hello")
	}
	for !s.turn(ctx) {
		// Nothing is answered on this connection any more, and its end is seen.
		if _, err := conn.Receive(); err != nil {
			return err
		}
	}
	if err := conn.Send("ACKF", &ack); err != nil {
		return err
	}
	failures := make(chan error, 1)
	config, err := s.security(tcp)
	if err != nil {
		return err
	}
	channel, err := uasc.NewServerSecureChannel(s.Endpoint(), conn, config, failures, id, 1, id)
	if err != nil {
		return err
	}
	for {
		message := channel.Receive(ctx)
		if message.Err != nil {
			return message.Err
		}
		request := message.Request()
		if request == nil {
			continue // a channel was opened
		}
		s.mu.Lock()
		s.requests++
		s.mu.Unlock()
		if !s.turn(ctx) {
			continue
		}
		response, err := s.answer(channel, request)
		if err != nil {
			return err
		}
		if err := channel.SendResponseWithContext(ctx, message.RequestID, response); err != nil {
			return fmt.Errorf("%T: %w", request, err)
		}
	}
}
