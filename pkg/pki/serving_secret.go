package pki

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/pki/authority"
)

const (
	// ServingSecretName is the Secret beside the server that holds its CA and
	// its serving certificate.
	ServingSecretName = "fieldplane-apiserver-tls"

	// RotateAnnotation on that Secret, with any value, asks for another CA. It is
	// taken away when one was made.
	RotateAnnotation = "fieldplane.dev/rotate-ca"

	caCertKey = "ca.crt"
	caKeyKey  = "ca.key"
	certKey   = corev1.TLSCertKey
	keyKey    = corev1.TLSPrivateKeyKey

	// writeAttempts bounds how often replicas that start together may be ahead
	// of this one. Each lost race means that another one has written, and one
	// write is enough for all.
	writeAttempts = 8
)

// ServingNames are the names under which the aggregator verifies the server
// behind this Service.
func ServingNames(service, namespace string) []string {
	return []string{
		service + "." + namespace + ".svc",
		service + "." + namespace,
		service + "." + namespace + ".svc.cluster.local",
		"localhost",
	}
}

// Credentials are what the server reads from its Secret at start.
type Credentials struct {
	Authority *authority.Authority
	Serving   authority.KeyPair
}

// EnsureServing returns the CA and serving certificate of this installation,
// and makes or renews in the Secret what is missing or due. Replicas
// that start together agree on one. secrets is the client for the server's own
// namespace.
//
// A CA that has expired is replaced, since nobody accepts it any more. One that
// cannot be read is an error: replacing it would cut off every probe, for what
// may be a mistake that somebody can still undo.
func EnsureServing(ctx context.Context, secrets typedcorev1.SecretInterface, clock clock.PassiveClock, names ...string) (*Credentials, error) {
	var credentials *Credentials
	err := ensureSecret(ctx, secrets, ServingSecretName, func(secret *corev1.Secret) (why string, err error) {
		credentials, why, err = serving(secret, clock, names, func([]byte) bool { return false })
		return why, err
	})
	if err != nil {
		return nil, err
	}
	return credentials, nil
}

// serving reads the Secret's data, mends it in place, and says why it did; ""
// means that nothing changed.
func serving(secret *corev1.Secret, clock clock.PassiveClock, names []string, known func(next []byte) bool) (*Credentials, string, error) {
	data, now := secret.Data, clock.Now()
	why := ""
	caPair := authority.KeyPair{CertPEM: data[caCertKey], KeyPEM: data[caKeyKey]}
	var ca *authority.Authority
	var err error
	if len(caPair.CertPEM)+len(caPair.KeyPEM)+len(data[certKey])+len(data[keyKey]) > 0 {
		if ca, err = authority.Load(caPair); err != nil {
			return nil, "", fmt.Errorf("%w (keys %s and %s): restore the Secret, or delete it to have a new CA made", err, caCertKey, caKeyKey)
		}
	}
	switch {
	case ca == nil:
		why = "there is no CA yet"
	case ca.Expired(now):
		why = "the CA has expired"
	}
	if why != "" {
		if ca, err = authority.New(now); err != nil {
			return nil, "", err
		}
		if caPair, err = ca.KeyPair(); err != nil {
			return nil, "", err
		}
		data[caCertKey], data[caKeyKey] = caPair.CertPEM, caPair.KeyPEM
		// Nobody has a certificate that is still worth anything.
		forgetSuccession(secret)
	} else if ca, why, err = succession(secret, ca, now, known); err != nil {
		return nil, "", err
	}
	pair, due, err := mend(data, ca, clock, authority.Serving(names...))
	if err != nil {
		return nil, "", err
	}
	if why == "" {
		why = due
	}
	return &Credentials{Authority: ca, Serving: pair}, why, nil
}

// mend issues the leaf in data anew if it is due.
func mend(data map[string][]byte, ca *authority.Authority, clock clock.PassiveClock, leaf authority.Leaf) (authority.KeyPair, string, error) {
	now := clock.Now()
	pair := authority.KeyPair{CertPEM: data[certKey], KeyPEM: data[keyKey]}
	why := ca.Due(now, pair, leaf)
	if why == "" {
		return pair, "", nil
	}
	pair, err := ca.Issue(now, leaf)
	if err != nil {
		return authority.KeyPair{}, "", err
	}
	data[certKey], data[keyKey] = pair.CertPEM, pair.KeyPEM
	return pair, why, nil
}

// ensureSecret lets mend bring a Secret up to date, and writes it if
// that gave a reason to. Whoever loses a race reads what the winner wrote and
// looks again.
func ensureSecret(ctx context.Context, secrets typedcorev1.SecretInterface, name string, mend func(*corev1.Secret) (why string, err error)) error {
	logger := klog.FromContext(ctx)
	for range writeAttempts {
		secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
		absent := apierrors.IsNotFound(err)
		if err != nil && !absent {
			return fmt.Errorf("read Secret %s: %w", name, err)
		}
		if absent {
			secret = &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/managed-by": "fieldplane"}},
				Type:       corev1.SecretTypeTLS,
			}
		}
		secret = secret.DeepCopy()
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		why, err := mend(secret)
		if err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
		if why == "" {
			return nil
		}
		if absent {
			_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
		} else {
			_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		}
		switch {
		case err == nil:
			logger.Info("Wrote certificates", "secret", name, "reason", why)
			return nil
		// A namespace that is going away answers Forbidden, which is no race.
		case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), !absent && apierrors.IsNotFound(err):
		default:
			return fmt.Errorf("write Secret %s: %w", name, err)
		}
	}
	return fmt.Errorf("write Secret %s: others changed it %d times in a row", name, writeAttempts)
}
