package machinestate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/machine/machinetest"
)

// Req: T-18a, A-06
func TestAChangeIsTriedThenRecordedThenAppliedWithoutAReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newCluster(), worker(1))
		w.settle()

		var recorded *v1alpha1.MachineUpdate

		w.node(1).Before(machine.OpApply, func(context.Context, machinetest.Call) error {
			recorded = w.machine(1).Status.Update

			return nil
		})

		before := w.machine(1).Status.ConfigHash
		w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })
		w.settle()

		if recorded == nil || recorded.IntendedAt == nil || recorded.AppliedAt != nil || recorded.Hash == before {
			t.Errorf("when it was sent, there stood %+v", recorded)
		}

		status := w.machine(1).Status
		if status.Update == nil || status.Update.AppliedAt == nil || status.ConfigHash != recorded.Hash || !w.running(1) {
			t.Errorf("status %+v", status)
		}

		w.pass(soon)
		w.expect(1, reasonReady, reasonUpToDate, reasonAsSent, reasonNotRequired)

		if update := w.machine(1).Status.Update; update != nil {
			t.Errorf("update %+v", update)
		}

		w.pass(time.Hour)
		w.expectEffects("apply configuration NO_REBOOT 001")

		var ops []string
		for _, call := range w.node(1).Calls(machine.OpTry, machine.OpApply) {
			ops = append(ops, fmt.Sprintf("%s %s %s", call.Op, call.Mode, call.Role))
		}

		if want := []string{"try configuration AUTO os:admin", "apply configuration NO_REBOOT os:admin"}; !slices.Equal(ops, want) {
			t.Errorf("asked %q", ops)
		}
	})
}

// Req: T-18. Any worker has a certificate of the cluster, and whoever has taken one over says any UUID at any address.
func TestAControlPlanesKeysGoToNobodyWhoDoesNotHaveThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newCluster(), controlPlane(1), worker(2))
		w.settle()
		w.node(1).SetConfiguration(renderFor(worker(2), newCluster(), bundleOf(0)).config)
		w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })
		w.pass(time.Hour)

		if calls := w.node(1).Calls(machine.OpTry, machine.OpApply); len(calls) > 0 {
			t.Errorf("it was sent a configuration: %v", calls)
		}

		upToDate := meta.FindStatusCondition(w.machine(1).Status.Conditions, ConditionUpToDate)
		if upToDate == nil || upToDate.Status != no || reason(upToDate.Reason) != reasonNoControlPlane || !strings.Contains(upToDate.Message, address(1)) {
			t.Errorf("UpToDate is %+v", upToDate)
		}

		// It is the control plane again.
		w.node(1).SetConfiguration(renderFor(controlPlane(1), newCluster(), bundleOf(0)).config)
		w.pass(time.Hour)
		w.expectEffects("apply configuration NO_REBOOT 001")
	})
}

// Req: T-18a
func TestAChangeThatNeedsARebootWaitsForTheCommandForExactlyIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newCluster(), worker(1))
		w.node(1).NeedsReboot(needsReboot)
		w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })
		w.pass(time.Hour)
		w.expect(1, reasonReady, reasonRebootRequired, reasonAsSent)
		w.expectEffects()

		required := meta.FindStatusCondition(w.machine(1).Status.Conditions, ConditionRebootRequired)
		if required == nil || required.Status != yes || !strings.Contains(required.Message, "kubectl fieldplane reboot machine "+name(1)) {
			t.Errorf("RebootRequired is %+v", required)
		}

		// One for another configuration is none.
		w.editStatus(1, func(s *v1alpha1.TalosMachineStatus) {
			s.Reboot = &v1alpha1.MachineRebootStatus{RequestedAt: ptr.To(metav1.Now()), Hash: strings.Repeat("0", 64)}
		})
		w.pass(time.Hour)
		w.expectEffects()

		w.askReboot(1)
		w.pass(time.Minute)
		w.expectEffects("apply configuration STAGED 001", "reboot 001")
		w.expect(1, reasonReady, reasonUpToDate, reasonAsSent, reasonNotRequired)

		status := w.machine(1).Status
		if status.Update != nil || status.Reboot.IntendedAt == nil || status.Reboot.CompletedAt == nil || !w.running(1) {
			t.Errorf("status %+v %+v", status.Update, status.Reboot)
		}

		for _, call := range w.node(1).Calls(machine.OpReboot) {
			if call.Role != machine.RoleOperator {
				t.Errorf("rebooted as %s", call.Role)
			}
		}

		// And it is used up: the next change waits again.
		w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(2) })
		w.pass(time.Hour)
		w.expect(1, reasonRebootRequired)
		w.expectEffects("apply configuration STAGED 001", "reboot 001")
	})
}

