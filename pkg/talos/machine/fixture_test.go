package machine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"sync"
	"testing"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	cosiserver "github.com/cosi-project/runtime/pkg/state/protobuf/server"
	talosx509 "github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	talosmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	resconfig "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/test/bufconn"
)

// The tests here run over connections in memory: no socket is opened (T-19). The real client meets a whole simulated node
// in test/plant.

const address = "192.0.2.1"

// bundles are of two clusters. Making one takes a second, and nobody changes them.
var bundles = sync.OnceValue(func() (made [2]*secrets.Bundle) {
	contract, err := config.ParseContractFromVersion("v1.13")
	if err != nil {
		panic(err)
	}

	for i := range made {
		// CAs of yesterday: the clocks of the tests' nodes are not all right.
		made[i], err = secrets.NewBundle(secrets.NewFixedClock(time.Now().Add(-24*time.Hour)), contract)
		if err != nil {
			panic(err)
		}

		made[i].Clock = secrets.NewClock()
	}

	return made
})

// theCluster is the one that the tests' sessions are for, otherCluster is not.
func theCluster() *secrets.Bundle { return bundles()[0] }

func otherCluster() *secrets.Bundle { return bundles()[1] }

// rendered is a control plane's configuration.
func rendered(t *testing.T, bundle *secrets.Bundle) []byte {
	t.Helper()

	contract, err := config.ParseContractFromVersion("v1.13")
	if err != nil {
		t.Fatal(err)
	}

	in, err := generate.NewInput("plant", "https://192.0.2.1:6443", "1.36.0",
		generate.WithVersionContract(contract), generate.WithSecretsBundle(bundle), generate.WithInstallDisk("/dev/sda"))
	if err != nil {
		t.Fatal(err)
	}

	provider, err := in.Config(talosmachine.TypeControlPlane)
	if err != nil {
		t.Fatal(err)
	}

	data, err := provider.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		t.Fatal(err)
	}

	return data
}

// sign makes a certificate under a bundle's OS CA, a server's unless the options say otherwise.
func sign(t *testing.T, bundle *secrets.Bundle, options ...talosx509.Option) tls.Certificate {
	t.Helper()

	ca, err := talosx509.NewCertificateAuthorityFromCertificateAndKey(bundle.Certs.OS)
	if err != nil {
		t.Fatal(err)
	}

	return signBy(t, ca, options...)
}

func signBy(t *testing.T, ca *talosx509.CertificateAuthority, options ...talosx509.Option) tls.Certificate {
	t.Helper()

	pair, err := talosx509.NewKeyPair(ca, append([]talosx509.Option{
		talosx509.CommonName("node-1"),
		talosx509.NotAfter(time.Now().Add(time.Hour)),
		talosx509.ExtKeyUsage([]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}

	return *pair.Certificate
}

func pool(t *testing.T, bundle *secrets.Bundle) *x509.CertPool {
	t.Helper()

	certificates := x509.NewCertPool()
	if !certificates.AppendCertsFromPEM(bundle.Certs.OS.Crt) {
		t.Fatal("no certificate")
	}

	return certificates
}

// node is an apid: as much of it as the client asks for.
type node struct {
	machineapi.UnimplementedMachineServiceServer

	config   *tls.Config
	listener *bufconn.Listener
	server   *grpc.Server
	state    state.State
	// tamper, when set, changes what the resources' API answers.
	tamper func(answer any)

	apply   func(*machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error)
	list    func(send func(*machineapi.FileInfo)) error
	members func(context.Context, *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error)
	change  func() error

	mu          sync.Mutex
	connections []net.Conn
	clients     []pkix.Name
}

// newNode serves with a certificate of the bundle, to clients with one of it.
func newNode(t *testing.T, bundle *secrets.Bundle, configure ...func(*tls.Config)) *node {
	t.Helper()

	n := &node{
		listener: bufconn.Listen(1 << 16),
		state: state.WrapCore(namespaced.NewState(func(ns resource.Namespace) state.CoreState {
			return inmem.NewState(ns)
		})),
		config: &tls.Config{
			Certificates: []tls.Certificate{sign(t, bundle)},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    pool(t, bundle),
			MinVersion:   tls.VersionTLS13,
			NextProtos:   []string{"h2"},
		},
	}

	n.config.VerifyConnection = func(cs tls.ConnectionState) error {
		n.mu.Lock()
		defer n.mu.Unlock()

		for _, certificate := range cs.PeerCertificates {
			n.clients = append(n.clients, certificate.Subject)
		}

		return nil
	}

	for _, change := range configure {
		change(n.config)
	}

	n.server = grpc.NewServer(
		grpc.Creds(credentials.NewTLS(n.config)),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			answer, err := handler(ctx, req)
			if n.tamper != nil && err == nil {
				n.tamper(answer)
			}

			return answer, err
		}),
	)
	machineapi.RegisterMachineServiceServer(n.server, n)
	cosiv1alpha1.RegisterStateServer(n.server, cosiserver.NewState(n.state))

	done := make(chan struct{})

	go func() {
		defer close(done)

		n.server.Serve(n) //nolint:errcheck // ends when stopped
	}()

	t.Cleanup(func() {
		n.server.Stop()
		<-done
	})

	return n
}

func (n *node) Accept() (net.Conn, error) {
	conn, err := n.listener.Accept()
	if err != nil {
		return nil, err
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	n.connections = append(n.connections, conn)

	return conn, nil
}

func (n *node) Close() error { return n.listener.Close() }

func (n *node) Addr() net.Addr { return n.listener.Addr() }

// cut breaks every connection.
func (n *node) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()

	for _, conn := range n.connections {
		conn.Close() //nolint:errcheck // that is the point
	}
}

// dial opens a session with the node.
func (n *node) dial(ctx context.Context, access Access) (Client, error) {
	proof, err := newProof(access)
	if err != nil {
		return nil, err
	}

	conn, err := n.listener.DialContext(ctx)
	if err != nil {
		return nil, err
	}

	return open(ctx, address, proof, conn)
}

// session is a session with the node, which must open.
func (n *node) session(t *testing.T, access Access) Client {
	t.Helper()

	client, err := n.dial(t.Context(), access)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { client.Close() }) //nolint:errcheck

	return client
}

// runs makes the node run with a configuration.
func (n *node) runs(t *testing.T, data []byte) {
	t.Helper()

	provider, err := configloader.NewFromBytes(data)
	if err != nil {
		t.Fatal(err)
	}

	n.put(t, resconfig.NewMachineConfig(provider))
}

func (n *node) put(t *testing.T, resources ...resource.Resource) {
	t.Helper()

	for _, r := range resources {
		if err := n.state.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *node) ApplyConfiguration(_ context.Context, req *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
	return n.apply(req)
}

func (n *node) List(req *machineapi.ListRequest, stream grpc.ServerStreamingServer[machineapi.FileInfo]) error {
	if req.GetRoot() != "/var/lib/etcd" {
		return n.UnimplementedMachineServiceServer.List(req, stream)
	}

	return n.list(func(info *machineapi.FileInfo) { stream.Send(info) }) //nolint:errcheck // the client may have seen enough
}

func (n *node) EtcdMemberList(ctx context.Context, req *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
	return n.members(ctx, req)
}

func (n *node) Bootstrap(context.Context, *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse, error) {
	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, n.change()
}

func (n *node) Reboot(context.Context, *machineapi.RebootRequest) (*machineapi.RebootResponse, error) {
	return &machineapi.RebootResponse{Messages: []*machineapi.Reboot{{}}}, n.change()
}
