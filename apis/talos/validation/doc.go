// Package validation holds the rules of the talos group that are too long for a tag on a field: those that join several
// fields, and the grammar of addresses, versions and sizes. Each error names the field, the value and the rule.
// What the tags in v1alpha1 enforce (required, lengths, enums, immutability, uniqueness in lists) is not repeated here;
// discovery ranges (T-01) and configuration patches are admission's to check.
package validation

import (
	"net/netip"
	"regexp"
	"strings"

	kubevalidation "k8s.io/apimachinery/pkg/util/validation"
)

var (
	// uuid is a SMBIOS UUID as machines are named by it (T-05).
	uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	// mac is a MAC address of six bytes in its only accepted form, so that equal addresses are equal texts.
	mac = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)
)

// checkMAC returns the rule that a MAC address breaks, or "".
func checkMAC(text string) string {
	switch {
	case !mac.MatchString(text):
		return `must be six bytes in lower-case hexadecimal, such as "b4:45:06:aa:00:02"`
	case text == "00:00:00:00:00:00":
		return "must be the address of one network card; this one is what a card without an address reports"
	case strings.ContainsRune("13579bdf", rune(text[1])):
		return "must be the address of one network card; this one is a multicast address"
	}
	return ""
}

// checkHost returns the rule that a host breaks, or "": it is an IP address or a name in DNS.
func checkHost(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		return checkUnicast(addr)
	}
	if len(kubevalidation.IsDNS1123Subdomain(host)) > 0 {
		return "the host must be an IP address or a lower-case DNS name"
	}
	// 10.0.0.256 and 10.1 are names by their grammar, and resolve nowhere.
	if last := host[strings.LastIndexByte(host, '.')+1:]; strings.Trim(last, "0123456789") == "" {
		return "the host is neither an IP address nor a DNS name"
	}
	return ""
}

func checkUnicast(addr netip.Addr) string {
	switch {
	case addr.Zone() != "":
		return "must not have a zone"
	case addr.Is4In6():
		return "must not be an IPv4-mapped IPv6 address; write " + addr.Unmap().String()
	case addr.IsUnspecified(), addr.IsMulticast(), addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "must be the address of one machine"
	}
	return ""
}
