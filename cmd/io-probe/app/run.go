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
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/net/netutil"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua"
	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	"github.com/fieldplane/fieldplane/pkg/probe"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/pulse"
)

const (
	// maxConnects at once to devices.
	maxConnects = 20
	// maxConnections to either of the two listeners.
	maxConnections = 256
	// bodyTimeout is how long a request's body may take; few have one.
	bodyTimeout = 5 * time.Second
	// memoryLimit is from where on the garbage collector hurries: what devices tell comes in bursts, and the pod ends at 512 MiB.
	// GOMEMLIMIT overrides it.
	memoryLimit = 448 << 20
	// shutdownTimeout is how long requests under way may take when the program is asked to end.
	shutdownTimeout = 5 * time.Second
)

// Run supervises and serves until ctx ends. Order of the end: readiness fails, the streams end, the supervisors
// stop and close their connections.
func Run(ctx context.Context, o *Options, log logr.Logger) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
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
	registry := prometheus.NewRegistry()
	connects := driver.NewConnectLimit(maxConnects)
	dials := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fieldplane_probe_dials_total",
		Help: "Connections to devices by protocol and how they ended: Connected or the reason.",
	}, []string{"protocol", "reason"})
	dial := func(protocol v1alpha1.Protocol) func(context.Context, string, string) (net.Conn, error) {
		return counted(driver.Dial, dials.MustCurryWith(prometheus.Labels{"protocol": string(protocol)}))
	}
	devices := probe.Drivers{
		Modbus: modbus.New(dial(v1alpha1.ProtocolModbus), connects),
		OPCUA: opcua.New(dial(v1alpha1.ProtocolOPCUA), connects, opcua.Options{
			Credentials: probe.CredentialFiles(o.CredentialsDir).Read, ApplicationKey: probe.ApplicationKey,
		}),
		EtherNetIP: ethernetip.New(dial(v1alpha1.ProtocolEtherNetIP), connects, binary.BigEndian.Uint32(random[4:])),
		Now:        time.Now,
		Start:      time.Now(),
	}
	registry.MustRegister(
		dials,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fieldplane_probe_connects_in_progress",
			Help: "Connections to devices that are being established.",
		}, func() float64 { return float64(connects.InUse()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fieldplane_probe_endpoints",
			Help: "Endpoints of devices, with what their modules must agree in to share one; each has at most one connection.",
		}, func() float64 { return float64(devices.Endpoints()) }),
	)
	beat := pulse.New(clock.RealClock{})
	p := probe.New(probe.Options{
		Open:     devices.Open,
		Clock:    clock.RealClock{},
		Seed:     binary.BigEndian.Uint64(random[8:]),
		BootID:   hex.EncodeToString(random[:8]),
		Log:      log,
		Registry: registry,
		Stalled:  beat.Longest,
	})
	credentials := api.FileCredentials(o.TLSDir, func(err error) {
		log.Error(err, "The new certificate files are refused; the former ones stay in force")
	})

	// The streams live in requests, so their end comes before that of the servers.
	requests, endRequests := context.WithCancel(context.Background())
	defer endRequests()
	server := newServer(p.Handler(), requests, log)
	health := newServer(p.HealthHandler(registry, func() error {
		if ctx.Err() != nil {
			return errors.New("stopping")
		}
		return checkCredentials(credentials, o.Namespace)
	}), requests, log)

	failed := make(chan error, 2)
	var serving, loading sync.WaitGroup
	serve := func(what string, s *http.Server, l net.Listener) {
		serving.Go(func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s: %w", what, err)
			}
		})
	}
	serve("--listen", server, tls.NewListener(netutil.LimitListener(listener, maxConnections), api.ServerConfig(o.Namespace, credentials)))
	serve("--health-listen", health, netutil.LimitListener(healthListener, maxConnections))

	loadingCtx, endLoading := context.WithCancel(ctx)
	loading.Go(func() { beat.Run(loadingCtx) })
	loading.Go(func() {
		file := probe.ConfigFile[*probe.Config]{Path: o.Config, Clock: clock.RealClock{}, Log: log, Parse: probe.ParseConfig, Apply: p.Apply, Refuse: p.Refuse}
		file.Run(loadingCtx)
	})
	log.Info("Serving", "namespace", o.Namespace, "listen", listener.Addr().String(), "health", healthListener.Addr().String())

	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	log.Info("Stopping")
	endLoading()
	loading.Wait()
	endRequests()
	stopCtx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	for _, s := range []*http.Server{server, health} {
		if s.Shutdown(stopCtx) != nil {
			_ = s.Close()
		}
	}
	serving.Wait()
	p.Stop()
	return err
}

// counted is dial with a count of how it ended.
func counted(dial func(context.Context, string, string) (net.Conn, error), ends *prometheus.CounterVec) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		end := "Connected"
		if err != nil {
			end = string(driver.LinkReason(err))
		}
		ends.WithLabelValues(end).Inc()
		return conn, err
	}
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
// ever, and all of them would leave the kubelet none for its question whether the probe lives.
func impatient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		}
		next.ServeHTTP(w, r)
	})
}

// checkCredentials tells whether peers would accept the probe, before they find out that they do not.
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
