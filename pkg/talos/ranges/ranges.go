// Package ranges turns what a TalosCluster declares in spec.discovery into the addresses that discovery may open a
// connection to, and into nothing else (T-01, T-02, T-14).
package ranges

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// The caps of T-01: together they bound one sweep to MaxCandidates connections.
const (
	MaxAddresses  = 64
	MaxCIDRs      = 4
	MinPrefixBits = 24
	MaxCandidates = MaxAddresses + MaxCIDRs*(1<<(32-MinPrefixBits))

	// Port is Talos's apid port, the only one that discovery dials (T-02).
	Port = 50000
)

// The names of the two lists, as they stand under spec.discovery.
const (
	ListAddresses = "addresses"
	ListCIDRs     = "cidrs"
)

// EntryError tells which declared entry breaks which rule (T-01).
type EntryError struct {
	// List is ListAddresses or ListCIDRs.
	List string
	// Index is the entry's position in List, or -1 when the list as a whole is at fault.
	Index int
	// Value is the entry as declared, shortened when it is overlong; for a whole list, its length.
	Value string
	// Rule says what an entry must be, and where possible what to write instead.
	Rule string
}

func (e EntryError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("%s: has %s entries: %s", e.List, e.Value, e.Rule)
	}

	return fmt.Sprintf("%s[%d]: %q: %s", e.List, e.Index, e.Value, e.Rule)
}

// Errors is every EntryError of one declaration, in the order of the lists.
type Errors []EntryError

func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, entry := range e {
		texts[i] = entry.Error()
	}

	return strings.Join(texts, "; ")
}

// Set is a valid declaration. Its zero value declares nothing: discovery is off (T-01).
type Set struct {
	addresses []netip.Addr
	prefixes  []netip.Prefix
}

// Validate returns every rule that the two lists break, or nil (T-01).
func Validate(addresses, cidrs []string) Errors {
	_, errs := parse(addresses, cidrs)

	return errs
}

// Parse returns the declared set, or an error of type Errors (T-01).
func Parse(addresses, cidrs []string) (Set, error) {
	set, errs := parse(addresses, cidrs)
	if len(errs) > 0 {
		return Set{}, errs
	}

	return set, nil
}

func parse(addresses, cidrs []string) (Set, Errors) {
	var (
		set  Set
		errs Errors
	)

	errs = append(errs, checkLength(ListAddresses, len(addresses), MaxAddresses)...)

	// Only the entries that may exist are looked at, so that an absurd list costs no more than a valid one.
	for i, text := range addresses[:min(len(addresses), MaxAddresses)] {
		addr, rule := parseAddress(text)
		if rule != "" {
			errs = append(errs, EntryError{List: ListAddresses, Index: i, Value: shorten(text), Rule: rule})

			continue
		}

		set.addresses = append(set.addresses, addr)
	}

	errs = append(errs, checkLength(ListCIDRs, len(cidrs), MaxCIDRs)...)

	for i, text := range cidrs[:min(len(cidrs), MaxCIDRs)] {
		prefix, rule := parseCIDR(text)
		if rule != "" {
			errs = append(errs, EntryError{List: ListCIDRs, Index: i, Value: shorten(text), Rule: rule})

			continue
		}

		set.prefixes = append(set.prefixes, prefix)
	}

	return set, errs
}

func checkLength(list string, have, most int) Errors {
	if have <= most {
		return nil
	}

	return Errors{{List: list, Index: -1, Value: strconv.Itoa(have), Rule: fmt.Sprintf("must have at most %d entries", most)}}
}

// parseAddress returns an address, or the rule that the text breaks.
func parseAddress(text string) (netip.Addr, string) {
	addr, err := netip.ParseAddr(text)

	switch {
	case err != nil && strings.Contains(text, "/"):
		return addr, "must be a single IPv4 address; a range in CIDR form belongs in cidrs"
	case err != nil && hasPort(text):
		return addr, fmt.Sprintf("must be an IPv4 address without a port; discovery always uses port %d", Port)
	case err != nil:
		return addr, "must be an IPv4 address in dotted-decimal form without leading zeros, such as 192.0.2.10; names are not resolved"
	case addr.Is4In6():
		return addr, fmt.Sprintf("must be an IPv4 address, not an IPv4-mapped IPv6 one; write %s", addr.Unmap())
	case !addr.Is4():
		return addr, "must be an IPv4 address; IPv6 is not supported"
	}

	return addr, checkUnicast(addr)
}

