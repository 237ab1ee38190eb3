package identity

import (
	"strings"
	"testing"
)

// Req: T-04
func TestHint(t *testing.T) {
	for _, tc := range []struct {
		name, manufacturer string
		missing            []Part
		want               string
	}{
		{"a strong identity needs none", "Dell Inc.", nil, ""},
		{"QEMU", "QEMU", []Part{PartSerial}, "qm set"},
		{"KubeVirt", "KubeVirt", []Part{PartSerial}, "firmware.serial"},
		{"cloud-hypervisor", "Cloud Hypervisor", []Part{PartUUID, PartSerial}, "--platform"},
		{"VirtualBox", "innotek GmbH", []Part{PartSerial}, "VBoxManage"},
		{"a mini PC", "Default string", []Part{PartUUID, PartSerial}, "vendor's tool"},
		{"no MAC, whoever made it", "QEMU", []Part{PartSerial, PartMAC}, "by hand"},
	} {
		if have := Hint(tc.manufacturer, tc.missing); !strings.Contains(have, tc.want) || (tc.want == "") != (have == "") {
			t.Errorf("%s: have %q", tc.name, have)
		}
	}
}
