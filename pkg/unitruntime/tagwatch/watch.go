// Package tagwatch follows the values of a Unit's tags through the API, on the watch path of units/tags, which the generated
// client does not know.
package tagwatch

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/fieldplane/fieldplane/generated/clientset/versioned/scheme"
)

// WatchTags follows the tags of a Unit; client is the RESTClient of physical.fieldplane.dev/v1alpha1. Every object is a
// *v1alpha1.UnitTags: the first event, Added, has every tag, each Modified the tags that changed and those that are no more,
// and a Bookmark, every few seconds, nothing: it tells that the runtime is there and nothing has changed. The
// watch ends with an Error event, or without one, when the runtime falls silent or is replaced: what was told last is then no
// longer known to be true, and whoever still wants to know asks again (P-15). Its verb is watch on units/tags.
func WatchTags(ctx context.Context, client rest.Interface, namespace, name string) (watch.Interface, error) {
	return client.Get().
		Prefix("watch").
		Namespace(namespace).
		Resource("units").
		Name(name).
		SubResource("tags").
		VersionedParams(&metav1.ListOptions{AllowWatchBookmarks: true}, scheme.ParameterCodec).
		Watch(ctx)
}
