package maintenance

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configpb "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/config" // its decoder is in the server too
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // as in the server, which has it from elsewhere
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// hostile is a peer that speaks the protocol and means no good.
type hostile struct {
	cosiv1alpha1.UnimplementedStateServer

	// list answers a List of a resource type, one more item at each call, until it says that this was all.
	list func(resourceType string, n int) (item *cosiv1alpha1.Resource, more bool)
	// system, when set, is its answer to whatever is got.
	system *cosiv1alpha1.Resource
	// compressor, when set, is by what the answers are compressed.
	compressor string
	// warnings are its remarks on a configuration.
	warnings []string

	sent atomic.Int64
}

func (h *hostile) Get(_ context.Context, req *cosiv1alpha1.GetRequest) (*cosiv1alpha1.GetResponse, error) {
	if h.system != nil {
		return &cosiv1alpha1.GetResponse{Resource: h.system}, nil
	}

	if req.GetType() != hardware.SystemInformationType {
		return nil, status.Error(codes.NotFound, "no such resource")
	}

	info := hardware.NewSystemInformation(hardware.SystemInformationID)
	info.TypedSpec().UUID, info.TypedSpec().SerialNumber = "6f7a1c52-3b1e-4d8f-9a60-0cc47ab01056", "S"

	return &cosiv1alpha1.GetResponse{Resource: onTheWire(info)}, nil
}

func (h *hostile) List(req *cosiv1alpha1.ListRequest, stream cosiv1alpha1.State_ListServer) error {
	if h.compressor != "" {
		if err := grpc.SetSendCompressor(stream.Context(), h.compressor); err != nil {
			return err
		}
	}

	for n := 0; ; n++ {
		item, more := h.list(req.GetType(), n)
		if !more {
			return nil
		}

		if err := stream.Send(&cosiv1alpha1.ListResponse{Resource: item}); err != nil {
			return err
		}

		h.sent.Add(1)
	}
}

// hostileMachine is its other service.
type hostileMachine struct {
	machineapi.UnimplementedMachineServiceServer

	warnings []string
}

func (h hostileMachine) ApplyConfiguration(context.Context, *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{{Warnings: h.warnings}}}, nil
}

func onTheWire(r resource.Resource) *cosiv1alpha1.Resource {
	proto, err := protobuf.FromResource(r)
	if err != nil {
		panic(err)
	}

	out, err := proto.Marshal()
	if err != nil {
		panic(err)
	}

	return out
}

// meet opens a session with the peer over a connection in memory.
func (h *hostile) meet(ctx context.Context, t *testing.T) Client {
	t.Helper()

	near, far := net.Pipe()

	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{newCertificate(t)}, MinVersion: tls.VersionTLS13,
	})))
	cosiv1alpha1.RegisterStateServer(server, h)
	machineapi.RegisterMachineServiceServer(server, hostileMachine{warnings: h.warnings})

	go server.Serve(&oneConn{conn: far, done: make(chan struct{})}) //nolint:errcheck // until it is stopped

	t.Cleanup(server.Stop)

	client, err := open(ctx, "192.0.2.1", near)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { client.Close() }) //nolint:errcheck

	return client
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn  net.Conn
	taken atomic.Bool
	over  sync.Once
	done  chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	if !l.taken.Swap(true) {
		return l.conn, nil
	}

	<-l.done

	return nil, net.ErrClosed
}

func (l *oneConn) Close() error {
	l.over.Do(func() { close(l.done) })

	return nil
}

func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// Req: T-03, T-19. Anybody who sits at a declared address is asked, and one that answers a list of disks with something
// else must not end the process.
func TestAListOfOtherThingsIsAnError(t *testing.T) {
	peer := &hostile{list: func(resourceType string, n int) (*cosiv1alpha1.Resource, bool) {
		switch {
		case n == 0 && resourceType == block.DiskType:
			return onTheWire(block.NewDisk(block.NamespaceName, "sda")), true
		case n == 0:
			return onTheWire(network.NewLinkStatus(network.NamespaceName, "eth0")), true
		case n == 1:
			return onTheWire(hardware.NewSystemInformation("x")), true
		}

		return nil, false
	}}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()

	if hw, err := peer.meet(ctx, t).Identity(ctx); ClassOf(err) != ClassNodeError {
		t.Errorf("have %v, %+v", err, hw)
	}
}

