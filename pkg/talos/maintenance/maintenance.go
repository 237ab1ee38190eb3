// Package maintenance talks to a Talos node in maintenance mode: the state before its first configuration, in which
// apid answers anybody, without any certificate that could be trusted. It reads what the node says about its hardware
// (T-03) and hands it its first configuration, on one and the same connection (T-18).
package maintenance

import (
	"context"

	"github.com/fieldplane/fieldplane/pkg/talos/identity"
)

// Client is one session with one node: exactly one connection, which is never made again. What was read and what is
// applied through one Client therefore concern the same peer (T-18).
type Client interface {
	// Identity reads the node's hardware. An error of ClassIdentityAbsent comes with whatever else could be read; such
	// a node may still be booting, so it is asked again at the next sweep (T-03).
	Identity(ctx context.Context) (Hardware, error)
	// ApplyConfiguration sends a complete machine configuration. No error, nor the result, ever holds a part of the
	// configuration that is secret (T-15).
	ApplyConfiguration(ctx context.Context, config []byte, options ApplyOptions) (ApplyResult, error)
	// Fingerprint is the base64 SHA-256 of the peer's public key, as the node prints it on its console. It changes at
	// each boot and every 12 hours: it vouches for this session and is no identity (T-18).
	Fingerprint() string
	// Close ends the session.
	Close() error
}

// Factory opens a session with the node at an address; errors are of type *Error. Dial is the one that opens
// connections; tests of packages bring their own (T-19).
type Factory func(ctx context.Context, address string) (Client, error)

// Hardware is what a node says about itself. Everything here was sent by an unauthenticated peer: texts are bounded and
// free of control characters, lists are bounded, and nothing is trusted beyond that (T-03).
type Hardware struct {
	// UUID, Serial, Manufacturer and Product are as the node's SMBIOS has them, placeholders included.
	UUID         string
	Serial       string
	Manufacturer string
	Product      string

	Links []Link
	Disks []Disk

	// TalosVersion is "" when the node does not tell it, as before 1.10.
	TalosVersion string
	// Stage is the node's machine stage, "maintenance" in the ordinary case; "" when the node does not tell it.
	Stage string
	// Fingerprint is the Client's.
	Fingerprint string
}

// Link is one network link of a node.
type Link struct {
	Name          string
	Physical      bool
	PermanentAddr string
	HardwareAddr  string
	Driver        string
	BusPath       string
	Vendor        string
	Product       string
	Up            bool
}

// Disk is one disk of a node.
type Disk struct {
	// DevPath is the device's path, such as /dev/nvme0n1: what install.disk names.
	DevPath    string
	SizeBytes  uint64
	Model      string
	Serial     string
	WWID       string
	BusPath    string
	Transport  string
	Rotational bool
	ReadOnly   bool
	CDROM      bool
}

// Identity classifies the hardware: strong or weak, and by which parts (T-04).
func (h Hardware) Identity() identity.Identity {
	links := make([]identity.Link, len(h.Links))
	for i, link := range h.Links {
		links[i] = link.identity()
	}

	return identity.New(h.UUID, h.Serial, links)
}

// ApplyOptions is how a configuration is applied; its zero value applies it for good.
type ApplyOptions struct {
	// DryRun has the node check the configuration and change nothing.
	DryRun bool
}

// ApplyResult is what a node answered to a configuration that it accepted.
type ApplyResult struct {
	// Mode is the mode the node chose, such as NO_REBOOT; "" when it did not tell.
	Mode string
	// Warnings are the node's remarks on the configuration, without any secret.
	Warnings []string
}
