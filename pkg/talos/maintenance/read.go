package maintenance

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"unicode"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"

	"github.com/fieldplane/fieldplane/pkg/talos/identity"
)

// Bounds of what is kept of a node's answers; a large storage server has some 60 disks.
const (
	maxText  = 256
	maxLinks = 128
	maxDisks = 256
)

func (s *session) Identity(ctx context.Context) (Hardware, error) {
	hw := Hardware{Fingerprint: s.Fingerprint()}

	system, systemErr := safe.StateGetByID[*hardware.SystemInformation](ctx, s.cosi, hardware.SystemInformationID)

	switch {
	case systemErr == nil:
		spec := system.TypedSpec()
		hw.UUID, hw.Serial = clean(spec.UUID), clean(spec.SerialNumber)
		hw.Manufacturer, hw.Product = clean(spec.Manufacturer), clean(spec.ProductName)
	case !state.IsNotFoundError(systemErr):
		return hw, s.readError(ctx, systemErr)
	}

	links, err := safe.StateListAll[*network.LinkStatus](ctx, s.cosi)
	if err != nil {
		return hw, s.readError(ctx, err)
	}

	for link := range links.All() {
		if len(hw.Links) == maxLinks {
			break
		}

		hw.Links = append(hw.Links, newLink(link))
	}

	if hw.Disks, err = s.disks(ctx); err != nil {
		return hw, s.readError(ctx, err)
	}

	status, err := safe.StateGetByID[*runtime.MachineStatus](ctx, s.cosi, runtime.MachineStatusID)
	if err == nil {
		hw.Stage = status.TypedSpec().Stage.String()
	} else if !withheld(err) {
		return hw, s.readError(ctx, err)
	}

	version, err := safe.StateGetByID[*runtime.Version](ctx, s.cosi, "version")
	if err == nil {
		hw.TalosVersion = clean(version.TypedSpec().Version)
	} else if !withheld(err) {
		return hw, s.readError(ctx, err)
	}

	if systemErr != nil {
		return hw, &Error{
			Class: ClassIdentityAbsent, Address: s.address, Op: "read identity",
			Detail: "the node has no system information: it has no SMBIOS, or is still booting", cause: systemErr,
		}
	}

	return hw, nil
}

func (s *session) disks(ctx context.Context) ([]Disk, error) {
	list, err := safe.StateListAll[*block.Disk](ctx, s.cosi)
	if err != nil {
		if withheld(err) {
			return nil, nil
		}

		return nil, err
	}

	var disks []Disk

	for disk := range list.All() {
		if len(disks) == maxDisks {
			break
		}

		disks = append(disks, newDisk(disk))
	}

	return disks, nil
}

func newLink(link *network.LinkStatus) Link {
	spec := link.TypedSpec()

	return Link{
		Name:          clean(link.Metadata().ID()),
		Physical:      spec.Physical(),
		PermanentAddr: macText(spec.PermanentAddr),
		HardwareAddr:  macText(spec.HardwareAddr),
		Driver:        clean(spec.Driver),
		BusPath:       clean(spec.BusPath),
		Vendor:        clean(spec.Vendor),
		Product:       clean(spec.Product),
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
		DevPath:    clean(spec.DevPath),
		SizeBytes:  spec.Size,
		Model:      clean(spec.Model),
		Serial:     clean(spec.Serial),
		WWID:       clean(spec.WWID),
		BusPath:    clean(spec.BusPath),
		Transport:  clean(spec.Transport),
		Rotational: spec.Rotational,
		ReadOnly:   spec.Readonly,
		CDROM:      spec.CDROM,
	}
}

// clean makes a text from the network fit for an object, an event and a terminal. What cannot be seen goes, not control
// characters alone: one that turns the direction of text rearranges what stands beside it.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) || r == unicode.ReplacementChar {
			return -1
		}

		return r
	}, strings.ToValidUTF8(text, ""))

	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}

	return strings.TrimSpace(text)
}

// withheld tells that a node has no such resource or does not show it; both are ordinary for what is only nice to know.
func withheld(err error) bool {
	if state.IsNotFoundError(err) {
		return true
	}

	switch client.StatusCode(err) {
	case codes.NotFound, codes.PermissionDenied, codes.Unimplemented:
		return true
	}

	return false
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
	if broken := s.conn.readError(); class != ClassNodeError && broken != nil {
		detail = broken.Error()
	}

	return &Error{Class: class, Address: s.address, Op: "read identity", Detail: clean(detail), cause: ended(ctx, err)}
}

// lostClass tells why the connection is over. A configured node's TLS 1.3 handshake succeeds for the client, and only
// then does the node refuse; its alert can be lost when the node closes at once, and then its request for a
// certificate still gives it away.
func (s *session) lostClass() Class {
	broken := s.conn.readError()

	switch {
	case wantsCertificate(broken), s.pin.certificateRequested.Load():
		return ClassNotInMaintenance
	case broken == nil, isEOF(broken), errors.Is(broken, syscall.ECONNRESET), errors.Is(broken, net.ErrClosed):
		return ClassUnreachable
	default:
		return ClassNotTalos
	}
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