// Req: T-18a
func TestAMachineThatComesBackWithTheOldConfigurationIsNotRebootedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newCluster(), worker(1), worker(2))
		running, _ := w.node(1).Configuration()
		w.node(1).NeedsReboot(needsReboot).After(machine.OpReboot, func(context.Context, machinetest.Call) error {
			w.note("reboot")
			w.node(1).SetConfiguration(running)

			return nil
		})
		w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })
		w.settle()
		w.askReboot(1)
		w.pass(rebootTime)
		w.expect(1, reasonRebooting)

		// It has the turn until then.
		w.edit(2, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })
		w.settle()
		w.expect(2, reasonWaitingForTurn)

		w.pass(time.Hour)
		w.expect(1, reasonRebootFailed)
		w.expectEffects("apply configuration STAGED 001", "reboot", "apply configuration NO_REBOOT 002")

		w.node(1).After(machine.OpReboot, nil)
		w.askReboot(1)
		w.pass(time.Minute)
		w.expect(1, reasonUpToDate)

		if !w.running(1) || w.machine(1).Status.Reboot.CompletedAt == nil {
			t.Errorf("status %+v", w.machine(1).Status.Reboot)
		}
	})
}

// Req: T-18a
func TestARefusedChangeLeavesTheMachineRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newCluster(), worker(1))
		w.node(1).Fail(machine.OpTry, machine.ClassRejected)
		w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })
		w.pass(10 * time.Minute)
		w.expect(1, reasonReady, reasonRefused)
		w.expectEffects()

		if phase := w.machine(1).Status.Phase; phase != v1alpha1.MachineRunning {
			t.Errorf("phase %s", phase)
		}

		if told := w.events.all(); strings.Count(strings.Join(told, "\n"), "Warning Refused") != 1 {
			t.Errorf("told %q", told)
		}

		w.node(1).Recover(machine.OpTry)
		w.pass(later)
		w.expect(1, reasonUpToDate)
	})
}

// Req: T-15, T-18a
func TestWhatCannotBeRenderedSaysSoAndTheMachineGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newCluster(), worker(1))
		w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = []string{"machine: [1]"} })
		w.pass(10 * time.Minute)
		w.expect(1, reasonReady, reasonRenderFailed, reasonAsSent)
		w.expectEffects()
	})
}

// Req: T-12, T-18a, A-06
func TestUnApprovingStopsWhatWasNotSent(t *testing.T) {
	for _, c := range []struct {
		name string
		// when is the call of the machine during which its approval is taken back.
		when machine.Op
		want []string
	}{
		{"while it is looked at", machine.OpStatus, nil},
		{"while it is tried", machine.OpTry, nil},
		{"while it is staged", machine.OpApply, []string{"apply configuration STAGED 001"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, newCluster(), worker(1))
				w.settle()

				unapprove := func() {
					w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.Approved = ptr.To(false) })
				}

				if c.when == machine.OpApply {
					w.node(1).NeedsReboot(needsReboot)
				}

				w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })

				w.node(1).Before(c.when, func(context.Context, machinetest.Call) error {
					w.node(1).Before(c.when, nil)
					unapprove()

					return nil
				})

				if c.when == machine.OpApply {
					w.settle()
					w.askReboot(1)
				}

				w.pass(time.Hour)
				w.expectEffects(c.want...)

				if ptr.Deref(w.machine(1).Spec.Approved, true) {
					t.Fatal("the test un-approved nothing")
				}
			})
		})
	}
}

