package identity

import (
	"slices"
	"strings"
)

// Hint tells an operator how to give a machine what its identity lacks, for the WeakIdentity event and the list of weak
// candidates (T-04); it is empty for a strong identity. The manufacturer is as read from the machine.
func Hint(manufacturer string, missing []Part) string {
	if len(missing) == 0 {
		return ""
	}

	if slices.Contains(missing, PartMAC) {
		return "no physical link has a permanent MAC address; register the machine by hand with its exact identity"
	}

	switch name := strings.ToLower(manufacturer); {
	case strings.Contains(name, "kubevirt"):
		return "set spec.domain.firmware.serial and uuid of the VirtualMachine"
	case strings.Contains(name, "cloud hypervisor"):
		return "start the VM with --platform serial_number=…,uuid=…"
	case strings.Contains(name, "qemu"):
		return "give the VM an SMBIOS serial: Proxmox: qm set ID --smbios1 uuid=…,serial=BASE64,base64=1; " +
			"libvirt: <sysinfo type='smbios'> with a system entry serial"
	case strings.Contains(name, "innotek"), strings.Contains(name, "virtualbox"):
		return "set the VM's DmiSystemSerial (and DmiSystemUuid) with VBoxManage setextradata"
	default:
		return "write the board's SMBIOS data with the vendor's tool, or register the machine by hand with its exact identity"
	}
}
