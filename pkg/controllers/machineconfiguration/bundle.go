package machineconfiguration

import (
	"context"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

const (
	// BundleKey is the Secret's key under which the bundle stands (T-16).
	BundleKey = "bundle"
	// BundleClusterLabel is the label that says whose bundle a Secret is: <namespace>.<name> of the TalosCluster.
	BundleClusterLabel = "talos.fieldplane.dev/cluster"
)

// problem is a reason with what to tell people. The message holds nothing of a bundle (T-15).
type problem struct {
	reason  reason
	message string
}

// bundle reads the cluster's secrets bundle, in the server's own namespace and nowhere else (T-16). The error is that
// of an API call that failed.
func (c *Controller) bundle(ctx context.Context, cluster *v1alpha1.TalosCluster) (*secrets.Bundle, *problem, error) {
	name := cluster.Spec.SecretsRef.Name
	where := fmt.Sprintf("Secret %s/%s of TalosCluster %s", c.namespace, name, cluster.Name)

	secret, err := c.secrets.Secrets(c.namespace).Get(ctx, name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return nil, &problem{reasonBundleNotFound, where + " does not exist: the bundle is looked for in the server's own namespace"}, nil
	case err != nil:
		return nil, nil, fmt.Errorf("%s: %w", where, err)
	}

	// Checked before anything is read of it: otherwise a tenant could point at another cluster's bundle.
	if want := cluster.Namespace + "." + cluster.Name; secret.Labels[BundleClusterLabel] != want {
		return nil, &problem{reasonBundleNotForThisCluster, fmt.Sprintf("%s does not carry the label %s: %s", where, BundleClusterLabel, want)}, nil
	}

	data, ok := secret.Data[BundleKey]
	if !ok {
		return nil, &problem{reasonBundleInvalid, fmt.Sprintf("%s has no key %q", where, BundleKey)}, nil
	}

	bundle, err := render.ParseBundle(data)
	if err != nil {
		return nil, &problem{reasonBundleInvalid, fmt.Sprintf("%s: %v", where, err)}, nil
	}

	return bundle, nil, nil
}
