// Package render makes a machine's Talos configuration out of its cluster, its approval and the cluster's secrets
// bundle (T-11, T-15). It is pure, and the same input gives the same bytes.
package render

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/gendata"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// ErrRoleNotSet is the error for a machine without a role: Talos itself would make it a worker (T-11).
var ErrRoleNotSet = errors.New("render: machine role is not set")

// vanillaSchematic is the image factory's name for Talos without extensions.
const vanillaSchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// Input is what a configuration is made of.
type Input struct {
	Cluster *v1alpha1.TalosCluster
	Machine *v1alpha1.TalosMachine
	// Bundle is the cluster's secrets bundle, from ParseBundle.
	Bundle *secrets.Bundle
}

// Render returns the machine's complete configuration, as YAML without comments. It holds the cluster's secrets; no
// error does (T-15).
func Render(in Input) ([]byte, error) {
	data, err := render(in)

	switch {
	case errors.Is(err, ErrRoleNotSet):
		return nil, ErrRoleNotSet
	case err != nil:
		// The machinery's errors quote what they dislike, so the cause ends here, as text without bundle material.
		return nil, fmt.Errorf("render: %s", Redact(oneLine(err), in.Bundle))
	}

	return data, nil
}

func render(in Input) ([]byte, error) {
	cluster, machine := &in.Cluster.Spec, &in.Machine.Spec

	role, err := parseRole(machine.Role)
	if err != nil {
		return nil, err
	}

	contract, err := parseContract(cluster.TalosVersion)
	if err != nil {
		return nil, err
	}

	generated, err := generateConfig(in, contract, role)
	if err != nil {
		return nil, err
	}

	own, err := machinePatch(machine, contract)
	if err != nil {
		return nil, err
	}

	provider, err := merge(generated, own)
	if err != nil {
		return nil, err
	}

	protected := protect(provider)

	choices, err := approvedIn(provider, own)
	if err != nil {
		return nil, err
	}

	for _, patches := range []struct {
		owner string
		list  []string
	}{{"cluster", cluster.ConfigPatches}, {"machine", machine.ConfigPatches}} {
		for i, patch := range patches.list {
			name := fmt.Sprintf("%s spec.configPatches[%d]", patches.owner, i)

			if err := ValidatePatch([]byte(patch)); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}

			provider, err = merge(provider, []byte(patch))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}

			if field := protected.changed(provider); field != "" {
				return nil, fmt.Errorf("%s: must not change %s, which %s decides", name, field, decidedBy(field))
			}

			path, member, err := choices.changed(provider)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}

			if path != "" {
				return nil, fmt.Errorf("%s: must not change %s, which the machine's %s decides", name, path, member)
			}
		}
	}

	if _, err := provider.Validate(metal{}); err != nil {
		return nil, err
	}

	return provider.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
}

func parseRole(role v1alpha1.MachineRole) (machine.Type, error) {
	switch role {
	case "":
		return machine.TypeUnknown, ErrRoleNotSet
	case v1alpha1.RoleControlPlane:
		return machine.TypeControlPlane, nil
	case v1alpha1.RoleWorker:
		return machine.TypeWorker, nil
	default:
		// Talos would also take "init", "join" and "unknown".
		return machine.TypeUnknown, fmt.Errorf("machine role %q is neither %s nor %s", role, v1alpha1.RoleControlPlane, v1alpha1.RoleWorker)
	}
}

func parseContract(talosVersion string) (*config.VersionContract, error) {
	contract, err := config.ParseContractFromVersion(talosVersion)
	if err != nil {
		return nil, fmt.Errorf("cluster spec.talosVersion %q: must be a version such as v1.13", talosVersion)
	}

	if contract.Greater(config.TalosVersion1_13) {
		return nil, fmt.Errorf("cluster spec.talosVersion %q: the newest that can be rendered is %s", talosVersion, config.TalosVersion1_13)
	}

	return contract, nil
}

func generateConfig(in Input, contract *config.VersionContract, role machine.Type) (config.Provider, error) {
	cluster := &in.Cluster.Spec

	// Without a bundle the machinery would make up the secrets of a new cluster.
	if in.Bundle == nil {
		return nil, errors.New("no secrets bundle")
	}

	endpoint, err := url.Parse(cluster.ControlPlaneEndpoint)
	if err != nil || endpoint.Scheme != "https" || endpoint.Hostname() == "" || endpoint.User != nil || strings.Trim(endpoint.Path, "/") != "" {
		return nil, fmt.Errorf("cluster spec.controlPlaneEndpoint %q: must be https://HOST[:PORT]", cluster.ControlPlaneEndpoint)
	}

	kubernetes := strings.TrimPrefix(cluster.KubernetesVersion, "v")
	if err := checkPairing(cluster.TalosVersion, cluster.KubernetesVersion); err != nil {
		return nil, err
	}

	image := cluster.InstallImage
	if image == "" {
		image = "factory.talos.dev/metal-installer/" + vanillaSchematic + ":" + fullVersion(cluster.TalosVersion, contract)
	}

	input, err := generate.NewInput(in.Cluster.Name, cluster.ControlPlaneEndpoint, kubernetes,
		generate.WithVersionContract(contract),
		generate.WithSecretsBundle(in.Bundle),
		generate.WithInstallImage(image),
	)
	if err != nil {
		return nil, err
	}

	return input.Config(role)
}

func checkPairing(talosVersion, kubernetesVersion string) error {
	talos, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: talosVersion})
	if err != nil {
		return fmt.Errorf("cluster spec.talosVersion %q: must be a version such as v1.13", talosVersion)
	}

	// A version without a patch names no image.
	if strings.Count(kubernetesVersion, ".") < 2 {
		return fmt.Errorf("cluster spec.kubernetesVersion %q: must be a full version such as v1.36.2", kubernetesVersion)
	}

	kubernetes, err := compatibility.ParseKubernetesVersion(strings.TrimPrefix(kubernetesVersion, "v"))
	if err != nil {
		return fmt.Errorf("cluster spec.kubernetesVersion %q: must be a full version such as v1.36.2", kubernetesVersion)
	}

	if err := kubernetes.SupportedWith(talos); err != nil {
		return fmt.Errorf("cluster spec.kubernetesVersion %q: %w", kubernetesVersion, err)
	}

	return nil
}

// fullVersion is the version of the installer image: images have three numbers. Where the patch is left open, it is the
// newest that this build knows, if it knows the minor version.
func fullVersion(talosVersion string, contract *config.VersionContract) string {
	version := "v" + strings.TrimPrefix(talosVersion, "v")
	if strings.Count(version, ".") >= 2 {
		return version
	}

	if known, err := config.ParseContractFromVersion(gendata.VersionTag); err == nil && *known == *contract {
		return gendata.VersionTag
	}

	return contract.String() + ".0"
}

// metal is the runtime mode of machines that install themselves on a disk.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }

// RedactedConfig returns a configuration with every secret replaced by ***, for people to read (T-15).
func RedactedConfig(data []byte) ([]byte, error) {
	provider, err := configloader.NewFromBytes(data)
	if err != nil {
		return nil, errors.New("render: the configuration cannot be read") // the cause may quote it
	}

	return provider.RedactSecrets(redacted).EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
}

// HashOf is how status tells one configuration from another: hexadecimal SHA-256.
func HashOf(config []byte) string {
	sum := sha256.Sum256(config)

	return hex.EncodeToString(sum[:])
}
