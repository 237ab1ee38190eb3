package remote_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
	"github.com/fieldplane/fieldplane/pkg/probe"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
	"github.com/fieldplane/fieldplane/pkg/probe/probetest"
	"github.com/fieldplane/fieldplane/pkg/probe/remote"
)

// behind starts a probe of site-a with one module, uid-a, whose device is plc, and returns how others reach it.
func behind(t *testing.T, plc *modbustest.Device, wrap func(http.Handler) http.Handler) (open func(pair probetest.Pair) driver.Device, ca *probetest.Authority, stop func()) {
	t.Helper()
	p := probe.New(probe.Options{
		Open:  probe.Drivers{Modbus: modbus.New((&net.Dialer{}).DialContext, driver.NewConnectLimit(4))}.Open,
		Clock: clock.RealClock{}, Seed: 1, BootID: "boot", Log: logr.Discard(), Registry: prometheus.NewRegistry(),
	})
	t.Cleanup(p.Stop)
	config, err := probe.ParseConfig(fmt.Appendf(nil, `{"modules":[{"name":"a","uid":"uid-a","spec":{"protocol":"modbus","modbus":{"endpoint":%q,"unitID":1,"maxConnections":1}}}]}`, plc.Endpoint()))
	if err != nil {
		t.Fatal(err)
	}
	p.Apply(config)
	ca = probetest.NewAuthority(t)
	server := httptest.NewUnstartedServer(wrap(p.Handler()))
	server.Listener = tls.NewListener(server.Listener, api.ServerConfig("site-a", ca.Credentials(t, ca.Namespace(t, "site-a"))))
	server.Start()
	t.Cleanup(server.Close)
	return func(pair probetest.Pair) driver.Device {
		address := server.Listener.Addr().String()
		client := probeclient.New(address, "site-a", ca.Credentials(t, pair), (&net.Dialer{}).DialContext, clock.RealClock{})
		r := remote.New(address, client, t.Name())
		t.Cleanup(r.Close)
		d := r.Open("uid-a")
		t.Cleanup(func() { _ = d.Close() })
		return d
	}, ca, server.Close
}

