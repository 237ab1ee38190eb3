package iomodule

import (
	"errors"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// Somebody who may change labels changes them again and again, each time before the controller's write.
//
// Req: P-16
func TestAWriterWithoutAPauseKeepsNoFaultFromBeingStored(t *testing.T) {
	module := modbus("flow")
	s := newSite(t, clock.RealClock{}, []runtime.Object{listing(`{"name":"flow"}`), running("p1")}, []runtime.Object{module})
	s.probe.say(says("flow", true, true, api.ReasonConnected))
	s.await("flow", v1alpha1.ModuleOnline, api.ReasonConnected)
	var conflicts atomic.Int64
	s.ours.PrependReactor("update", "iomodules", func(clienttesting.Action) (bool, runtime.Object, error) {
		conflicts.Add(1)
		return true, nil, apierrors.NewConflict(v1alpha1.Resource("iomodules"), "flow", errors.New("it is newer"))
	})
	s.probe.say(says("flow", true, false, "Timeout"))
	s.await("flow", v1alpha1.ModuleFault, "Timeout")
	if conflicts.Load() == 0 {
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
