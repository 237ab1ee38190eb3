package ranges

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// Req: T-01
func TestValidateNamesTheEntryAndTheRule(t *testing.T) {
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf("192.0.2.%d", i)
	}

	for _, tc := range []struct {
		name      string
		addresses []string
		cidrs     []string
		list      string
		index     int
		value     string
		rule      string // a part of it; empty means that the declaration is valid
	}{
		{name: "nothing declared is valid"},
		{name: "an address is valid", addresses: []string{"192.0.2.1"}},
		{name: "a loopback address is valid, for plants on one host", addresses: []string{"127.0.50.1"}},
		{name: "64 addresses are valid", addresses: many[:64]},
		{name: "a /24 is valid", cidrs: []string{"192.0.2.0/24"}},
		{name: "a /32 is valid", cidrs: []string{"192.0.2.7/32"}},
		{name: "4 CIDRs are valid", cidrs: []string{"192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "10.0.0.0/24"}},
		{name: "the same address twice is valid", addresses: []string{"192.0.2.1", "192.0.2.1"}},
		{name: "overlapping CIDRs are valid", cidrs: []string{"192.0.2.0/24", "192.0.2.0/25"}},

		{name: "65 addresses are refused", addresses: many, list: "addresses", index: -1, value: "65", rule: "at most 64"},
		{name: "5 CIDRs are refused", cidrs: slices.Repeat([]string{"192.0.2.0/24"}, 5), list: "cidrs", index: -1, value: "5", rule: "at most 4"},
		{name: "an IPv6 address is refused", addresses: []string{"192.0.2.1", "2001:db8::1"}, list: "addresses", index: 1, value: "2001:db8::1", rule: "IPv6 is not supported"},
		{name: "an IPv4-mapped IPv6 address is refused with advice", addresses: []string{"::ffff:192.0.2.1"}, list: "addresses", value: "::ffff:192.0.2.1", rule: "write 192.0.2.1"},
		{name: "an IPv6 address with a zone is refused", addresses: []string{"fe80::1%eth0"}, list: "addresses", value: "fe80::1%eth0", rule: "IPv6"},
		{name: "leading zeros are refused", addresses: []string{"192.0.02.1"}, list: "addresses", value: "192.0.02.1", rule: "leading zeros"},
		{name: "a short form is refused", addresses: []string{"10.1"}, list: "addresses", value: "10.1", rule: "dotted-decimal"},
		{name: "a name is refused", addresses: []string{"node-1.example"}, list: "addresses", value: "node-1.example", rule: "names are not resolved"},
		{name: "an empty entry is refused", addresses: []string{""}, list: "addresses", rule: "dotted-decimal"},
		{name: "blanks are refused", addresses: []string{" 192.0.2.1"}, list: "addresses", value: " 192.0.2.1", rule: "dotted-decimal"},
		{name: "an address with a port is refused", addresses: []string{"192.0.2.1:50000"}, list: "addresses", value: "192.0.2.1:50000", rule: "without a port"},
		{name: "a range among addresses is refused with advice", addresses: []string{"192.0.2.0/28"}, list: "addresses", value: "192.0.2.0/28", rule: "belongs in cidrs"},
		{name: "the unspecified address is refused", addresses: []string{"0.0.0.0"}, list: "addresses", value: "0.0.0.0", rule: "unspecified"},
		{name: "a multicast address is refused", addresses: []string{"224.0.0.1"}, list: "addresses", value: "224.0.0.1", rule: "multicast"},
		{name: "the broadcast address is refused", addresses: []string{"255.255.255.255"}, list: "addresses", value: "255.255.255.255", rule: "broadcast"},

		{name: "a /23 is refused", cidrs: []string{"192.0.2.0/24", "198.18.0.0/23"}, list: "cidrs", index: 1, value: "198.18.0.0/23", rule: "must be /24 or smaller"},
		{name: "a /0 is refused", cidrs: []string{"0.0.0.0/0"}, list: "cidrs", value: "0.0.0.0/0", rule: "/0 has 4294967296"},
		{name: "a /33 is refused", cidrs: []string{"192.0.2.0/33"}, list: "cidrs", value: "192.0.2.0/33", rule: "CIDR form"},
		{name: "an IPv6 range is refused", cidrs: []string{"2001:db8::/120"}, list: "cidrs", value: "2001:db8::/120", rule: "IPv6 is not supported"},
		{name: "an IPv4-mapped range is refused", cidrs: []string{"::ffff:192.0.2.0/120"}, list: "cidrs", value: "::ffff:192.0.2.0/120", rule: "IPv4"},
		{name: "host bits are refused with advice", cidrs: []string{"192.0.2.7/24"}, list: "cidrs", value: "192.0.2.7/24", rule: "write 192.0.2.0/24"},
		{name: "an address among CIDRs is refused with advice", cidrs: []string{"192.0.2.7"}, list: "cidrs", value: "192.0.2.7", rule: "belongs in addresses"},
		{name: "a multicast range is refused", cidrs: []string{"224.0.0.0/24"}, list: "cidrs", value: "224.0.0.0/24", rule: "addresses of machines"},
		{name: "a range with the broadcast address is refused", cidrs: []string{"255.255.255.0/24"}, list: "cidrs", value: "255.255.255.0/24", rule: "255.255.255.255"},
		{name: "a range with the unspecified address is refused", cidrs: []string{"0.0.0.0/24"}, list: "cidrs", value: "0.0.0.0/24", rule: "0.0.0.0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			errs := Validate(tc.addresses, tc.cidrs)

			if tc.rule == "" {
				if len(errs) != 0 {
					t.Fatalf("refused: %v", errs)
				}

				return
			}

			if len(errs) != 1 {
				t.Fatalf("want one error, have %v", errs)
			}

			if e := errs[0]; e.List != tc.list || e.Index != tc.index || e.Value != tc.value || !strings.Contains(e.Rule, tc.rule) {
				t.Errorf("have %+v", e)
			}

			if _, err := Parse(tc.addresses, tc.cidrs); !errors.As(err, new(Errors)) {
				t.Errorf("Parse gave %v", err)
			}
		})
	}
}

