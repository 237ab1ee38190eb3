package object_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/registry/object"
)

// etcdLimit is what etcd refuses to store.
const etcdLimit = 3 << 19

// Who may write anything of an object, and not its status, must not keep the server from writing that.
//
// Req: P-16, P-16a
func TestWhateverUsersWriteTheStatusHasRoom(t *testing.T) {
	each(t, func(t *testing.T, scheme *runtime.Scheme, k kind) {
		room := 250 << 10
		if k.gvk.Kind == "Unit" {
			room = 1 << 20
		}
		for name, pad := range map[string]func(obj object.Object, bytes int){
			"labels": func(obj object.Object, bytes int) {
				labels := map[string]string{}
				for i := range bytes / 70 {
					labels[fmt.Sprintf("l%06d", i)] = strings.Repeat("v", 60)
				}
				obj.SetLabels(labels)
			},
			"finalizers": func(obj object.Object, bytes int) {
				obj.SetFinalizers([]string{"example.com/" + strings.Repeat("f", bytes)})
			},
			"owners": func(obj object.Object, bytes int) {
				obj.SetOwnerReferences([]metav1.OwnerReference{{Name: strings.Repeat("o", bytes)}})
			},
			"fields of appliers": func(obj object.Object, bytes int) {
				obj.SetManagedFields([]metav1.ManagedFieldsEntry{{FieldsV1: &metav1.FieldsV1{Raw: []byte(strings.Repeat("m", bytes))}}})
			},
			"a spec": func(obj object.Object, bytes int) {
				if unit, ok := obj.(*physical.Unit); ok {
					unit.Spec.NodeSelector = map[string]string{"a": strings.Repeat("n", bytes)}
				} else {
					obj.SetAnnotations(map[string]string{"a": strings.Repeat("a", bytes)})
				}
			},
		} {
			t.Run(name, func(t *testing.T) {
				padded := func(bytes int) object.Object {
					obj := named(k.main.New().(object.Object))
					pad(obj, bytes)
					return obj
				}
				ctx := request(k, "update", "")
				update := func(obj, old object.Object) bool { return noRoom(k.main.UpdateStrategy.ValidateUpdate(ctx, obj, old)) }
				small, large, larger := padded(1000), padded(etcdLimit-room), padded(etcdLimit-room+1000)
				if noRoom(k.main.CreateStrategy.Validate(ctx, small)) || update(small, small) {
					t.Error("a small one is refused")
				}
				if !noRoom(k.main.CreateStrategy.Validate(ctx, large)) {
					t.Error("it is created so large that a status finds no room")
				}
				if !update(large, small) || !update(larger, large) {
					t.Error("it grows so large that a status finds no room")
				}
				if update(large, larger) || update(small, larger) || update(large, large) {
					t.Error("one that was stored so large does not get smaller, or stay")
				}
			})
		}
	})
}

func noRoom(errs field.ErrorList) bool {
	for _, err := range errs {
		if strings.Contains(err.Detail, "without its status") {
			return true
		}
	}
	return false
}

// Req: P-16
func TestAStatusTakesNoRoomOfItsObject(t *testing.T) {
	each(t, func(t *testing.T, scheme *runtime.Scheme, k kind) {
		unit, ok := named(k.main.New().(object.Object)).(*physical.Unit)
		if !ok {
			return
		}
		unit.Status.Hold = &physical.UnitHold{Modules: []string{strings.Repeat("m", 1<<20)}}
		old := unit.DeepCopy()
		old.Status = physical.UnitStatus{}
		if noRoom(k.main.UpdateStrategy.ValidateUpdate(request(k, "update", ""), unit, old)) {
			t.Error("the spec of a Unit with a large status cannot be written")
		}
		if len(unit.Status.Hold.Modules) != 1 {
			t.Error("the status was lost when it was looked at")
		}
	})
}
