// Package bundle reads the secrets bundle of a TalosCluster from its Secret (T-16).
package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

const (
	// Key is the Secret's key under which the bundle stands (T-16).
	Key = "bundle"
	// ClusterLabel is the label that says whose bundle a Secret is: <namespace>.<name> of the TalosCluster.
	ClusterLabel = "talos.fieldplane.dev/cluster"
)

// Reason is why a cluster has no usable bundle, in the words of conditions.
type Reason string

// The reasons.
const (
	// NotFound: the Secret does not exist.
	NotFound Reason = "BundleNotFound"
	// Invalid: the Secret holds no whole bundle.
	Invalid Reason = "BundleInvalid"
	// NotForThisCluster: the Secret's label names another cluster, or none.
	NotForThisCluster Reason = "BundleNotForThisCluster"
)

// Problem is a reason with what to tell people. The message holds nothing of a bundle (T-15).
type Problem struct {
	Reason  Reason
	Message string
}

// Store reads bundles.
type Store struct {
	secrets   corev1client.SecretsGetter
	namespace string
}

// NewStore returns a store that looks in the server's own namespace and nowhere else. An empty namespace is an error: a
// Secret would be looked for in no namespace or in all (T-16).
func NewStore(secrets corev1client.SecretsGetter, namespace string) (*Store, error) {
	if namespace == "" {
		return nil, errors.New("secrets bundles: the server's own namespace is not known: set POD_NAMESPACE")
	}

	return &Store{secrets: secrets, namespace: namespace}, nil
}

// Load reads a cluster's bundle. Either the bundle, the problem or the error is returned; the error is that of an API
// call that failed.
func (s *Store) Load(ctx context.Context, cluster *v1alpha1.TalosCluster) (*secrets.Bundle, *Problem, error) {
	name := cluster.Spec.SecretsRef.Name
	where := fmt.Sprintf("Secret %s/%s of TalosCluster %s", s.namespace, name, cluster.Name)

	secret, err := s.secrets.Secrets(s.namespace).Get(ctx, name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return nil, &Problem{NotFound, where + " does not exist: the bundle is looked for in the server's own namespace"}, nil
	case err != nil:
		return nil, nil, fmt.Errorf("%s: %w", where, err)
	}

	// Checked before anything is read of it: otherwise a tenant could point at another cluster's bundle.
	if want := LabelOf(cluster); secret.Labels[ClusterLabel] != want {
		return nil, &Problem{NotForThisCluster, fmt.Sprintf("%s does not carry the label %s: %s", where, ClusterLabel, want)}, nil
	}

	data, ok := secret.Data[Key]
	if !ok {
		return nil, &Problem{Invalid, fmt.Sprintf("%s has no key %q", where, Key)}, nil
	}

	bundle, err := render.ParseBundle(data)
	if err != nil {
		return nil, &Problem{Invalid, fmt.Sprintf("%s: %v", where, err)}, nil
	}

	return bundle, nil, nil
}

// LabelOf is the value of ClusterLabel on the Secret of a cluster's bundle.
func LabelOf(cluster *v1alpha1.TalosCluster) string { return cluster.Namespace + "." + cluster.Name }

// HashOf tells bundles apart: hexadecimal SHA-256 of the content, however it is written down. It reveals nothing of it.
func HashOf(bundle *secrets.Bundle) (string, error) {
	data, err := yaml.Marshal(bundle)
	if err != nil {
		return "", errors.New("secrets bundle: cannot be written as YAML") // the cause may quote it
	}

	sum := sha256.Sum256(data)

	return hex.EncodeToString(sum[:]), nil
}
