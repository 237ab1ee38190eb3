package iomodule

import (
	"math"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// Whoever goes by what is stored is told that it is not so, until it is stored, or over, or the module is gone.
//
// Req: P-16b
func TestAFaultThatTheStoreDoesNotTakeIsTold(t *testing.T) {
	for _, tc := range []struct {
		name string
		// then is what ends it, and whether the store takes writes by then.
		then  func(s *site)
		heals bool
	}{
		{"the store has space again", func(*site) {}, true},
		{"the device is back", func(s *site) { s.probe.say(says("flow", true, true, api.ReasonConnected)) }, false},
		{"the module is deleted", func(s *site) {
			if err := s.ours.PhysicalV1alpha1().IOModules(ns).Delete(s.ctx, "flow", metav1.DeleteOptions{}); err != nil {
				s.t.Fatal(err)
			}
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t, clock.RealClock{}, []runtime.Object{listing(`{"name":"flow"}`), running("p1")}, []runtime.Object{modbus("flow")})
			s.probe.say(says("flow", true, true, api.ReasonConnected))
			s.await("flow", v1alpha1.ModuleOnline, api.ReasonConnected)
			flow := nn(ns, "flow")
			if s.controller.Unstored(flow) {
				t.Error("what is stored counts as not stored")
			}
			var told atomic.Int64
			s.controller.OnUnstored(func(module types.NamespacedName) {
				if module != flow {
					t.Errorf("told of %s", module)
				}
				told.Add(1)
			})
			s.full.Store(true)
			s.probe.say(says("flow", true, false, "Timeout"))
			s.eventually("it is told", func() bool { return s.controller.Unstored(flow) && told.Load() == 1 })
			s.eventually("it is tried again, which is no news", func() bool { return s.noSpace.Load() > 3 })
			s.full.Store(!tc.heals)
			tc.then(s)
			s.eventually("it is over", func() bool { return !s.controller.Unstored(flow) && told.Load() == 2 })
		})
	}
}

// Somebody who may change labels changes them again and again, each time before the controller's write.
//
// Req: P-16
func TestAWriterWithoutAPauseKeepsNoFaultFromBeingStored(t *testing.T) {
	module := modbus("flow")
	s := newSite(t, clock.RealClock{}, []runtime.Object{listing(`{"name":"flow"}`), running("p1")}, []runtime.Object{module})
	s.probe.say(says("flow", true, true, api.ReasonConnected))
	s.await("flow", v1alpha1.ModuleOnline, api.ReasonConnected)
	s.refuse.Store(math.MaxInt32)
	s.probe.say(says("flow", true, false, "Timeout"))
	s.await("flow", v1alpha1.ModuleFault, "Timeout")
	if s.refuse.Load() == math.MaxInt32 {
		t.Error("there was no conflict")
	}

	// What is not as it was is not overwritten.
	stale := module.DeepCopy()
	stale.UID, stale.Status.State = s.module("flow").UID, v1alpha1.ModuleOnline
	var patches atomic.Int64
	s.ours.PrependReactor("patch", "iomodules", func(clienttesting.Action) (bool, runtime.Object, error) {
		patches.Add(1)
		return true, nil, apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("IOModule").GroupKind(), "flow", nil)
	})
	if err := s.controller.storeAnyway(t.Context(), stale, v1alpha1.IOModuleStatus{State: v1alpha1.ModuleUnknown, LastTransitionTime: &metav1.Time{}}); !apierrors.IsConflict(err) || patches.Load() != 1 {
		t.Errorf("%v after %d patches", err, patches.Load())
	}
}
