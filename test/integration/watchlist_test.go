package integration

import (
	"context"
	"encoding/json"
	"net/url"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fieldplane/fieldplane/generated/informers"
)

// The forms in which a client may ask for objects.
const (
	asObject   = "application/json"
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asMetadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
)

// Req: A-01 (A3)
func TestAWatchListOfEveryKindEndsInABookmark(t *testing.T) {
	t.Parallel()
	forms := map[string]string{"as object": asObject, "as Table": asTable, "as PartialObjectMetadata": asMetadata}
	roads := map[string]*clientrest.Config{
		"through the aggregator": env.Cluster.AdminConfig(), "directly": direct(t, env.Cluster.AdminConfig()),
	}
	for road, config := range roads {
		client, err := clientrest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		config.GroupVersion, config.NegotiatedSerializer = &metav1.SchemeGroupVersion, noCodec{}
		rest, err := clientrest.RESTClientForConfigAndClient(config, client)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(road, func(t *testing.T) {
			t.Parallel()
			forEveryKind(t, func(t *testing.T, k kind, namespace string) {
				for _, stored := range []int{0, 2} {
					for n := 1; n <= stored; n++ {
						create(t, k, k.object(namespace, k.name(n)))
					}
					for form, accept := range forms {
						began := time.Now()
						added, version := watchList(t, rest, k.url(namespace), accept)
						if took := time.Since(began); took > 3*time.Second {
							t.Errorf("%s, %d objects: the bookmark came after %s", form, stored, took)
						}
						if added != stored || version == "" {
							t.Errorf("%s: %d objects instead of %d before the bookmark of version %q", form, added, stored, version)
						}
					}
				}
			})
		})
	}
}

// watchList streams a collection, and returns how many objects came before the bookmark, and the bookmark's version.
func watchList(t *testing.T, client *clientrest.RESTClient, path, accept string) (added int, version string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	body, err := client.Get().RequestURI(path+"?"+url.Values{
		"watch": {"true"}, "sendInitialEvents": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersionMatch": {"NotOlderThan"},
	}.Encode()).SetHeader("Accept", accept).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	seen := map[string]bool{}
	for decoder := json.NewDecoder(body); ; {
		var event struct {
			Type   string
			Object struct {
				Metadata metav1.ObjectMeta
				Rows     []struct {
					Object struct{ Metadata metav1.ObjectMeta }
				}
			}
		}
		if err := decoder.Decode(&event); err != nil {
			t.Fatalf("%s: the stream ended without a bookmark: %v", path, err)
		}
		meta := event.Object.Metadata
		if len(event.Object.Rows) == 1 {
			meta = event.Object.Rows[0].Object.Metadata
		}
		switch {
		case event.Type == "BOOKMARK" && meta.Annotations[metav1.InitialEventsAnnotationKey] == "true":
			return len(seen), meta.ResourceVersion
		case event.Type == "ADDED":
			seen[meta.Name] = true
		}
	}
}

// Req: A-01, A-07 (A3)
func TestInformersOfEveryKindSync(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	client, err := metadata.NewForConfig(env.Cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	asCollectors := metadatainformer.NewFilteredSharedInformerFactory(client, 0, namespace, nil)
	typed := informers.NewSharedInformerFactoryWithOptions(env.Admin(t), 0, informers.WithNamespace(namespace))
	synced := map[string][]cache.SharedIndexInformer{}
	for _, k := range kinds() {
		create(t, k, k.object(namespace, k.name(1)))
		generic, err := typed.ForResource(k.gvr())
		if err != nil {
			t.Fatal(err)
		}
		synced[k.kind] = []cache.SharedIndexInformer{asCollectors.ForResource(k.gvr()).Informer(), generic.Informer()}
	}
	asCollectors.Start(ctx.Done())
	typed.Start(ctx.Done())
	for kind, of := range synced {
		for i, informer := range of {
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) || len(informer.GetStore().List()) != 1 {
				t.Errorf("%s: informer %d has not synced, or has %d objects", kind, i, len(informer.GetStore().List()))
			}
		}
	}
	cancel()
	asCollectors.Shutdown()
	typed.Shutdown()
}
