package identity

import (
	"strings"
	"testing"
)

// Req: T-04
func TestAHintNamesWhatIsMissingAndWhereItIsSet(t *testing.T) {
	all := []Part{PartUUID, PartSerial, PartMAC}

	for _, tc := range []struct {
		name, manufacturer, product string
		missing                     []Part
		want, not                   []string
	}{
		{"QEMU may be any of three", "QEMU", "Standard PC (Q35 + ICH9, 2009)", []Part{PartSerial},
			[]string{"an SMBIOS serial number", "libvirt: ", "name='serial'", "Proxmox: qm set ID --smbios1", "KubeVirt: spec.template.spec.domain.firmware.serial"},
			[]string{"an SMBIOS UUID", "MAC", "VBoxManage"}},
		{"QEMU without anything", "QEMU", "", all,
			[]string{"an SMBIOS UUID, an SMBIOS serial number and a network card", "<uuid>", "--net0", "firmware.uuid", "macAddress"}, nil},
		{"Proxmox's one option is told once", "Proxmox", "", []Part{PartUUID, PartSerial}, []string{"Proxmox: qm set ID --smbios1 uuid=UUID,serial=SERIAL-IN-BASE64,base64=1. Or"}, []string{"libvirt"}},
		{"KubeVirt", "KubeVirt", "None", []Part{PartSerial}, []string{"KubeVirt: ", "firmware.serial"}, []string{"libvirt", "Proxmox"}},
		{"libvirt of Red Hat", "Red Hat", "KVM", []Part{PartSerial}, []string{"libvirt: ", "KubeVirt: "}, []string{"Proxmox"}},
		{"cloud-hypervisor", "Cloud Hypervisor", "cloud-hypervisor", []Part{PartUUID, PartSerial}, []string{"--platform serial_number=SERIAL,uuid=UUID. Or"}, []string{"libvirt"}},
		{"VirtualBox", "innotek GmbH", "VirtualBox", []Part{PartSerial}, []string{"VBoxManage setextradata", "DmiSystemSerial"}, []string{"--hardware-uuid"}},
		{"VirtualBox without a UUID", "innotek GmbH", "VirtualBox", []Part{PartUUID}, []string{"--hardware-uuid"}, []string{"DmiSystemSerial"}},
		{"a mini PC", "Default string", "Default string", []Part{PartUUID, PartSerial}, []string{"an SMBIOS UUID and an SMBIOS serial number", "vendor's tool"}, []string{"libvirt"}},
		{"a Raspberry Pi", "Raspberry Pi Foundation", "Raspberry Pi 4", []Part{PartUUID, PartSerial}, []string{"no SMBIOS"}, []string{"vendor's tool"}},
		{"a server without a card", "Dell Inc.", "R650", []Part{PartMAC}, []string{"permanent MAC address", "BMC"}, []string{"SMBIOS"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			have := Hint(tc.manufacturer, tc.product, tc.missing)

			for _, want := range append(tc.want, "by hand") {
				if !strings.Contains(have, want) {
					t.Errorf("%q is not in %q", want, have)
				}
			}

			for _, not := range tc.not {
				if strings.Contains(have, not) {
					t.Errorf("%q is in %q", not, have)
				}
			}

			if len(have) > 800 {
				t.Errorf("%d characters leave an Event no room: %q", len(have), have)
			}
		})
	}

	if have := Hint("Dell Inc.", "R650", nil); have != "" {
		t.Errorf("a strong identity gets the hint %q", have)
	}
}
