package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
	"github.com/fieldplane/fieldplane/test/installation"
	"github.com/fieldplane/fieldplane/test/localcluster"
)

const (
	exampleNamespace = "site-a"
	exampleCluster   = "plant"
	exampleBundle    = "plant-bundle"
)

// applyExamples makes the example's secrets bundle, applies the examples, and
// waits until the plant shows in them.
func applyExamples(ctx context.Context, here place, cluster *localcluster.Cluster, server *installation.Installation) error {
	began := time.Now()
	if err := ensureBundle(ctx, cluster); err != nil {
		return fmt.Errorf("secrets bundle of the example: %w", err)
	}
	examples := filepath.Join(here.repo, "artifacts", "examples")
	if output, err := server.Kubectl(ctx, "apply", "-f", examples); err != nil {
		return fmt.Errorf("kubectl apply -f %s: %w\n%s", examples, err, output)
	}
	progress("examples", time.Since(began))

	began = time.Now()
	if err := waitPlant(ctx, cluster); err != nil {
		return err
	}
	progress("a module Online and a machine Pending", time.Since(began))
	return nil
}

func ensureBundle(ctx context.Context, cluster *localcluster.Cluster) error {
	secrets := cluster.Client().CoreV1().Secrets(installation.Namespace)
	if _, err := secrets.Get(ctx, exampleBundle, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	bundle, err := render.GenerateBundle("v1.13")
	if err != nil {
		return err
	}
	_, err = secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:   exampleBundle,
			Labels: map[string]string{"talos.fieldplane.dev/cluster": exampleNamespace + "." + exampleCluster},
		},
		Data: map[string][]byte{"bundle": bundle},
	}, metav1.CreateOptions{})
	return err
}

// waitPlant returns when a module is Online and a machine is known, which is
// what the first look at the plant should show.
func waitPlant(ctx context.Context, cluster *localcluster.Cluster) error {
	client, err := versioned.NewForConfig(cluster.AdminConfig())
	if err != nil {
		return err
	}
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		online, err := client.PhysicalV1alpha1().IOModules(exampleNamespace).List(ctx, metav1.ListOptions{
			FieldSelector: physicalv1alpha1.IOModuleState + "=" + string(physicalv1alpha1.ModuleOnline),
		})
		if err != nil {
			return false, nil
		}
		machines, err := client.TalosV1alpha1().TalosMachines(exampleNamespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(online.Items) > 0 && len(machines.Items) > 0, nil
	})
	if err != nil {
		return fmt.Errorf("no module came Online, or no machine was found: %w", err)
	}
	return nil
}
