package opcuatest

import (
	"crypto/sha1"
	"encoding/binary"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uapolicy"
	"github.com/gopcua/opcua/uasc"
)

// security is what a client wants its channel to be. A channel of uasc has to be made for it, before it reads the request
// that says so: the request is looked at while it stays where it is.
func (s *Server) security(conn *net.TCPConn) (*uasc.Config, error) {
	const (
		headerSize = 12
		largest    = 1 << 14
	)
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	seen, length := make([]byte, largest), 0
	var failure error
	err = raw.Read(func(fd uintptr) (done bool) {
		n, _, err := syscall.Recvfrom(int(fd), seen, syscall.MSG_PEEK)
		switch {
		case err == syscall.EAGAIN || err == syscall.EINTR:
			return false
		case err != nil:
			failure = err
		case n == 0:
			failure = io.EOF
		case n >= headerSize && n < min(largest, int(binary.LittleEndian.Uint32(seen[4:]))):
			return false
		case n < headerSize:
			return false
		}
		length = n
		return true
	})
	if err != nil {
		return nil, err
	}
	if failure != nil {
		return nil, failure
	}
	c := &uasc.Config{
		SecurityPolicyURI: ua.SecurityPolicyURINone, SecurityMode: ua.MessageSecurityModeNone,
		Certificate: s.certificate, LocalKey: s.key, Lifetime: uint32(time.Hour / time.Millisecond),
	}
	if string(seen[:3]) != "OPN" {
		return c, nil
	}
	var header uasc.AsymmetricSecurityHeader
	if _, err := header.Decode(seen[headerSize:length]); err != nil {
		return nil, err
	}
	if header.SecurityPolicyURI == ua.SecurityPolicyURINone {
		return c, nil
	}
	if _, err := uapolicy.PublicKey(header.SenderCertificate); err != nil {
		return nil, err
	}
	sum := sha1.Sum(header.SenderCertificate)
	// Opening is always signed and encrypted; the mode of what follows is in the request.
	c.SecurityPolicyURI, c.SecurityMode, c.Thumbprint = header.SecurityPolicyURI, ua.MessageSecurityModeSignAndEncrypt, sum[:]
	c.RemoteCertificate = header.SenderCertificate
	return c, nil
}
