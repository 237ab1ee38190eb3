package apiserver

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/fieldplane/fieldplane/apis/physical"
	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/apis/talos"
	talosv1alpha1 "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// EtcdPrefix is the root of all our keys. Objects stand at
// /fieldplane/<group>/<resource>/<namespace>/<name>; changing either part would
// orphan what is stored.
const EtcdPrefix = "/fieldplane"

// StorageMediaType is how objects are encoded at rest.
const StorageMediaType = runtime.ContentTypeProtobuf

func resources() []schema.GroupResource {
	return []schema.GroupResource{
		physical.Resource("iomodules"),
		physical.Resource("controllers"),
		physical.Resource("controlmodules"),
		physical.Resource("units"),
		talos.Resource("talosclusters"),
		talos.Resource("talosmachines"),
	}
}

// NewStorageFactory returns where and how each resource is stored. The simple
// factory of the options would ignore the media type and keep JSON.
func NewStorageFactory(config storagebackend.Config, mediaType string, scheme *runtime.Scheme, codecs serializer.CodecFactory) *serverstorage.DefaultStorageFactory {
	enabled := serverstorage.NewResourceConfig()
	enabled.EnableVersions(physicalv1alpha1.SchemeGroupVersion, talosv1alpha1.SchemeGroupVersion)
	factory := serverstorage.NewDefaultStorageFactory(config, mediaType, codecs,
		serverstorage.NewDefaultResourceEncodingConfig(scheme), enabled, nil)
	for _, resource := range resources() {
		// The default is the bare resource name, and two groups may use one.
		factory.SetResourceEtcdPrefix(resource, resource.Group+"/"+resource.Resource)
	}
	return factory
}
