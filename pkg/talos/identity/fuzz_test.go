package identity

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// known are vendors' placeholders, beside a few that look like some and are none.
func known() (placeholders, real []string) {
	return []string{
			"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "6f7a1c52-ffff-ffff-ffff-ffffffffffff",
			"03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009", "00010203-0405-0607-0809-0a0b0c0d0e0f",
			"03020100-0504-0706-0809-0a0b0c0d0e0f", "07090201-0103-0301-0807-060504030201", "11111111-1111-1111-1111-111111111111",
			"11111111-2222-3333-4444-555555555555", "4c4c4544-0000-2010-8020-80c04f202020", "58585858-5858-5858-5858-585858585858",
			"890e2d14-cacd-45d1-ae66-bc80e8bfeb0f", "8e275844-178f-44a8-aceb-a7d7e5178c63", "dc698397-fa54-4cf2-82c8-b1b5307a6a7f",
			"fefefefe-fefe-fefe-fefe-fefefefefefe", "deadbeef-dead-beef-dead-beefdeadbeef", "10000000-0000-8000-0040-000000000000",
			"8a95d198-7f46-11e5-bf8b-08002704d48e",
		}, []string{
			"00000000-0000-0000-0000-0cc47ab01056", "9c6b0076-9cc4-0000-0000-000000000000", "03de0294-0480-0506-f806-d50700080009",
			"30303030-3030-3030-3839-356636326537", "4c4c4544-0042-3510-8057-b4c04f4d3033",
		}
}

// disguise writes a text as some firmware would: in any case, with blanks around it.
func disguise(text string, how uint64) string {
	out := []byte(text)

	for i := range out {
		if how>>(i%64)&1 == 1 {
			out[i] = []byte(strings.ToUpper(string(out[i])))[0]
		}
	}

	return strings.Repeat(" ", int(how%3)) + string(out) + strings.Repeat("\t", int(how%2))
}

// Req: T-04
func FuzzUUID(f *testing.F) {
	placeholders, real := known()
	for _, uuid := range append(placeholders, real...) {
		f.Add(uuid, uint64(0x5555))
	}

	f.Add("rack 3 node 7", uint64(0))
	f.Add("\xff../ſſſſſſſſ-0000-0000-0000-000000000000", uint64(1))

	f.Fuzz(func(t *testing.T, text string, how uint64) {
		uuid := UUID(text)

		switch {
		case uuid == "":
		case !ValidUUID(uuid), len(uuid) != 36, strings.ToLower(uuid) != uuid, strings.Trim(uuid, "0123456789abcdef-") != "":
			t.Errorf("%q becomes %q", text, uuid)
		case UUID(uuid) != uuid:
			t.Errorf("%q is not stable", uuid)
		case UUID(disguise(uuid, how)) != uuid:
			t.Errorf("%q is not %q", disguise(uuid, how), uuid)
		case SwappedUUID(SwappedUUID(uuid)) != uuid:
			t.Errorf("swapping %q twice is not the identity", uuid)
		}

		// However it is written, and whatever comes with it.
		placeholder := placeholders[how%uint64(len(placeholders))]
		if id := New(disguise(placeholder, how), text, nic(text)); id.UUID != "" || id.Strong() {
			t.Errorf("%q makes %+v", disguise(placeholder, how), id)
		}

		one := real[how%uint64(len(real))]
		if UUID(disguise(one, how)) != one {
			t.Errorf("%q does not count", one)
		}
	})
}

// nic is a network card whose address is made from a text.
func nic(text string) []Link {
	addr := make(net.HardwareAddr, 6)
	copy(addr, text)

	return []Link{{Physical: true, PermanentAddr: addr, Driver: "igb"}}
}

// Req: T-04, T-06
func FuzzNew(f *testing.F) {
	f.Add("4c4c4544-0042-3510-8057-b4c04f4d3033", "7X9K2Q3", []byte{0xb4, 0x45, 6, 0xaa, 0, 1}, []byte{0x52, 0x54, 0, 1, 2, 3}, "igb", true)
	f.Add("", "\xff\xfe", []byte{}, []byte{1}, "", false)
	f.Add("ffffffff-FFFF-ffff-ffff-ffffffffffff", " ", []byte{1}, []byte{1, 2, 3, 4, 5, 6, 7, 8}, "cdc_ncm", true)
	f.Add("4c4c4544-0042-3510-8057-b4c04f4d3033", "To  be filled BY o.e.m.", []byte{2, 0, 0, 0, 0, 1}, []byte{2, 0, 0, 0, 0, 1}, "rndis_host", true)

	f.Fuzz(func(t *testing.T, uuid, serial string, addr, other []byte, driver string, physical bool) {
		links := []Link{{Physical: true, PermanentAddr: addr, Driver: driver}, {Physical: physical, PermanentAddr: other, Driver: "igb"}}
		id := New(uuid, serial, links)

		if UUID(id.UUID) != id.UUID || Serial(id.Serial) != id.Serial {
			t.Errorf("not stable: %+v", id)
		}

		if utf8.ValidString(serial) && !utf8.ValidString(id.Serial) {
			t.Errorf("serial %q became invalid", serial)
		}

		if !slices.IsSorted(id.MACs) || len(slices.Compact(slices.Clone(id.MACs))) != len(id.MACs) {
			t.Errorf("MACs %v", id.MACs)
		}

		for _, mac := range id.MACs {
			parsed, err := net.ParseMAC(mac)
			if err != nil || parsed.String() != mac || len(parsed) != 6 || parsed[0]&1 == 1 || mac == "00:00:00:00:00:00" ||
				mac != net.HardwareAddr(addr).String() && (!physical || mac != net.HardwareAddr(other).String()) {
				t.Errorf("MAC %q of %+v", mac, links)
			}
		}

		// The order in which a machine lists its links says nothing.
		slices.Reverse(links)

		if again := New(uuid, serial, links); fmt.Sprint(again) != fmt.Sprint(id) {
			t.Errorf("%+v is not %+v", again, id)
		}

		missing := id.Missing()
		if id.Strong() != (len(missing) == 0) || Same(id, id) != id.Strong() || (Hint(serial, driver, missing) == "") != id.Strong() {
			t.Errorf("strong is %t, missing %v: %+v", id.Strong(), missing, id)
		}

		if id.Strong() && (id.UUID == "" || id.Serial == "" || len(id.MACs) == 0) {
			t.Errorf("strong without a part: %+v", id)
		}
	})
}
