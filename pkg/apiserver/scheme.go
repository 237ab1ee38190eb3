// Package apiserver puts the server together: the API groups over their
// storage, admission, authorization, and the controllers that run in the same
// process.
package apiserver

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	physicalinstall "github.com/fieldplane/fieldplane/apis/physical/install"
	talosinstall "github.com/fieldplane/fieldplane/apis/talos/install"
)

// NewScheme returns a scheme with every version of both groups, and what every
// API server answers with.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	physicalinstall.Install(scheme)
	talosinstall.Install(scheme)

	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, unversioned)
	scheme.AddUnversionedTypes(unversioned,
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return scheme
}
