package discovery

import "strings"

// hints says how a missing part of the identity is set, by what the manufacturer or product calls itself.
func hints() []struct{ mark, hint string } {
	return []struct{ mark, hint string }{
		{"kubevirt", "Set spec.domain.firmware.serial of the virtual machine"},
		{"cloud hypervisor", "Start it with --platform serial_number=SERIAL,uuid=UUID"},
		{"qemu", "On Proxmox: qm set ID --smbios1 uuid=UUID,serial=SERIAL-IN-BASE64,base64=1; with libvirt: <sysinfo type='smbios'> with a system entry named serial"},
		{"proxmox", "qm set ID --smbios1 uuid=UUID,serial=SERIAL-IN-BASE64,base64=1"},
		{"raspberry", "The board has no SMBIOS: register it by hand, with its exact identity"},
	}
}

const defaultHint = "Set it in the firmware, or register the machine by hand, with its exact identity"

func hintFor(manufacturer, product string) string {
	text := strings.ToLower(manufacturer + " " + product)

	for _, h := range hints() {
		if strings.Contains(text, h.mark) {
			return h.hint
		}
	}

	return defaultHint
}
