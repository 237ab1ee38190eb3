package unitruntime

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/probe"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

const (
	benchDevices = 200
	benchTags    = 100
)

// BenchmarkTags reads 20,000 tags of 200 devices once a second, with one follower of all tags, as `kubectl fieldplane tags -w` is one
// through the server. For Modbus the devices run in the same process, and their time is in the result.
func BenchmarkTags(b *testing.B) {
	for _, c := range []struct {
		name   string
		follow bool
		entry  func(b *testing.B, i int) (module string, tag func(j int) string)
	}{
		{"simulation", false, simulated},
		{"simulation-followed", true, simulated},
		{"modbus", false, overModbus},
	} {
		b.Run(c.name, func(b *testing.B) { benchmarkTags(b, c.entry, c.follow) })
	}
}

func simulated(_ *testing.B, i int) (string, func(int) string) {
	var channels []string
	for j := range benchTags {
		channels = append(channels, fmt.Sprintf(`{"name":"c%d","address":"c%d","dataType":"float32"}`, j, j))
	}
	module := fmt.Sprintf(`{"name":"d%d","uid":"d%d","generation":1,"spec":{"protocol":"simulation","simulation":{"seed":%d},"channels":[%s]}}`, i, i, i, strings.Join(channels, ","))
	return module, func(j int) string { return fmt.Sprintf(`"address":"c%d","dataType":"float32"`, j) }
}

func overModbus(b *testing.B, i int) (string, func(int) string) {
	d := modbustest.New("127.0.0.1:0")
	d.Unit(1).SetHolding(0, make([]uint16, benchTags)...)
	if err := d.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = d.Close() })
	module := fmt.Sprintf(`{"name":"d%d","uid":"d%d","generation":1,"spec":{"protocol":"modbus","modbus":{"endpoint":%q}}}`, i, i, d.Endpoint())
	return module, func(j int) string {
		return fmt.Sprintf(`"address":"holding:%d","dataType":"uint16","scaling":{"factor":0.1}`, j)
	}
}

func benchmarkTags(b *testing.B, entry func(*testing.B, int) (string, func(int) string), follow bool) {
	var modules, tags []string
	for i := range benchDevices {
		module, tag := entry(b, i)
		modules = append(modules, module)
		for j := range benchTags {
			tags = append(tags, fmt.Sprintf(`{"controlModule":"m%d","name":"t%d","ioModule":"d%d",%s}`, i, j, i, tag(j)))
		}
	}
	c, err := ParseConfig([]byte(configFile(modules, tags...)))
	if err != nil {
		b.Fatal(err)
	}
	r := New(Options{
		Open: func(m Module) (driver.Device, error) {
			return probe.Drivers{Modbus: modbus.New((&net.Dialer{}).DialContext, driver.NewConnectLimit(20)), Now: time.Now, Start: time.Now()}.Open(m.Spec)
		},
		Clock: clock.RealClock{}, BootID: "boot", NewID: func() string { return "id" },
		State: NewStateFile(b.TempDir()+"/state.json", clock.RealClock{}), Log: logr.Discard(), Registry: prometheus.NewRegistry(),
	})
	b.Cleanup(r.Stop)
	began := time.Now()
	r.Apply(c)
	if _, failure := r.PutOrder(context.Background(), api.Order{UID: "unit-1", Revision: 1, State: isa88.Running}); failure != nil {
		b.Fatal(failure)
	}
	for good := 0; good < benchDevices*benchTags; time.Sleep(50 * time.Millisecond) {
		if good, _, _ = r.values.count(); time.Since(began) > time.Minute {
			b.Fatalf("%d tags are Good after a minute", good)
		}
	}

	ctx, cancel := context.WithCancel(context.Background())
	events := make(chan int, 1)
	if follow {
		go func() {
			n, known := 0, told{}
			for ctx.Err() == nil {
				changed, _ := r.values.news(known)
				n += len(inJSON(api.TagEvent{Type: api.TagChange, Tags: changed}))
				time.Sleep(pace)
			}
			events <- n
		}()
	}
	const measured = 5 * time.Second
	b.ResetTimer()
	for range b.N {
		cpu := processTime(b)
		worst := 0
		for end := time.Now().Add(measured); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
			good, _, _ := r.values.count()
			worst = max(worst, benchDevices*benchTags-good)
		}
		b.ReportMetric(float64(processTime(b)-cpu)/float64(measured)*100, "%core")
		b.ReportMetric(float64(worst), "not-good")
		b.ReportMetric(resident(b), "RSS-MB")
	}
	b.StopTimer()
	cancel()
	if follow {
		b.ReportMetric(float64(<-events)/(measured.Seconds()*float64(b.N))/1e6, "MB/s-told")
	}
}

// BenchmarkReload reads and applies a config of 20,000 tags that is the same as before.
func BenchmarkReload(b *testing.B) {
	var modules, tags []string
	for i := range benchDevices {
		module, tag := simulated(b, i)
		modules = append(modules, module)
		for j := range benchTags {
			tags = append(tags, fmt.Sprintf(`{"controlModule":"m%d","name":"t%d","ioModule":"d%d",%s,"access":"ReadWrite","holdValue":"0"}`, i, j, i, tag(j)))
		}
	}
	file := []byte(configFile(modules, tags...))
	r := New(Options{
		Open: func(m Module) (driver.Device, error) {
			return probe.Drivers{Now: time.Now, Start: time.Now()}.Open(m.Spec)
		},
		Clock: clock.RealClock{}, BootID: "boot", NewID: func() string { return "id" },
		State: NewStateFile(b.TempDir()+"/state.json", clock.RealClock{}), Log: logr.Discard(), Registry: prometheus.NewRegistry(),
	})
	b.Cleanup(r.Stop)
	for b.Loop() {
		c, err := ParseConfig(file)
		if err != nil {
			b.Fatal(err)
		}
		r.Apply(c)
	}
	b.ReportMetric(float64(len(file))/1e6, "MB")
}

// processTime is the time that this process has had of all cores.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is the process's memory in MB.
func resident(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		b.Fatal(err)
	}
	return float64(pages*os.Getpagesize()) / 1e6
}
