package render

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"
)

const redacted = "***"

var errNotABundle = errors.New("render: the secrets bundle is not YAML as `talosctl gen secrets` writes it")

// ParseBundle reads a secrets bundle, the YAML of `talosctl gen secrets`, and checks that it is complete. Its errors
// hold nothing of it (T-15).
func ParseBundle(data []byte) (*secrets.Bundle, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)

	bundle := &secrets.Bundle{}
	if err := decoder.Decode(bundle); err != nil {
		return nil, errNotABundle
	}

	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errNotABundle
	}

	// Talos takes the time of the certificates that it makes from here, and fails without.
	bundle.Clock = secrets.NewClock()

	if err := bundle.Validate(); err != nil {
		return nil, fmt.Errorf("render: the secrets bundle is incomplete: %s", Redact(oneLine(err), bundle))
	}

	return bundle, nil
}

// GenerateBundle makes a new cluster's secrets bundle for a Talos version, as `talosctl gen secrets` does.
func GenerateBundle(talosVersion string) ([]byte, error) {
	contract, err := parseContract(talosVersion)
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}

	bundle, err := secrets.NewBundle(secrets.NewClock(), contract)
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}

	return yaml.Marshal(bundle)
}

// BundleMaterial lists every value of a bundle in every form in which it could turn up somewhere: as it is, as base64,
// and for certificates and keys each line. It is what a test looks for in events, conditions and logs (T-15).
func BundleMaterial(bundle *secrets.Bundle) []string {
	if bundle == nil {
		return nil
	}

	var values []string

	if c := bundle.Cluster; c != nil {
		values = append(values, c.ID, c.Secret)
	}

	if s := bundle.Secrets; s != nil {
		values = append(values, s.BootstrapToken, s.AESCBCEncryptionSecret, s.SecretboxEncryptionSecret)
	}

	if t := bundle.TrustdInfo; t != nil {
		values = append(values, t.Token)
	}

	if c := bundle.Certs; c != nil {
		for _, pair := range []*x509.PEMEncodedCertificateAndKey{c.Etcd, c.K8s, c.K8sAggregator, c.OS} {
			if pair != nil {
				values = append(values, pemForms(pair.Crt)...)
				values = append(values, pemForms(pair.Key)...)
			}
		}

		if c.K8sServiceAccount != nil {
			values = append(values, pemForms(c.K8sServiceAccount.Key)...)
		}
	}

	// A token's halves are secrets too: its second one alone is what is checked.
	for _, value := range slices.Clone(values) {
		if id, secret, isToken := strings.Cut(value, "."); isToken && len(id) == 6 && len(secret) >= 8 {
			values = append(values, secret)
		}
	}

	values = slices.DeleteFunc(values, func(v string) bool { return len(v) < 6 })

	// The longest first, so that one that contains another is replaced whole.
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })

	return slices.Compact(values)
}

func pemForms(data []byte) []string {
	forms := []string{string(data), base64.StdEncoding.EncodeToString(data)}

	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "-----") {
			forms = append(forms, line)
		}
	}

	return forms
}

// HasKeys tells whether a configuration has the key of the cluster's OS CA, as every control plane's has, and no worker's.
func HasKeys(config []byte, bundle *secrets.Bundle) bool {
	provider, err := configloader.NewFromBytes(config)
	if err != nil || bundle == nil || bundle.Certs == nil || bundle.Certs.OS == nil || len(bundle.Certs.OS.Key) == 0 {
		return false
	}

	machine := rawOf(provider).MachineConfig

	return machine != nil && machine.MachineCA != nil && bytes.Equal(machine.MachineCA.Key, bundle.Certs.OS.Key)
}

// Redact takes every value of a bundle out of a text, and the beginning of one at which the text was cut off: what comes
// from nodes is cut before anybody knows the bundle (T-15).
func Redact(text string, bundle *secrets.Bundle) string {
	values := BundleMaterial(bundle)

	for _, value := range values {
		text = strings.ReplaceAll(text, value, redacted)
	}

	// Shorter beginnings say nothing, and ordinary words end like them.
	const least = 8

	cut := 0

	for _, value := range values {
		for n := min(len(value)-1, len(text)); n >= least && n > cut; n-- {
			if strings.HasSuffix(text, value[:n]) {
				cut = n
			}
		}
	}

	if cut > 0 {
		text = text[:len(text)-cut] + redacted
	}

	return text
}

// oneLine joins the lines and bullets of a machinery error, since conditions and events are one line.
func oneLine(err error) string {
	var said []string

	for line := range strings.Lines(err.Error()) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "* ")
		// How many there are is seen.
		for _, count := range []string{" error occurred:", " errors occurred:"} {
			if before, ok := strings.CutSuffix(line, count); ok {
				line = strings.TrimRight(before, "0123456789")
			}
		}

		if line = strings.TrimSpace(line); line != "" {
			said = append(said, line)
		}
	}

	// A line that ends in a colon announces the next.
	return strings.ReplaceAll(strings.Join(said, "; "), ":; ", ": ")
}
