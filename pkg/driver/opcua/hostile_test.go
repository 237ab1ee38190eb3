package opcua

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uapolicy"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-13 (typed reasons; a hostile device)
func TestAHostileServerIsToldByItsReason(t *testing.T) {
	replaceBody := func(stage string, body []byte) func(string, []byte) []byte {
		return func(at string, reply []byte) []byte {
			if at != stage {
				return reply
			}
			return rebody(reply, body)
		}
	}
	u32 := func(v ...uint32) (b []byte) {
		for _, n := range v {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
		return b
	}
	header := func(encoding uint16, rest ...byte) []byte {
		b := []byte{1, 0, byte(encoding), byte(encoding >> 8)}
		b = append(b, make([]byte, 8+4+4+1)...)    // time, handle, result, diagnostics
		b = append(b, 255, 255, 255, 255, 0, 0, 0) // strings, additional header
		return append(b, rest...)
	}
	nested := func(n int) (b []byte) {
		b = append(u32(1), 1)
		for range n {
			b = append(b, byte(ua.TypeIDVariant))
		}
		return append(b, 1, 1)
	}
	for _, c := range []struct {
		name  string
		spoil func(stage string, reply []byte) []byte
		want  driver.Reason
	}{
		{"HTTP", func(string, []byte) []byte { return []byte("HTTP/1.1 400 Bad Request\r\n\r\n") }, driver.ReasonProtocolError},
		{"a chunk of 4 GiB", func(string, []byte) []byte { return append([]byte("ACKF"), 255, 255, 255, 255) }, driver.ReasonProtocolError},
		{"a chunk of 3 bytes", func(string, []byte) []byte { return append([]byte("ACKF"), 3, 0, 0, 0) }, driver.ReasonProtocolError},
		{"buffers of nothing", func(at string, reply []byte) []byte {
			if at == "HEL" {
				return append([]byte("ACKF"), u32(28, 0, 0, 0, 0, 0)...)
			}
			return reply
		}, driver.ReasonProtocolError},
		{"an Error instead of Acknowledge", func(string, []byte) []byte {
			return append([]byte("ERRF"), u32(16, uint32(ua.StatusBadTCPEndpointURLInvalid), 0xFFFFFFFF)...)
		}, driver.ReasonConfigurationError},
		{"no body", replaceBody("Read", nil), driver.ReasonProtocolError},
		{"a body of one byte", replaceBody("Read", []byte{1}), driver.ReasonProtocolError},
		{"the reply to something else", replaceBody("Read", header(writeResponse, u32(0)...)), driver.ReasonProtocolError},
		{"an array of 2 billion values", replaceBody("Read", header(readResponse, u32(0x7FFFFFFF)...)), driver.ReasonProtocolError},
		{"an array of minus two values", replaceBody("Read", header(readResponse, u32(0xFFFFFFFE)...)), driver.ReasonProtocolError},
		{"two values where one was asked for", replaceBody("Read", header(readResponse, append(u32(2), 0, 0)...)), driver.ReasonProtocolError},
		{"a variant array of minus two elements", replaceBody("Read", header(readResponse, append(append(u32(1), 1, 0x86), 0xFE, 255, 255, 255)...)), driver.ReasonProtocolError},
		{"a variant array of 2 billion booleans", replaceBody("Read", header(readResponse, append(append(u32(1), 1, 0x81), 255, 255, 255, 0x7F)...)), driver.ReasonProtocolError},
		{"variants nested 5,000 deep", replaceBody("Read", header(readResponse, nested(5000)...)), driver.ReasonProtocolError},
		{"a type that is none", replaceBody("Read", header(readResponse, append(u32(1), 1, 0x3F)...)), driver.ReasonProtocolError},
		{"a million endpoints", func(at string, reply []byte) []byte {
			if at == "CreateSession" {
				return rebody(reply, header(createSessionResponse, append([]byte{0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255}, u32(1_000_000)...)...))
			}
			return reply
		}, driver.ReasonProtocolError},
		{"another channel", func(at string, reply []byte) []byte {
			if at == "Read" {
				reply[8] ^= 1
			}
			return reply
		}, driver.ReasonProtocolError},
		{"another token", func(at string, reply []byte) []byte {
			if at == "Read" {
				reply[12] ^= 1
			}
			return reply
		}, driver.ReasonProtocolError},
		{"another policy", func(at string, reply []byte) []byte {
			if at == "OPN" {
				reply[20] ^= 1
			}
			return reply
		}, driver.ReasonProtocolError},
		{"chunks without end", func(at string, reply []byte) []byte {
			if at != "Read" {
				return reply
			}
			big := rebody(reply, make([]byte, 60_000))
			big[3] = 'C'
			var all []byte
			for range 80 {
				all = append(all, big...)
			}
			return all
		}, driver.ReasonProtocolError},
		{"an aborted reply", func(at string, reply []byte) []byte {
			if at != "Read" {
				return reply
			}
			reply = rebody(reply, u32(uint32(ua.StatusBadTCPInternalError), 0xFFFFFFFF))
			reply[3] = 'A'
			return reply
		}, driver.ReasonProtocolError},
		{"the channel is closed", func(at string, reply []byte) []byte {
			if at != "Read" {
				return reply
			}
			return append([]byte("CLOF"), u32(8)...)
		}, driver.ReasonConnectionLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.spoil = c.spoil
			f.serve()
			config := f.plain()
			config.Timeout = 3 * time.Second
			dev := opened(t, testDriver(Options{}), config)
			for range 2 {
				if _, err := dev.Check(t.Context()); err == nil || driver.ReasonOf(err) != c.want {
					t.Errorf("%v, want %s", err, c.want)
				}
			}
		})
	}
}

