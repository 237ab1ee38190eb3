package identity

import "strings"

// placeholderUUID tells whether a canonical UUID is one that a vendor left in many machines. Values that merely look
// like junk but are made from a MAC address or a serial number are unique, and must not be added here.
func placeholderUUID(uuid string) bool {
	if strings.HasSuffix(uuid, "-ffff-ffff-ffff-ffffffffffff") || oneByte(uuid) {
		return true
	}

	switch uuid {
	case "03000200-0400-0500-0006-000700080009", // AMI's default
		"00020003-0004-0005-0006-000700080009", // the same in the other byte order
		"00010203-0405-0607-0809-0a0b0c0d0e0f",
		"03020100-0504-0706-0809-0a0b0c0d0e0f",
		"07090201-0103-0301-0807-060504030201",
		"11111111-2222-3333-4444-555555555555",
		"4c4c4544-0000-2010-8020-80c04f202020", // Dell, service tag never written
		"890e2d14-cacd-45d1-ae66-bc80e8bfeb0f",
		"8e275844-178f-44a8-aceb-a7d7e5178c63",
		"dc698397-fa54-4cf2-82c8-b1b5307a6a7f",
		"deadbeef-dead-beef-dead-beefdeadbeef",
		"10000000-0000-8000-0040-000000000000",
		"8a95d198-7f46-11e5-bf8b-08002704d48e": // every SolidRun LX2160A
		return true
	}

	return false
}

// oneByte tells whether all 16 bytes of a canonical UUID are equal: erased flash, or a pattern of the factory's.
func oneByte(uuid string) bool {
	digits := strings.ReplaceAll(uuid, "-", "")

	return digits == strings.Repeat(digits[:2], len(digits)/2)
}

// placeholderSerial tells whether a serial number, in lower case and with single blanks, is none.
func placeholderSerial(serial string) bool {
	switch serial {
	case "",
		"none", "(none)", "unknown", "n/a", "na", "null", "oem", "o.e.m.",
		"default string", "default_string",
		"not specified", "not applicable", "not available", "not settable",
		"system serial number", "chassis serial number", "base board serial number",
		"unspecified system serial number", "unspecified base board serial number",
		"to be filled by o.e.m.", "to be filled by oem",
		"invalid", "empty",
		"123456789", "0123456789", "1234567890",
		"pca_number.acc": // HPE Gen11
		return true
	}

	// "0", "-", "00000000", "xxxx": one character, however often.
	first := []rune(serial)[0]

	return strings.Trim(serial, string(first)) == ""
}

// hostInterfaceDriver tells whether a link is the host's side of a management controller's USB network, which often
// has one and the same MAC address on every host.
func hostInterfaceDriver(driver string) bool {
	switch driver {
	case "cdc_ether", "rndis_host", "cdc_ncm":
		return true
	}

	return false
}
