package talosnode

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	cryptotls "github.com/siderolabs/crypto/tls"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/types/known/emptypb"
)

// maintenanceServer serves everybody, without asking for a certificate.
func (n *Node) maintenanceServer() *server {
	config := &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{"h2"},
		SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return n.currentLeaf(), nil
		},
	}

	return n.newServer(config, &maintenanceAPI{node: n}, n.maintenancePolicy)
}

// apidServerLocked serves holders of a client certificate of the cluster.
func (n *Node) apidServerLocked(cfg configuration) (*server, error) {
	raw := cfg.RawV1Alpha1()
	ca := raw.MachineConfig.MachineCA

	var (
		leaf *tls.Certificate
		err  error
	)

	if len(ca.Key) > 0 {
		leaf, err = signLeaf(ca, n.address.IP)
	} else {
		leaf, err = n.options.Trustd.sign(raw.MachineConfig.MachineToken, n.address.IP)
	}

	if err != nil {
		return nil, err
	}

	config, err := cryptotls.New(
		cryptotls.WithClientAuthType(cryptotls.Mutual),
		cryptotls.WithCACertPEM(ca.Crt),
		cryptotls.WithKeypair(*leaf),
		cryptotls.WithMinVersion(tls.VersionTLS13),
	)
	if err != nil {
		return nil, err
	}

	return n.newServer(config, &apidAPI{node: n}, apidPolicy), nil
}

// policy decides whether a call of the machine API is let through.
type policy func(ctx context.Context, method string) error

func (n *Node) newServer(config *tls.Config, api machineapi.MachineServiceServer, allowed policy) *server {
	const service = "/machine.MachineService/"

	s := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(config)),
		grpc.InTapHandle(func(ctx context.Context, info *tap.Info) (context.Context, error) {
			// Before the request was read.
			if info.FullMethodName == machineapi.MachineService_ApplyConfiguration_FullMethodName && n.Fault() == FaultLateTakeover {
				return nil, status.Error(codes.Unavailable, errors.Join(errConnectionLost, n.Inject(FaultTakeover)).Error())
			}

			return ctx, nil
		}),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			method, ok := strings.CutPrefix(info.FullMethod, service)
			if !ok {
				return handler(ctx, req)
			}

			n.record.addCall(method)
			n.delay()

			if err := allowed(ctx, method); err != nil {
				return nil, err
			}

			return n.change(ctx, req, handler)
		}),
	)

	machineapi.RegisterMachineServiceServer(s, api)
	cosiv1alpha1.RegisterStateServer(s, &n.states)

	address := n.address // the lock is held, except at the start

	return &server{grpc: s, queue: newConnQueue(&address)}
}

// maintenancePolicy is what maintenance mode lets through.
func (n *Node) maintenancePolicy(_ context.Context, method string) error {
	if n.options.Variant == Until112 {
		if method == "ApplyConfiguration" {
			return nil
		}

		return status.Error(codes.Unimplemented, "API is not implemented in maintenance mode")
	}

	switch method {
	case "Reboot", "Reset", "Shutdown", "Upgrade", "MetaWrite", "MetaDelete", "Bootstrap", "Kubeconfig":
		return status.Error(codes.PermissionDenied, "not authorized")
	}

	return nil
}

// apidPolicy asks for the role that a call needs.
func apidPolicy(ctx context.Context, method string) error {
	needed := role.MakeSet(role.Admin)

	switch method {
	case "Version", "EtcdMemberList", "EtcdStatus":
		needed = role.MakeSet(role.Admin, role.Operator, role.Reader)
	case "Reboot":
		needed = role.MakeSet(role.Admin, role.Operator)
	}

	if !rolesOf(ctx).IncludesAny(needed) {
		return status.Error(codes.PermissionDenied, "not authorized")
	}

	return nil
}

// rolesOf are the roles in the peer's client certificate.
func rolesOf(ctx context.Context) role.Set {
	if cert := clientCertificateOrg(ctx); cert != nil {
		set, _ := role.Parse(cert)

		return set
	}

	return role.MakeSet()
}

func clientCertificateOrg(ctx context.Context) []string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}

	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return nil
	}

	return info.State.VerifiedChains[0][0].Subject.Organization
}

// maintenanceAPI is the machine API of a node without configuration.
type maintenanceAPI struct {
	machineapi.UnimplementedMachineServiceServer

	node *Node
}

func (a *maintenanceAPI) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	return a.node.version(), nil
}

func (a *maintenanceAPI) ApplyConfiguration(ctx context.Context, req *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
	return a.node.apply(ctx, req, false)
}

// apidAPI is the machine API of a configured node.
type apidAPI struct {
	machineapi.UnimplementedMachineServiceServer

	node *Node
}

func (a *apidAPI) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	return a.node.version(), nil
}

func (a *apidAPI) ApplyConfiguration(ctx context.Context, req *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
	return a.node.apply(ctx, req, true)
}

func (a *apidAPI) Bootstrap(context.Context, *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse, error) {
	if err := a.node.bootstrap(); err != nil {
		return nil, err
	}

	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}

func (a *apidAPI) EtcdMemberList(_ context.Context, req *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
	members, err := a.node.etcdMembers(req.GetQueryLocal())
	if err != nil {
		return nil, err
	}

	return &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{members}}, nil
}

func (a *apidAPI) EtcdStatus(context.Context, *emptypb.Empty) (*machineapi.EtcdStatusResponse, error) {
	member, err := a.node.etcdStatus()
	if err != nil {
		return nil, err
	}

	return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: member}}}, nil
}

func (a *apidAPI) Reboot(context.Context, *machineapi.RebootRequest) (*machineapi.RebootResponse, error) {
	if err := a.node.reboot(); err != nil {
		return nil, err
	}

	return &machineapi.RebootResponse{Messages: []*machineapi.Reboot{{ActorId: a.node.Name()}}}, nil
}

func (a *apidAPI) Reset(_ context.Context, req *machineapi.ResetRequest) (*machineapi.ResetResponse, error) {
	if err := a.node.reset(req); err != nil {
		return nil, err
	}

	return &machineapi.ResetResponse{Messages: []*machineapi.Reset{{ActorId: a.node.Name()}}}, nil
}

func (n *Node) version() *machineapi.VersionResponse {
	return &machineapi.VersionResponse{Messages: []*machineapi.Version{{
		Version:  &machineapi.VersionInfo{Tag: n.options.TalosVersion, Os: "linux", Arch: "amd64"},
		Platform: &machineapi.PlatformInfo{Name: "metal", Mode: "metal"},
	}}}
}