// Req: T-18a
func TestPausingStopsARolloutBetweenMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newCluster(), worker(1), worker(2), worker(3))
		w.settle()
		w.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.ConfigPatches = sysctl(1) })
		w.pass(2 * time.Second)
		w.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Paused = true })
		w.pass(time.Hour)

		if have := w.effects(); len(have) != 1 {
			t.Errorf("done: %q", have)
		}

		w.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Paused = false })
		w.pass(10 * time.Minute)

		if have := w.effects(); len(have) != 3 {
			t.Errorf("done: %q", have)
		}
	})
}

// cluster of three control planes and three workers.
func six() []runtime.Object {
	return []runtime.Object{newCluster(), controlPlane(1), controlPlane(2), controlPlane(3), worker(4), worker(5), worker(6)}
}

// oneAtATime has every sending checked: whoever was sent something before must be done with it.
func (w *world) oneAtATime(machines ...int) {
	var (
		mu   sync.Mutex
		sent = map[int]bool{}
	)

	for _, n := range machines {
		w.node(n).Before(machine.OpApply, func(context.Context, machinetest.Call) error {
			mu.Lock()
			defer mu.Unlock()

			for other := range sent {
				if other != n && holdsTurn(w.machine(other)) {
					w.t.Errorf("machine %d is sent something while machine %d has the turn", n, other)
				}
			}

			sent[n] = true

			return nil
		})
	}
}

// Req: T-18a
func TestAChangeOfTheClusterRollsOverItsMachinesOneAtATimeControlPlanesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, six()...)
		w.oneAtATime(1, 2, 3, 4, 5, 6)
		w.settle()

		var times []time.Time
		for n := 1; n <= 6; n++ {
			w.node(n).After(machine.OpApply, func(context.Context, machinetest.Call) error {
				times = append(times, time.Now())
				w.note(fmt.Sprint(n))

				return nil
			})
		}

		w.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.ConfigPatches = sysctl(1) })
		w.pass(10 * time.Minute)

		order := w.effects()
		if len(order) != 6 {
			t.Fatalf("done: %q", order)
		}

		if first, last := order[:3], order[3:]; slices.Max(last) > "3" || slices.Min(first) < "4" {
			t.Errorf("order %q", order)
		}

		for i := 1; i < len(times); i++ {
			if pause := times[i].Sub(times[i-1]); pause < dwell || pause > 3*soon {
				t.Errorf("pause %s", pause)
			}
		}

		for n := 1; n <= 6; n++ {
			w.expect(n, reasonReady, reasonUpToDate, reasonAsSent)
		}
	})
}

// Req: T-18a
func TestARolloutStopsAtTheFirstMachineThatIsNotWellAndGoesOnFromThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, six()...)
		w.oneAtATime(1, 2, 3, 4, 5, 6)

		bad := func(config []byte) bool { return bytes.Contains(config, []byte(`vm.swappiness: "13"`)) }

		for n := 1; n <= 6; n++ {
			w.node(n).After(machine.OpApply, func(_ context.Context, call machinetest.Call) error {
				w.note("apply")
				w.node(n).SetStatus(machine.Status{Stage: "running", Ready: !bad(call.Config), Unmet: []string{"services: kubelet"}})

				return nil
			})
		}

		w.settle()
		w.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.ConfigPatches = sysctl(13) })
		w.pass(10 * time.Minute)

		if have := w.effects(); len(have) != 1 {
			t.Errorf("done: %q", have)
		}

		// What mends it goes to the sick one first, since the others wait for it.
		w.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.ConfigPatches = sysctl(1) })
		w.pass(15 * time.Minute)

		if have := w.effects(); len(have) != 7 {
			t.Errorf("done: %q", have)
		}

		for n := 1; n <= 6; n++ {
			if !w.running(n) {
				t.Errorf("machine %d does not run it", n)
			}
		}
	})
}

