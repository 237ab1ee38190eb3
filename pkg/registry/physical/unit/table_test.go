package unit

import (
	"context"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// Req: A-08
func TestWhatIsShownOfAUnit(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	created := metav1.ObjectMeta{Name: "reactor", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}
	for _, tc := range []struct {
		name string
		unit physical.Unit
		want []any
	}{
		{
			name: "held by two modules",
			unit: physical.Unit{ObjectMeta: created, Status: physical.UnitStatus{
				State: physical.UnitHeld, Mode: physical.UnitModeAutomatic, RuntimePodName: "reactor-0",
				Hold: &physical.UnitHold{Cause: "IOModuleFault", Modules: []string{"plc1", "plc2"}}, LastTransitionTime: &metav1.Time{Time: now.Add(-time.Minute)},
				LastCommand: &physical.UnitCommandRecord{Command: physical.CommandRestart, Actor: "ada", Outcome: physical.CommandRefused},
			}},
			want: []any{"reactor", "Held", "60s", "Automatic", "IOModuleFault", "plc1, plc2", "RESTART by ada: Refused", "reactor-0", "60m"},
		},
		{
			name: "idle",
			unit: physical.Unit{ObjectMeta: created, Status: physical.UnitStatus{State: physical.UnitIdle, Mode: physical.UnitModeManual}},
			want: []any{"reactor", "Idle", "<none>", "Manual", "<none>", "<none>", "<none>", "<none>", "60m"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table, err := newTable(clocktesting.NewFakePassiveClock(now)).ConvertToTable(context.Background(), &tc.unit, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := table.Rows[0].Cells; !reflect.DeepEqual(got, tc.want) {
				t.Errorf("shown\n%v, want\n%v", got, tc.want)
			}
		})
	}
}
