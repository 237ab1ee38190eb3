package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/probe/probetest"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/runtimeclient"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/localcluster/child"
)

const (
	readDevices   = 200
	tagsPerDevice = 100
	readTags      = readDevices * tagsPerDevice
	readNet       = 118
	// reading is how long a runtime is measured, each time.
	reading = 15 * time.Second
	// readUnit is the uid of the Unit.
	readUnit = "unit-1"
)

// BenchmarkTags is one unit-runtime that reads 20,000 tags of 200 Modbus devices once a second, each device over a connection of its
// own, while its Unit is Running; then the same with somebody who follows all tags.
func BenchmarkTags(b *testing.B) {
	devices := startDevices(b, readNet, readDevices)
	for _, device := range devices {
		device.Unit(1).SetHolding(0, make([]uint16, tagsPerDevice)...)
	}
	runtime := startRuntime(b, devices)
	runtime.order(b)
	harness.Eventually(b, time.Minute, runtime.allGood)
	b.Run("read", func(b *testing.B) {
		requests := -requestsTo(devices)
		took := runtime.measure(b)
		requests += requestsTo(devices)
		report(b, float64(requests)/took.Seconds(), "requests/s", "")
	})
	b.Run("read-and-followed", func(b *testing.B) {
		ctx, cancel := context.WithCancel(b.Context())
		var following sync.WaitGroup
		defer following.Wait()
		defer cancel()
		var told atomic.Int64
		following.Go(func() {
			_ = runtime.client.WatchTags(ctx, func(event api.TagEvent) { told.Add(int64(len(event.Tags))) })
		})
		harness.Eventually(b, time.Minute, func() string {
			if told.Load() < readTags {
				return fmt.Sprintf("%d tags were told", told.Load())
			}
			return ""
		})
		before := told.Load()
		took := runtime.measure(b)
		report(b, float64(told.Load()-before)/took.Seconds(), "told/s", "")
	})
	experiment(b)
}

func requestsTo(devices []*modbustest.Device) (n int) {
	for _, device := range devices {
		n += device.Requests()
	}
	return n
}

// runtimeProcess is a unit-runtime in a process of its own.
type runtimeProcess struct {
	process *child.Process
	client  *runtimeclient.Client
	// health is where it serves its metrics.
	health string
}

// startRuntime runs a unit-runtime that reads tagsPerDevice tags of each device, until the benchmark ends.
func startRuntime(b *testing.B, devices []*modbustest.Device) *runtimeProcess {
	b.Helper()
	const namespace = "bench"
	type module struct {
		Name       string                `json:"name"`
		UID        string                `json:"uid"`
		Generation int64                 `json:"generation"`
		Spec       v1alpha1.IOModuleSpec `json:"spec"`
	}
	type scaling struct {
		Factor float64 `json:"factor"`
	}
	type tag struct {
		ControlModule string  `json:"controlModule"`
		Name          string  `json:"name"`
		IOModule      string  `json:"ioModule"`
		Address       string  `json:"address"`
		DataType      string  `json:"dataType"`
		Period        string  `json:"period"`
		Scaling       scaling `json:"scaling"`
	}
	var config struct {
		Unit    map[string]any `json:"unit"`
		Modules []module       `json:"modules"`
		Tags    []tag          `json:"tags"`
	}
	config.Unit = map[string]any{"name": "mixer", "uid": readUnit, "generation": 1}
	for i, device := range devices {
		name := fmt.Sprintf("module-%d", i)
		config.Modules = append(config.Modules, module{name, fmt.Sprintf("uid-%d", i), 1, modbusSpec(device)})
		for j := range tagsPerDevice {
			config.Tags = append(config.Tags, tag{name, fmt.Sprintf("tag-%d", j), name, fmt.Sprintf("holding:%d", j), "uint16", "1s", scaling{0.1}})
		}
	}
	text, err := json.Marshal(config)
	must(b, err)
	dir := b.TempDir()
	must(b, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
	authority := probetest.NewAuthority(b)
	authority.Write(b, dir, authority.Namespace(b, namespace))
	log, err := os.Create(filepath.Join(dir, "unit-runtime.log"))
	must(b, err)
	defer log.Close()
	listen, health := freeAddress(b), freeAddress(b)
	process, err := child.Start(child.Spec{
		Name: "unit-runtime", Path: filepath.Join(env.BinDir, "unit-runtime"), Output: log,
		Args: []string{
			"--config=" + filepath.Join(dir, "config.json"), "--tls-dir=" + dir, "--namespace=" + namespace, "--listen=" + listen,
			"--health-listen=" + health, "--state-file=" + filepath.Join(dir, "state.json"),
		},
	})
	must(b, err)
	b.Cleanup(process.Kill)
	client := runtimeclient.New(listen, namespace, authority.Controllers(b), (&net.Dialer{}).DialContext, clock.RealClock{})
	b.Cleanup(client.Close)
	return &runtimeProcess{process, client, health}
}

// order has the Unit run, and repeats it as the controllers do, until the benchmark ends.
func (r *runtimeProcess) order(b *testing.B) {
	b.Helper()
	put := func(ctx context.Context) error {
		_, err := r.client.Put(ctx, api.Order{UID: readUnit, Revision: 1, State: isa88.Running})
		return err
	}
	harness.Eventually(b, 10*time.Second, func() string {
		if err := put(b.Context()); err != nil {
			return err.Error()
		}
		return ""
	})
	ctx, cancel := context.WithCancel(b.Context())
	var ordering sync.WaitGroup
	b.Cleanup(func() { cancel(); ordering.Wait() })
	ordering.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(api.KeepAlive):
				_ = put(ctx)
			}
		}
	})
}

// measure reports what the runtime takes for a while, in which every tag must be Good whenever it is looked at.
func (r *runtimeProcess) measure(b *testing.B) time.Duration {
	b.Helper()
	began, before := time.Now(), cpu(b, r.process.Pid())
	var memory float64
	for time.Since(began) < reading {
		time.Sleep(reading / 15)
		memory = max(memory, rss(b, r.process.Pid()))
		if trouble := r.allGood(); trouble != "" {
			b.Error(trouble)
		}
	}
	took, used := time.Since(began), cpu(b, r.process.Pid())-before
	experiment(b)
	report(b, readTags, "tags", "")
	report(b, used.Seconds()/took.Seconds(), "cores", "")
	report(b, memory/1e6, "MB-RSS", "")
	return took
}

// allGood tells by the runtime's metrics whether all tags are Good: "" if they are.
func (r *runtimeProcess) allGood() string {
	const good = `fieldplane_runtime_tags{quality="Good"} `
	response, err := http.Get("http://" + r.health + "/metrics")
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), good); ok {
			if n, err := strconv.Atoi(text); err != nil || n != readTags {
				return fmt.Sprintf("%s of %d tags are Good", text, readTags)
			}
			return ""
		}
	}
	return "no count of tags is told"
}
