package identity

import (
	"net"
	"slices"
	"strings"
	"testing"
)

// Req: T-04
func TestUUID(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"an ordinary one is kept", "4c4c4544-0042-3510-8057-b4c04f4d3033", "4c4c4544-0042-3510-8057-b4c04f4d3033"},
		{"upper case becomes lower", "4C4C4544-0042-3510-8057-B4C04F4D3033", "4c4c4544-0042-3510-8057-b4c04f4d3033"},
		{"blanks around it go", "  4c4c4544-0042-3510-8057-b4c04f4d3033\n", "4c4c4544-0042-3510-8057-b4c04f4d3033"},

		{"no UUID at all", "", ""},
		{"a name set through META", "rack 3 node 7", ""},
		{"braces", "{4c4c4544-0042-3510-8057-b4c04f4d3033}", ""},
		{"no hyphens", "4c4c4544004235108057b4c04f4d3033", ""},
		{"a blank within", "4c4c4544-0042-3510-8057-b4c04f4d 033", ""},
		{"a path", "../../4c4c4544-0042-3510-8057-b4c04f4d3033", ""},
		{"a second line", "4c4c4544-0042-3510-8057-b4c04f4d3033\n4c4c4544-0042-3510-8057-b4c04f4d3033", ""},

		{"all zero", "00000000-0000-0000-0000-000000000000", ""},
		{"all ff", "ffffffff-ffff-ffff-ffff-ffffffffffff", ""},
		{"a start before all ff", "12345678-ffff-ffff-ffff-ffffffffffff", ""},
		{"AMI default", "03000200-0400-0500-0006-000700080009", ""},
		{"AMI default, swapped", "00020003-0004-0005-0006-000700080009", ""},
		{"AMI default in upper case and blanks", " 03000200-0400-0500-0006-000700080009 ", ""},
		{"counting bytes", "00010203-0405-0607-0809-0a0b0c0d0e0f", ""},
		{"counting bytes, swapped", "03020100-0504-0706-0809-0a0b0c0d0e0f", ""},
		{"counting down", "07090201-0103-0301-0807-060504030201", ""},
		{"all ones", "11111111-1111-1111-1111-111111111111", ""},
		{"ones to fives", "11111111-2222-3333-4444-555555555555", ""},
		{"Dell without service tag", "4c4c4544-0000-2010-8020-80c04f202020", ""},
		{"all X", "58585858-5858-5858-5858-585858585858", ""},
		{"shared board 890e2d14", "890e2d14-cacd-45d1-ae66-bc80e8bfeb0f", ""},
		{"shared board 8e275844", "8e275844-178f-44a8-aceb-a7d7e5178c63", ""},
		{"shared board dc698397", "dc698397-fa54-4cf2-82c8-b1b5307a6a7f", ""},
		{"all fe", "fefefefe-fefe-fefe-fefe-fefefefefefe", ""},
		{"deadbeef", "deadbeef-dead-beef-dead-beefdeadbeef", ""},
		{"shared board 10000000", "10000000-0000-8000-0040-000000000000", ""},
		{"every SolidRun LX2160A", "8a95d198-7f46-11e5-bf8b-08002704d48e", ""},

		{"Supermicro and ASRock, made from a MAC, stays", "00000000-0000-0000-0000-0cc47ab01056", "00000000-0000-0000-0000-0cc47ab01056"},
		{"ASRock, made from a MAC, stays", "9c6b0076-9cc4-0000-0000-000000000000", "9c6b0076-9cc4-0000-0000-000000000000"},
		{"Gigabyte with AMI, made from a MAC, stays", "03de0294-0480-0506-f806-d50700080009", "03de0294-0480-0506-f806-d50700080009"},
		{"Raspberry Pi u-boot, made from a serial, stays", "30303030-3030-3030-3839-356636326537", "30303030-3030-3030-3839-356636326537"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if have := UUID(tc.in); have != tc.want {
				t.Errorf("UUID(%q) is %q, want %q", tc.in, have, tc.want)
			}
		})
	}
}

