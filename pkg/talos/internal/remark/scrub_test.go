package remark

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
)

// Req: T-15
func TestANodesRemarkLosesEverySecret(t *testing.T) {
	contract, err := config.ParseContractFromVersion("v1.13")
	if err != nil {
		t.Fatal(err)
	}

	bundle, err := secrets.NewBundle(secrets.NewClock(), contract)
	if err != nil {
		t.Fatal(err)
	}

	in, err := generate.NewInput("plant", "https://192.0.2.1:6443", "1.36.0",
		generate.WithVersionContract(contract), generate.WithSecretsBundle(bundle), generate.WithInstallDisk("/dev/sda"))
	if err != nil {
		t.Fatal(err)
	}

	provider, err := in.Config(machine.TypeControlPlane)
	if err != nil {
		t.Fatal(err)
	}

	data, err := provider.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		t.Fatal(err)
	}

	material := map[string]string{
		"cluster id":     bundle.Cluster.ID,
		"cluster secret": bundle.Cluster.Secret,
		"bootstrap":      bundle.Secrets.BootstrapToken,
		"secretbox":      bundle.Secrets.SecretboxEncryptionSecret,
		"machine token":  bundle.TrustdInfo.Token,
		"OS key":         string(bundle.Certs.OS.Key),
		"OS key, base64": base64.StdEncoding.EncodeToString(bundle.Certs.OS.Key),
		"etcd key":       string(bundle.Certs.Etcd.Key),
		"k8s key":        string(bundle.Certs.K8s.Key),
		"SA key":         string(bundle.Certs.K8sServiceAccount.Key),
		"OS certificate": base64.StdEncoding.EncodeToString(bundle.Certs.OS.Crt),
	}

	for name, value := range material {
		for _, message := range []string{
			"unknown keys found: " + value + " in the document",
			"value " + value[:len(value)*3/4] + "… is too long",
		} {
			have := Scrub(message, data)
			if strings.Contains(have, value) || strings.Contains(have, value[:len(value)/2]) {
				t.Errorf("%s is left in %q", name, have)
			}

			if !strings.Contains(have, redacted) {
				t.Errorf("%s: nothing was redacted in %q", name, have)
			}
		}
	}

	for _, message := range []string{
		"no disks matched the expression",
		"install disk /dev/sda is not a block device",
		"configuration validation failed: 1 error occurred",
	} {
		if have := Scrub(message, data); have != message {
			t.Errorf("%q became %q", message, have)
		}
	}

	if have := Scrub("line 3: cannot parse `abc`", []byte("machine: [")); have != "" {
		t.Errorf("a remark on an unreadable configuration is shown: %q", have)
	}
}
