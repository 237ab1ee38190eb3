package render

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"go.yaml.in/yaml/v4"

	"github.com/fieldplane/fieldplane/pkg/talos/internal/plainyaml"
)

var (
	errEmptyPatch = errors.New("must not be empty; remove the entry, or write a part of a Talos configuration in YAML")
	errJSONPatch  = errors.New("must not be a JSON patch (RFC 6902): Talos does not apply one to a configuration of several documents; " +
		"write the wanted part of the configuration in YAML, and $patch: delete to take something away")
)

// ValidatePatch tells whether a text is a patch that can be applied: a part of a Talos configuration, for a strategic
// merge. It is what admission asks; whether the result is a valid configuration shows when
// it is rendered.
func ValidatePatch(patch []byte) error {
	_, err := loadPatch(patch)

	return err
}

func loadPatch(patch []byte) (configpatcher.StrategicMergePatch, error) {
	if err := checkDocuments(patch); err != nil {
		return nil, err
	}

	// Never LoadPatches, which takes strings and opens some of them as files.
	loaded, err := configpatcher.LoadPatch(patch)
	if err != nil {
		return nil, fmt.Errorf("must be a part of a Talos configuration: %s", oneLine(err))
	}

	merge, ok := loaded.(configpatcher.StrategicMergePatch)
	if !ok {
		return nil, errJSONPatch
	}

	for _, document := range merge.Documents() {
		raw, ok := document.(*talosv1alpha1.Config)
		if !ok {
			continue
		}

		for _, field := range protectedFields(raw) {
			if field.isSet() {
				return nil, fmt.Errorf("must not set %s, which %s decides", field.name, decidedBy(field.name))
			}
		}
	}

	return merge, nil
}

// maxPatch is room for the manifests of a network plugin, the longest thing that is sensibly put into a patch.
const maxPatch = 512 << 10

// checkDocuments refuses what the machinery would take for an empty or a real JSON patch, and fail to apply later, and
// what it would take too long to read.
func checkDocuments(patch []byte) error {
	if len(patch) > maxPatch {
		return fmt.Errorf("must have at most %d KiB, and has %d; several patches may share what is longer", maxPatch>>10, (len(patch)+1023)>>10)
	}

	decoder := yaml.NewDecoder(bytes.NewReader(bytes.TrimSpace(patch)))
	empty := true

	for {
		var document yaml.Node

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return nil // broken YAML: the machinery says what is wrong with it
		}

		for _, root := range document.Content {
			if err := plainyaml.Check(root); err != nil {
				return err
			}

			switch root.Kind {
			case yaml.SequenceNode:
				return errJSONPatch
			case yaml.ScalarNode:
				empty = empty && root.Tag == "!!null"
			default:
				empty = empty && len(root.Content) == 0
			}
		}
	}

	if empty {
		return errEmptyPatch
	}

	return nil
}

func merge(provider config.Provider, patch []byte) (config.Provider, error) {
	loaded, err := configpatcher.LoadPatch(patch)
	if err != nil {
		return nil, err
	}

	out, err := configpatcher.Apply(configpatcher.WithConfig(provider), []configpatcher.Patch{loaded})
	if err != nil {
		return nil, err
	}

	return out.Config()
}

// protectedField is a part of a configuration that no patch may touch: it makes the machine a member of its cluster, or
// was decided by whoever approved.
type protectedField struct {
	name  string
	value any
}

func (f protectedField) isSet() bool {
	return f.value != nil && !reflect.ValueOf(f.value).IsZero()
}

func protectedFields(raw *talosv1alpha1.Config) []protectedField {
	m, c := raw.MachineConfig, raw.ClusterConfig
	if m == nil {
		m = &talosv1alpha1.MachineConfig{}
	}

	if c == nil {
		c = &talosv1alpha1.ClusterConfig{}
	}

	install := m.MachineInstall
	if install == nil {
		install = &talosv1alpha1.InstallConfig{}
	}

	etcd := c.EtcdConfig
	if etcd == nil {
		etcd = &talosv1alpha1.EtcdConfig{}
	}

	endpoint := ""
	if c.ControlPlane != nil && c.ControlPlane.Endpoint != nil && c.ControlPlane.Endpoint.URL != nil {
		endpoint = c.ControlPlane.Endpoint.String()
	}

	return []protectedField{
		{"machine.type", m.MachineType},
		{"machine.token", m.MachineToken},
		{"machine.ca", m.MachineCA},
		{"machine.acceptedCAs", m.MachineAcceptedCAs},
		{"machine.install.disk", install.InstallDisk},
		{"machine.install.diskSelector", install.InstallDiskSelector},
		{"cluster.id", c.ClusterID},
		{"cluster.secret", c.ClusterSecret},
		{"cluster.token", c.BootstrapToken},
		{"cluster.ca", c.ClusterCA},
		{"cluster.acceptedCAs", c.ClusterAcceptedCAs},
		{"cluster.aggregatorCA", c.ClusterAggregatorCA},
		{"cluster.serviceAccount", c.ClusterServiceAccount},
		{"cluster.etcd.ca", etcd.RootCA},
		{"cluster.aescbcEncryptionSecret", c.ClusterAESCBCEncryptionSecret},
		{"cluster.secretboxEncryptionSecret", c.ClusterSecretboxEncryptionSecret},
		{"cluster.controlPlane.endpoint", endpoint},
	}
}

// decidedBy says where a protected field comes from, for the message to whoever tried to patch it.
func decidedBy(field string) string {
	switch field {
	case "machine.type":
		return "the machine's spec.role"
	case "machine.install.disk", "machine.install.diskSelector":
		return "the machine's spec.install"
	case "cluster.controlPlane.endpoint":
		return "the cluster's spec.controlPlaneEndpoint"
	default:
		return "the cluster's secrets bundle"
	}
}

// protection is the protected fields as they were before any patch.
type protection []protectedField

func protect(provider config.Provider) protection {
	return protectedFields(rawOf(provider))
}

// changed returns the first protected field that is no longer what it was, "" when none is.
func (p protection) changed(provider config.Provider) string {
	for i, now := range protectedFields(rawOf(provider)) {
		if !reflect.DeepEqual(p[i].value, now.value) {
			return now.name
		}
	}

	return ""
}

func rawOf(provider config.Provider) *talosv1alpha1.Config {
	if raw := provider.RawV1Alpha1(); raw != nil {
		return raw
	}

	return &talosv1alpha1.Config{} // a patch deleted it
}
