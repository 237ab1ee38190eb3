package render

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"go.yaml.in/yaml/v4"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// document is a part of a Talos configuration on its way to YAML.
type document = map[string]any

// machinePatch puts what the machine's approval decided into the form of a patch: YAML is Talos's stable interface,
// its Go types change with every version.
func machinePatch(machine *v1alpha1.TalosMachineSpec, contract *config.VersionContract) ([]byte, error) {
	main := document{}

	install, err := installSection(machine.Install)
	if err != nil {
		return nil, err
	}

	main["install"] = install

	if len(machine.NodeLabels) > 0 {
		main["nodeLabels"] = machine.NodeLabels
	}

	if main["nodeTaints"], err = taintSection(machine.NodeTaints); err != nil {
		return nil, err
	}

	network, err := networkDocuments(main, machine.Network, contract)
	if err != nil {
		return nil, err
	}

	volumes, err := volumeDocuments(machine.DiskRoles, contract)
	if err != nil {
		return nil, err
	}

	for key, value := range main {
		if section, ok := value.(document); ok && len(section) == 0 {
			delete(main, key)
		}
	}

	documents := append([]document{{"machine": main}}, append(network, volumes...)...)

	var out bytes.Buffer

	encoder := yaml.NewEncoder(&out)
	for _, doc := range documents {
		if err := encoder.Encode(doc); err != nil {
			return nil, err
		}
	}

	if err := encoder.Close(); err != nil {
		return nil, err
	}

	return out.Bytes(), nil
}

func installSection(install *v1alpha1.MachineInstall) (document, error) {
	switch {
	case install == nil || install.Disk == "" && install.DiskSelector == nil:
		// Talos's own default would be to fail on the node; a guess would erase somebody's data.
		return nil, errors.New("machine spec.install: neither disk nor diskSelector is set")
	case install.Disk != "" && install.DiskSelector != nil:
		return nil, errors.New("machine spec.install: disk and diskSelector must not both be set")
	}

	section := document{"wipe": install.Wipe}

	if install.Disk != "" {
		section["disk"] = install.Disk

		return section, nil
	}

	if _, err := matchExpression(install.DiskSelector); err != nil {
		return nil, fmt.Errorf("machine spec.install.diskSelector: %w", err)
	}

	section["diskSelector"] = selectorSection(install.DiskSelector)

	return section, nil
}

func selectorSection(selector *v1alpha1.DiskSelector) document {
	section := document{}

	for key, value := range map[string]string{
		"size":    selector.Capacity,
		"model":   selector.Model,
		"serial":  selector.Serial,
		"wwid":    selector.WWID,
		"busPath": selector.BusPath,
		"type":    string(selector.Type),
	} {
		if value != "" {
			section[key] = value
		}
	}

	return section
}

func taintSection(taints []v1alpha1.NodeTaint) (document, error) {
	section := document{}

	for i, taint := range taints {
		if _, dup := section[taint.Key]; dup {
			return nil, fmt.Errorf("machine spec.nodeTaints[%d]: Talos sets one taint for each key; %q occurs twice", i, taint.Key)
		}

		section[taint.Key] = taint.Value + ":" + string(taint.Effect)
	}

	return section, nil
}

// networkDocuments configures host name, links, resolvers and time: as documents of their own from Talos 1.12 on, in the
// machine section before.
func networkDocuments(main document, network *v1alpha1.MachineNetwork, contract *config.VersionContract) ([]document, error) {
	if network == nil {
		return nil, nil
	}

	links, err := parseLinks(network.Links)
	if err != nil {
		return nil, err
	}

	if !contract.MultidocNetworkConfigSupported() {
		legacyNetwork(main, network, links)

		return nil, nil
	}

	var out []document

	if network.Hostname != "" {
		// The generated document has auto: stable, which excludes a host name.
		out = append(out, kind("HostnameConfig", document{"hostname": network.Hostname, "auto": "off"}))
	}

	for i, link := range links {
		name := fmt.Sprintf("fieldplane%d", i)

		settings := document{"name": name, "up": true}
		if link.mtu != 0 {
			settings["mtu"] = link.mtu
		}

		if len(link.addresses) > 0 {
			settings["addresses"] = mapAll(link.addresses, func(a string) any { return document{"address": a} })
		}

		if link.gateway != "" {
			settings["routes"] = []any{document{"gateway": link.gateway}}
		}

		out = append(out,
			kind("LinkAliasConfig", document{"name": name, "selector": document{"match": fmt.Sprintf("mac(link.permanent_addr) == %q", link.mac)}}),
			kind("LinkConfig", settings))

		if len(link.addresses) == 0 {
			out = append(out, kind("DHCPv4Config", document{"name": name}))
		}
	}

	if len(network.Nameservers) > 0 {
		out = append(out, kind("ResolverConfig", document{
			"nameservers": mapAll(network.Nameservers, func(a string) any { return document{"address": a} }),
		}))
	}

	if len(network.TimeServers) > 0 {
		out = append(out, kind("TimeSyncConfig", document{"ntp": document{"servers": network.TimeServers}}))
	}

	return out, nil
}

