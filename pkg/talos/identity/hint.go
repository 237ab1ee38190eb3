package identity

import (
	"slices"
	"strings"
)

// Hint tells an operator how to give a machine what its identity lacks, for the WeakIdentity event and the list of weak
// candidates (T-04); it is empty for a strong identity. Manufacturer and product are as read from the machine.
func Hint(manufacturer, product string, missing []Part) string {
	if len(missing) == 0 {
		return ""
	}

	names := make([]string, 0, len(missing))
	for _, part := range missing {
		names = append(names, partName(part))
	}

	hypervisors := hypervisorsOf(strings.ToLower(manufacturer + " " + product))
	if len(hypervisors) == 0 {
		return "Give it " + list(names, "and") + ": " + boardAdvice(manufacturer, product, missing) + byHand
	}

	var ways []string

	for _, h := range hypervisors {
		var steps []string

		for _, part := range missing {
			if step := h.steps[part]; !slices.Contains(steps, step) {
				steps = append(steps, step)
			}
		}

		ways = append(ways, h.name+": "+strings.Join(steps, ", "))
	}

	return "Give the virtual machine " + list(names, "and") + ". " + strings.Join(ways, "; ") + byHand
}

const byHand = ". Or register it by hand, with exactly the identity that it has"

func partName(part Part) string {
	switch part {
	case PartUUID:
		return "an SMBIOS UUID"
	case PartSerial:
		return "an SMBIOS serial number"
	default:
		return "a network card with a permanent MAC address"
	}
}

// hypervisor is where the parts of a virtual machine's identity are set. Words in capitals are for the reader to fill in.
type hypervisor struct {
	name  string
	steps map[Part]string
}

// hypervisorsOf returns what a virtual machine that calls itself so may run on, likely ones first; none for a board.
func hypervisorsOf(text string) []hypervisor {
	libvirt := hypervisor{"libvirt", map[Part]string{
		PartUUID:   "the domain's <uuid>UUID</uuid>",
		PartSerial: "<os><smbios mode='sysinfo'/></os> and <sysinfo type='smbios'><system><entry name='serial'>SERIAL</entry></system></sysinfo>",
		PartMAC:    "<interface> with <mac address='MAC'/>",
	}}
	proxmox := hypervisor{"Proxmox", map[Part]string{
		// One option sets both; what it does not name is lost.
		PartUUID:   "qm set ID --smbios1 uuid=UUID,serial=SERIAL-IN-BASE64,base64=1",
		PartSerial: "qm set ID --smbios1 uuid=UUID,serial=SERIAL-IN-BASE64,base64=1",
		PartMAC:    "qm set ID --net0 virtio=MAC,bridge=BRIDGE",
	}}
	kubevirt := hypervisor{"KubeVirt", map[Part]string{
		PartUUID:   "spec.template.spec.domain.firmware.uuid of the VirtualMachine",
		PartSerial: "spec.template.spec.domain.firmware.serial of the VirtualMachine",
		PartMAC:    "macAddress of its interface in spec.template.spec.domain.devices.interfaces",
	}}
	cloudHypervisor := hypervisor{"cloud-hypervisor", map[Part]string{
		// One option sets both here, too.
		PartUUID:   "--platform serial_number=SERIAL,uuid=UUID",
		PartSerial: "--platform serial_number=SERIAL,uuid=UUID",
		PartMAC:    "--net mac=MAC",
	}}
	virtualBox := hypervisor{"VirtualBox", map[Part]string{
		PartUUID:   "VBoxManage modifyvm NAME --hardware-uuid UUID",
		PartSerial: "VBoxManage setextradata NAME VBoxInternal/Devices/FIRMWARE/0/Config/DmiSystemSerial SERIAL, where FIRMWARE is pcbios or efi",
		PartMAC:    "VBoxManage modifyvm NAME --macaddress1 MAC",
	}}

	for _, known := range []struct {
		mark string
		by   []hypervisor
	}{
		{"kubevirt", []hypervisor{kubevirt}},
		{"harvester", []hypervisor{kubevirt}},
		{"cloud hypervisor", []hypervisor{cloudHypervisor}},
		{"cloud-hypervisor", []hypervisor{cloudHypervisor}},
		{"innotek", []hypervisor{virtualBox}},
		{"virtualbox", []hypervisor{virtualBox}},
		{"proxmox", []hypervisor{proxmox}},
		// All three start QEMU, and none of them need tell it who it is.
		{"qemu", []hypervisor{libvirt, proxmox, kubevirt}},
		{"red hat", []hypervisor{libvirt, kubevirt}},
		{"kvm", []hypervisor{libvirt, proxmox, kubevirt}},
	} {
		if strings.Contains(text, known.mark) {
			return known.by
		}
	}

	return nil
}

// boardAdvice is for what is no virtual machine.
func boardAdvice(manufacturer, product string, missing []Part) string {
	switch {
	case strings.Contains(strings.ToLower(manufacturer+" "+product), "raspberry"):
		return "the board has no SMBIOS of its own, a boot loader that provides one can"
	case slices.Equal(missing, []Part{PartMAC}):
		return "the BMC's USB network and virtual links do not count"
	default:
		return "write the SMBIOS data of the board in the firmware's setup or with the vendor's tool"
	}
}

// list joins words as people do.
func list(words []string, conjunction string) string {
	if n := len(words) - 1; n > 0 {
		return strings.Join(words[:n], ", ") + " " + conjunction + " " + words[n]
	}

	return words[0]
}