// Req: T-18a
func TestNothingIsChangedWhileTheClusterIsNotWhole(t *testing.T) {
	for _, c := range []struct {
		name string
		harm func(w *world)
		mend func(w *world)
	}{
		{
			"another machine is not ready",
			func(w *world) { w.node(5).SetStatus(machine.Status{Stage: "running"}) },
			func(w *world) { w.node(5).SetStatus(machine.Status{Stage: "running", Ready: true}) },
		},
		{
			"another machine is silent",
			func(w *world) { w.node(5).Fail(machine.OpDial, machine.ClassUnreachable) },
			func(w *world) { w.node(5).Recover(machine.OpDial) },
		},
		{
			"etcd of a control plane does not answer",
			func(w *world) { w.node(2).Fail(machine.OpEtcdMembers, machine.ClassNodeError) },
			func(w *world) { w.node(2).Recover(machine.OpEtcdMembers) },
		},
		{
			"etcd has lost a member",
			func(w *world) {
				for n := 1; n <= 3; n++ {
					w.node(n).SetEtcd(machine.EtcdMember{ID: 1}, machine.EtcdMember{ID: 2})
				}
			},
			func(w *world) {
				for n := 1; n <= 3; n++ {
					w.node(n).SetEtcd(machine.EtcdMember{ID: 1}, machine.EtcdMember{ID: 2}, machine.EtcdMember{ID: 3})
				}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, six()...)
				w.settle()

				// Just now: what status says is of a minute ago.
				c.harm(w)
				w.edit(4, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })
				w.pass(5 * time.Minute)
				w.expect(4, reasonReady, reasonWaitingForHealth)
				w.expectEffects()

				c.mend(w)
				w.pass(2 * later)
				w.expect(4, reasonReady, reasonUpToDate)
				w.expectEffects("apply configuration NO_REBOOT 004")
			})
		})
	}
}

// crashAt is a hook by which no API call from the given one on comes back, and which tells that it was reached.
func crashAt(call int64, reached *atomic.Bool) func(context.Context, fakeapi.Call) error {
	var count atomic.Int64

	return func(context.Context, fakeapi.Call) error {
		if count.Add(1) < call {
			return nil
		}

		reached.Store(true)

		return errors.New("the process is no more")
	}
}

// stride is from one call at which the process ends to the next that is tried.
func stride() int64 {
	if testing.Short() {
		return 7
	}

	return 1
}

// The process ends at each API call in turn, before and behind its effect, and another one takes over.
// Req: A-06, T-18a
func TestACrashAtAnyPointChangesEachMachineOnce(t *testing.T) {
	for _, side := range []string{"before", "behind"} {
		for call := int64(1); ; call += stride() {
			var reached atomic.Bool

			t.Run(fmt.Sprintf("%s call %d", side, call), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := prepare(t, newCluster(), worker(1), worker(2))
					w.oneAtATime(1, 2)

					cluster := newCluster()
					cluster.Spec.ConfigPatches = sysctl(1)
					w.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec = cluster.Spec })

					hook := crashAt(call, &reached)

					if side == "before" {
						w.api.Before(hook)
					} else {
						w.api.After(hook)
					}

					w.run()
					w.pass(30 * time.Second)
					w.stop()
					w.api.Before(nil)
					w.api.After(nil)
					w.run()
					w.pass(5 * time.Minute)

					have := w.effects()
					slices.Sort(have)

					if want := []string{"apply configuration NO_REBOOT 001", "apply configuration NO_REBOOT 002"}; !slices.Equal(have, want) {
						t.Errorf("done: %q", have)
					}

					for n := 1; n <= 2; n++ {
						w.expect(n, reasonReady, reasonUpToDate, reasonAsSent)

						if !w.running(n) || w.machine(n).Status.Update != nil {
							t.Errorf("machine %d: %+v", n, w.machine(n).Status.Update)
						}
					}
				})
			})

			if !reached.Load() {
				if call < 10 {
					t.Errorf("only %d calls", call)
				}

				break
			}
		}
	}
}

