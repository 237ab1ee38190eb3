package talosnode

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	"github.com/cosi-project/runtime/pkg/state/impl/namespaced"
	cosiserver "github.com/cosi-project/runtime/pkg/state/protobuf/server"
	"github.com/cosi-project/runtime/pkg/state/registry"
	talosmeta "github.com/siderolabs/talos/pkg/machinery/meta"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	timeresource "github.com/siderolabs/talos/pkg/machinery/resources/time"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// rebuildStateLocked makes the node's resources from its hardware and stage and puts them in the place of the old ones
// at once, so that a reader sees either.
func (n *Node) rebuildStateLocked() error {
	st, err := n.newStateLocked()
	if err != nil {
		return err
	}

	rule, err := n.accessRule(st)
	if err != nil {
		return err
	}

	n.states.set(st, state.Filter(st, rule))

	return nil
}

func (n *Node) newStateLocked() (state.State, error) {
	ctx := context.Background()
	st := state.WrapCore(namespaced.NewState(inmem.Build))

	namespaces := registry.NewNamespaceRegistry(st)
	if err := namespaces.RegisterDefault(ctx); err != nil {
		return nil, err
	}

	for _, ns := range []resource.Namespace{hardware.NamespaceName, network.NamespaceName, runtime.NamespaceName, talosconfig.NamespaceName} {
		if err := namespaces.Register(ctx, ns, "Talos "+ns); err != nil {
			return nil, err
		}
	}

	types := registry.NewResourceRegistry(st)
	if err := types.RegisterDefault(ctx); err != nil {
		return nil, err
	}

	for _, r := range []meta.ResourceWithRD{
		&hardware.SystemInformation{}, &network.LinkStatus{}, &network.LinkSpec{}, &network.HostnameStatus{}, &block.Disk{}, &block.SystemDisk{},
		&runtime.MachineStatus{}, &runtime.Version{}, &runtime.MetaKey{}, &talosconfig.MachineConfig{}, &timeresource.Status{},
	} {
		if err := types.Register(ctx, r); err != nil {
			return nil, err
		}
	}

	resources, err := n.resourcesLocked()
	if err != nil {
		return nil, err
	}

	for _, r := range resources {
		if err := st.Create(ctx, r); err != nil {
			return nil, err
		}
	}

	return st, nil
}

func (n *Node) resourcesLocked() ([]resource.Resource, error) {
	var out []resource.Resource

	hw := n.hardware

	if !hw.NoSMBIOS {
		system := hardware.NewSystemInformation(hardware.SystemInformationID)
		system.TypedSpec().UUID = hw.UUID
		system.TypedSpec().SerialNumber = hw.Serial
		system.TypedSpec().Manufacturer = hw.Manufacturer
		system.TypedSpec().ProductName = hw.Product

		if hw.MetaUUID != "" {
			system.TypedSpec().UUID = hw.MetaUUID
		}

		out = append(out, system)
	}

	if hw.MetaUUID != "" {
		key := runtime.NewMetaKey(runtime.NamespaceName, runtime.MetaKeyTagToID(talosmeta.UUIDOverride))
		key.TypedSpec().Value = hw.MetaUUID
		out = append(out, key)
	}

	for i, l := range hw.Links {
		link := network.NewLinkStatus(network.NamespaceName, l.Name)
		link.TypedSpec().Index = uint32(i + 1)
		link.TypedSpec().Type = nethelpers.LinkEther
		link.TypedSpec().Driver = l.Driver
		link.TypedSpec().LinkState = true

		if l.Virtual {
			link.TypedSpec().Kind = "dummy"
		}

		if l.MAC != "" {
			mac, err := net.ParseMAC(l.MAC)
			if err != nil {
				return nil, err
			}

			link.TypedSpec().PermanentAddr = nethelpers.HardwareAddr(mac)
			link.TypedSpec().HardwareAddr = nethelpers.HardwareAddr(mac)
		}

		out = append(out, link)
	}

	for i, d := range hw.Disks {
		disk := block.NewDisk(block.NamespaceName, diskID(i))
		disk.TypedSpec().DevPath = d.Path
		disk.TypedSpec().SetSize(d.SizeBytes)
		disk.TypedSpec().Model = d.Model
		disk.TypedSpec().Serial = d.Serial
		disk.TypedSpec().WWID = d.WWID
		disk.TypedSpec().Transport = d.Transport
		disk.TypedSpec().Rotational = d.Rotational
		out = append(out, disk)
	}

	machineStatus := runtime.NewMachineStatus()
	*machineStatus.TypedSpec() = n.machineStatusLocked()

	version := runtime.NewVersion()
	version.TypedSpec().Name = "Talos"
	version.TypedSpec().Version = n.options.TalosVersion

	hostname := network.NewHostnameStatus(network.NamespaceName, network.HostnameID)
	hostname.TypedSpec().Hostname = n.hostnameLocked()

	clock := timeresource.NewStatus()
	clock.TypedSpec().Synced = n.fault != FaultNoTime

	out = append(out, machineStatus, version, hostname, clock)

	if n.fault == FaultTakeover {
		return out, nil // the other machine has no configuration
	}

	if n.active.Provider != nil {
		out = append(out, talosconfig.NewMachineConfig(n.active.Provider))
	}

	if n.persistent.Provider != nil {
		out = append(out, talosconfig.NewMachineConfigWithID(n.persistent.Provider, talosconfig.PersistentID))
	}

	if i := slices.IndexFunc(hw.Disks, func(d Disk) bool { return d.Path == n.systemDisk }); i >= 0 {
		disk := block.NewSystemDisk(block.NamespaceName, block.SystemDiskID)
		disk.TypedSpec().DevPath = n.systemDisk
		disk.TypedSpec().DiskID = diskID(i)
		out = append(out, disk)
	}

	return out, nil
}

