package controller

import (
	"context"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// Req: A-08
func TestWhatIsShownOfAController(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	created := metav1.ObjectMeta{Name: "edge1", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}
	for _, tc := range []struct {
		name       string
		controller physical.Controller
		want       []any
	}{
		{
			name: "a simulation",
			controller: physical.Controller{
				ObjectMeta: created, Spec: physical.ControllerSpec{Simulation: true, Heartbeat: physical.HeartbeatManaged},
				Status: physical.ControllerStatus{Phase: physical.ControllerSimulated, LastAlive: ptr.To(metav1.NewTime(now.Add(-8 * time.Second)))},
			},
			want: []any{"edge1", "Simulated", "<none>", "Managed", "8s", "60m"},
		},
		{
			name:       "a node",
			controller: physical.Controller{ObjectMeta: created, Status: physical.ControllerStatus{Phase: physical.ControllerReady, NodeName: "n1"}},
			want:       []any{"edge1", "Ready", "n1", "<none>", "<none>", "60m"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table, err := newTable(clocktesting.NewFakePassiveClock(now)).ConvertToTable(context.Background(), &tc.controller, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := table.Rows[0].Cells; !reflect.DeepEqual(got, tc.want) {
				t.Errorf("shown\n%v, want\n%v", got, tc.want)
			}
		})
	}
}
