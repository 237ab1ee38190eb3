// Package podserver serves what a pod of ours on the plant's floor, a probe or a Unit's runtime, serves: its API over mutual TLS,
// and beside it what the kubelet and a metrics collector ask for.
package podserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

const (
	// maxConnections to either of the two listeners.
	maxConnections = 256
	// BodyTimeout is how long a request's body may take; few have one.
	BodyTimeout = 5 * time.Second
	// shutdownTimeout is how long requests under way may take when the program is asked to end.
	shutdownTimeout = 5 * time.Second
	// memoryLimit is 64 MiB below the one of the pods (package probepod).
	memoryLimit = 448 << 20
)

// LimitMemory has the garbage collector hurry before the pod's memory ends: what devices tell comes in bursts. GOMEMLIMIT overrides it.
func LimitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

// Server has two listeners, which are open before anything else of the program begins.
type Server struct{ api, health net.Listener }

// Listen opens both. An error names the flag whose address it is about.
func Listen(apiAddress, healthAddress string) (*Server, error) {
	api, err := net.Listen("tcp", apiAddress)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	health, err := net.Listen("tcp", healthAddress)
	if err != nil {
		_ = api.Close()
		return nil, fmt.Errorf("--health-listen: %w", err)
	}
	return &Server{api, health}, nil
}

// Close closes both listeners, if Serve has not.
func (s *Server) Close() {
	_ = s.api.Close()
	_ = s.health.Close()
}

// Program is what a pod runs behind the listeners.
type Program struct {
	Namespace   string
	Credentials api.Credentials
	// API is served to the controllers and peers of the namespace, Health to everybody; it asks ready whether requests should
	// come here.
	API    http.Handler
	Health func(ready func() error) http.Handler
	// Work runs, all of it at once, until its context ends.
	Work []func(context.Context)
	Log  logr.Logger
}

// Serve serves and works until ctx ends or a listener fails. Order of the end: readiness fails, the work ends, the streams end,
// and the requests under way have a while.
func (s *Server) Serve(ctx context.Context, p Program) error {
	// Streams live in requests, so their end comes before that of the servers.
	requests, endRequests := context.WithCancel(context.Background())
	defer endRequests()
	ready := func() error {
		if ctx.Err() != nil {
			return errors.New("stopping")
		}
		return checkCredentials(p.Credentials, p.Namespace)
	}
	servers := []*http.Server{newServer(p.API, requests, p.Log), newServer(p.Health(ready), requests, p.Log)}

	failed := make(chan error, len(servers))
	var serving, working sync.WaitGroup
	serve := func(what string, s *http.Server, l net.Listener) {
		serving.Go(func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s: %w", what, err)
			}
		})
	}
	serve("--listen", servers[0], tls.NewListener(netutil.LimitListener(s.api, maxConnections), api.ServerConfig(p.Namespace, p.Credentials)))
	serve("--health-listen", servers[1], netutil.LimitListener(s.health, maxConnections))

	workCtx, endWork := context.WithCancel(ctx)
	for _, work := range p.Work {
		working.Go(func() { work(workCtx) })
	}
	p.Log.Info("Serving", "namespace", p.Namespace, "listen", s.api.Addr().String(), "health", s.health.Addr().String())

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	p.Log.Info("Stopping")
	endWork()
	working.Wait()
	endRequests()
	stopCtx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	for _, s := range servers {
		if s.Shutdown(stopCtx) != nil {
			_ = s.Close()
		}
	}
	serving.Wait()
	return err
}

func newServer(handler http.Handler, requests context.Context, log logr.Logger) *http.Server {
	return &http.Server{
		Handler:           impatient(handler),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		// A stream is a matter of HTTP/1.1; without HTTP/2 there is less to go wrong.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		BaseContext:  func(net.Listener) context.Context { return requests },
		ErrorLog:     slog.NewLogLogger(logr.ToSlogHandler(log), slog.LevelInfo),
	}
}

// impatient does not wait for bodies that do not come: whoever announces one and keeps silent would else have a connection for
// ever, and all of them would leave the kubelet none for its question whether the program lives.
func impatient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(BodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}

// checkCredentials tells whether peers would accept the program, before they find out that they do not.
func checkCredentials(credentials api.Credentials, namespace string) error {
	certificate, _, err := credentials()
	if err != nil {
		return fmt.Errorf("--tls-dir: %w", err)
	}
	if err := certificate.Leaf.VerifyHostname(authority.ProbeServerName(namespace)); err != nil {
		return fmt.Errorf("--tls-dir: %w", err)
	}
	return nil
}
