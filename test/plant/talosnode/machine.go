package talosnode

import (
	"context"
	"crypto/tls"
	"strings"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	cryptotls "github.com/siderolabs/crypto/tls"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
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
func (n *Node) apidServerLocked() (*server, error) {
	raw := n.configured.RawV1Alpha1()
	ca := raw.MachineConfig.MachineCA

	var (
		leaf *tls.Certificate
		err  error
	)

	switch {
	case len(ca.Key) > 0:
		leaf, err = signLeaf(ca, n.address.IP)
	case n.options.Trustd != nil:
		leaf, err = n.options.Trustd.sign(raw.MachineConfig.MachineToken, n.address.IP)
	default:
		err = errNoCertificate
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
	s := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(config)),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if method, ok := strings.CutPrefix(info.FullMethod, "/"+machineapi.MachineService_ServiceDesc.ServiceName+"/"); ok {
				n.delay()

				if err := allowed(ctx, method); err != nil {
					return nil, err
				}
			}

			return handler(ctx, req)
		}),
	)

	machineapi.RegisterMachineServiceServer(s, api)
	cosiv1alpha1.RegisterStateServer(s, &n.states)

	return &server{grpc: s, queue: newConnQueue(&n.address)}
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
	case "Version":
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
	a.node.mu.Lock()
	defer a.node.mu.Unlock()

	if !a.node.configured.Machine().Type().IsControlPlane() {
		return nil, status.Error(codes.FailedPrecondition, "bootstrap can only be performed on a control plane node")
	}

	if a.node.bootstrapped > 0 {
		return nil, status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}

	a.node.bootstrapped++
	a.node.logf("bootstrapped")

	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}

func (n *Node) version() *machineapi.VersionResponse {
	return &machineapi.VersionResponse{Messages: []*machineapi.Version{{
		Version:  &machineapi.VersionInfo{Tag: n.options.TalosVersion, Os: "linux", Arch: "amd64"},
		Platform: &machineapi.PlatformInfo{Name: "metal", Mode: "metal"},
	}}}
}

// metal is the runtime mode of a machine that installs itself on a disk.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }

func (n *Node) apply(ctx context.Context, req *machineapi.ApplyConfigurationRequest, authenticated bool) (*machineapi.ApplyConfigurationResponse, error) {
	entry := Received{
		At:            time.Now(),
		Bytes:         len(req.GetData()),
		Mode:          req.GetMode().String(),
		DryRun:        req.GetDryRun(),
		Authenticated: authenticated,
	}

	answer, err := n.tryApply(ctx, req, authenticated, &entry)

	entry.Code = status.Code(err).String()
	entry.Accepted = err == nil && !req.GetDryRun()
	n.record.addReceived(entry)

	n.logf("configuration received: %d bytes, role %q, dry run %v: %s", entry.Bytes, entry.Role, entry.DryRun, entry.Code)

	if err != nil {
		return nil, err
	}

	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{answer}}, nil
}

func (n *Node) tryApply(ctx context.Context, req *machineapi.ApplyConfigurationRequest, authenticated bool, entry *Received) (*machineapi.ApplyConfiguration, error) {
	mode := req.GetMode()

	if !authenticated && n.options.Variant == Until112 {
		switch mode {
		case machineapi.ApplyConfigurationRequest_STAGED, machineapi.ApplyConfigurationRequest_NO_REBOOT:
			return nil, status.Errorf(codes.Unimplemented, "apply configuration mode %s is not supported in maintenance mode", mode)
		}
	}

	// A real node's messages quote the configuration too: the client has to deal with that.
	provider, err := configloader.NewFromBytes(req.GetData())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}

	raw := provider.RawV1Alpha1()
	complete := raw != nil && raw.MachineConfig != nil && raw.ClusterConfig != nil

	if complete {
		entry.Role = provider.Machine().Type().String()
	}

	var warnings []string

	if complete || n.options.Variant == Until112 || authenticated {
		if !complete {
			return nil, status.Error(codes.InvalidArgument, "configuration validation failed: v1alpha1 config is required")
		}

		warnings, err = provider.Validate(metal{})
		if err == nil {
			_, err = provider.RuntimeValidate(ctx, *n.states.inner.Load(), metal{})
		}

		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "configuration validation failed: %s", err)
		}
	}

	answer := &machineapi.ApplyConfiguration{Warnings: warnings, Mode: mode}

	if n.options.Variant == Since113 && (mode == machineapi.ApplyConfigurationRequest_AUTO || mode == machineapi.ApplyConfigurationRequest_REBOOT) {
		answer.Mode = machineapi.ApplyConfigurationRequest_NO_REBOOT
	}

	if req.GetDryRun() {
		answer.ModeDetails = "Dry run summary:\nNode has no configuration yet."
		if n.options.Variant == Since113 {
			answer.ModeDetails = "Dry run summary:\nConfig diff:\n\n" + string(req.GetData())
		}

		return answer, nil
	}

	if !complete {
		return answer, nil // stays in maintenance
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	if !authenticated && n.stage != StageMaintenance {
		return nil, status.Error(codes.FailedPrecondition, "config was already applied and the node is rebooting")
	}

	n.configured, n.configData = provider, append([]byte(nil), req.GetData()...)

	if n.stage == StageMaintenance {
		n.stage = StageInstalling

		n.wait.Go(n.install)
	} else if err := n.rebuildStateLocked(); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}

	return answer, nil
}

// install takes the node from maintenance mode to apid: the listener goes, and comes back with mutual TLS as soon as the
// node has a certificate.
func (n *Node) install() {
	// The answer to the configuration has to be out before its connection is closed.
	n.sleep(50 * time.Millisecond)

	n.mu.Lock()
	if n.stage == StageInstalling {
		n.silenceLocked()
	}
	n.mu.Unlock()

	n.sleep(n.options.Install)

	for n.ctx.Err() == nil {
		if done := n.tryRun(); done {
			return
		}

		n.sleep(50 * time.Millisecond)
	}
}

// tryRun starts apid; it tells whether there is nothing more to do.
func (n *Node) tryRun() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.stage != StageInstalling {
		return true // wiped meanwhile
	}

	n.stage = StageRunning

	if err := n.resumeOrSettleLocked(); err != nil {
		n.stage = StageInstalling

		return false
	}

	if err := n.rebuildStateLocked(); err != nil {
		n.logf("%v", err)
	}

	raw := n.configured.RawV1Alpha1()
	if ca := raw.MachineConfig.MachineCA; n.options.Trustd != nil && len(ca.Key) > 0 {
		n.options.Trustd.join(n, raw.MachineConfig.MachineToken, ca)
	}

	n.logf("running as %s", n.configured.Machine().Type())

	return true
}

// resumeOrSettleLocked makes apid answer. Under the fault Closed there is only the certificate to wait for.
func (n *Node) resumeOrSettleLocked() error {
	if n.fault == FaultClosed {
		_, err := n.apidServerLocked()

		return err
	}

	return n.resumeLocked()
}

func (n *Node) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-n.ctx.Done():
	}
}