func diskID(i int) string { return fmt.Sprintf("disk%d", i) }

// accessRule is who may read and write what: reading whatever is not sensitive for everybody who is let in, sensitive
// types for administrators, writing for nobody.
func (n *Node) accessRule(st state.State) (state.FilteringRule, error) {
	definitions, err := safe.StateListAll[*meta.ResourceDefinition](context.Background(), st)
	if err != nil {
		return nil, err
	}

	sensitive := make(map[resource.Type]bool)
	for definition := range definitions.All() {
		sensitive[definition.TypedSpec().Type] = definition.TypedSpec().Sensitivity == meta.Sensitive
	}

	return func(ctx context.Context, access state.Access) error {
		n.delay()

		isSensitive, known := sensitive[access.ResourceType]

		switch {
		case !access.Verb.Readonly():
			return status.Error(codes.PermissionDenied, "not authorized")
		case !known:
			return status.Errorf(codes.PermissionDenied, "resource type %q is not supported", access.ResourceType)
		case isSensitive && !rolesOf(ctx).Includes(role.Admin):
			return status.Error(codes.PermissionDenied, "not authorized")
		}

		if access.ResourceType == hardware.SystemInformationType && access.Verb != state.Watch {
			n.handedOut(ctx, st)
		}

		return nil
	}, nil
}

func (n *Node) handedOut(ctx context.Context, st state.State) {
	r, err := st.Get(ctx, resource.NewMetadata(hardware.NamespaceName, hardware.SystemInformationType, hardware.SystemInformationID, resource.VersionUndefined))
	if err != nil {
		return
	}

	spec := r.(*hardware.SystemInformation).TypedSpec()
	entry := HandedOut{At: time.Now(), UUID: spec.UUID, Serial: spec.SerialNumber}

	if p, ok := peer.FromContext(ctx); ok {
		entry.Peer = p.Addr.String()
	}

	n.record.addIdentity(entry)
}

// stateSwitch is a COSI state service whose state can be put in another's place.
type stateSwitch struct {
	cosiv1alpha1.UnimplementedStateServer

	// inner is for the node itself, served for its peers.
	inner  atomic.Pointer[state.State]
	served atomic.Pointer[cosiserver.State]
	// absent is how many more readings find no system information.
	absent atomic.Int64
}

func (s *stateSwitch) set(inner state.State, filtered state.CoreState) {
	s.inner.Store(&inner)
	s.served.Store(cosiserver.NewState(filtered))
}

func (s *stateSwitch) Get(ctx context.Context, req *cosiv1alpha1.GetRequest) (*cosiv1alpha1.GetResponse, error) {
	if req.GetType() == hardware.SystemInformationType && s.absent.Load() > 0 && s.absent.Add(-1) >= 0 {
		return nil, status.Error(codes.NotFound, "resource doesn't exist")
	}

	return s.served.Load().Get(ctx, req)
}

func (s *stateSwitch) List(req *cosiv1alpha1.ListRequest, srv cosiv1alpha1.State_ListServer) error {
	return s.served.Load().List(req, srv)
}

func (s *stateSwitch) Create(ctx context.Context, req *cosiv1alpha1.CreateRequest) (*cosiv1alpha1.CreateResponse, error) {
	return s.served.Load().Create(ctx, req)
}

func (s *stateSwitch) Update(ctx context.Context, req *cosiv1alpha1.UpdateRequest) (*cosiv1alpha1.UpdateResponse, error) {
	return s.served.Load().Update(ctx, req)
}

func (s *stateSwitch) Destroy(ctx context.Context, req *cosiv1alpha1.DestroyRequest) (*cosiv1alpha1.DestroyResponse, error) {
	return s.served.Load().Destroy(ctx, req)
}

func (s *stateSwitch) Watch(req *cosiv1alpha1.WatchRequest, srv cosiv1alpha1.State_WatchServer) error {
	return s.served.Load().Watch(req, srv)
}
