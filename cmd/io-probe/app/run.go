package app

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/podserver"
	"github.com/fieldplane/fieldplane/pkg/probe/pulse"
)

// maxConnects at once to devices.
const maxConnects = 20

// Run supervises and serves until ctx ends. Order of the end: readiness fails, the streams end, the supervisors
// stop and close their connections.
func Run(ctx context.Context, o *Options, log logr.Logger) error {
	podserver.LimitMemory()
	server, err := podserver.Listen(o.Listen, o.HealthListen)
	if err != nil {
		return err
	}
	defer server.Close()

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
	devices := probe.NewDrivers(dial, connects, o.CredentialsDir, binary.BigEndian.Uint32(random[4:]))
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

	// The supervisors stop when nobody follows them any more.
	defer p.Stop()
	file := probe.ConfigFile[*probe.Config]{Path: o.Config, Clock: clock.RealClock{}, Log: log, Parse: probe.ParseConfig, Apply: p.Apply, Refuse: p.Refuse}
	return server.Serve(ctx, podserver.Program{
		Namespace: o.Namespace, Credentials: credentials, Log: log,
		API:    p.Handler(),
		Health: func(ready func() error) http.Handler { return p.HealthHandler(registry, ready) },
		Work:   []func(context.Context){beat.Run, file.Run},
	})
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
