package validation

import (
	"net/netip"

	kubevalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fieldplane/fieldplane/apis/talos"
)

func validateNetwork(network *talos.MachineNetwork, path *field.Path) field.ErrorList {
	if network == nil {
		return nil
	}
	var errs field.ErrorList
	if network.Hostname != "" {
		for _, rule := range kubevalidation.IsDNS1123Subdomain(network.Hostname) {
			errs = append(errs, field.Invalid(path.Child("hostname"), network.Hostname, rule))
		}
	}
	for i := range network.Links {
		errs = append(errs, validateLink(&network.Links[i], path.Child("links").Index(i))...)
	}
	for i, server := range network.Nameservers {
		if rule := checkAddress(server); rule != "" {
			errs = append(errs, field.Invalid(path.Child("nameservers").Index(i), server, rule))
		}
	}
	for i, server := range network.TimeServers {
		if rule := checkHost(server); rule != "" {
			errs = append(errs, field.Invalid(path.Child("timeServers").Index(i), server, rule))
		}
	}
	return errs
}

func validateLink(link *talos.MachineLinkConfig, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if link.PermanentMAC != "" {
		if rule := checkMAC(link.PermanentMAC); rule != "" {
			errs = append(errs, field.Invalid(path.Child("permanentMAC"), link.PermanentMAC, rule))
		}
	}

	var prefixes []netip.Prefix
	for i, text := range link.Addresses {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, field.Invalid(path.Child("addresses").Index(i), text, "must be an address with its prefix length, such as 10.1.2.3/24"))
			continue
		}
		if rule := checkUnicast(prefix.Addr()); rule != "" {
			errs = append(errs, field.Invalid(path.Child("addresses").Index(i), text, rule))
			continue
		}
		prefixes = append(prefixes, prefix)
	}

	if link.Gateway == "" {
		return errs
	}
	gateway := path.Child("gateway")
	if rule := checkAddress(link.Gateway); rule != "" {
		return append(errs, field.Invalid(gateway, link.Gateway, rule))
	}
	if len(link.Addresses) == 0 {
		return append(errs, field.Invalid(gateway, link.Gateway, "must be absent without addresses: then DHCP gives the gateway"))
	}
	addr, sameFamily := netip.MustParseAddr(link.Gateway), len(prefixes) < len(link.Addresses)
	for _, prefix := range prefixes {
		if prefix.Addr() == addr {
			return append(errs, field.Invalid(gateway, link.Gateway, "must not be an address of the link itself"))
		}
		sameFamily = sameFamily || prefix.Addr().Is4() == addr.Is4()
	}
	if !sameFamily {
		errs = append(errs, field.Invalid(gateway, link.Gateway, "must be of the family (IPv4 or IPv6) of one of the addresses"))
	}
	return errs
}

// checkAddress returns the rule that an IP address breaks, or "".
func checkAddress(text string) string {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return "must be an IP address, such as 192.0.2.1"
	}
	return checkUnicast(addr)
}