// Req: T-01
func TestEveryBrokenEntryIsReported(t *testing.T) {
	errs := Validate([]string{"x", "192.0.2.1", "::1"}, []string{"10.0.0.0/8", "192.0.2.0/24", "y"})

	var where []string
	for _, e := range errs {
		where = append(where, fmt.Sprintf("%s[%d]", e.List, e.Index))
	}

	if want := []string{"addresses[0]", "addresses[2]", "cidrs[0]", "cidrs[2]"}; !slices.Equal(where, want) {
		t.Errorf("have %v, want %v", where, want)
	}
}

func TestAnOverlongEntryIsShortenedInItsError(t *testing.T) {
	errs := Validate([]string{strings.Repeat("9", 1<<20)}, nil)
	if len(errs) != 1 || len(errs.Error()) > 300 {
		t.Errorf("have an error of %d bytes", len(errs.Error()))
	}
}

// Req: T-02
func TestCandidates(t *testing.T) {
	var most []string
	for i := range 64 {
		most = append(most, fmt.Sprintf("203.0.113.%d", i))
	}

	for _, tc := range []struct {
		name      string
		addresses []string
		cidrs     []string
		count     int
		first     []string
		last      string
	}{
		{name: "nothing declared gives none"},
		{name: "addresses come first and as listed", addresses: []string{"192.0.2.9", "192.0.2.1"}, cidrs: []string{"198.51.100.0/30"}, count: 6, first: []string{"192.0.2.9", "192.0.2.1", "198.51.100.0", "198.51.100.1"}, last: "198.51.100.3"},
		{name: "an address counts once, wherever it is repeated", addresses: []string{"192.0.2.1", "192.0.2.1", "192.0.2.2"}, cidrs: []string{"192.0.2.0/30", "192.0.2.0/30", "192.0.2.0/31"}, count: 4, first: []string{"192.0.2.1", "192.0.2.2", "192.0.2.0"}, last: "192.0.2.3"},
		{name: "a /24 gives all 256", cidrs: []string{"192.0.2.0/24"}, count: 256, first: []string{"192.0.2.0"}, last: "192.0.2.255"},
		{name: "the most that can be declared is 1088", addresses: most, cidrs: []string{"192.0.2.0/24", "198.51.100.0/24", "198.18.0.0/24", "198.18.1.0/24"}, count: MaxCandidates, first: []string{"203.0.113.0"}, last: "198.18.1.255"},
		{name: "a range at the end of the address space ends", cidrs: []string{"255.255.254.0/24"}, count: 256, first: []string{"255.255.254.0"}, last: "255.255.254.255"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set, err := Parse(tc.addresses, tc.cidrs)
			if err != nil {
				t.Fatal(err)
			}

			have := set.Candidates()
			if len(have) != tc.count {
				t.Fatalf("have %d candidates, want %d", len(have), tc.count)
			}

			if set.Empty() != (tc.count == 0) {
				t.Errorf("Empty is %v", set.Empty())
			}

			for i, want := range tc.first {
				if have[i].String() != want {
					t.Errorf("candidate %d is %s, want %s", i, have[i], want)
				}
			}

			if tc.last != "" && have[len(have)-1].String() != tc.last {
				t.Errorf("the last is %s, want %s", have[len(have)-1], tc.last)
			}

			for _, addr := range have {
				if !set.Contains(addr.String()) {
					t.Errorf("candidate %s is not contained", addr)
				}
			}
		})
	}

	if MaxCandidates != 1088 {
		t.Errorf("MaxCandidates is %d", MaxCandidates)
	}
}

// Req: T-14
func TestContains(t *testing.T) {
	set, err := Parse([]string{"192.0.2.1"}, []string{"198.51.100.0/28"})
	if err != nil {
		t.Fatal(err)
	}

	for endpoint, want := range map[string]bool{
		"192.0.2.1":                true,
		"192.0.2.1:50000":          true,
		"192.0.2.1:50001":          false,
		"192.0.2.2":                false,
		"198.51.100.0":             true,
		"198.51.100.15":            true,
		"198.51.100.16":            false,
		"::ffff:192.0.2.1":         false,
		"[::ffff:192.0.2.1]:50000": false,
		"192.0.2.1 ":               false,
		"node":                     false,
		"":                         false,
	} {
		if have := set.Contains(endpoint); have != want {
			t.Errorf("Contains(%q) is %v", endpoint, have)
		}
	}

	if (Set{}).Contains("192.0.2.1") {
		t.Error("the empty set contains an address")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("192.0.2.1", "192.0.2.0/24")
	f.Add("::ffff:1.2.3.4", "255.255.255.255/32")
	f.Add("0.0.0.0", "0.0.0.0/24")

	f.Fuzz(func(t *testing.T, address, cidr string) {
		set, err := Parse([]string{address}, []string{cidr})
		if err != nil {
			return
		}

		for _, addr := range set.Candidates() {
			if !addr.Is4() || addr.IsUnspecified() || addr.IsMulticast() || addr == netip.MustParseAddr("255.255.255.255") {
				t.Fatalf("%q %q gave %s", address, cidr, addr)
			}
		}
	})
}