// Req: T-03, T-15. What is decoded is what was asked for: a peer names the type of its answer, and the decoder of a machine
// configuration holds a core for minutes and gigabytes over a few kilobytes of YAML that has one key very often.
func TestNothingIsDecodedThatWasNotAskedFor(t *testing.T) {
	spec, err := proto.Marshal(&configpb.MachineConfigSpec{
		YamlMarshalled: []byte("version: v1alpha1\nmachine:\n  sysctls:\n" + strings.Repeat("    k: v\n", 2000)),
	})
	if err != nil {
		t.Fatal(err)
	}

	bomb := &cosiv1alpha1.Resource{
		Metadata: &cosiv1alpha1.Metadata{Namespace: config.NamespaceName, Type: config.MachineConfigType, Id: "x", Version: "1", Phase: "running"},
		Spec:     &cosiv1alpha1.Spec{ProtoSpec: spec},
	}

	for _, peer := range []*hostile{
		{system: bomb, list: func(string, int) (*cosiv1alpha1.Resource, bool) { return nil, false }},
		{list: func(_ string, n int) (*cosiv1alpha1.Resource, bool) { return bomb, n < 1 }},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()

		began := time.Now()

		if hw, err := peer.meet(ctx, t).Identity(ctx); ClassOf(err) != ClassNodeError {
			t.Errorf("have %v, %+v", err, hw)
		}

		if took := time.Since(began); took > time.Second {
			t.Errorf("took %s", took)
		}
	}
}

// Req: T-03. What a peer sends is bounded as it is when unpacked: a few kilobytes may hold gigabytes.
func TestAPeerCannotFillTheMemory(t *testing.T) {
	disk := block.NewDisk(block.NamespaceName, "sda")
	small := onTheWire(disk)

	disk.TypedSpec().Model = strings.Repeat("x", 1<<20)
	large := onTheWire(disk)

	for _, tc := range []struct {
		name       string
		item       *cosiv1alpha1.Resource
		compressor string
		most       int64 // items that are taken, and some that are on their way
		want       Class
	}{
		{"by messages that are small on the wire alone", large, "gzip", 64, ClassNotTalos},
		{"by messages that are large", large, "", 64, ClassNotTalos},
		{"by very many small ones", small, "", 8 << 10, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			peer := &hostile{compressor: tc.compressor, list: func(resourceType string, _ int) (*cosiv1alpha1.Resource, bool) {
				return tc.item, resourceType == block.DiskType // for ever
			}}

			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()

			hw, err := peer.meet(ctx, t).Identity(ctx)
			if ClassOf(err) != tc.want || ctx.Err() != nil {
				t.Errorf("have %v", err)
			}

			if sent := peer.sent.Load(); sent > tc.most || len(hw.Disks) > maxDisks {
				t.Errorf("%d items were taken, of which %d are kept", sent, len(hw.Disks))
			}
		})
	}
}

// Req: T-15. Each remark is looked through for secrets, which takes its time.
func TestOfVeryManyWarningsSomeAreKept(t *testing.T) {
	peer := &hostile{warnings: make([]string, 500_000)}
	for i := range peer.warnings {
		peer.warnings[i] = "w"
	}

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	result, err := peer.meet(ctx, t).ApplyConfiguration(ctx, []byte("machine: {}\n"), ApplyOptions{})
	if err != nil || ctx.Err() != nil {
		t.Fatal(err, ctx.Err())
	}

	if n := len(result.Warnings); n == 0 || n > 16 {
		t.Errorf("%d warnings are kept", n)
	}
}
