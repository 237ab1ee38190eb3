package opcua

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// fixture is a server without security that answers just enough for a session, and lets a test spoil what it says. The
// interoperability tests use a real server; this one exists because real ones do not misbehave.
type fixture struct {
	listener net.Listener
	serving  sync.WaitGroup

	// spoil changes a reply on its way out; nil keeps silent. stage is the request's type, or "HEL".
	spoil func(stage string, reply []byte) []byte
	// answer, if set, answers a request in the fixture's place.
	answer func(request any) any
	// advertise is the URL under which the server says that it is reached.
	advertise string
	// state is what the server says of itself.
	state atomic.Int32

	accepted, created, sessions, closed, tokens, requests atomic.Int32

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{listener: listener, conns: map[net.Conn]struct{}{}}
	t.Cleanup(func() {
		_ = f.listener.Close()
		f.hangUp()
		f.serving.Wait()
	})
	return f
}

// serve begins to accept; what the test changes is set before.
func (f *fixture) serve() *fixture {
	f.serving.Go(func() {
		for {
			conn, err := f.listener.Accept()
			if err != nil {
				return
			}
			f.accepted.Add(1)
			f.mu.Lock()
			f.conns[conn] = struct{}{}
			f.mu.Unlock()
			f.serving.Go(func() {
				defer func() {
					f.mu.Lock()
					delete(f.conns, conn)
					f.mu.Unlock()
					_ = conn.Close()
				}()
				f.talk(conn)
			})
		}
	})
	return f
}

// hangUp resets every connection.
func (f *fixture) hangUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

func (f *fixture) endpoint() string { return "opc.tcp://" + f.listener.Addr().String() }

func (f *fixture) send(conn net.Conn, stage string, reply []byte) bool {
	if f.spoil != nil {
		reply = f.spoil(stage, reply)
	}
	if reply == nil {
		return true
	}
	_, err := conn.Write(reply)
	return err == nil
}

func (f *fixture) talk(conn net.Conn) {
	const channelID = 77
	token, sequence := uint32(0), uint32(50)
	for {
		kind, _, message, err := readAny(conn)
		if err != nil {
			return
		}
		if kind == "HEL" {
			reply := appendHeader(nil, "ACK", 'F', 28)
			for _, v := range [...]uint32{0, 8192, 8192, 0, 0} {
				reply = binary.LittleEndian.AppendUint32(reply, v)
			}
			if !f.send(conn, "HEL", reply) {
				return
			}
			continue
		}
		if kind == "CLO" {
			return
		}
		d := decoder{b: message}
		d.u32()
		var header []byte
		if kind == "OPN" {
			d.bytes()
			d.bytes()
			d.bytes()
			header = binary.LittleEndian.AppendUint32(header, channelID)
			header = binary.LittleEndian.AppendUint32(header, uint32(len(PolicyNone.uri())))
			header = append(header, PolicyNone.uri()...)
			header = append(header, 255, 255, 255, 255, 255, 255, 255, 255)
		} else {
			used := d.u32()
			header = binary.LittleEndian.AppendUint32(header, channelID)
			header = binary.LittleEndian.AppendUint32(header, used)
		}
		d.u32()
		id := d.u32()
		_, request, err := ua.DecodeService(d.b)
		if err != nil {
			return
		}
		f.requests.Add(1)
		var reply any
		stage := "?"
		switch r := request.(type) {
		case *ua.OpenSecureChannelRequest:
			token++
			f.tokens.Add(1)
			stage, reply = "OPN", &ua.OpenSecureChannelResponse{ResponseHeader: ok(), SecurityToken: &ua.ChannelSecurityToken{
				ChannelID: channelID, TokenID: token, RevisedLifetime: r.RequestedLifetime}}
		case *ua.CreateSessionRequest:
			f.created.Add(1)
			stage, reply = "CreateSession", &ua.CreateSessionResponse{ResponseHeader: ok(), SessionID: ua.NewNumericNodeID(1, 5),
				AuthenticationToken: ua.NewStringNodeID(1, "token"), ServerNonce: make([]byte, 32), ServerSignature: &ua.SignatureData{},
				ServerEndpoints: []*ua.EndpointDescription{{
					Server: &ua.ApplicationDescription{ApplicationName: ua.NewLocalizedText("f")}, SecurityMode: ua.MessageSecurityModeNone,
					SecurityPolicyURI: PolicyNone.uri(), TransportProfileURI: transportProfile, EndpointURL: f.advertise,
					UserIdentityTokens: []*ua.UserTokenPolicy{{PolicyID: "anyone", TokenType: ua.UserTokenTypeAnonymous}, {PolicyID: "named", TokenType: ua.UserTokenTypeUserName}},
				}}}
		case *ua.ActivateSessionRequest:
			f.sessions.Add(1)
			stage, reply = "ActivateSession", &ua.ActivateSessionResponse{ResponseHeader: ok(), ServerNonce: make([]byte, 32)}
		case *ua.CloseSessionRequest:
			f.closed.Add(1)
			stage, reply = "CloseSession", &ua.CloseSessionResponse{ResponseHeader: ok()}
		case *ua.ReadRequest:
			stage = "Read"
			results := make([]*ua.DataValue, len(r.NodesToRead))
			for i, n := range r.NodesToRead {
				results[i] = f.value(n)
			}
			reply = &ua.ReadResponse{ResponseHeader: ok(), Results: results}
		case *ua.BrowseRequest:
			stage = "Browse"
			results := make([]*ua.BrowseResult, len(r.NodesToBrowse))
			for i := range results {
				results[i] = &ua.BrowseResult{}
			}
			reply = &ua.BrowseResponse{ResponseHeader: ok(), Results: results}
		case *ua.WriteRequest:
			stage, reply = "Write", &ua.WriteResponse{ResponseHeader: ok(), Results: make([]ua.StatusCode, len(r.NodesToWrite))}
		}
		if f.answer != nil {
			if other := f.answer(request); other != nil {
				reply = other
			}
		}
		if reply == nil {
			reply = &ua.ServiceFault{ResponseHeader: &ua.ResponseHeader{ServiceResult: ua.StatusBadServiceUnsupported, ServiceDiagnostics: &ua.DiagnosticInfo{}, AdditionalHeader: ua.NewExtensionObject(nil)}}
		}
		body, err := ua.Encode(reply)
		if err != nil {
			panic(err)
		}
		typeID, err := ua.NewFourByteExpandedNodeID(0, ua.ServiceTypeID(reply)).Encode()
		if err != nil {
			panic(err)
		}
		sequence++
		var chunk []byte
		chunk = append(chunk, header...)
		chunk = binary.LittleEndian.AppendUint32(chunk, sequence)
		chunk = binary.LittleEndian.AppendUint32(chunk, id)
		chunk = append(append(chunk, typeID...), body...)
		if !f.send(conn, stage, append(appendHeader(nil, kind, 'F', 8+len(chunk)), chunk...)) {
			return
		}
	}
}

