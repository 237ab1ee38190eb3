package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"

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
	exampleUnit      = "mixing"
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
	modules, err := exampleModules(filepath.Join(examples, "10-iomodules.yaml"))
	if err != nil {
		return err
	}
	if err := waitPlant(ctx, cluster, modules); err != nil {
		return err
	}
	progress("every module Online, a machine Pending, a Unit's runtime in contact", time.Since(began))
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

// exampleModules are the names of the IOModules in a file of examples.
func exampleModules(path string) ([]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var names []string
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		var object metav1.PartialObjectMetadata
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return names, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if object.Kind == "IOModule" {
			names = append(names, object.Name)
		}
	}
}

// waitPlant returns when every module of the examples is Online, a machine is
// known, and the Unit's runtime is in contact, which is what the first look at
// the plant should show.
func waitPlant(ctx context.Context, cluster *localcluster.Cluster, modules []string) error {
	client, err := versioned.NewForConfig(cluster.AdminConfig())
	if err != nil {
		return err
	}
	missing := modules
	err = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		online, err := client.PhysicalV1alpha1().IOModules(exampleNamespace).List(ctx, metav1.ListOptions{
			FieldSelector: physicalv1alpha1.IOModuleState + "=" + string(physicalv1alpha1.ModuleOnline),
		})
		if err != nil {
			return false, nil
		}
		missing = slices.DeleteFunc(slices.Clone(modules), func(name string) bool {
			return slices.ContainsFunc(online.Items, func(m physicalv1alpha1.IOModule) bool { return m.Name == name })
		})
		machines, err := client.TalosV1alpha1().TalosMachines(exampleNamespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(missing) > 0 || len(machines.Items) == 0 {
			return false, nil
		}
		unit, err := client.PhysicalV1alpha1().Units(exampleNamespace).Get(ctx, exampleUnit, metav1.GetOptions{})
		return err == nil && meta.IsStatusConditionTrue(unit.Status.Conditions, "RuntimeReady"), nil
	})
	if err != nil {
		return fmt.Errorf("modules that did not come Online are %q, or no machine was found, or Unit %s has no runtime: %w", missing, exampleUnit, err)
	}
	return nil
}
