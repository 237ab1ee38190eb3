package validation

import (
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// The schemes of the protocols' endpoints (P-13).
const (
	schemeTCP    = "tcp"
	schemeOPCTCP = "opc.tcp"
)

// validateEndpoint checks SCHEME://HOST[:PORT], and for opc.tcp a path after it; an absent endpoint is the tag's to report.
func validateEndpoint(path *field.Path, endpoint, scheme string) field.ErrorList {
	if endpoint == "" {
		return nil
	}
	form := scheme + "://HOST[:PORT]"
	if scheme == schemeOPCTCP {
		form += "[/PATH]"
	}
	refuse := func(rule string) field.ErrorList {
		return field.ErrorList{field.Invalid(path, endpoint, "must be "+form+": "+rule)}
	}

	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return refuse("it is no URL")
	case u.Scheme != scheme:
		return refuse("it must begin with " + scheme + "://")
	case u.Opaque != "" || u.Host == "":
		return refuse("it has no host")
	case u.User != nil:
		return refuse("it must not hold a user or password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(endpoint, "#"):
		return refuse("nothing may follow")
	case u.Path != "" && scheme != schemeOPCTCP:
		return refuse("nothing may follow the port")
	case strings.HasSuffix(u.Host, ":"):
		return refuse("the port is empty")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return refuse("the port must be between 1 and 65535")
		}
	}
	if rule := checkHost(u.Hostname()); rule != "" {
		return refuse(rule)
	}
	return nil
}

// hostName is a name that a resolver may know: devices' names have underscores and capitals, which DNS hosts have not.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*\.?$`)

// checkHost returns the rule that a host breaks, or "".
func checkHost(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		switch {
		case addr.Zone() != "":
			return "the host must not have a zone, which means something else on every node"
		case addr.IsUnspecified(), addr.IsMulticast(), addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
			return "the host must be the address of one device"
		}
		return ""
	}
	if len(host) > 253 || !hostName.MatchString(host) {
		return "the host must be an IP address or a host name"
	}
	// 10.0.0.256 and 10.1 would be looked up as names, for ever in vain.
	if last := host[strings.LastIndexByte(strings.TrimSuffix(host, "."), '.')+1:]; strings.Trim(last, "0123456789.") == "" {
		return "the host is neither an IP address nor a host name"
	}
	return ""
}

// validateCIPPath checks a route of PORT,LINK pairs; a link may be the IPv4 address of the next chassis.
func validateCIPPath(path *field.Path, route string) field.ErrorList {
	if route == "" {
		return nil
	}
	parts := strings.Split(route, ",")
	ok := len(parts)%2 == 0
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 8)
		switch {
		case i%2 == 0:
			ok = ok && err == nil && n > 0
		case err != nil:
			addr, err := netip.ParseAddr(part)
			ok = ok && err == nil && addr.Is4()
		}
	}
	if ok {
		return nil
	}
	return field.ErrorList{field.Invalid(path, route, `must be PORT,SLOT pairs separated by commas, such as "1,0" for the backplane, slot 0; PORT from 1 to 255, SLOT from 0 to 255 or an IPv4 address`)}
}

// modbusTable is one of the four tables of the Modbus data model.
type modbusTable struct {
	name     string
	digit    byte // first digit of its reference numbers
	bits     bool
	readOnly bool
}

func modbusTables() [4]modbusTable {
	return [4]modbusTable{
		{name: "coil", digit: '0', bits: true},
		{name: "discrete", digit: '1', bits: true, readOnly: true},
		{name: "input", digit: '3', readOnly: true},
		{name: "holding", digit: '4'},
	}
}

// tableSize is how many elements each table has.
const tableSize = 65536

// parseModbusAddress returns the table and the offset, counted from 0, or the rule that the address breaks. A reference
// number is accepted only where addressing says so: whoever guesses reads the neighbour.
func parseModbusAddress(address string, addressing physical.ModbusAddressing) (table modbusTable, offset int, rule string) {
	if name, number, ok := strings.Cut(address, ":"); ok {
		for _, table := range modbusTables() {
			if table.name != name {
				continue
			}
			n, err := strconv.ParseUint(number, 10, 16)
			if err != nil {
				return table, 0, "must be TABLE:OFFSET with an offset from 0 to 65535"
			}
			return table, int(n), ""
		}
		return modbusTable{}, 0, "must be TABLE:OFFSET with a table of coil, discrete, input or holding"
	}

	n, err := strconv.ParseUint(address, 10, 32)
	switch {
	case err != nil && addressing == physical.ModbusAddressingReference:
		return modbusTable{}, 0, `must be a reference number such as "40001", or TABLE:OFFSET such as "holding:0"`
	case err != nil:
		return modbusTable{}, 0, `must be TABLE:OFFSET such as "holding:0"`
	case addressing != physical.ModbusAddressingReference:
		return modbusTable{}, 0, `is a reference number: set modbus.addressing to reference, or write TABLE:OFFSET such as "holding:0"`
	case len(address) != 5 && len(address) != 6:
		return modbusTable{}, 0, `must be a reference number of five or six digits, such as "40001"`
	}
	base := uint64(10000)
	if len(address) == 6 {
		base = 100000
	}
	for _, table := range modbusTables() {
		if address[0] != table.digit {
			continue
		}
		if n -= uint64(table.digit-'0') * base; n >= 1 && n <= tableSize {
			return table, int(n - 1), ""
		}
	}
	return modbusTable{}, 0, "must be a reference number that begins with 0, 1, 3 or 4 and counts from 1 to 65536"
}

var (
	// nodeID is an OPC UA NodeId in the text form of OPC 10000-6, 5.3.1.10.
	nodeID = regexp.MustCompile(`^(ns=\d{1,5};|nsu=[^;]+;)?(i=\d{1,10}|s=.+|g=[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|b=[A-Za-z0-9+/]+={0,2})$`)

	// cipTag is a tag name of a Logix controller: Program:Main.Tag[2].Member, Local:1:I.Data.0.
	cipTag = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_:]*(\[\d+(,\d+){0,2}\])?(\.[A-Za-z0-9_][A-Za-z0-9_:]*(\[\d+(,\d+){0,2}\])?)*$`)
)