// Req: A-06, T-18a
func TestACrashAtAnyPointRebootsExactlyOnce(t *testing.T) {
	for _, side := range []string{"before", "behind"} {
		for call := int64(1); ; call += stride() {
			var reached atomic.Bool

			t.Run(fmt.Sprintf("%s call %d", side, call), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := start(t, newCluster(), worker(1), worker(2))
					w.node(1).NeedsReboot(needsReboot)
					w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })
					w.settle()
					w.stop()
					w.askReboot(1)

					hook := crashAt(call, &reached)

					if side == "before" {
						w.api.Before(hook)
					} else {
						w.api.After(hook)
					}

					w.run()
					w.pass(30 * time.Second)
					w.stop()
					w.api.Before(nil)
					w.api.After(nil)
					w.run()
					w.pass(rebootTime)

					if boots := w.node(1).Boots(); boots != 1 || !w.running(1) {
						t.Errorf("rebooted %d times: %q", boots, w.effects())
					}

					w.expect(1, reasonReady, reasonUpToDate, reasonAsSent, reasonNotRequired)

					if status := w.machine(1).Status; status.Update != nil || status.Reboot.CompletedAt == nil {
						t.Errorf("status %+v %+v", status.Update, status.Reboot)
					}
				})
			})

			if !reached.Load() {
				if call < 5 {
					t.Errorf("only %d calls", call)
				}

				break
			}
		}
	}
}

// Req: A-06, T-18a
func TestALostAnswerIsFoundOutBeforeAnythingIsSentAgain(t *testing.T) {
	lost := func(op machine.Op) error { return &machine.Error{Class: machine.ClassOutcomeUnknown, Op: op} }

	t.Run("the machine took it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := start(t, newCluster(), worker(1))
			w.node(1).After(machine.OpApply, func(context.Context, machinetest.Call) error {
				w.note("applied")

				return lost(machine.OpApply)
			})
			w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })
			w.settle()
			w.expect(1, reasonUpdating)
			w.pass(10 * time.Minute)
			w.expect(1, reasonUpToDate)
			w.expectEffects("applied")
		})
	})

	t.Run("the machine did not take it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := start(t, newCluster(), worker(1))
			w.node(1).Before(machine.OpApply, func(context.Context, machinetest.Call) error {
				w.note("lost")
				w.node(1).Before(machine.OpApply, nil)

				return lost(machine.OpApply)
			})
			w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })
			w.pass(settling - time.Second)
			w.expect(1, reasonUpdating)
			w.expectEffects("lost")
			w.pass(2 * soon)
			w.expect(1, reasonUpToDate)
			w.expectEffects("lost", "apply configuration NO_REBOOT 001")
		})
	})

	t.Run("the machine reboots before it answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := start(t, newCluster(), worker(1))
			w.node(1).NeedsReboot(needsReboot).After(machine.OpReboot, func(context.Context, machinetest.Call) error { return lost(machine.OpReboot) })
			w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })
			w.settle()
			w.askReboot(1)
			w.pass(2 * rebootTime)
			w.expect(1, reasonUpToDate)

			if boots := w.node(1).Boots(); boots != 1 {
				t.Errorf("rebooted %d times", boots)
			}
		})
	})
}

// Two leaders overlap, as when one was suspended and does not know yet that its time is over.
// Req: A-06, T-18a
func TestTwoLeadersTogetherKeepToOneMachineAtATime(t *testing.T) {
	for seed := range int64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := prepare(t, newCluster(), worker(1), worker(2), worker(3), worker(4))
				w.oneAtATime(1, 2, 3, 4)

				var (
					mu     sync.Mutex
					random = rand.New(rand.NewSource(seed))
				)

				w.api.Before(func(context.Context, fakeapi.Call) error {
					mu.Lock()
					pause := time.Duration(random.Intn(50)) * time.Millisecond
					mu.Unlock()
					time.Sleep(pause)

					return nil
				})
				w.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.ConfigPatches = sysctl(1) })

				first, second := w.controller(), w.controller()
				w.stop = func() { first(); second() }

				w.pass(4 * time.Minute)

				have := w.effects()
				slices.Sort(have)

				if len(slices.Compact(slices.Clone(have))) != 4 || len(have) != 4 {
					t.Errorf("done: %q", have)
				}
			})
		})
	}
}

// Req: A-06
func TestStoppingWaitsForWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, newCluster(), worker(1))
		w.settle()
		w.node(1).Before(machine.OpApply, func(context.Context, machinetest.Call) error {
			time.Sleep(time.Second)

			return nil
		})
		w.edit(1, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(1) })
		w.settle()
		w.stop()
		w.expectEffects("apply configuration NO_REBOOT 001")

		if update := w.machine(1).Status.Update; update == nil || update.AppliedAt == nil {
			t.Errorf("update %+v", update)
		}
	})
}
