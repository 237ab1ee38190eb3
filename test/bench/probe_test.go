package bench

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip/ethernetiptest"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus/modbustest"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua/opcuatest"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
	"github.com/fieldplane/fieldplane/pkg/probe/probetest"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/localcluster/child"
)

const (
	// What one probe asks: the plant of the budget.
	probedModbus     = 1000
	probedOPCUA      = 500
	probedEtherNetIP = 300
	probedDevices    = probedModbus + probedOPCUA + probedEtherNetIP
	// probing is how long the probe is measured.
	probing = 15 * time.Second

	probedNet           = 110
	probedOPCUANet      = 114
	probedEtherNetIPNet = 116
)

// polled is a simulated device that counts what it is asked.
type polled interface{ Requests() int }

// BenchmarkProbe is one io-probe with 1,000 Modbus, 500 OPC UA and 300 EtherNet/IP devices, each asked once a second over a
// connection of its own.
func BenchmarkProbe(b *testing.B) {
	var devices []polled
	var specs []v1alpha1.IOModuleSpec
	for _, device := range startDevices(b, probedNet, probedModbus) {
		devices, specs = append(devices, device), append(specs, modbusSpec(device))
	}
	for i := range probedOPCUA {
		server, err := opcuatest.New(opcuatest.Options{
			Address: net.JoinHostPort(loopback(probedOPCUANet, i), "4840"), Name: "Press",
			Variables: []opcuatest.Variable{{Path: "Line/Press/Force", Value: 12.5, Unit: "kN", High: 100}},
		})
		must(b, err)
		must(b, server.Start())
		b.Cleanup(server.Stop)
		devices = append(devices, server)
		specs = append(specs, v1alpha1.IOModuleSpec{Protocol: v1alpha1.ProtocolOPCUA, OPCUA: &v1alpha1.OPCUAConnection{
			Endpoint: server.Endpoint(), SecurityPolicy: v1alpha1.OPCUASecurityPolicyNone, SecurityMode: v1alpha1.OPCUASecurityModeNone,
		}})
	}
	for i := range probedEtherNetIP {
		device := ethernetiptest.New(net.JoinHostPort(loopback(probedEtherNetIPNet, i), "44818"))
		must(b, device.Start())
		b.Cleanup(func() { device.Close() })
		devices = append(devices, device)
		specs = append(specs, v1alpha1.IOModuleSpec{Protocol: v1alpha1.ProtocolEtherNetIP, Ethernetip: &v1alpha1.EtherNetIPConnection{Endpoint: device.Endpoint()}})
	}
	process, probe := startProbe(b, specs)
	connected := func() string {
		list, err := probe.List(b.Context())
		if err != nil {
			return err.Error()
		}
		n := 0
		for _, module := range list.Modules {
			if module.Connected && !module.Stale {
				n++
			}
		}
		if n < probedDevices {
			return fmt.Sprintf("%d of %d modules are connected%s", n, probedDevices, others(list))
		}
		return ""
	}
	harness.Eventually(b, 3*time.Minute, connected)

	requests := 0
	for _, device := range devices {
		requests -= device.Requests()
	}
	began, before := time.Now(), cpu(b, process.Pid())
	var memory float64
	for time.Since(began) < probing {
		time.Sleep(probing / 15)
		memory = max(memory, rss(b, process.Pid()))
	}
	took, used := time.Since(began), cpu(b, process.Pid())-before
	for _, device := range devices {
		requests += device.Requests()
	}
	if trouble := connected(); trouble != "" {
		b.Error(trouble)
	}
	experiment(b)
	report(b, float64(probedDevices), "modules", "")
	report(b, float64(requests)/took.Seconds(), "requests/s", "")
	report(b, used.Seconds()/took.Seconds(), "cores", "≤0.5")
	report(b, memory/1e6, "MB-RSS", "≤150")
}

// others says how the first module that is not connected is.
func others(list *api.List) string {
	for _, module := range list.Modules {
		if !module.Connected || module.Stale {
			return fmt.Sprintf("; %s: %s: %s", module.Name, module.Reason, module.Message)
		}
	}
	return ""
}

// startDevices runs Modbus devices, each on an address of its own, until the benchmark ends.
func startDevices(b *testing.B, third, n int) []*modbustest.Device {
	b.Helper()
	devices := make([]*modbustest.Device, n)
	for i := range devices {
		devices[i] = modbustest.New(net.JoinHostPort(loopback(third, i), "5020"))
		devices[i].Unit(1).SetIdentity(map[byte]string{0: "fieldplane", 1: "Mixer", 2: "1.0"}).SetHolding(0, 215, 1480)
		must(b, devices[i].Start())
		b.Cleanup(func() { devices[i].Close() })
	}
	return devices
}

// startProbe runs an io-probe for the devices, until the benchmark ends.
func startProbe(b *testing.B, specs []v1alpha1.IOModuleSpec) (*child.Process, *probeclient.Client) {
	b.Helper()
	const namespace = "bench"
	type entry struct {
		Name       string                `json:"name"`
		UID        string                `json:"uid"`
		Generation int64                 `json:"generation"`
		Spec       v1alpha1.IOModuleSpec `json:"spec"`
	}
	var config struct {
		Modules []entry `json:"modules"`
	}
	for i, spec := range specs {
		config.Modules = append(config.Modules, entry{fmt.Sprintf("module-%d", i), fmt.Sprintf("uid-%d", i), 1, spec})
	}
	text, err := json.Marshal(config)
	must(b, err)
	dir := b.TempDir()
	must(b, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
	authority := probetest.NewAuthority(b)
	authority.Write(b, dir, authority.Namespace(b, namespace))
	log, err := os.Create(filepath.Join(dir, "io-probe.log"))
	must(b, err)
	defer log.Close()
	listen := freeAddress(b)
	process, err := child.Start(child.Spec{
		Name: "io-probe", Path: filepath.Join(env.BinDir, "io-probe"), Output: log,
		Args: []string{
			"--config=" + filepath.Join(dir, "config.json"), "--tls-dir=" + dir, "--namespace=" + namespace,
			"--listen=" + listen, "--health-listen=" + freeAddress(b),
		},
	})
	must(b, err)
	b.Cleanup(process.Kill)
	return process, probeclient.New(listen, namespace, authority.Controllers(b), (&net.Dialer{}).DialContext, clock.RealClock{})
}

// modbusSpec asks a device with all defaults: once a second, three failures for a fault.
func modbusSpec(device *modbustest.Device) v1alpha1.IOModuleSpec {
	return v1alpha1.IOModuleSpec{Protocol: v1alpha1.ProtocolModbus, Modbus: &v1alpha1.ModbusConnection{Endpoint: device.Endpoint()}}
}

func freeAddress(b *testing.B) string {
	b.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	must(b, err)
	defer listener.Close()
	return listener.Addr().String()
}