// Req: T-04
func TestSerial(t *testing.T) {
	absent := []string{
		"", "0", "none", "(none)", "-", "unknown", "n/a", "na", "null", "oem", "o.e.m.", "default string", "default_string",
		"not specified", "not applicable", "not available", "not settable", "system serial number", "chassis serial number",
		"base board serial number", "unspecified system serial number", "unspecified base board serial number",
		"to be filled by o.e.m.", "to be filled by oem", "invalid", "empty", "123456789", "0123456789", "1234567890",
		"pca_number.acc", "00000000", "xxxxxxxx", "......", "ÿÿÿÿ", "7", " ", "\t\n",
	}
	for _, serial := range absent {
		for _, form := range []string{serial, strings.ToUpper(serial), "  " + serial + "\t", strings.ReplaceAll(serial, " ", "   ")} {
			if have := Serial(form); have != "" {
				t.Errorf("Serial(%q) is %q, want none", form, have)
			}
		}
	}

	for in, want := range map[string]string{
		"7X9K2Q3": "7X9K2Q3",
		"VMware-56 4d 8a 1c 2e 5f 3b 7a-01 23 45 67 89 ab cd ef": "VMware-56 4d 8a 1c 2e 5f 3b 7a-01 23 45 67 89 ab cd ef",
		" SGH1234567 ": "SGH1234567",
		"12345678":     "12345678",
		"01":           "01",
		"none of it":   "none of it",
	} {
		if have := Serial(in); have != want {
			t.Errorf("Serial(%q) is %q, want %q", in, have, want)
		}
	}
}

func mac(text string) net.HardwareAddr {
	addr, err := net.ParseMAC(text)
	if err != nil {
		panic(err)
	}

	return addr
}

// Req: T-03, T-04
func TestMACs(t *testing.T) {
	nic := func(addr, driver string) Link {
		return Link{Physical: true, PermanentAddr: mac(addr), Driver: driver}
	}

	for _, tc := range []struct {
		name  string
		links []Link
		want  []string
	}{
		{"no links", nil, nil},
		{"sorted and in lower case", []Link{nic("B4:45:06:AA:00:02", "igb"), nic("b4:45:06:aa:00:01", "igb")}, []string{"b4:45:06:aa:00:01", "b4:45:06:aa:00:02"}},
		{"each once", []Link{nic("b4:45:06:aa:00:01", "igb"), nic("b4:45:06:aa:00:01", "igb")}, []string{"b4:45:06:aa:00:01"}},
		{"a link that is not physical does not count", []Link{{PermanentAddr: mac("b4:45:06:aa:00:01")}}, nil},
		{"no permanent address does not count", []Link{{Physical: true, Driver: "mlx5_core"}}, nil},
		{"all zero does not count", []Link{nic("00:00:00:00:00:00", "r8169")}, nil},
		{"multicast does not count", []Link{nic("01:00:5e:00:00:01", "igb")}, nil},
		{"broadcast does not count", []Link{nic("ff:ff:ff:ff:ff:ff", "igb")}, nil},
		{"8 bytes do not count", []Link{nic("b4:45:06:ff:fe:aa:00:01", "ib_ipoib")}, nil},
		{"the BMC's cdc_ether does not count", []Link{nic("b4:45:06:aa:00:01", "cdc_ether")}, nil},
		{"the BMC's rndis_host does not count", []Link{nic("b4:45:06:aa:00:01", "rndis_host")}, nil},
		{"the BMC's cdc_ncm does not count", []Link{nic("b4:45:06:aa:00:01", "cdc_ncm")}, nil},
		{"a local address does not count beside another", []Link{nic("52:54:00:12:34:56", "virtio_net"), nic("b4:45:06:aa:00:01", "igb")}, []string{"b4:45:06:aa:00:01"}},
		{"local addresses count when there are no others", []Link{nic("52:54:00:12:34:57", "virtio_net"), nic("52:54:00:12:34:56", "virtio_net")}, []string{"52:54:00:12:34:56", "52:54:00:12:34:57"}},
		{"a local address counts beside a BMC's", []Link{nic("52:54:00:12:34:56", "virtio_net"), nic("b4:45:06:aa:00:01", "cdc_ether")}, []string{"52:54:00:12:34:56"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if have := MACs(tc.links); !slices.Equal(have, tc.want) {
				t.Errorf("have %v, want %v", have, tc.want)
			}
		})
	}
}

