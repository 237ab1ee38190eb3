package controlmodule

import (
	"context"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// Req: A-08, P-14
func TestWhatIsShownOfAControlModule(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	module := &physical.ControlModule{
		ObjectMeta: metav1.ObjectMeta{Name: "pump", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec:       physical.ControlModuleSpec{UnitRef: physical.UnitReference{Name: "reactor"}, Tags: make([]physical.Tag, 3)},
		Status: physical.ControlModuleStatus{Conditions: []metav1.Condition{
			{Type: "ReferencesResolved", Status: metav1.ConditionFalse, Reason: "UnitNotFound", Message: "there is no Unit reactor"},
		}},
	}
	table, err := newTable(clocktesting.NewFakePassiveClock(now)).ConvertToTable(context.Background(), module, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := table.Rows[0].Cells, []any{"pump", "reactor", int64(3), "UnitNotFound", "there is no Unit reactor", "60m"}; !reflect.DeepEqual(got, want) {
		t.Errorf("shown %v, want %v", got, want)
	}
}
