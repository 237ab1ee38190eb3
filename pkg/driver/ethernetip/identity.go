package ethernetip

import (
	"encoding/binary"
	"fmt"

	"github.com/danomagnum/gologix"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// identity is the Identity object (CIP volume 1, 5A-2), as both ListIdentity and Get Attributes All tell it.
type identity struct {
	vendor       uint16
	major, minor byte
	status       uint16
	serial       uint32
	product      string
}

// maxNameplate bounds one member of an identity: it ends up in a status.
const maxNameplate = 64

// parseIdentity reads vendor, device type, product code, revision, status, serial number and product name.
func parseIdentity(data []byte) (identity, error) {
	if len(data) < 15 || len(data) < 15+int(data[14]) {
		return identity{}, fmt.Errorf("%w: it ends within the identity", errMalformedReply)
	}
	return identity{
		vendor:  binary.LittleEndian.Uint16(data),
		major:   data[6],
		minor:   data[7],
		status:  binary.LittleEndian.Uint16(data[8:]),
		serial:  binary.LittleEndian.Uint32(data[10:]),
		product: printable(data[15:15+int(data[14])], maxNameplate),
	}, nil
}

// parseListIdentity reads the reply to ListIdentity: protocol version, socket address (16 bytes), identity, state. The
// address is not looked at: the device is where we reached it.
func parseListIdentity(data []byte) (identity, error) {
	items, err := parseItems(data)
	if err != nil {
		return identity{}, err
	}
	for _, i := range items {
		if i.id == itemIdentity && len(i.data) >= 18 {
			return parseIdentity(i.data[18:])
		}
	}
	return identity{}, fmt.Errorf("%w: no identity", errMalformedReply)
}

// nameplate is the identity for people.
func (i identity) nameplate() driver.Identity {
	id := driver.Identity{
		Vendor:   gologix.VendorId(i.vendor).Name(),
		Product:  i.product,
		Serial:   fmt.Sprintf("%08X", i.serial),
		Revision: fmt.Sprintf("%d.%03d", i.major&0x7F, i.minor),
	}
	if id.Vendor == reservedVendor {
		id.Vendor = fmt.Sprintf("vendor %d", i.vendor)
	}
	return id
}

// reservedVendor is what gologix calls a vendor that it does not know.
const reservedVendor = "Reserved"

// The bits of the Identity object's status, attribute 5.
const (
	minorRecoverable   = 1 << 8
	minorUnrecoverable = 1 << 9
	majorRecoverable   = 1 << 10
	majorUnrecoverable = 1 << 11
)

// health is the NE 107 verdict behind a status, with the reason that goes with it. The extended status in bits 4 to 7 is
// left alone: vendors put their own meaning there.
func health(status uint16) driver.Answer {
	switch {
	case status&(majorRecoverable|majorUnrecoverable) != 0:
		return driver.Answer{
			Health:  driver.HealthFailure,
			Reason:  driver.ReasonDeviceFailure,
			Message: fmt.Sprintf("the device answers, and reports a major fault (identity status 0x%04x)", status),
		}
	case status&(minorRecoverable|minorUnrecoverable) != 0:
		return driver.Answer{
			Health:  driver.HealthMaintenanceRequired,
			Reason:  driver.ReasonDeviceFailure,
			Message: fmt.Sprintf("the device answers, and reports a minor fault (identity status 0x%04x)", status),
		}
	default:
		return driver.Answer{Health: driver.HealthNormal}
	}
}
