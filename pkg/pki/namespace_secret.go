package pki

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
)

// NamespaceSecretName is the Secret in a namespace that its probes mount:
// ca.crt, tls.crt and tls.key (P-11).
const NamespaceSecretName = "fieldplane-tls"

// EnsureNamespaceCertificate makes or renews this namespace's probe certificate
// if that is due (P-11, P-12). It reads and writes this one Secret by name
// alone, so that RBAC can be as narrow.
func EnsureNamespaceCertificate(ctx context.Context, secrets typedcorev1.SecretsGetter, ca *authority.Authority, clock clock.PassiveClock, namespace string) error {
	err := ensureSecret(ctx, secrets.Secrets(namespace), NamespaceSecretName, func(secret *corev1.Secret) (string, error) {
		data := secret.Data
		_, why, err := mend(data, ca, clock, authority.Namespace(namespace))
		if err != nil {
			return "", err
		}
		if trusted := ca.TrustPEM(); !bytes.Equal(data[caCertKey], trusted) {
			data[caCertKey] = trusted
			if why == "" {
				why = "it trusts other CAs"
			}
		}
		return why, nil
	})
	if err != nil {
		return fmt.Errorf("probe certificate of namespace %s: %w", namespace, err)
	}
	return nil
}
