package machineconfiguration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// The process ends at each API call in turn, before and behind its effect, and another one takes over.
// Req: A-06, T-18
func TestACrashAtAnyPointSendsExactlyOnce(t *testing.T) {
	data := bundleYAML(t)
	crash := errors.New("the process is no more")

	for _, side := range []string{"before", "behind"} {
		for call := 1; ; call++ {
			reached := false

			t.Run(fmt.Sprintf("%s call %d", side, call), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := newNode()
					w := start(t, n, cluster(), secret(data), machine())

					count := 0
					hook := func(context.Context, fakeapi.Call) error {
						if count++; count >= call {
							reached = true

							return crash
						}

						return nil
					}

					if side == "before" {
						w.api.Before(hook)
					} else {
						w.api.After(hook)
					}

					w.settle()
					w.stop()
					w.api.Before(nil)
					w.api.After(nil)

					if n.sends() > 1 {
						t.Errorf("sent %d times before the crash", n.sends())
					}

					w.run()
					w.pass(5 * time.Minute)
					w.expectSends(1)

					status := w.machine().Status
					if status.Phase != v1alpha1.MachineInstalling || status.Configuration.AppliedAt == nil || status.ConfigHash == "" {
						t.Errorf("status %+v", status)
					}
				})
			})

			if !reached {
				break
			}
		}
	}
}

// Req: A-06, T-18
func TestAnIntentWithoutAnEndIsFoundOut(t *testing.T) {
	data := bundleYAML(t)

	begun := func(m *v1alpha1.TalosMachine) {
		m.Status.Phase = v1alpha1.MachineConfiguring
		m.Status.Configuration = &v1alpha1.MachineConfiguration{
			Hash: "0123", Endpoint: endpoint, IntendedAt: &metav1.Time{Time: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)},
		}
	}

	for _, c := range []struct {
		name string
		edit func(*v1alpha1.TalosMachine)
		node func(*node)
		// soon and later are the reasons within the time to settle and after it.
		soon, later reason
		sends       int
	}{
		{"it asks for a certificate: it has it", nil, func(n *node) { n.accepted = true }, reasonAppliedUnconfirmed, reasonAppliedUnconfirmed, 0},
		{"it waits in maintenance mode: it never got it", nil, func(*node) {}, reasonOutcomeUnknown, reasonApplied, 1},
		{"it is silent: it may be installing", nil, func(n *node) { n.dialErr = failure(maintenance.ClassUnreachable, "dial") }, reasonOutcomeUnknown, reasonOutcomeUnknown, 0},
		{"it is booting", nil, func(n *node) { n.readErr = failure(maintenance.ClassIdentityAbsent, "read identity") }, reasonOutcomeUnknown, reasonOutcomeUnknown, 0},
		{"it installs", nil, func(n *node) { n.hardware.Stage = "installing" }, reasonOutcomeUnknown, reasonOutcomeUnknown, 0},
		{"another machine is there", nil, func(n *node) { n.hardware.Serial = "SN-9" }, reasonIdentityMismatch, reasonIdentityMismatch, 0},
		{
			"it cannot be rendered any more, and has it",
			func(m *v1alpha1.TalosMachine) { m.Spec.Role = "" },
			func(n *node) { n.accepted = true }, reasonAppliedUnconfirmed, reasonAppliedUnconfirmed, 0,
		},
		{
			"its endpoint was changed meanwhile, and it has it",
			func(m *v1alpha1.TalosMachine) { m.Spec.Endpoint = "198.51.100.9" },
			func(n *node) { n.accepted = true }, reasonAppliedUnconfirmed, reasonAppliedUnconfirmed, 0,
		},
		{
			"it is busy since: with what it was sent",
			nil,
			func(n *node) {
				n.applyErr = func([]byte) error { return failure(maintenance.ClassBusy, "apply configuration") }
			},
			reasonOutcomeUnknown, reasonOutcomeUnknown, 2, // each attempt is given the time to settle
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				c.node(n)

				m := machine(begun)
				if c.edit != nil {
					c.edit(m)
				}

				w := start(t, n, cluster(), secret(data), m)
				w.pass(settling - time.Second)
				w.expect(c.soon)

				if n.sends() != 0 {
					t.Error("sent before the machine had time to leave maintenance mode")
				}

				w.pass(2 * lastRetry)
				w.expect(c.later)
				w.expectSends(c.sends)
			})
		})
	}
}

// Req: A-06, T-18
func TestALostConnectionIsFoundOutInTheSameProcess(t *testing.T) {
	data := bundleYAML(t)
	lost := func([]byte) error { return failure(maintenance.ClassOutcomeUnknown, "apply configuration") }

	t.Run("the machine had it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.applyErr = lost

			w := start(t, n, cluster(), secret(data), machine())
			n.set(func(n *node) { n.onApply = func() { w.node.set(func(n *node) { n.dialErr = nil }) } })
			w.settle()
			w.expect(reasonOutcomeUnknown)

			// It installs, and comes back.
			n.set(func(n *node) { n.dialErr = failure(maintenance.ClassUnreachable, "dial") })
			w.pass(10 * time.Minute)
			w.expect(reasonOutcomeUnknown)
			n.set(func(n *node) { n.dialErr, n.accepted = nil, true })
			w.pass(lastRetry)
			w.expect(reasonAppliedUnconfirmed)
			w.expectSends(1)
		})
	})

	t.Run("the machine had it not", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newNode()
			n.applyErr = lost

			w := start(t, n, cluster(), secret(data), machine())
			w.settle()
			n.set(func(n *node) { n.applyErr = nil })
			w.pass(settling - time.Second)
			w.expectSends(1)
			w.pass(2 * lastRetry)
			w.expectSends(2)
			w.expect(reasonApplied)
		})
	})
}

// A machine that was configured and answers in maintenance mode again keeps its disks until somebody decides.
// Req: T-18
func TestAConfiguredMachineIsNeverConfiguredAgainByItself(t *testing.T) {
	data := bundleYAML(t)

	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		w := start(t, n, cluster(), secret(data), machine())
		w.pass(time.Minute)
		w.expectSends(1)

		n.set(func(n *node) { n.accepted = false })
		w.edit(func(m *v1alpha1.TalosMachine) { m.Spec.Install.Disk = "/dev/sdb" })
		w.stop()
		w.run()
		w.pass(time.Hour)
		w.expectSends(1)
	})
}

// Req: A-06
func TestStoppingWaitsForWhatIsUnderWay(t *testing.T) {
	data := bundleYAML(t)

	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		w := start(t, n, cluster(), secret(data), machine())
		n.set(func(n *node) { n.onApply = func() { time.Sleep(time.Second) } })
		w.settle()
		w.stop()
		w.expectSends(1)
		w.expect(reasonApplied)
	})
}
