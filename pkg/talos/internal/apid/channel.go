package apid

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	cosiclient "github.com/cosi-project/runtime/pkg/state/protobuf/client"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

const (
	// maxSessionBytes bounds what a session reads in all, on the wire and unpacked. An honest node sends some tens of
	// kilobytes; the peer may be anybody.
	maxSessionBytes = 16 << 20
	// maxItems bounds a list of resources: more items than any machine has disks and links, and few enough to be held for
	// every candidate of a sweep, each being some kilobytes here whatever it was on the wire.
	maxItems = 1024
)

// Channel is a gRPC channel over one connection, which is never made again.
type Channel struct {
	*grpc.ClientConn

	conn *watchedConn
}

// Open makes a channel of a connection, which is the channel's from here on, also when this fails.
func Open(address string, conn *tls.Conn) (*Channel, error) {
	watched := &watchedConn{Conn: conn}

	var handedOver atomic.Bool

	channel, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if handedOver.Swap(true) {
				return nil, errSessionOver
			}

			return watched, nil
		}),
		grpc.WithTransportCredentials(established{info: credentials.TLSInfo{
			State:          conn.ConnectionState(),
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		}}),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0), // idling would close the one connection
		grpc.WithStatsHandler(unpacked{watched}),
		grpc.WithUnaryInterceptor(typedGets),
		grpc.WithStreamInterceptor(typedLists),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(4<<20)),
	)
	if err != nil {
		watched.Close() //nolint:errcheck // gRPC's error says more

		return nil, err
	}

	return &Channel{ClientConn: channel, conn: watched}, nil
}

var errSessionOver = errors.New("the session's only connection is over")

// Accepted waits until the peer speaks: a gRPC server sends its HTTP/2 settings unasked, once it is content with the
// client's certificate, which in TLS 1.3 is after the client's handshake is over. The error has the connection's own type.
// It must come before any call.
//
// Waiting for gRPC to connect would do too, but gRPC writes first: a peer that has closed the connection by then answers
// with a reset, and what it had against the certificate is lost.
func (c *Channel) Accepted(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		c.conn.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // a closed connection ends the read too
	})
	defer stop()

	head := make([]byte, 9) // a frame's header: RFC 9113, section 4.1

	n, err := c.conn.Read(head)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}

		return err
	}

	c.conn.head = head[:n]

	return nil
}

// COSI is the node's resources.
func (c *Channel) COSI() state.State {
	return state.WrapCore(cosiclient.NewAdapter(cosiv1alpha1.NewStateClient(c.ClientConn)))
}

// ReadError is the first error that reading from the connection met, with its type; nil while it stands.
func (c *Channel) ReadError() error { return c.conn.readError() }

// Close ends the channel and its connection.
func (c *Channel) Close() error {
	err := c.ClientConn.Close()
	c.conn.Close() //nolint:errcheck // gRPC has closed it already, unless no call was ever made

	return err
}

// Withheld tells that a node has no such resource or does not show it; both are ordinary for what is only nice to know.
func Withheld(err error) bool {
	if state.IsNotFoundError(err) {
		return true
	}

	switch client.StatusCode(err) {
	case codes.NotFound, codes.PermissionDenied, codes.Unimplemented:
		return true
	}

	return false
}

// watchedConn bounds what is read, and keeps the first read error with its type: gRPC passes it on as text only.
type watchedConn struct {
	net.Conn

	// head was read already, before anybody else read.
	head  []byte
	read  atomic.Int64
	first atomic.Pointer[error]

	// unpacked counts the messages as they are after decompression.
	unpacked atomic.Int64
}

var errTooMuch = fmt.Errorf("the peer sent more than %d bytes", maxSessionBytes)

func (c *watchedConn) Read(p []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(p, c.head)
		c.head = c.head[n:]

		return n, nil
	}

	n, err := c.Conn.Read(p)

	if err == nil && c.read.Add(int64(n)) > maxSessionBytes {
		n, err = 0, errTooMuch
	}

	if err != nil {
		c.first.CompareAndSwap(nil, &err)
	}

	return n, err
}

// unpack counts a message, and ends the connection when there was too much: a peer chooses itself whether it compresses,
// and a few kilobytes can hold megabytes.
func (c *watchedConn) unpack(n int) {
	if c.unpacked.Add(int64(n)) > maxSessionBytes {
		err := errTooMuch
		c.first.CompareAndSwap(nil, &err)
		c.Close() //nolint:errcheck // nothing more is read from it
	}
}

func (c *watchedConn) readError() error {
	if err := c.first.Load(); err != nil {
		return *err
	}

	return nil
}

// unpacked has gRPC tell a connection how long the messages on it are.
type unpacked struct{ conn *watchedConn }

func (unpacked) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (u unpacked) HandleRPC(_ context.Context, event stats.RPCStats) {
	if in, ok := event.(*stats.InPayload); ok {
		u.conn.unpack(in.Length)
	}
}

func (unpacked) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (unpacked) HandleConn(context.Context, stats.ConnStats) {}

// typedGets refuses a resource of another type than was asked for, before it is decoded: the decoder is chosen by what the
// peer says the type is, and some take very long, or take the process down, over what only a peer of ill will sends.
func typedGets(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
		return err
	}

	asked, isGet := req.(*cosiv1alpha1.GetRequest)
	got, isAnswer := reply.(*cosiv1alpha1.GetResponse)

	if isGet && isAnswer && got.GetResource().GetMetadata().GetType() != asked.GetType() {
		return errOtherType
	}

	return nil
}

var errOtherType = status.Error(codes.Internal, "the peer answers with a resource of another type than was asked for")

// typedLists does the same for each item of a list, and ends the list after maxItems: the client that collects them would
// do so for as long as they come.
func typedLists(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil || method != cosiv1alpha1.State_List_FullMethodName {
		return stream, err
	}

	return &typedStream{ClientStream: stream}, nil
}

type typedStream struct {
	grpc.ClientStream

	asked    string
	received int
}

func (s *typedStream) SendMsg(m any) error {
	if req, ok := m.(*cosiv1alpha1.ListRequest); ok {
		s.asked = req.GetType()
	}

	return s.ClientStream.SendMsg(m)
}

func (s *typedStream) RecvMsg(m any) error {
	if s.received == maxItems {
		return io.EOF // what else comes is dropped with the session
	}

	s.received++

	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}

	if item, ok := m.(*cosiv1alpha1.ListResponse); ok && item.GetResource().GetMetadata().GetType() != s.asked {
		return errOtherType
	}

	return nil
}

// established are the gRPC credentials of a connection whose TLS handshake is over.
type established struct {
	info credentials.TLSInfo
}

func (e established) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return conn, e.info, nil
}

func (e established) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("client side only")
}

func (e established) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls", SecurityVersion: "1.3"}
}

func (e established) Clone() credentials.TransportCredentials { return e }

func (e established) OverrideServerName(string) error { return nil }
