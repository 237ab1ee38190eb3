package apiserver

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

// kindsOf are the kinds of both groups in their served versions, lists left out.
func kindsOf(scheme *runtime.Scheme) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, group := range scheme.PrioritizedVersionsAllGroups() {
		if !strings.HasSuffix(group.Group, ".fieldplane.dev") {
			continue
		}
		for kind, goType := range scheme.KnownTypes(group) {
			if strings.HasPrefix(goType.PkgPath(), "github.com/fieldplane/") && !strings.HasSuffix(kind, "List") {
				kinds = append(kinds, group.WithKind(kind))
			}
		}
	}
	return kinds
}

// Req: A-02. A kind that was forgotten would stand under its bare name, and be orphaned when that is corrected.
func TestEveryKindIsStoredAsProtobufUnderItsGroup(t *testing.T) {
	scheme := NewScheme()
	factory := NewStorageFactory(*storagebackend.NewDefaultConfig(EtcdPrefix, nil), StorageMediaType, scheme, serializer.NewCodecFactory(scheme))
	// What is only ever the body of a request has no list, and no place.
	kinds := slices.DeleteFunc(kindsOf(scheme), func(gvk schema.GroupVersionKind) bool {
		return !scheme.Recognizes(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	})
	if len(kinds) != len(resources()) {
		t.Errorf("%d kinds are served, %d are given a place", len(kinds), len(resources()))
	}
	for _, gvk := range kinds {
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		resource := plural.GroupResource()
		example, err := scheme.New(gvk.GroupKind().WithVersion(runtime.APIVersionInternal))
		if err != nil {
			t.Errorf("%s has no internal version, which server-side apply needs: %v", gvk.Kind, err)
			continue
		}
		config, err := factory.NewConfig(resource, example)
		if err != nil {
			t.Errorf("%s: %v", resource, err)
			continue
		}
		if got, want := config.Prefix+"/"+factory.ResourcePrefix(resource), "/fieldplane/"+resource.Group+"/"+resource.Resource; got != want {
			t.Errorf("%s is stored under %s, want %s", resource, got, want)
		}
		encoded, err := runtime.Encode(config.Codec, example)
		if err != nil {
			t.Errorf("%s: %v", resource, err)
			continue
		}
		if !bytes.HasPrefix(encoded, []byte("k8s\x00")) || !bytes.Contains(encoded, []byte(gvk.GroupVersion().String())) {
			t.Errorf("%s is stored as %q, want protobuf of %s", resource, encoded, gvk.GroupVersion())
		}
		// What was written as JSON, by --storage-media-type, is read all the same.
		json := serializer.NewCodecFactory(scheme).LegacyCodec(gvk.GroupVersion())
		text, err := runtime.Encode(json, example)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := runtime.Decode(config.Codec, text); err != nil {
			t.Errorf("%s: JSON is not read: %v", resource, err)
		}
	}
}