// rebody replaces what follows the sequence header of a chunk that is a MSG.
func rebody(chunk, body []byte) []byte {
	out := append(append([]byte{}, chunk[:24]...), body...)
	binary.LittleEndian.PutUint32(out[4:], uint32(len(out)))
	return out
}

// Req: P-13 (malformed replies: the probe lives)
func TestSpoiledRepliesNeverEndTheProcess(t *testing.T) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	f := newFixture(t)
	f.spoil = func(_ string, reply []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		switch random.IntN(6) {
		case 0:
			for range 1 + random.IntN(8) {
				reply[8+random.IntN(len(reply)-8)] = byte(random.Uint32())
			}
		case 1:
			reply = reply[:random.IntN(len(reply))]
			if len(reply) >= 8 {
				binary.LittleEndian.PutUint32(reply[4:], uint32(len(reply)))
			}
		case 2:
			at := 24 + random.IntN(max(1, len(reply)-24))
			if at+4 <= len(reply) {
				binary.LittleEndian.PutUint32(reply[at:], []uint32{0x7FFFFFFF, 0xFFFFFFFE, 0x80000000, 0xFFFF, 1 << 24}[random.IntN(5)])
			}
		}
		return reply
	}
	f.serve()
	config := f.plain()
	config.Timeout = 20 * time.Millisecond
	dev := opened(t, testDriver(Options{}), config)
	succeeded := 0
	for range 150 {
		if _, err := dev.Check(t.Context()); err == nil {
			succeeded++
		}
		_, _ = dev.Identify(t.Context())
		_, _ = driver.ReadOne(t.Context(), dev, driver.Channel{Address: "ns=2;s=v"})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, _ = dev.Channels(ctx, 10)
		cancel()
		dev.connection.mu.Lock()
		dev.connection.notBefore = time.Time{}
		dev.connection.mu.Unlock()
	}
	if succeeded == 0 {
		t.Error("not one check succeeded: the test tests nothing")
	}
}

// Req: P-13
func FuzzReply(f *testing.F) {
	f.Add([]byte{1, 0, 0x7A, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 1, 0, 0, 0, 1, 0x86, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0})
	f.Add([]byte{0x18, 0x18, 0x18, 0x97, 3, 0, 0, 0, 1, 12, 5, 0, 0, 0, 'h', 'e'})
	none, err := uapolicy.Symmetric(PolicyNone.uri(), nil, nil)
	if err != nil {
		f.Fatal(err)
	}
	signed, err := uapolicy.Symmetric(PolicyBasic256Sha256.uri(), make([]byte, 32), make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, read := range []func(*decoder){
			func(d *decoder) { _ = d.response(readResponse); d.dataValue(0) },
			func(d *decoder) { d.variant(0) },
			func(d *decoder) { d.endpoints() },
			func(d *decoder) { d.browseResult() },
			func(d *decoder) { d.extensionObject(); d.diagnosticInfo(0) },
		} {
			d := &decoder{b: raw}
			read(d)
			if d.err == nil && len(d.b) > len(raw) {
				t.Fatal("more is left than there was")
			}
		}
		for _, algorithm := range []*uapolicy.EncryptionAlgorithm{none, signed} {
			_, _ = verified(raw, min(8, len(raw)), algorithm, true, true)
			_, _ = verified(raw, min(8, len(raw)), algorithm, true, false)
		}
	})
}

// descriptors is how many files and sockets this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(entries)
}

// Req: P-13 (no leaked socket, goroutine or session)
func TestFailuresLeaveNothingBehind(t *testing.T) {
	f := newFixture(t)
	var current atomic.Int32
	f.spoil = func(at string, reply []byte) []byte {
		mode := int(current.Load())
		stages := []string{"HEL", "OPN", "CreateSession", "ActivateSession", "Read"}
		if at != stages[mode%len(stages)] {
			return reply
		}
		switch mode / len(stages) % 3 {
		case 0:
			return nil
		case 1:
			return []byte("nonsense, and more of it")
		default:
			f.mu.Lock()
			defer f.mu.Unlock()
			for conn := range f.conns {
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			}
			return nil
		}
	}
	f.serve()
	d := testDriver(Options{})
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	for i := range 300 {
		current.Store(int32(i))
		config := f.plain()
		config.Timeout = 10 * time.Millisecond
		dev, err := d.Open(config)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, _ = dev.Check(t.Context())
		}
		// Close waits for all that the device started: no other fixture's connection sees another's mode.
		_ = dev.Close()
	}
	if n := d.Sessions(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		g, n := runtime.NumGoroutine(), descriptors(t)
		if g <= goroutines && n <= files {
			break
		}
		if time.Now().After(end) {
			buffer := make([]byte, 1<<16)
			t.Fatalf("%d goroutines and %d files, before %d and %d\n%s", g, n, goroutines, files, buffer[:runtime.Stack(buffer, true)])
		}
	}
}
