package app

import (
	"context"
	crand "crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/net/netutil"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua"
	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	"github.com/fieldplane/fieldplane/pkg/probe"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
	"github.com/fieldplane/fieldplane/pkg/unitruntime"
)

const (
	// maxConnects at once to devices.
	maxConnects = 20
	// maxConnections to either of the two listeners.
	maxConnections = 256
	// bodyTimeout is how long a request's body may take.
	bodyTimeout = 5 * time.Second
	// shutdownTimeout is how long requests under way may take when the program is asked to end.
	shutdownTimeout = 5 * time.Second
)

// Run reads and serves until ctx ends. Order of the end: readiness fails, the streams end, the readers stop and close their
// connections. Nothing is written for it: a Unit whose runtime is replaced goes on.
func Run(ctx context.Context, o *Options, log logr.Logger) error {
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer func() { _ = listener.Close() }()
	healthListener, err := net.Listen("tcp", o.HealthListen)
	if err != nil {
		return fmt.Errorf("--health-listen: %w", err)
	}
	defer func() { _ = healthListener.Close() }()

	var random [16]byte
	if _, err := crand.Read(random[:]); err != nil {
		return err
	}
	credentials := api.FileCredentials(o.TLSDir, func(err error) {
		log.Error(err, "The new certificate files are refused; the former ones stay in force")
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	connects := driver.NewConnectLimit(maxConnects)
	drivers := probe.Drivers{
		Modbus: modbus.New(driver.Dial, connects),
		OPCUA: opcua.New(driver.Dial, connects, opcua.Options{
			Credentials: probe.CredentialFiles(o.CredentialsDir).Read, ApplicationKey: probe.ApplicationKey,
		}),
		EtherNetIP: ethernetip.New(driver.Dial, connects, binary.BigEndian.Uint32(random[4:])),
		Now:        time.Now,
		Start:      time.Now(),
	}
	bootID := hex.EncodeToString(random[:8])
	through := &probes{
		client: func(address string) *probeclient.Client {
			return probeclient.New(address, o.Namespace, credentials, (&net.Dialer{}).DialContext, clock.RealClock{})
		},
		name:   bootID,
		opened: map[string]*via{},
	}
	r := unitruntime.New(unitruntime.Options{
		Open: func(m unitruntime.Module) (driver.Device, error) {
			if m.Via != "" {
				return through.open(m.Via, m.UID), nil
			}
			return drivers.Open(m.Spec)
		},
		Clock:    clock.RealClock{},
		Seed:     binary.BigEndian.Uint64(random[8:]),
		BootID:   bootID,
		NewID:    func() string { return string(uuid.NewUUID()) },
		State:    unitruntime.NewStateFile(o.StateFile, clock.RealClock{}),
		Log:      log,
		Registry: registry,
	})

	// The streams live in requests, so their end comes before that of the servers.
	requests, endRequests := context.WithCancel(context.Background())
	defer endRequests()
	server := newServer(r.Handler(), requests, log)
	health := newServer(r.HealthHandler(registry, func() error {
		if ctx.Err() != nil {
			return errors.New("stopping")
		}
		return checkCredentials(credentials, o.Namespace)
	}), requests, log)

	failed := make(chan error, 2)
	var serving, working sync.WaitGroup
	serve := func(what string, s *http.Server, l net.Listener) {
		serving.Go(func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s: %w", what, err)
			}
		})
	}
	serve("--listen", server, tls.NewListener(netutil.LimitListener(listener, maxConnections), api.ServerConfig(o.Namespace, credentials)))
	serve("--health-listen", health, netutil.LimitListener(healthListener, maxConnections))

	workCtx, endWork := context.WithCancel(ctx)
	working.Go(func() { r.Run(workCtx) })
	working.Go(func() {
		file := probe.ConfigFile[*unitruntime.Config]{
			Path: o.Config, Clock: clock.RealClock{}, Log: log, Parse: unitruntime.ParseConfig, Apply: r.Apply, Refuse: r.Refuse,
		}
		file.Run(workCtx)
	})
	log.Info("Serving", "namespace", o.Namespace, "listen", listener.Addr().String(), "health", healthListener.Addr().String())

	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	log.Info("Stopping")
	endWork()
	working.Wait()
	endRequests()
	stopCtx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	for _, s := range []*http.Server{server, health} {
		if s.Shutdown(stopCtx) != nil {
			_ = s.Close()
		}
	}
	serving.Wait()
	r.Stop()
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

// impatient does not wait for bodies that do not come: they would keep connections for ever, and leave the kubelet none.
func impatient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}

// checkCredentials tells whether peers would accept the runtime, before they find out that they do not.
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