func legacyNetwork(main document, network *v1alpha1.MachineNetwork, links []link) {
	section := document{}

	if network.Hostname != "" {
		section["hostname"] = network.Hostname
	}

	if len(network.Nameservers) > 0 {
		section["nameservers"] = network.Nameservers
	}

	var interfaces []any

	for _, link := range links {
		settings := document{
			"deviceSelector": document{"permanentAddr": link.mac},
			"dhcp":           len(link.addresses) == 0,
		}

		if len(link.addresses) > 0 {
			settings["addresses"] = link.addresses
		}

		if link.mtu != 0 {
			settings["mtu"] = link.mtu
		}

		if link.gateway != "" {
			settings["routes"] = []any{document{"network": "0.0.0.0/0", "gateway": link.gateway}}
		}

		interfaces = append(interfaces, settings)
	}

	if len(interfaces) > 0 {
		section["interfaces"] = interfaces
	}

	if len(section) > 0 {
		main["network"] = section
	}

	if len(network.TimeServers) > 0 {
		main["time"] = document{"servers": network.TimeServers}
	}
}

type link struct {
	mac       string
	addresses []string
	gateway   string
	mtu       int32
}

func parseLinks(configs []v1alpha1.MachineLinkConfig) ([]link, error) {
	var out []link

	for i, c := range configs {
		mac, err := net.ParseMAC(c.PermanentMAC)
		if err != nil || len(mac) != 6 {
			return nil, fmt.Errorf("machine spec.network.links[%d].permanentMAC: %q is no MAC address", i, c.PermanentMAC)
		}

		if len(c.Addresses) == 0 && c.Gateway != "" {
			return nil, fmt.Errorf("machine spec.network.links[%d].gateway: needs addresses; without them DHCP decides", i)
		}

		l := link{mac: mac.String(), addresses: c.Addresses, gateway: c.Gateway}
		if c.MTU != nil {
			l.mtu = *c.MTU
		}

		out = append(out, l)
	}

	return out, nil
}

// volumeDocuments makes each disk role a user volume on the first other disk that matches.
func volumeDocuments(roles []v1alpha1.DiskRole, contract *config.VersionContract) ([]document, error) {
	if len(roles) > 0 && !contract.Greater(config.TalosVersion1_9) {
		return nil, fmt.Errorf("machine spec.diskRoles: needs Talos 1.10 or later, and the cluster's talosVersion is %s", contract)
	}

	var out []document

	for i, role := range roles {
		match, err := matchExpression(&role.DiskSelector)
		if err != nil {
			return nil, fmt.Errorf("machine spec.diskRoles[%d].diskSelector: %w", i, err)
		}

		provisioning := document{"diskSelector": document{"match": match}}

		if role.MinSize != "" {
			provisioning["minSize"] = role.MinSize
		}

		if role.MaxSize != "" {
			provisioning["maxSize"] = role.MaxSize
		} else {
			provisioning["grow"] = true
		}

		out = append(out, kind("UserVolumeConfig", document{"name": role.Role, "provisioning": provisioning}))
	}

	return out, nil
}

// matchExpression is the CEL expression that Talos itself makes of an install disk's selector, without the disk that
// Talos is on.
func matchExpression(selector *v1alpha1.DiskSelector) (string, error) {
	section := selectorSection(selector)
	if len(section) == 0 {
		return "", errors.New("must name at least one property, else any disk would match")
	}

	text, err := yaml.Marshal(document{"diskSelector": section})
	if err != nil {
		return "", err
	}

	var install talosv1alpha1.InstallConfig
	if err := yaml.Unmarshal(text, &install); err != nil {
		return "", errors.New(oneLine(err))
	}

	expression, err := install.DiskMatchExpression()
	if err != nil {
		return "", err
	}

	return "(" + strings.TrimSpace(expression.String()) + ") && !system_disk", nil
}

func kind(name string, doc document) document {
	doc["apiVersion"], doc["kind"] = "v1alpha1", name

	return doc
}

func mapAll(in []string, f func(string) any) []any {
	out := make([]any, len(in))
	for i, v := range in {
		out[i] = f(v)
	}

	return out
}
