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
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/podserver"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
	"github.com/fieldplane/fieldplane/pkg/unitruntime"
)

// maxConnects at once to devices.
const maxConnects = 20

// Run reads and serves until ctx ends. Order of the end: readiness fails, the streams end, the readers stop and close their
// connections. Nothing is written for it: a Unit whose runtime is replaced goes on.
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
	credentials := api.FileCredentials(o.TLSDir, func(err error) {
		log.Error(err, "The new certificate files are refused; the former ones stay in force")
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	connects := driver.NewConnectLimit(maxConnects)
	dial := func(v1alpha1.Protocol) func(context.Context, string, string) (net.Conn, error) { return driver.Dial }
	drivers := probe.NewDrivers(dial, connects, o.CredentialsDir, binary.BigEndian.Uint32(random[4:]))
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

	defer r.Stop()
	file := probe.ConfigFile[*unitruntime.Config]{
		Path: o.Config, Clock: clock.RealClock{}, Log: log, Parse: unitruntime.ParseConfig, Apply: r.Apply, Refuse: r.Refuse,
	}
	return server.Serve(ctx, podserver.Program{
		Namespace: o.Namespace, Credentials: credentials, Log: log,
		API:    r.Handler(),
		Health: func(ready func() error) http.Handler { return r.HealthHandler(registry, ready) },
		Work:   []func(context.Context){r.Run, file.Run},
	})
}
