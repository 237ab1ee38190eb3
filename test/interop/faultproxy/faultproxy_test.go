package faultproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must come, and brief how long for what must not.
const (
	patience = 5 * time.Second
	brief    = 100 * time.Millisecond
)

// echo answers each line by itself, and counts what reached it.
type echo struct {
	net.Listener
	mu    sync.Mutex
	lines []string
	conns int
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			e.mu.Lock()
			e.conns++
			e.mu.Unlock()
			go func() {
				defer func() { _ = conn.Close() }()
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					e.mu.Lock()
					e.lines = append(e.lines, lines.Text())
					e.mu.Unlock()
					_, _ = io.WriteString(conn, lines.Text()+"\n")
				}
			}()
		}
	}()
	return e
}

func (e *echo) received() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.lines, ",")
}

// client is a connection through the proxy.
type client struct {
	*testing.T
	net.Conn
	lines *bufio.Reader
}

func connect(t *testing.T, p *Proxy) *client {
	t.Helper()
	conn, err := net.DialTimeout("tcp", p.Addr(), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{t, conn, bufio.NewReader(conn)}
}

func (c *client) say(text string) {
	c.Helper()
	if _, err := io.WriteString(c.Conn, text+"\n"); err != nil {
		c.Fatal(err)
	}
}

func (c *client) hear(within time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(within))
	line, err := c.lines.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (c *client) mustHear(want string) {
	c.Helper()
	if got, err := c.hear(patience); got != want {
		c.Fatalf("heard %q, %v, want %q", got, err, want)
	}
}

func (c *client) mustHearNothing() {
	c.Helper()
	if got, err := c.hear(brief); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.Fatalf("heard %q, %v, want silence", got, err)
	}
}

func (c *client) mustBeReset() {
	c.Helper()
	if got, err := c.hear(patience); !errors.Is(err, syscall.ECONNRESET) {
		c.Fatalf("heard %q, %v, want a reset", got, err)
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}

func TestTrafficFlowsAndEndsInOrder(t *testing.T) {
	p := Start(t, startEcho(t).Addr().String())
	c := connect(t, p)
	c.say("one")
	c.mustHear("one")
	if p.Accepted() != 1 || p.Open() != 1 || p.Reached() != 1 {
		t.Errorf("%d accepted, %d open, %d reached the device", p.Accepted(), p.Open(), p.Reached())
	}
	_ = c.Conn.(*net.TCPConn).CloseWrite()
	if _, err := c.hear(patience); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want an orderly end", err)
	}
	_ = c.Close()
	eventually(t, "the link ends", func() bool { return p.Open() == 0 })
}

func TestABlackHoleHoldsBackWhatWasOnItsWay(t *testing.T) {
	device := startEcho(t)
	p := Start(t, device.Addr().String())
	c := connect(t, p)
	c.say("one")
	c.mustHear("one")
	p.Blackhole(true)
	c.say("two")
	c.mustHearNothing()
	born := connect(t, p)
	born.say("three")
	born.mustHearNothing()
	p.Blackhole(false)
	c.mustHear("two")
	born.mustBeReset()
	if got := device.received(); got != "one,two" || p.Reached() != 1 {
		t.Errorf("the device received %s over %d connections", got, p.Reached())
	}
	after := connect(t, p)
	after.say("four")
	after.mustHear("four")
}

func TestResetRefuseAndAccept(t *testing.T) {
	p := Start(t, startEcho(t).Addr().String())
	c := connect(t, p)
	c.say("one")
	c.mustHear("one")
	p.Reset()
	c.mustBeReset()
	c = connect(t, p)
	c.say("two")
	c.mustHear("two")
	p.Refuse()
	c.mustBeReset()
	if _, err := net.DialTimeout("tcp", p.Addr(), patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want a refusal", err)
	}
	if err := p.Accept(); err != nil {
		t.Fatal(err)
	}
	c = connect(t, p)
	c.say("three")
	c.mustHear("three")
}

func TestAHalfOpenConnectionSaysNothingAndANewOneWorks(t *testing.T) {
	p := Start(t, startEcho(t).Addr().String())
	c := connect(t, p)
	c.say("one")
	c.mustHear("one")
	p.HalfOpen()
	c.say("two")
	c.mustHearNothing()
	after := connect(t, p)
	after.say("three")
	after.mustHear("three")
	c.say("four")
	c.mustHearNothing()
}

func TestDelaysSlowBytesAndSpoiledReplies(t *testing.T) {
	p := Start(t, startEcho(t).Addr().String())
	c := connect(t, p)
	p.DelayNext(2 * brief)
	c.say("one")
	c.mustHearNothing()
	c.mustHear("one")
	c.say("two")
	c.mustHear("two")

	p.Delay(2 * brief)
	c.say("three")
	c.mustHearNothing()
	c.mustHear("three")
	p.Delay(0)

	p.SlowBytes(brief / 2)
	started := time.Now()
	c.say("four")
	c.mustHear("four")
	if took := time.Since(started); took < 4*brief/2 {
		t.Errorf("five bytes took %s", took)
	}
	p.SlowBytes(0)

	p.Rewrite(func(reply []byte) []byte { reply[0] = 'F'; return reply })
	c.say("five")
	c.mustHear("Five")
}

func TestADeviceThatIsNotThereResetsItsClients(t *testing.T) {
	device := startEcho(t)
	_ = device.Close()
	p := Start(t, device.Addr().String())
	conn, err := net.DialTimeout("tcp", p.Addr(), patience)
	if err == nil {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	// The reset may come before the client has noticed that it was connected.
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	if p.Reached() != 0 {
		t.Error("a connection reached a device that is not there")
	}
}
