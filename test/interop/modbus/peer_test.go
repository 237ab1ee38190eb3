// Package modbus shows that our Modbus driver, and the probe that supervises by it, understand Modbus TCP servers that are
// not ours (modbus-serial and pymodbus), over a network that fails.
package modbus

import (
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
	"github.com/fieldplane/fieldplane/test/interop/faultproxy"
	"github.com/fieldplane/fieldplane/test/interop/npm"
)

// python is Debian's own, which is the one that its packages are for.
const python = "/usr/bin/python3"

// packages of Debian that pymodbus needs.
var packages = []string{"python3-pymodbus", "python3-serial-asyncio"}

// withoutPymodbus says why pymodbus cannot be had; it is set before any test runs.
var withoutPymodbus error

func TestMain(m *testing.M) {
	flag.Parse()
	// They wait more than they compute: more at once than there are processors.
	if err := flag.Set("test.parallel", "8"); err != nil {
		log.Fatal(err)
	}
	if err := npm.Install("serial"); err != nil {
		log.Fatal(err)
	}
	if withoutPymodbus = installPymodbus(); withoutPymodbus != nil && os.Getuid() == 0 {
		log.Fatal(withoutPymodbus)
	}
	os.Exit(m.Run())
}

// installPymodbus installs the packages, if they are not there already; that takes root.
func installPymodbus() error {
	if exec.Command(python, "-c", "import pymodbus.server").Run() == nil {
		return nil
	}
	if os.Getuid() != 0 {
		return fmt.Errorf("as root: apt-get install %s", strings.Join(packages, " "))
	}
	var output []byte
	var err error
	for _, before := range [][]string{nil, {"apt-get", "update"}} {
		if before != nil {
			_ = exec.Command(before[0], before[1:]...).Run()
		}
		install := exec.Command("apt-get", append([]string{"install", "-y", "--no-install-recommends"}, packages...)...)
		install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if output, err = install.CombinedOutput(); err == nil {
			return exec.Command(python, "-c", "import pymodbus.server").Run()
		}
	}
	return fmt.Errorf("apt-get install %s: %w\n%s", strings.Join(packages, " "), err, output)
}

// peer is a server that is not ours, in a process of its own.
type peer struct {
	address string
	program []string
	command *exec.Cmd
}

// peers are the servers by name; each test meets both.
var peers = map[string]func(*testing.T) *peer{
	"modbus-serial": modbusSerial,
	"pymodbus":      pymodbus,
}

// modbusSerial answers every unit id.
func modbusSerial(t *testing.T) *peer {
	return start(t, "node", filepath.Join("serial", "server.js"))
}

// pymodbus has the units 1 to 3, and is silent for others.
func pymodbus(t *testing.T) *peer {
	if withoutPymodbus != nil {
		t.Skip(withoutPymodbus)
	}
	return start(t, python, "pymodbus_server.py")
}

func start(t *testing.T, program ...string) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{address: l.Addr().String(), program: program}
	_ = l.Close()
	t.Cleanup(p.stop)
	p.start(t)
	return p
}

// start starts the process, the first time or after stop, and waits until it listens.
func (p *peer) start(t *testing.T) {
	t.Helper()
	host, port, err := net.SplitHostPort(p.address)
	if err != nil {
		t.Fatal(err)
	}
	var output strings.Builder
	p.command = exec.Command(p.program[0], append(p.program[1:], host, port)...)
	p.command.Stdout, p.command.Stderr = &output, &output
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", p.address)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(end) {
			p.stop()
			t.Fatalf("%v does not listen: %s", p.program, output.String())
		}
	}
}

// stop kills the process.
func (p *peer) stop() {
	if p.command != nil {
		_ = p.command.Process.Kill()
		_ = p.command.Wait()
		p.command = nil
	}
}

// withEach runs a test against each server, behind a network that can fail.
func withEach(t *testing.T, test func(t *testing.T, p *peer, network *faultproxy.Proxy)) {
	for name, run := range peers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := run(t)
			test(t, p, faultproxy.Start(t, p.address))
		})
	}
}

func newDriver() *modbus.Driver {
	return modbus.New((&net.Dialer{}).DialContext, driver.NewConnectLimit(20))
}

func open(t *testing.T, d *modbus.Driver, c modbus.Config) driver.Device {
	t.Helper()
	if c.UnitID == 0 {
		c.UnitID = 1
	}
	device, err := d.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Close() })
	return device
}

func endpoint(network *faultproxy.Proxy) string { return "tcp://" + network.Addr() }

func mustCheck(t *testing.T, device driver.Device) {
	t.Helper()
	if _, err := device.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func mustFail(t *testing.T, device driver.Device, want ...driver.Reason) {
	t.Helper()
	_, err := device.Check(t.Context())
	for _, reason := range want {
		if err != nil && driver.ReasonOf(err) == reason {
			return
		}
	}
	t.Fatalf("the check ended with %v, want %v", err, want)
}

// mustRecover checks until the device answers, which it must by itself.
func mustRecover(t *testing.T, device driver.Device) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		_, err := device.Check(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
