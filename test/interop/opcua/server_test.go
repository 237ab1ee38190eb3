// Package opcua shows that our OPC UA driver and a server that is not ours, node-opcua, understand each other.
package opcua

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua"
	"github.com/fieldplane/fieldplane/test/interop/npm"
)

func TestMain(m *testing.M) {
	if err := npm.Install("server"); err != nil {
		log.Fatal(err)
	}
	var err error
	if identity, err = os.MkdirTemp("", "opcua"); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	if plantServer.running != nil {
		plantServer.running.stop()
	}
	_ = os.RemoveAll(identity)
	os.Exit(code)
}

// identity is where the servers keep their certificate, which takes them seconds to make. It is set before any test runs.
var identity string

// settings are the options of server/server.js.
type settings struct {
	Host                        string `json:"host,omitempty"`
	Port                        int    `json:"port,omitempty"`
	Dir                         string `json:"dir"`
	Variables                   int    `json:"variables"`
	Flat                        int    `json:"flat,omitempty"`
	MaxSessions                 int    `json:"maxSessions,omitempty"`
	MaxNodesPerRead             int    `json:"maxNodesPerRead,omitempty"`
	MaxNodesPerBrowse           int    `json:"maxNodesPerBrowse,omitempty"`
	MaxBrowseContinuationPoints int    `json:"maxBrowseContinuationPoints,omitempty"`
	MaxReferencesPerNode        int    `json:"maxReferencesPerNode,omitempty"`
	KeySize                     int    `json:"keySize,omitempty"`
	TrustClients                *bool  `json:"trustClients,omitempty"`
	Advertise                   string `json:"advertise,omitempty"`
}

// plantServer is one server of 100 variables without limits, for all tests that spoil nothing of it: its start takes
// longer than most of them.
var plantServer struct {
	once    sync.Once
	running *server
}

// shared is the plant server.
func shared(t testing.TB) *server {
	t.Helper()
	plantServer.once.Do(func() { plantServer.running = launch(t, settings{Variables: 100}) })
	if plantServer.running == nil {
		t.Fatal("the plant server did not start")
	}
	return plantServer.running
}

// server is a running server process.
type server struct {
	Port        int
	Thumbprint  string
	SHA1        string
	Certificate []byte

	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Scanner
}

// start starts a server that ends with the test.
func start(t testing.TB, s settings) *server {
	t.Helper()
	running := launch(t, s)
	t.Cleanup(running.stop)
	return running
}

// launch starts a server and waits until it listens.
func launch(t testing.TB, s settings) *server {
	t.Helper()
	if s.Dir == "" {
		s.Dir = identity
	}
	argument, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("node", filepath.Join("server", "server.js"), string(argument))
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = stderr
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	running := &server{command: command, input: input, output: bufio.NewScanner(output)}
	running.output.Buffer(nil, 1<<20)
	if !running.scan() {
		running.stop()
		text, _ := os.ReadFile(stderr.Name())
		t.Fatalf("the server did not start:\n%s", text)
	}
	if err := json.Unmarshal(running.output.Bytes(), running); err != nil {
		t.Fatalf("%s: %v", running.output.Bytes(), err)
	}
	return running
}

// scan reads the next line of JSON; node-opcua writes its warnings to the same place.
func (s *server) scan() bool {
	for s.output.Scan() {
		if bytes.HasPrefix(s.output.Bytes(), []byte("{")) {
			return true
		}
	}
	return false
}

// stop ends the server as a power failure does: nothing is said to its clients.
func (s *server) stop() {
	_ = s.command.Process.Kill()
	_, _ = s.command.Process.Wait()
	_ = s.input.Close()
}

// ask sends one word, and reads the answer into one value.
func (s *server) ask(t testing.TB, word string, into any) {
	t.Helper()
	if _, err := fmt.Fprintln(s.input, word); err != nil {
		t.Fatal(err)
	}
	if !s.scan() {
		t.Fatal("the server is gone")
	}
	if err := json.Unmarshal(s.output.Bytes(), into); err != nil {
		t.Fatal(err)
	}
}

// counts is what the server counted since its start; CPU is in microseconds.
type counts struct{ Current, Cumulated, Rejected, Connections, CPU int }

func (s *server) counts(t testing.TB) (c counts) {
	t.Helper()
	s.ask(t, "counts", &c)
	return c
}

func (s *server) endpoint() string { return fmt.Sprintf("opc.tcp://127.0.0.1:%d/plant", s.Port) }

// plain is the configuration without security.
func (s *server) plain() opcua.Config {
	return opcua.Config{Endpoint: s.endpoint(), SecurityPolicy: opcua.PolicyNone}
}

// newDriver is a driver whose credentials are the map.
func newDriver(credentials map[string]string) *opcua.Driver {
	var dialer net.Dialer
	return opcua.New(dialer.DialContext, driver.NewConnectLimit(20), opcua.Options{Credentials: func(key string) ([]byte, error) {
		if value, ok := credentials[key]; ok {
			return []byte(value), nil
		}
		return nil, os.ErrNotExist
	}})
}

// device is what the driver opens.
type device interface {
	driver.Device
	Channels(ctx context.Context, limit int) (driver.ChannelList, error)
	Write(ctx context.Context, channel driver.Channel, value any) error
}

// open opens a device of the configuration, which is closed with the test.
func open(t testing.TB, d *opcua.Driver, c opcua.Config) device {
	t.Helper()
	opened, err := d.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return opened.(device)
}

// check checks until the device answers: on a loaded machine a session may take more than one timeout to open.
func check(t testing.TB, device driver.Device) driver.Answer {
	t.Helper()
	var err error
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
		var answer driver.Answer
		if answer, err = device.Check(context.Background()); err == nil {
			return answer
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal(err)
	return driver.Answer{}
}
