package maintenance

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"

	"github.com/fieldplane/fieldplane/pkg/talos/identity"
	"github.com/fieldplane/fieldplane/pkg/talos/internal/apid"
	"github.com/fieldplane/fieldplane/pkg/talos/internal/remark"
)

// Bounds of what is kept of a node's answers; a large storage server has some 60 disks.
const (
	maxLinks = 128
	maxDisks = 256
)

func (s *session) Identity(ctx context.Context) (Hardware, error) {
	hw, err := ReadHardware(ctx, s.cosi)
	hw.Fingerprint = s.Fingerprint()

	switch {
	case err == nil:
		return hw, nil
	case errors.Is(err, ErrNoSystemInformation):
		return hw, &Error{Class: ClassIdentityAbsent, Address: s.address, Op: "read identity", Detail: ErrNoSystemInformation.Error(), cause: err}
	default:
		return hw, s.readError(ctx, err)
	}
}

// ErrNoSystemInformation is ReadHardware's error for a node whose hardware has no SMBIOS, or has not been read yet.
var ErrNoSystemInformation = errors.New("the node has no system information: it has no SMBIOS, or is still booting")

// ReadHardware reads what a node's resources say about its hardware, in maintenance mode or configured; Fingerprint stays
// empty. ErrNoSystemInformation comes with everything else; any other error is the reading's own, as it came.
func ReadHardware(ctx context.Context, cosi state.State) (Hardware, error) {
	var (
		hw                                   Hardware
		system, links, disks, stage, version error
		reading                              sync.WaitGroup
	)

	// At once, over the one connection: in a row each question would wait for the answer before it.
	reading.Go(func() { system = hw.readSystem(ctx, cosi) })
	reading.Go(func() { links = hw.readLinks(ctx, cosi) })
	reading.Go(func() { disks = hw.readDisks(ctx, cosi) })
	reading.Go(func() { stage = hw.readStage(ctx, cosi) })
	reading.Go(func() { version = hw.readVersion(ctx, cosi) })
	reading.Wait()

	absent := state.IsNotFoundError(system)
	if absent {
		system = nil
	}

	for _, err := range []error{system, links, disks, stage, version} {
		if err != nil {
			return hw, err
		}
	}

	if absent {
		return hw, ErrNoSystemInformation
	}

	return hw, nil
}

func (hw *Hardware) readSystem(ctx context.Context, cosi state.State) error {
	system, err := safe.StateGetByID[*hardware.SystemInformation](ctx, cosi, hardware.SystemInformationID)
	if err != nil {
		return err
	}

	spec := system.TypedSpec()
	hw.UUID, hw.Serial = remark.Clean(spec.UUID), remark.Clean(spec.SerialNumber)
	hw.Manufacturer, hw.Product = remark.Clean(spec.Manufacturer), remark.Clean(spec.ProductName)

	return nil
}

func (hw *Hardware) readLinks(ctx context.Context, cosi state.State) error {
	list, err := safe.StateListAll[*network.LinkStatus](ctx, cosi)
	if err != nil {
		return err
	}

	// Not list.All, which panics at what is no link.
	return list.ForEachErr(func(link *network.LinkStatus) error {
		if len(hw.Links) < maxLinks {
			hw.Links = append(hw.Links, newLink(link))
		}

		return nil
	})
}

func (hw *Hardware) readDisks(ctx context.Context, cosi state.State) error {
	list, err := safe.StateListAll[*block.Disk](ctx, cosi)
	if err != nil {
		return unlessWithheld(err)
	}

	return list.ForEachErr(func(disk *block.Disk) error {
		if len(hw.Disks) < maxDisks {
			hw.Disks = append(hw.Disks, newDisk(disk))
		}

		return nil
	})
}

func (hw *Hardware) readStage(ctx context.Context, cosi state.State) error {
	status, err := safe.StateGetByID[*runtime.MachineStatus](ctx, cosi, runtime.MachineStatusID)
	if err != nil {
		return unlessWithheld(err)
	}

	hw.Stage = status.TypedSpec().Stage.String()

	return nil
}

func (hw *Hardware) readVersion(ctx context.Context, cosi state.State) error {
	version, err := safe.StateGetByID[*runtime.Version](ctx, cosi, "version")
	if err != nil {
		return unlessWithheld(err)
	}

	hw.TalosVersion = remark.Clean(version.TypedSpec().Version)

	return nil
}

// unlessWithheld is for what is only nice to know.
func unlessWithheld(err error) error {
	if apid.Withheld(err) {
		return nil
	}

	return err
}

func newLink(link *network.LinkStatus) Link {
	spec := link.TypedSpec()

	return Link{
		Name:          remark.Clean(link.Metadata().ID()),
		Physical:      spec.Physical(),
		PermanentAddr: macText(spec.PermanentAddr),
		HardwareAddr:  macText(spec.HardwareAddr),
		Driver:        remark.Clean(spec.Driver),
		BusPath:       remark.Clean(spec.BusPath),
		Vendor:        remark.Clean(spec.Vendor),
		Product:       remark.Clean(spec.Product),
		Up:            spec.LinkState,
	}
}

// macText leaves out what is longer than any hardware address (InfiniBand's has 20 bytes).
func macText[T ~[]byte](addr T) string {
	if len(addr) > 20 {
		return ""
	}

	return net.HardwareAddr(addr).String()
}

func (l Link) identity() identity.Link {
	mac, err := net.ParseMAC(l.PermanentAddr)
	if err != nil {
		mac = nil
	}

	return identity.Link{Physical: l.Physical, PermanentAddr: mac, Driver: l.Driver}
}

func newDisk(disk *block.Disk) Disk {
	spec := disk.TypedSpec()

	return Disk{
		DevPath:    remark.Clean(spec.DevPath),
		SizeBytes:  spec.Size,
		Model:      remark.Clean(spec.Model),
		Serial:     remark.Clean(spec.Serial),
		WWID:       remark.Clean(spec.WWID),
		BusPath:    remark.Clean(spec.BusPath),
		Transport:  remark.Clean(spec.Transport),
		Rotational: spec.Rotational,
		ReadOnly:   spec.Readonly,
		CDROM:      spec.CDROM,
	}
}

func (s *session) readError(ctx context.Context, err error) error {
	class := ClassNodeError

	switch client.StatusCode(err) {
	case codes.Unavailable:
		class = s.lostClass()
	case codes.DeadlineExceeded, codes.Canceled:
		class = ClassUnreachable
	case codes.Unauthenticated, codes.PermissionDenied:
		class = ClassNotInMaintenance
	case codes.Unimplemented:
		class = ClassNotTalos
	}

	detail := err.Error()
	if broken := s.channel.ReadError(); class != ClassNodeError && broken != nil {
		detail = broken.Error()
	}

	return &Error{Class: class, Address: s.address, Op: "read identity", Detail: remark.Clean(detail), cause: ended(ctx, err)}
}

// lostClass tells why the connection is over. A configured node's TLS 1.3 handshake succeeds for the client, and only
// then does the node refuse; its alert can be lost when the node closes at once, and then its request for a
// certificate still gives it away.
func (s *session) lostClass() Class {
	broken := s.channel.ReadError()

	switch {
	case apid.WantsCertificate(broken), s.pin.certificateRequested.Load():
		return ClassNotInMaintenance
	case broken == nil, apid.IsEOF(broken), errors.Is(broken, syscall.ECONNRESET), errors.Is(broken, net.ErrClosed):
		return ClassUnreachable
	default:
		return ClassNotTalos
	}
}
