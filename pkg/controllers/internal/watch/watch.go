// Package watch is how a controller hears of what it depends on: informers, and what their events mean to it.
package watch

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Source is an informer and what its events mean.
type Source struct {
	Informer cache.SharedIndexInformer
	Handler  cache.ResourceEventHandler
}

// Follow has the sources' events handled until stop is called. It returns once every handler has heard of all that there was: a
// controller that knew only a part would take the rest for missing. If ctx ends before that, synced is false. Stop is never nil.
func Follow(ctx context.Context, sources ...Source) (stop func(), synced bool, err error) {
	var undo []func()
	stop = func() {
		for _, remove := range undo {
			remove()
		}
	}
	var have []cache.InformerSynced
	for _, s := range sources {
		registration, err := s.Informer.AddEventHandler(s.Handler)
		if err != nil {
			stop()
			return func() {}, false, fmt.Errorf("following an informer: %w", err)
		}
		// It fails only for somebody else's registration.
		undo = append(undo, func() { _ = s.Informer.RemoveEventHandler(registration) })
		have = append(have, registration.HasSynced)
	}
	return stop, cache.WaitForCacheSync(ctx.Done(), have...), nil
}

// OnChange is a source whose three events are one function of before and after, of which one may be nil.
func OnChange(informer cache.SharedIndexInformer, changed func(before, after metav1.Object)) Source {
	object := func(o any) metav1.Object {
		if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = tombstone.Obj
		}
		m, _ := o.(metav1.Object)
		return m
	}
	return Source{Informer: informer, Handler: cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(nil, object(o)) },
		UpdateFunc: func(before, after any) { changed(object(before), object(after)) },
		DeleteFunc: func(o any) { changed(object(o), nil) },
	}}
}
