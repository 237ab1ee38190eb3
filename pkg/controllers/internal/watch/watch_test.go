package watch

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func TestAnEventIsBeforeAndAfter(t *testing.T) {
	var told []string
	name := func(o metav1.Object) string {
		if o == nil {
			return "-"
		}
		return o.GetName()
	}
	handler := OnChange(nil, func(before, after metav1.Object) { told = append(told, name(before)+" "+name(after)) }).Handler
	handler.OnAdd(node("a"), false)
	handler.OnUpdate(node("a"), node("b"))
	handler.OnDelete(node("b"))
	handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "c", Obj: node("c")})
	handler.OnDelete("no object")
	if want := []string{"- a", "a b", "b -", "c -", "- -"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestFollowReturnsWhenAllIsHeardAndStopEndsIt(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	client := fake.NewClientset(node("a"), node("b"))
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Nodes().Informer()
	heard := make(chan string, 10)
	source := OnChange(informer, func(_, after metav1.Object) { heard <- after.GetName() })
	factory.Start(ctx.Done())
	stop, synced, err := Follow(ctx, source)
	if err != nil || !synced || len(heard) != 2 {
		t.Fatalf("synced %v, error %v, heard of %d", synced, err, len(heard))
	}
	stop()
	if _, err := client.CoreV1().Nodes().Create(ctx, node("c"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A second follower hears of it; by then the first would have.
	later := make(chan string, 10)
	stop, _, err = Follow(ctx, OnChange(informer, func(_, after metav1.Object) { later <- after.GetName() }))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for seen := ""; seen != "c"; {
		select {
		case seen = <-later:
		case <-ctx.Done():
			t.Fatal("the new node was not heard of")
		}
	}
	if len(heard) != 2 {
		t.Errorf("heard of %d after the stop", len(heard))
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// An informer that nobody starts never has anything.
	informer := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().Nodes().Informer()
	stop, synced, err := Follow(ctx, Source{Informer: informer, Handler: cache.ResourceEventHandlerFuncs{}})
	defer stop()
	if synced || err != nil {
		t.Errorf("synced %v, error %v", synced, err)
	}
}