func hasPort(text string) bool {
	_, err := netip.ParseAddrPort(text)

	return err == nil
}

func checkUnicast(addr netip.Addr) string {
	switch {
	case addr.IsUnspecified():
		return "must be the address of a machine; 0.0.0.0 is the unspecified address"
	case addr.IsMulticast():
		return "must be the address of a machine; 224.0.0.0/4 is multicast"
	case addr == broadcast():
		return "must be the address of a machine; 255.255.255.255 is the broadcast address"
	}

	return ""
}

func broadcast() netip.Addr { return netip.AddrFrom4([4]byte{255, 255, 255, 255}) }

// parseCIDR returns a prefix, or the rule that the text breaks. Host bits are refused, not masked away: whoever writes
// 192.0.2.7/24 may have meant one machine, and would be surprised by 256 connections.
func parseCIDR(text string) (netip.Prefix, string) {
	prefix, err := netip.ParsePrefix(text)

	switch {
	case err != nil && !strings.Contains(text, "/"):
		return prefix, "must be an IPv4 range in CIDR form, such as 192.0.2.0/28; a single address belongs in addresses"
	case err != nil:
		return prefix, "must be an IPv4 range in CIDR form without leading zeros, such as 192.0.2.0/28"
	case prefix.Addr().Is4In6():
		return prefix, "must be an IPv4 range, not an IPv4-mapped IPv6 one"
	case !prefix.Addr().Is4():
		return prefix, "must be an IPv4 range; IPv6 is not supported"
	case prefix.Bits() < MinPrefixBits:
		return prefix, fmt.Sprintf("must be /%d or smaller, at most %d addresses; /%d has %d",
			MinPrefixBits, 1<<(32-MinPrefixBits), prefix.Bits(), uint64(1)<<(32-prefix.Bits()))
	case prefix.Masked() != prefix:
		return prefix, fmt.Sprintf("must not have host bits set; write %s for the range or put %s in addresses", prefix.Masked(), prefix.Addr())
	}

	for _, end := range []netip.Addr{prefix.Addr(), lastOf(prefix)} {
		if checkUnicast(end) != "" {
			return prefix, "must hold only addresses of machines; " + end.String() + " is not one"
		}
	}

	return prefix, ""
}

func lastOf(prefix netip.Prefix) netip.Addr {
	first := prefix.Addr().As4()

	var last [4]byte

	binary.BigEndian.PutUint32(last[:], binary.BigEndian.Uint32(first[:])|uint32(1<<(32-prefix.Bits())-1))

	return netip.AddrFrom4(last)
}

// shorten keeps messages bounded: a declared entry is user input of any length.
func shorten(text string) string {
	const longest = 64

	if len(text) <= longest {
		return strings.ToValidUTF8(text, "�")
	}

	return strings.ToValidUTF8(text[:longest], "") + "…"
}

// Empty tells that nothing is declared: discovery is off and no connection is ever opened (T-01).
func (s Set) Empty() bool { return len(s.addresses) == 0 && len(s.prefixes) == 0 }

// Candidates returns each declared address once, at most MaxCandidates of them: the addresses as listed, then the
// CIDRs as listed, each from its first address to its last, network and broadcast address included (T-02).
func (s Set) Candidates() []netip.Addr {
	var out []netip.Addr

	seen := make(map[netip.Addr]struct{})

	add := func(addr netip.Addr) {
		if _, dup := seen[addr]; !dup {
			seen[addr] = struct{}{}

			out = append(out, addr)
		}
	}

	for _, addr := range s.addresses {
		add(addr)
	}

	for _, prefix := range s.prefixes {
		for addr := prefix.Addr(); prefix.Contains(addr); addr = addr.Next() {
			add(addr)
		}
	}

	return out
}

// Contains tells whether an endpoint is one of the candidates (T-14). An endpoint is an IPv4 address, alone or with
// Talos's apid port; anything else is not contained.
func (s Set) Contains(endpoint string) bool {
	addr, err := netip.ParseAddr(endpoint)
	if err != nil {
		withPort, err := netip.ParseAddrPort(endpoint)
		if err != nil || withPort.Port() != Port {
			return false
		}

		addr = withPort.Addr()
	}

	for _, declared := range s.addresses {
		if declared == addr {
			return true
		}
	}

	for _, prefix := range s.prefixes {
		if prefix.Contains(addr) {
			return true
		}
	}

	return false
}