// value is what the fixture has to read.
func (f *fixture) value(n *ua.ReadValueID) *ua.DataValue {
	switch n.NodeID.String() {
	case "i=2255":
		return &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant([]string{"http://opcfoundation.org/UA/", "urn:f", "urn:plant"})}
	case "i=2259":
		return &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(f.state.Load())}
	case "i=2261", "i=2263", "i=2264":
		return &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant("text " + n.NodeID.String())}
	case "ns=2;s=v":
		if n.AttributeID == ua.AttributeIDDataType {
			return &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(ua.NewNumericNodeID(0, 10))}
		}
		return &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(float32(1.5))}
	}
	return &ua.DataValue{EncodingMask: ua.DataValueStatusCode, Status: ua.StatusBadNodeIDUnknown}
}

func ok() *ua.ResponseHeader {
	return &ua.ResponseHeader{Timestamp: time.Now(), ServiceDiagnostics: &ua.DiagnosticInfo{}, AdditionalHeader: ua.NewExtensionObject(nil)}
}

// readAny is readChunk of the other side.
func readAny(r io.Reader) (kind string, final byte, message []byte, err error) {
	var header [8]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return "", 0, nil, err
	}
	message = make([]byte, binary.LittleEndian.Uint32(header[4:])-8)
	_, err = io.ReadFull(r, message)
	return string(header[:3]), header[3], message, err
}

// plain is a configuration without security and with a short timeout.
func (f *fixture) plain() Config {
	return Config{Endpoint: f.endpoint(), SecurityPolicy: PolicyNone, Timeout: 250 * time.Millisecond}
}

func testDriver(options Options) *Driver {
	var dialer net.Dialer
	return New(dialer.DialContext, driver.NewConnectLimit(20), options)
}

// opened opens a device that is closed with the test.
func opened(t testing.TB, d *Driver, c Config) *device {
	t.Helper()
	dev, err := d.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	return dev.(*device)
}

// reasonOf is the reason of a check, or the answer's.
func reasonOf(dev *device) driver.Reason {
	answer, err := dev.Check(context.Background())
	if err != nil {
		return driver.ReasonOf(err)
	}
	return answer.Reason
}
