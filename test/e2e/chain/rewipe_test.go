package chain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
)

// backLimit is for the minute within which a machine may still be leaving maintenance mode, and the look after that.
const backLimit = 150 * time.Second

// Req: T-06, T-12, T-13, T-18
func TestAMachineThatIsBackInMaintenanceModeIsConfiguredAgainOnceItsApprovalIsRenewed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "control", "worker")
	f.run(t, "control", "worker")
	must(t, f.plant.Wipe("worker"))
	harness.Eventually(t, backLimit, func() string {
		if have := condition(f.get(t, "worker").Status.Conditions, "BackInMaintenance"); !strings.HasPrefix(have, "True ") {
			f.sweepAgain(t)
			return fmt.Sprintf("BackInMaintenance is %q", have)
		}
		return ""
	})
	f.wake(t)
	m := f.has(t, turnLimit, "worker", "Ready", "False BackInMaintenance")
	if m.Status.Phase != v1alpha1.MachineFailed || m.Status.Configuration == nil || m.Status.Configuration.AppliedAt == nil {
		t.Errorf("status is %+v", m.Status)
	}
	told(t, f.namespace, "TalosMachine", m.Name, corev1.EventTypeWarning, "BackInMaintenance")

	// Nothing is sent by itself, whatever asks.
	f.sweepAgain(t)
	f.sweepAgain(t)
	f.wake(t)
	f.swept(t)
	sentOnce(t, f.node("worker"), v1alpha1.RoleWorker)
	output := mustPlugin(t, "pending", "-n", f.namespace)
	if !strings.Contains(output, m.Name) || strings.Contains(output, f.uuid("control")) {
		t.Errorf("what waits: %s", output)
	}

	// The habit of scripts is no new approval: its disk would be wiped again.
	args := []string{"approve", "machine", m.Name, "-n", f.namespace, "--role", "worker", "--install-disk", talosDisk, "--hostname", "worker", "--yes"}
	if output, err := plugin(t, args...); err == nil || !strings.Contains(output, "--renew") {
		t.Errorf("approved again without --renew: %v\n%s", err, output)
	}
	// Nor is writing what is approved over what is approved.
	if _, err := env.Kubectl(t, "", "patch", "talosmachine", m.Name, "-n", f.namespace, "--subresource=approval", "--type=merge", "-p", `{"spec":{"approved":true}}`); err != nil {
		t.Error(err)
	}
	f.sweepAgain(t)
	sentOnce(t, f.node("worker"), v1alpha1.RoleWorker)

	mustPlugin(t, append(args, "--renew")...)
	m = f.runs(t, "worker")
	if have := condition(m.Status.Conditions, "BackInMaintenance"); have != "" {
		t.Errorf("a stale BackInMaintenance is left: %s", have)
	}
	if !m.Status.Configuration.IntendedAt.After(m.Status.Approval.Time.Add(-time.Second)) {
		t.Errorf("configured at %s, approved at %s", m.Status.Configuration.IntendedAt, m.Status.Approval.Time)
	}
	f.sweepAgain(t)
	got := sent(f.node("worker"))
	if len(got) != 2 || !got[1].Accepted || got[1].Authenticated || got[1].Role != string(v1alpha1.RoleWorker) {
		t.Errorf("the worker was sent %+v", got)
	}
	sentOnce(t, f.node("control"), v1alpha1.RoleControlPlane)
	if n := f.bootstrapCalls(); n != 1 {
		t.Errorf("Bootstrap was called %d times", n)
	}
}