// started is a device that answers.
func started(t *testing.T) *modbustest.Device {
	t.Helper()
	d := modbustest.New("127.0.0.1:0")
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func same(h http.Handler) http.Handler { return h }

// Req: P-13, P-14
func TestADeviceBehindAProbeIsUsedOverItsOneConnection(t *testing.T) {
	plc := started(t)
	plc.MaxClients(1)
	plc.Unit(1).SetHolding(0, 7, 0x41CC, 0x0000)
	open, ca, _ := behind(t, plc, same)
	d := open(ca.Namespace(t, "site-a"))
	samples, err := d.Read(t.Context(), []driver.Channel{
		{Name: "n", Address: "holding:0"},
		{Name: "f", Address: "holding:1", DataType: driver.Float32},
		{Name: "x", Address: "holding:500"},
		{Name: "y", Address: "nowhere"},
	})
	if err != nil || len(samples) != 4 {
		t.Fatalf("%+v, %v", samples, err)
	}
	if samples[0].Value != uint16(7) || samples[1].Value != float32(25.5) || samples[0].Err != nil {
		t.Errorf("values %+v", samples[:2])
	}
	for i, answered := range map[int]bool{2: true, 3: false} {
		if s := samples[i]; s.Err == nil || s.Err.Answered != answered || s.Err.Reason != driver.ReasonConfigurationError || s.Status != driver.StatusBadConfigurationError {
			t.Errorf("sample %d: %+v", i, s)
		}
	}
	if err := d.Write(t.Context(), driver.Channel{Address: "holding:0"}, uint16(9)); err != nil || plc.Unit(1).Holding(0) != 9 {
		t.Errorf("write: %v, the register holds %d", err, plc.Unit(1).Holding(0))
	}
	if err := d.Write(t.Context(), driver.Channel{Address: "holding:0"}, -1); driver.ReasonOf(err) != driver.ReasonConfigurationError || driver.MaybeDone(err) {
		t.Errorf("a value that does not fit: %v", err)
	}
	if err := d.Write(t.Context(), driver.Channel{Address: "holding:0"}, []int{1}); driver.ReasonOf(err) != driver.ReasonConfigurationError {
		t.Errorf("a value that is none: %v", err)
	}
	if _, err := d.Check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
	if n := plc.Accepted(); n != 1 {
		t.Errorf("%d connections, want the probe's one", n)
	}
	if samples, err := d.Read(t.Context(), nil); err != nil || len(samples) != 0 {
		t.Errorf("nothing: %v, %v", samples, err)
	}
}

// Req: P-11, P-12
func TestAProbeServesItsOwnNamespaceAlone(t *testing.T) {
	plc := started(t)
	plc.Unit(1).SetHolding(0, 7)
	open, ca, _ := behind(t, plc, same)
	d := open(ca.Namespace(t, "site-b"))
	if err := d.Write(t.Context(), driver.Channel{Address: "holding:0"}, uint16(9)); err == nil {
		t.Error("another namespace wrote")
	}
	if plc.Unit(1).Holding(0) != 7 {
		t.Error("another namespace's write was done")
	}
}

// Req: P-15
func TestWhatGoesWrongOnTheWayIsTold(t *testing.T) {
	for _, c := range []struct {
		name string
		wrap func(http.Handler) http.Handler
		want driver.Reason
		// maybe: a write may have been done.
		maybe bool
	}{
		{"a probe of another module", func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.Write([]byte(`{"code":404,"reason":"NotFound","message":"no such module"}`))
			})
		}, driver.ReasonProbeUnavailable, false},
		{"a probe that is busy", func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = w.Write([]byte(`{"code":503,"reason":"Busy","message":"too many"}`))
			})
		}, driver.ReasonNotMeasured, false},
		{"a probe that hangs up", func(http.Handler) http.Handler {
			return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		}, driver.ReasonConnectionLost, true},
		{"no probe at all", func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
		}, driver.ReasonProtocolError, true},
		{"a probe that does not answer", func(http.Handler) http.Handler {
			return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				// Only then the server notices that the client has gone.
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			})
		}, driver.ReasonTimeout, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			open, ca, _ := behind(t, started(t), c.wrap)
			d := open(ca.Namespace(t, "site-a"))
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			_, err := d.Read(ctx, []driver.Channel{{Address: "holding:0"}})
			if e, ok := errors.AsType[*driver.Error](err); !ok || e.Reason != c.want || e.Answered || !strings.Contains(e.Error(), "the probe at") {
				t.Errorf("read: %v, want %s", err, c.want)
			}
			ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if err := d.Write(ctx, driver.Channel{Address: "holding:0"}, uint16(1)); driver.ReasonOf(err) != c.want || driver.MaybeDone(err) != c.maybe {
				t.Errorf("write: %v, want %s", err, c.want)
			}
		})
	}
}

// Req: P-15
func TestAProbeThatIsGoneIsTold(t *testing.T) {
	open, ca, stop := behind(t, started(t), same)
	d := open(ca.Namespace(t, "site-a"))
	stop()
	err := d.Write(t.Context(), driver.Channel{Address: "holding:0"}, uint16(1))
	if driver.ReasonOf(err) != driver.ReasonProbeUnavailable || driver.MaybeDone(err) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("write: %v", err)
	}
	_ = d.Close()
	if _, err := d.Read(t.Context(), []driver.Channel{{Address: "holding:0"}}); err == nil {
		t.Error("a closed device was read")
	}
}

// Req: P-15, P-16 (a hold value is the last that is written)
func TestAnAbandonedWriteIsNotDoneAfterTheNext(t *testing.T) {
	plc := started(t)
	plc.Unit(1).SetHolding(0, 0)
	arrived := make(chan struct{})
	first := true
	open, ca, _ := behind(t, plc, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/write") && first {
				// On its way for long.
				first = false
				close(arrived)
				time.Sleep(300 * time.Millisecond)
				r = r.WithContext(context.WithoutCancel(r.Context()))
			}
			h.ServeHTTP(w, r)
		})
	})
	d := open(ca.Namespace(t, "site-a"))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if err := d.Write(ctx, driver.Channel{Address: "holding:0"}, uint16(1)); !driver.MaybeDone(err) {
		t.Errorf("the abandoned write: %v", err)
	}
	if err := d.Write(t.Context(), driver.Channel{Address: "holding:0"}, uint16(2)); err != nil {
		t.Errorf("the next write: %v", err)
	}
	time.Sleep(600 * time.Millisecond)
	if got := plc.Unit(1).Holding(0); got != 2 {
		t.Errorf("the register holds %d, want that of the later write", got)
	}
}
