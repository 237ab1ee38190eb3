// Package deploy reads what artifacts/deploy ships, rendered as `kubectl apply
// -k` would, and says what is wrong with it. It needs no cluster.
package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Kustomizations returns the directories under root that `kubectl apply -k`
// takes.
func Kustomizations(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "*", "kustomization.yaml"))
	if err != nil {
		return nil, err
	}
	dirs := make([]string, 0, len(files))
	for _, file := range files {
		dirs = append(dirs, filepath.Dir(file))
	}
	sort.Strings(dirs)
	return dirs, nil
}

// Render returns the typed objects of one kustomization; a field that its type
// does not have is an error, as it is to a kube-apiserver asked for strict
// validation.
func Render(dir string) ([]runtime.Object, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", dir, err)
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := apiregistrationv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for _, resource := range resources.Resources() {
		data, err := resource.AsYAML()
		if err != nil {
			return nil, fmt.Errorf("render %s: %w", dir, err)
		}
		object, _, err := decoder.Decode(data, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("render %s: %s: %w", dir, resource.CurId(), err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