// Req: T-04
func TestMissing(t *testing.T) {
	const (
		uuid   = "4c4c4544-0042-3510-8057-b4c04f4d3033"
		serial = "7X9K2Q3"
	)

	links := []Link{{Physical: true, PermanentAddr: mac("b4:45:06:aa:00:01")}}

	for _, tc := range []struct {
		name         string
		uuid, serial string
		links        []Link
		want         []Part
	}{
		{"a server is strong", uuid, serial, links, nil},
		{"a mini PC lacks uuid and serial", "03000200-0400-0500-0006-000700080009", "Default string", links, []Part{PartUUID, PartSerial}},
		{"a QEMU VM lacks the serial", uuid, "", links, []Part{PartSerial}},
		{"VirtualBox lacks the serial", uuid, "0", links, []Part{PartSerial}},
		{"cloud-hypervisor lacks uuid and serial", "00000000-0000-0000-0000-000000000000", "", links, []Part{PartUUID, PartSerial}},
		{"no permanent MAC", uuid, serial, nil, []Part{PartMAC}},
		{"nothing at all", "", "", nil, []Part{PartUUID, PartSerial, PartMAC}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id := New(tc.uuid, tc.serial, tc.links)
			if have := id.Missing(); !slices.Equal(have, tc.want) {
				t.Errorf("have %v, want %v", have, tc.want)
			}

			if id.Strong() != (len(tc.want) == 0) {
				t.Errorf("Strong is %v", id.Strong())
			}

			if Same(id, id) != id.Strong() {
				t.Errorf("Same as itself is %v", Same(id, id))
			}
		})
	}
}

// Req: T-06, T-07
func TestSameAndExplain(t *testing.T) {
	base := Identity{UUID: "4c4c4544-0042-3510-8057-b4c04f4d3033", Serial: "7X9K2Q3", MACs: []string{"b4:45:06:aa:00:01", "b4:45:06:aa:00:02"}}

	for _, tc := range []struct {
		name    string
		other   Identity
		same    bool
		explain string
	}{
		{"the same", base, true, ""},
		{"MACs in another order and case, one of them twice", Identity{base.UUID, base.Serial, []string{"B4:45:06:AA:00:02", "b4:45:06:aa:00:01", "b4:45:06:aa:00:01"}}, true, ""},
		{"another UUID", Identity{"4c4c4544-0042-3510-8057-b4c04f4d3034", base.Serial, base.MACs}, false, ""},
		{"one MAC less", Identity{base.UUID, base.Serial, base.MACs[:1]}, false, "changed network cards"},
		{"one MAC more", Identity{base.UUID, base.Serial, append(slices.Clone(base.MACs), "b4:45:06:aa:00:03")}, false, "changed network cards"},
		{"other MACs", Identity{base.UUID, base.Serial, []string{"b4:45:06:bb:00:01"}}, false, "no MAC address"},
		{"another serial, same MACs", Identity{base.UUID, "OTHER", base.MACs}, false, "serial number differs"},
		{"another serial, some MACs", Identity{base.UUID, "OTHER", base.MACs[:1]}, false, "serial number differs"},
		{"another box", Identity{base.UUID, "OTHER", []string{"b4:45:06:bb:00:01"}}, false, "another machine with the same UUID"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if Same(base, tc.other) != tc.same || Same(tc.other, base) != tc.same {
				t.Errorf("Same is not %v both ways", tc.same)
			}

			have := Compare(base, tc.other).Explain()
			if (tc.explain == "") != (have == "") || !strings.Contains(have, tc.explain) {
				t.Errorf("Explain is %q, want %q", have, tc.explain)
			}
		})
	}
}

func TestSwappedUUID(t *testing.T) {
	for in, want := range map[string]string{
		"03000200-0400-0500-0006-000700080009": "00020003-0004-0005-0006-000700080009",
		"00010203-0405-0607-0809-0A0B0C0D0E0F": "03020100-0504-0706-0809-0a0b0c0d0e0f",
		"no uuid":                              "",
	} {
		if have := SwappedUUID(in); have != want {
			t.Errorf("SwappedUUID(%q) is %q, want %q", in, have, want)
		}
	}
}
