package driver

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// Req: P-16b (what was given up does not arrive later)
func TestAConnectionThatIsGivenUpDeliversNothingMore(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	conn, err := Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = peer.Close() }()
	// More than the peer's window takes, so that some of it waits to be delivered.
	_ = conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	sent := 0
	for err == nil {
		var n int
		n, err = conn.Write(make([]byte, 64<<10))
		sent += n
	}
	_ = conn.Close()
	received, err := io.Copy(io.Discard, peer)
	if !errors.Is(err, syscall.ECONNRESET) || received >= int64(sent) {
		t.Errorf("%d of %d bytes were delivered, and the end is %v", received, sent, err)
	}
	if _, err := Dial(t.Context(), "tcp", "127.0.0.1:1"); err == nil {
		t.Error("nothing listens there")
	}
}
