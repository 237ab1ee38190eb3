package driver

import (
	"context"
	"net"
)

// Dial opens a connection to a device, whose end throws away what was not delivered (it is reset). Without that the kernel would go
// on delivering a write that was given up, and it could reach the device after one that was sent later, on a new
// connection: a user's value after the hold value (P-16b).
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return conn, nil
}
