package bootstrap

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

// Req: A-06, T-18
func TestAClusterIsBootstrappedOnceOnARecordedControlPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, cluster(), controlPlane(1))
		w.node(1).Before(machine.OpBootstrap, func(context.Context, machineCall) error {
			if got := w.cluster().Status.Bootstrap; got == nil || got.MachineName != uuid(1) || got.Endpoint != address(1) || got.IntendedAt == nil || got.CompletedAt != nil {
				t.Errorf("it was told to before that was recorded: %+v", got)
			}

			return nil
		})
		w.run()
		w.pass(10 * time.Second)

		w.expectDone(reasonBootstrapped, 1)
		w.expectSends(map[int]int{1: 1})

		told := w.told()
		if len(told) != 2 || !strings.HasPrefix(told[0], "Normal Bootstrapping ") || !strings.HasPrefix(told[1], "Normal Bootstrapped ") {
			t.Errorf("told %q", told)
		}

		// The least role that suffices, and on one connection who it is, that it has none, and the bootstrap.
		calls := w.node(1).Calls()
		at := slices.IndexFunc(calls, func(c machineCall) bool { return c.Op == machine.OpBootstrap })

		for i, call := range calls {
			if want := machine.RoleReader; call.Role != want && (i < at-3 || i > at) {
				t.Errorf("%s as %s", call.Op, call.Role)
			}
		}

		var last []machine.Op
		for _, call := range calls[at-3 : at+1] {
			last = append(last, call.Op)
		}

		if want := []machine.Op{machine.OpDial, machine.OpIdentity, machine.OpEtcdMembers, machine.OpBootstrap}; !slices.Equal(last, want) {
			t.Errorf("bootstrapped by %v, want %v", last, want)
		}

		// It is for good.
		w.node(1).ForgetCalls()
		w.edit(1, func(m *v1alpha1.TalosMachine) { m.Status.Phase = v1alpha1.MachineFailed })
		w.restart()
		w.pass(10 * time.Minute)

		if calls := w.node(1).Calls(); len(calls) != 0 {
			t.Errorf("a bootstrapped cluster's machine is asked: %v", calls)
		}
	})
}

// Req: A-06
func TestOfSeveralControlPlanesExactlyOneIsBootstrapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, cluster(), controlPlane(3), controlPlane(2), controlPlane(4), controlPlane(5, worker))
		w.pass(10 * time.Second)

		w.expectDone(reasonBootstrapped, 2)
		w.expectSends(map[int]int{2: 1})

		if calls := w.node(5).Calls(); len(calls) != 0 {
			t.Errorf("a worker is asked for etcd: %v", calls)
		}
	})
}

// Req: A-06
func TestControlPlanesThatComeWhileOneIsBootstrappedAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, cluster(), controlPlane(2), controlPlane(1, unconfigured))
		w.node(2).Before(machine.OpBootstrap, func(context.Context, machineCall) error {
			w.edit(1, func(m *v1alpha1.TalosMachine) { *m = withStatusOf(m, controlPlane(1)) })

			return nil
		})
		w.run()
		w.pass(10 * time.Minute)

		w.expectDone(reasonBootstrapped, 2)
		w.expectSends(map[int]int{2: 1})
	})
}

func withStatusOf(m, other *v1alpha1.TalosMachine) v1alpha1.TalosMachine {
	out := *m.DeepCopy()
	out.Status = other.Status

	return out
}

// Req: A-02
func TestAnEtcdThatIsThereIsFoundAndNothingIsSent(t *testing.T) {
	running := machine.EtcdMember{ID: 7, Hostname: "cp-2"}
	at := metav1.NewTime(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))

	for _, test := range []struct {
		name     string
		recorded *v1alpha1.ClusterBootstrap
		has      int
		machines []runtime.Object
		reason   reason
		on       int
	}{
		{name: "on the only control plane", has: 2, machines: []runtime.Object{controlPlane(2)}, reason: reasonEtcdFound, on: 2},
		{name: "on another than would be chosen", has: 2, machines: []runtime.Object{controlPlane(1), controlPlane(2)}, reason: reasonEtcdFound, on: 2},
		{
			name: "where the intent was recorded, and the end was forgotten", recorded: &v1alpha1.ClusterBootstrap{MachineName: uuid(2), Endpoint: address(2), IntendedAt: &at},
			has: 2, machines: []runtime.Object{controlPlane(1), controlPlane(2)}, reason: reasonBootstrapped, on: 2,
		},
		{
			name: "elsewhere than where it was to be", recorded: &v1alpha1.ClusterBootstrap{MachineName: uuid(1), Endpoint: address(1), IntendedAt: &at},
			has: 2, machines: []runtime.Object{controlPlane(1), controlPlane(2)}, reason: reasonEtcdFound, on: 2,
		},
		{name: "on one whose approval was taken back", has: 2, machines: []runtime.Object{controlPlane(1), controlPlane(2, unapproved)}, reason: reasonEtcdFound, on: 2},
		{
			name: "on one that was recorded and deleted", recorded: &v1alpha1.ClusterBootstrap{MachineName: uuid(2), Endpoint: address(2), IntendedAt: &at},
			has: 2, machines: []runtime.Object{controlPlane(1)}, reason: reasonBootstrapped, on: 2,
		},
		{name: "on one whose configuration was forgotten", has: 2, machines: []runtime.Object{controlPlane(1), controlPlane(2, unconfigured)}, reason: reasonEtcdFound, on: 2},
		{name: "on one whose approval was forgotten", has: 2, machines: []runtime.Object{controlPlane(1), controlPlane(2, pending)}, reason: reasonEtcdFound, on: 2},
		{
			name:     "on one whose approval was forgotten, and with it that the recorded one was replaced",
			recorded: &v1alpha1.ClusterBootstrap{MachineName: uuid(1), Endpoint: address(1), IntendedAt: &at},
			has:      2, machines: []runtime.Object{controlPlane(1), controlPlane(2, pending)}, reason: reasonEtcdFound, on: 2,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := prepare(t, append(test.machines, cluster(func(c *v1alpha1.TalosCluster) { c.Status.Bootstrap = test.recorded }))...)
				w.node(test.has).OfCluster(bundleOf(t, 0)).SetHardware(hardwareOf(test.has)).SetEtcd(running)
				w.run()
				w.pass(5 * time.Minute)

				w.expectDone(test.reason, test.on)
				w.expectSends(nil)

				// Of what was recorded and is not known nobody says that nothing was sent.
				switch {
				case test.reason != reasonEtcdFound:
				case test.recorded == nil:
					w.expect(test.reason, "nothing was sent")
				default:
					w.expect(test.reason, test.recorded.MachineName+" was to be bootstrapped")
				}
			})
		})
	}
}

// Req: A-02
func TestAClusterThatIsSplitAlreadyIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, cluster(), controlPlane(1), controlPlane(2), controlPlane(3))
		w.node(1).SetEtcd(machine.EtcdMember{ID: 1}, machine.EtcdMember{ID: 3})
		w.node(2).SetEtcd(machine.EtcdMember{ID: 2})
		w.node(3).SetEtcd(machine.EtcdMember{ID: 1}, machine.EtcdMember{ID: 3})
		w.run()
		w.pass(time.Second)
		w.expectDone(reasonEtcdFound, 1)

		if told := w.told(); len(told) != 2 || !strings.HasPrefix(told[0], "Warning SeveralEtcdClusters ") || !strings.Contains(told[0], uuid(2)) {
			t.Errorf("told %q", told)
		}
	})
}

// Req, T-12, T-18
func TestNothingIsSentWhileSomebodyWhoMayHaveAnEtcdHasNotSaidThatItHasNone(t *testing.T) {
	for _, test := range []struct {
		name      string
		second    *v1alpha1.TalosMachine
		is        func(*world)
		reason    reason
		inMessage string
		warns     bool
	}{
		{
			name: "it does not answer", second: controlPlane(2), is: func(w *world) { w.network.Put(address(2)+":50000", nil) },
			reason: reasonUnreachable, inMessage: uuid(2) + " may have an etcd and does not answer", warns: true,
		},
		{
			name: "its connection breaks", second: controlPlane(2), is: func(w *world) { w.node(2).Fail(machine.OpEtcdMembers, machine.ClassUnreachable) },
			reason: reasonEtcdUnknown, inMessage: uuid(2),
		},
		{
			name: "its etcd is silent", second: controlPlane(2), is: func(w *world) { w.node(2).Fail(machine.OpEtcdMembers, machine.ClassNodeError) },
			reason: reasonEtcdUnknown, inMessage: uuid(2),
		},
		{
			name: "it is still installing", second: controlPlane(2, installing), is: func(w *world) { w.network.Put(address(2)+":50000", nil) },
			reason: reasonAwaitingControlPlane, inMessage: uuid(2) + " is being configured or installed",
		},
		{
			name: "it has just been configured and is still in maintenance mode", second: controlPlane(2, installing),
			is:     func(w *world) { w.node(2).Fail(machine.OpDial, machine.ClassInMaintenance) },
			reason: reasonAwaitingControlPlane, inMessage: uuid(2),
		},
		{
			name: "it is not known whether it took its configuration", second: controlPlane(2, func(m *v1alpha1.TalosMachine) {
				m.Status.Configuration.AppliedAt, m.Status.Phase = nil, v1alpha1.MachineConfiguring
			}), is: func(w *world) { w.network.Put(address(2)+":50000", nil) },
			reason: reasonAwaitingControlPlane, inMessage: uuid(2),
		},
		{
			name: "it was wiped", second: controlPlane(2), is: func(w *world) { w.node(2).Fail(machine.OpDial, machine.ClassInMaintenance) },
			reason: reasonInMaintenance, inMessage: uuid(2), warns: true,
		},
		{
			name: "another machine of the cluster has its address", second: controlPlane(2), is: func(w *world) { w.node(2).SetHardware(hardwareOf(9)) },
			reason: reasonIdentityMismatch, inMessage: uuid(9), warns: true,
		},
		{
			name: "it does not know yet who it is", second: controlPlane(2), is: func(w *world) { w.node(2).Fail(machine.OpIdentity, machine.ClassIdentityAbsent) },
			reason: reasonEtcdUnknown, inMessage: uuid(2),
		},
		{
			name: "it is of another cluster", second: controlPlane(2), is: func(w *world) { w.node(2).OfCluster(bundleOf(w.t, 1)) },
			reason: reasonUntrusted, inMessage: uuid(2), warns: true,
		},
		{
			name: "it has no address", second: controlPlane(2, func(m *v1alpha1.TalosMachine) { m.Spec.Endpoint = "" }), is: func(*world) {},
			reason: reasonUnreachable, inMessage: uuid(2), warns: true,
		},
		{
			name: "it is not approved any more, and has data of an etcd that does not run", second: controlPlane(2, unapproved),
			is:     func(w *world) { w.node(2).Fail(machine.OpEtcdMembers, machine.ClassNodeError) },
			reason: reasonEtcdUnknown, inMessage: uuid(2),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := prepare(t, cluster(), controlPlane(1), test.second)
				test.is(w)
				w.run()
				w.pass(time.Minute)

				w.expect(test.reason, test.inMessage)
				w.expectSends(nil)

				if w.cluster().Status.Bootstrap != nil {
					t.Error("an intent was recorded")
				}

				if told := w.told(); (len(told) > 0) != test.warns {
					t.Errorf("told %q", told)
				}

				// Waiting writes nothing.
				before := len(w.api.Writes())

				if w.pass(10 * time.Minute); len(w.api.Writes())-before > 2 { // one that is said to install is late after a while
					t.Errorf("%d writes while nothing changes: %v", len(w.api.Writes())-before, w.api.Writes()[before:])
				}

				w.expectSends(nil)

				// As soon as it says so, or is not the cluster's any more and silent, one is bootstrapped.
				w.node(2).OfCluster(bundleOf(t, 0)).SetHardware(hardwareOf(2)).
					Recover(machine.OpDial).Recover(machine.OpIdentity).Recover(machine.OpEtcdMembers)

				if test.second.Spec.Endpoint == "" {
					w.edit(2, func(m *v1alpha1.TalosMachine) { m.Spec.Endpoint = address(2) })
				}

				w.pass(time.Minute)
				w.expectDone(reasonBootstrapped, 1)
				w.expectSends(map[int]int{1: 1})
			})
		})
	}
}

// Req: A-06, T-12
func TestAControlPlaneThatIsLostIsReleasedByTakingItsApprovalBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, cluster(), controlPlane(1), controlPlane(2))
		w.network.Put(address(1)+":50000", nil)
		w.run()
		w.pass(time.Minute)
		w.expect(reasonUnreachable)

		w.edit(1, unapproved)
		w.pass(time.Minute)
		w.expectDone(reasonBootstrapped, 2)
		w.expectSends(map[int]int{2: 1})
	})
}

// Req: A-06. Whatever is lost on the way, one control plane is bootstrapped, and no other is told to.
func TestAnInterruptedBootstrapEndsOnTheSameControlPlane(t *testing.T) {
	lost := func(context.Context, machineCall) error {
		return &machine.Error{Class: machine.ClassOutcomeUnknown, Op: machine.OpBootstrap, Detail: "as the test has it"}
	}

	for _, test := range []struct {
		name string
		// arrange is called before the first attempt, during the first Bootstrap ends it.
		before, after func(w *world) func(context.Context, machineCall) error
		sends         int
		restart       bool
	}{
		{name: "the answer was lost", after: func(*world) func(context.Context, machineCall) error { return lost }, sends: 1},
		{name: "the request was lost", before: func(*world) func(context.Context, machineCall) error { return lost }, sends: 2},
		{name: "the process ended after the request", after: func(*world) func(context.Context, machineCall) error { return lost }, sends: 1, restart: true},
		{name: "the process ended before the request arrived", before: func(*world) func(context.Context, machineCall) error { return lost }, sends: 2, restart: true},
		{
			name: "the machine rebooted before etcd wrote anything",
			after: func(w *world) func(context.Context, machineCall) error {
				return func(context.Context, machineCall) error {
					w.node(1).SetEtcd()

					return nil
				}
			},
			sends: 2,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := prepare(t, cluster(), controlPlane(1), controlPlane(2))

				once := func(hook func(context.Context, machineCall) error) func(context.Context, machineCall) error {
					first := true

					return func(ctx context.Context, call machineCall) error {
						if !first {
							return nil
						}

						first = false

						return hook(ctx, call)
					}
				}

				if test.before != nil {
					w.node(1).Before(machine.OpBootstrap, once(test.before(w)))
				}

				if test.after != nil {
					w.node(1).After(machine.OpBootstrap, once(test.after(w)))
				}

				w.run()
				w.pass(time.Second)
				w.expectSends(map[int]int{1: 1})

				if test.restart {
					w.restart()
				}

				// Control plane 0 would be chosen now, were it not recorded whom.
				if _, err := w.api.Fake.TalosV1alpha1().TalosMachines(namespace).Create(context.Background(), controlPlane(0), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}

				w.node(0).OfCluster(bundleOf(t, 0)).SetHardware(hardwareOf(0))
				w.edit(0, func(m *v1alpha1.TalosMachine) { m.Status = controlPlane(0).Status })

				w.pass(5 * time.Minute)
				w.expectDone(reasonBootstrapped, 1)
				w.expectSends(map[int]int{1: test.sends})
			})
		})
	}
}

// Req: A-06. The process ends at any request to the API; the next one goes on.
func TestACrashAtAnyRequestLeavesOneBootstrap(t *testing.T) {
	crashAt := func(t *testing.T, n int) (reached bool) {
		synctest.Test(t, func(t *testing.T) {
			w := prepare(t, cluster(), controlPlane(1), controlPlane(2))
			seen := 0
			crashed := make(chan struct{})

			w.api.After(func(ctx context.Context, _ apiCall) error {
				if seen++; seen == n {
					close(crashed)
				}

				if seen >= n {
					<-ctx.Done() // nothing of this process goes on
				}

				return ctx.Err()
			})
			w.run()
			w.pass(time.Minute)

			if seen < n {
				return
			}

			reached = true

			<-crashed
			w.stop()
			w.api.After(nil)
			w.run()
			w.pass(5 * time.Minute)

			w.expectDone(reasonBootstrapped, 1)

			if got := len(w.node(1).Calls(machine.OpBootstrap)) + len(w.node(2).Calls(machine.OpBootstrap)); got != 1 {
				t.Errorf("after a crash at request %d, %d were sent", n, got)
			}
		})

		return reached
	}

	n := 1
	for crashAt(t, n) {
		n++
	}

	if n < 6 {
		t.Errorf("only %d requests were made", n-1)
	}
}

// Req: A-06. Two processes that both believe to lead record one intent.
func TestTwoLeadersBootstrapOneControlPlaneOnce(t *testing.T) {
	for delay := range 40 {
		synctest.Test(t, func(t *testing.T) {
			w := prepare(t, cluster(), controlPlane(1), controlPlane(2))

			var requests atomic.Int64

			w.api.Before(func(ctx context.Context, _ apiCall) error {
				time.Sleep(time.Duration((int(requests.Add(1))*7+delay*3)%11) * 10 * time.Millisecond)

				return ctx.Err()
			})
			w.run()
			time.Sleep(time.Duration(delay) * 7 * time.Millisecond)
			w.run()
			w.pass(5 * time.Minute)

			w.expectDone(reasonBootstrapped, 1)
			w.expectSends(map[int]int{1: 1})
		})
	}
}

// Req: A-06
func TestAProcessThatSleptSinceItsIntentSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, cluster(), controlPlane(1))
		slept := false

		w.api.After(func(_ context.Context, call apiCall) error {
			if call.Verb == "updatestatus" && !slept {
				slept = true
				time.Sleep(2 * sendWindow)
			}

			return nil
		})
		w.run()
		w.pass(2*sendWindow + 5*time.Second)
		w.expectSends(nil)
		w.pass(5 * time.Minute)
		w.expectDone(reasonBootstrapped, 1)
	})
}

// Req: A-06, T-12
func TestARecordedControlPlaneThatIsNotTheClustersAnyMoreIsReplaced(t *testing.T) {
	for _, test := range []struct {
		name string
		gone func(*world)
	}{
		{"it was un-approved", func(w *world) { w.edit(1, unapproved) }},
		{"it was un-approved and answers", func(w *world) {
			w.node(1).Recover(machine.OpDial)
			w.edit(1, unapproved)
		}},
		{"it was deleted", func(w *world) { w.delete(1) }},
		{"its role was changed", func(w *world) {
			w.node(1).Recover(machine.OpDial)
			w.edit(1, worker)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := prepare(t, cluster(), controlPlane(1), controlPlane(2))
				w.node(1).Before(machine.OpBootstrap, func(context.Context, machineCall) error {
					w.node(1).Fail(machine.OpDial, machine.ClassInMaintenance) // wiped before it was bootstrapped

					return &machine.Error{Class: machine.ClassOutcomeUnknown, Op: machine.OpBootstrap}
				})
				w.run()
				w.pass(2 * time.Minute)
				w.expect(reasonInMaintenance, uuid(1))
				w.expectSends(map[int]int{1: 1})
				w.told()

				test.gone(w)
				w.pass(2 * time.Minute)
				w.expectDone(reasonBootstrapped, 2)
				w.expectSends(map[int]int{1: 1, 2: 1})

				if told := w.told(); len(told) == 0 || !strings.HasPrefix(told[0], "Normal Bootstrapping ") || !strings.Contains(told[0], uuid(2)) {
					t.Errorf("told %q", told)
				}
			})
		})
	}
}

// Req: A-06
func TestWhatWasSentToAControlPlaneHasTimeToShowBeforeAnotherIsChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, cluster(), controlPlane(1), controlPlane(2))
		w.node(1).Before(machine.OpBootstrap, func(context.Context, machineCall) error {
			w.edit(1, unapproved)
			w.network.Put(address(1)+":50000", nil)

			return &machine.Error{Class: machine.ClassOutcomeUnknown, Op: machine.OpBootstrap}
		})
		w.run()
		w.pass(settling - 2*time.Second)

		if got := w.cluster().Status.Bootstrap; got.MachineName != uuid(1) {
			t.Errorf("another was chosen at once: %+v", got)
		}

		w.pass(time.Minute)
		w.expectDone(reasonBootstrapped, 2)
	})
}

// Req: A-06
func TestARecordedControlPlaneThatIsToBeConfiguredAnewIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, cluster(), controlPlane(1), controlPlane(2))
		w.node(1).Before(machine.OpBootstrap, func(context.Context, machineCall) error {
			w.node(1).Fail(machine.OpDial, machine.ClassInMaintenance).Recover(machine.OpBootstrap)
			w.edit(1, unconfigured) // wiped, and approved again

			return &machine.Error{Class: machine.ClassOutcomeUnknown, Op: machine.OpBootstrap}
		})
		w.run()
		w.pass(10 * time.Minute)
		w.expect(reasonAwaitingControlPlane, uuid(1))

		w.node(1).Recover(machine.OpDial)
		w.edit(1, func(m *v1alpha1.TalosMachine) { m.Status = controlPlane(1).Status })
		w.pass(time.Minute)
		w.expectDone(reasonBootstrapped, 1)
		w.expectSends(map[int]int{1: 2})
	})
}

// Req: A-06, T-12
func TestWhatIsTakenBackBeforeItIsSentIsNotSent(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*world)
		// later tells whether the intent is recorded by then.
		later bool
	}{
		{name: "the approval, while it is asked", change: func(w *world) { w.edit(1, unapproved) }},
		{name: "the approval, once the intent is recorded", change: func(w *world) { w.edit(1, unapproved) }, later: true},
		{name: "the machine", change: func(w *world) { w.delete(1) }},
		{name: "the cluster is paused", change: func(w *world) { w.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Paused = true }) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := prepare(t, cluster(), controlPlane(1))
				once := false

				if test.later {
					w.api.After(func(_ context.Context, call apiCall) error {
						if call.Verb == "updatestatus" && !once {
							once = true
							test.change(w)
						}

						return nil
					})
				} else {
					w.node(1).Before(machine.OpEtcdMembers, func(_ context.Context, call machineCall) error {
						if call.Role == machine.RoleAdmin && !once {
							once = true
							test.change(w)
						}

						return nil
					})
				}

				w.run()
				w.pass(10 * time.Minute)
				w.expectSends(nil)

				if !once {
					t.Error("nothing was taken back")
				}
			})
		})
	}
}

// Req: A-06
func TestAnotherControlPlaneThatIsApprovedWhileTheFirstIsAskedIsAskedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, cluster(), controlPlane(1), controlPlane(2, unconfigured))
		w.network.Put(address(2)+":50000", nil)

		first := true

		w.node(1).Before(machine.OpEtcdMembers, func(context.Context, machineCall) error {
			if first {
				first = false
				w.edit(2, func(m *v1alpha1.TalosMachine) { m.Status = controlPlane(2).Status })
			}

			return nil
		})
		w.run()
		w.pass(5 * time.Minute)
		w.expect(reasonUnreachable, uuid(2))
		w.expectSends(nil)
	})
}

// Req: A-06
func TestABusyControlPlaneIsToldAgainSoonAndOneThatRefusesSeldom(t *testing.T) {
	for _, test := range []struct {
		name  string
		class machine.Class
		while reason
		least int
		most  int
		event string
	}{
		{"it cannot yet", machine.ClassBusy, reasonBusy, 8, 13, ""},
		{"it never will", machine.ClassRejected, reasonRefused, 2, 3, "Warning Refused "},
		{"it has data already", machine.ClassAlreadyBootstrapped, reasonBootstrapping, 1, 3, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := prepare(t, cluster(), controlPlane(1), controlPlane(2))
				w.node(1).Fail(machine.OpBootstrap, test.class)
				w.run()
				w.pass(time.Second)
				w.expect(test.while, uuid(1))

				w.pass(2*time.Minute - time.Second)

				if got := len(w.node(1).Calls(machine.OpBootstrap)); got < test.least || got > test.most {
					t.Errorf("told %d times in 2 minutes", got)
				}

				told := w.told()
				if len(told) == 0 || !strings.HasPrefix(told[0], "Normal Bootstrapping ") ||
					(test.event == "") != (len(told) == 1) || test.event != "" && !strings.HasPrefix(told[1], test.event) {
					t.Errorf("told %q", told)
				}

				w.node(1).Recover(machine.OpBootstrap)
				w.pass(2 * time.Minute)
				w.expectDone(reasonBootstrapped, 1)
			})
		})
	}
}

// Req: T-16, T-18a
func TestWithoutTheRightBundleNothingIsSent(t *testing.T) {
	with := func(hash string) func(*v1alpha1.TalosMachine) {
		return func(m *v1alpha1.TalosMachine) { m.Status.Configuration.BundleHash = hash }
	}
	none := secret(nil)
	none.Name = "another"
	foreign := secret(bundleData(t, 0))
	foreign.Labels = nil

	for _, test := range []struct {
		name    string
		secret  *corev1.Secret
		machine *v1alpha1.TalosMachine
		trusts  int
		reason  reason
		dials   bool
	}{
		{"there is none", none, controlPlane(1), 0, reasonBundleNotFound, false},
		{"it is none", secret([]byte("{}")), controlPlane(1), 0, reasonBundleInvalid, false},
		{"it is another cluster's", foreign, controlPlane(1), 0, reasonBundleNotForThis, false},
		{"it was replaced, and the machine does not trust it", secret(bundleData(t, 0)), controlPlane(1, with(hashOf(t, 1))), 1, reasonBundleRotated, true},
		{"it was replaced in part", secret(bundleData(t, 0)), controlPlane(1, with(hashOf(t, 1))), 0, reasonBundleRotated, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := prepare(t, cluster(), test.machine, test.secret)
				w.node(1).OfCluster(bundleOf(t, test.trusts))
				w.run()
				w.pass(5 * time.Minute)
				w.expect(test.reason)
				w.expectSends(nil)

				if got := len(w.network.Dials()) > 0; got != test.dials {
					t.Errorf("dialed: %t", got)
				}

				// What the Secret becomes is seen.
				if test.dials {
					return
				}

				good := secret(bundleData(t, 0))
				if _, err := w.host.CoreV1().Secrets(own).Update(context.Background(), good, metav1.UpdateOptions{}); err != nil {
					if _, err := w.host.CoreV1().Secrets(own).Create(context.Background(), good, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}

				w.pass(time.Minute)
				w.expectDone(reasonBootstrapped, 1)
			})
		})
	}
}

// Req: T-12, T-18a
func TestWhomNobodyDials(t *testing.T) {
	for _, test := range []struct {
		name    string
		objects []runtime.Object
		reason  reason
	}{
		{"a cluster without machines", []runtime.Object{cluster()}, reasonNoControlPlane},
		{"workers", []runtime.Object{cluster(), controlPlane(1, worker)}, reasonNoControlPlane},
		{"machines that wait for approval", []runtime.Object{cluster(), controlPlane(1, pending)}, reasonNoControlPlane},
		{"machines whose approval was taken back", []runtime.Object{cluster(), controlPlane(1, unapproved)}, reasonNoControlPlane},
		{"control planes without a configuration", []runtime.Object{cluster(), controlPlane(1, unconfigured)}, reasonAwaitingControlPlane},
		{"control planes of another cluster", []runtime.Object{cluster(), controlPlane(1, func(m *v1alpha1.TalosMachine) { m.Spec.ClusterRef.Name = "other" })}, reasonNoControlPlane},
		{"a paused cluster's", []runtime.Object{cluster(func(c *v1alpha1.TalosCluster) { c.Spec.Paused = true }), controlPlane(1)}, reasonPaused},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, test.objects...)
				w.pass(10 * time.Minute)
				w.expect(test.reason)

				if dials := w.network.Dials(); len(dials) != 0 {
					t.Errorf("dialed %v", dials)
				}

				if writes := len(w.api.Writes()); writes != 1 {
					t.Errorf("%d writes", writes)
				}
			})
		})
	}
}

// Req: T-18a
func TestAPausedClusterGoesOnWhenItIsNotPausedAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, cluster(func(c *v1alpha1.TalosCluster) { c.Spec.Paused = true }), controlPlane(1))
		w.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Paused = false })
		w.pass(10 * time.Second)
		w.expectDone(reasonBootstrapped, 1)

		// One that is done is not said to wait.
		w.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Paused = true })
		w.restart()
		w.expectDone(reasonBootstrapped, 1)
	})
}

// Req: T-06, T-18
func TestAMachineIsFoundAtTheAddressThatItsApprovalGaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, cluster(), controlPlane(1, func(m *v1alpha1.TalosMachine) {
			m.Spec.Network = &v1alpha1.MachineNetwork{Links: []v1alpha1.MachineLinkConfig{{Addresses: []string{"192.0.2.41/24"}}}}
		}))
		w.network.Put("192.0.2.41:50000", w.node(1))
		w.network.Put(address(1)+":50000", nil)
		w.node(1).OfCluster(bundleOf(t, 0)).SetHardware(hardwareOf(9)) // somebody else has the former address by now
		w.run()
		w.pass(10 * time.Second)
		w.expect(reasonBootstrapped)

		if got := w.cluster().Status.Bootstrap; got == nil || got.Endpoint != "192.0.2.41" {
			t.Errorf("status.bootstrap %+v", got)
		}

		w.expectSends(nil) // at the former address
	})
}

// Req: A-06
func TestTheOtherWritersOfTheStatusDoNotStopIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, cluster(), controlPlane(1))

		w.api.Before(func(ctx context.Context, call apiCall) error {
			if call.Verb == "updatestatus" && call.Resource == "talosclusters" && len(w.api.Writes())%2 == 0 {
				c := w.cluster()
				c.Status.Machines.Total++

				if _, err := w.api.Fake.TalosV1alpha1().TalosClusters(namespace).UpdateStatus(ctx, c, metav1.UpdateOptions{}); err != nil {
					t.Error(err)
				}
			}

			return nil
		})
		w.run()
		w.pass(time.Minute)
		w.expectDone(reasonBootstrapped, 1)
		w.expectSends(map[int]int{1: 1})

		if w.cluster().Status.Machines.Total == 0 {
			t.Error("nobody else wrote, or it was overwritten")
		}
	})
}

// Req: A-06
func TestAControllerThatIsStoppedWhileItAsksWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, cluster(), controlPlane(1))
		asked := make(chan struct{})

		w.node(1).Before(machine.OpIdentity, func(ctx context.Context, call machineCall) error {
			close(asked)
			<-ctx.Done()

			return &machine.Error{Class: machine.ClassUnreachable, Address: call.Address, Op: call.Op}
		})
		w.run()
		<-asked
		w.stop()

		if writes := w.api.Writes(); len(writes) != 0 {
			t.Errorf("written: %v", writes)
		}

		if told := w.told(); len(told) != 0 {
			t.Errorf("told: %q", told)
		}
	})
}

// Req: A-06
func TestWhatAMachineWasToldIsWrittenDownAlsoWhenTheControllerIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := prepare(t, cluster(), controlPlane(1))
		sent := make(chan struct{})

		w.node(1).After(machine.OpBootstrap, func(ctx context.Context, _ machineCall) error {
			close(sent)
			<-ctx.Done()

			return nil
		})
		w.run()
		<-sent
		w.stop()
		w.expect(reasonBootstrapping, uuid(1))
		w.restart()
		w.pass(time.Minute)
		w.expectDone(reasonBootstrapped, 1)
		w.expectSends(map[int]int{1: 1})
	})
}

// Req: A-02, T-18
func TestWhatTheMachineSaysOnTheConnectionOfTheBootstrapIsWhatCounts(t *testing.T) {
	for _, test := range []struct {
		name   string
		op     machine.Op
		change func(*world) error
		expect func(*world)
	}{
		{"it has an etcd by now", machine.OpEtcdMembers, func(w *world) error {
			w.node(1).SetEtcd(machine.EtcdMember{ID: 7})

			return nil
		}, func(w *world) { w.expectDone(reasonEtcdFound, 1) }},
		{"it cannot say any more", machine.OpEtcdMembers, func(*world) error {
			return &machine.Error{Class: machine.ClassNodeError, Op: machine.OpEtcdMembers}
		}, func(w *world) { w.expect(reasonEtcdUnknown) }},
		{"it is another machine by now", machine.OpIdentity, func(w *world) error {
			w.node(1).SetHardware(hardwareOf(9))

			return nil
		}, func(w *world) { w.expect(reasonIdentityMismatch) }},
		{"it refuses an administrator", machine.OpDial, func(*world) error {
			return &machine.Error{Class: machine.ClassDenied, Op: machine.OpDial}
		}, func(w *world) { w.expect(reasonUntrusted) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := prepare(t, cluster(), controlPlane(1))
				w.node(1).Before(test.op, func(_ context.Context, call machineCall) error {
					if call.Role != machine.RoleAdmin {
						return nil
					}

					return test.change(w)
				})
				w.run()
				w.pass(10 * time.Minute)
				w.expectSends(nil)
				test.expect(w)

				if got := w.cluster().Status.Bootstrap; got != nil && got.IntendedAt != nil {
					t.Errorf("an intent was recorded: %+v", got)
				}
			})
		})
	}
}

// Req: T-15
func TestNothingOfTheBundleIsTold(t *testing.T) {
	for _, op := range []machine.Op{machine.OpDial, machine.OpIdentity, machine.OpEtcdMembers, machine.OpBootstrap} {
		for _, class := range []machine.Class{
			machine.ClassUnreachable, machine.ClassUntrusted, machine.ClassDenied, machine.ClassRejected, machine.ClassBusy,
			machine.ClassNodeError, machine.ClassOutcomeUnknown, machine.ClassIdentityAbsent,
		} {
			t.Run(string(op)+" "+string(class), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					material := render.BundleMaterial(bundleOf(t, 0))

					w := prepare(t, cluster(), controlPlane(1))
					w.node(1).Before(op, func(_ context.Context, call machineCall) error {
						return &machine.Error{Class: class, Address: call.Address, Op: op, Detail: strings.Join(material, " ")}
					})
					w.run()
					w.pass(2 * time.Minute)

					w.mu.Lock()
					defer w.mu.Unlock()

					said := strings.Join(append(append(w.logs, w.told()...), conditionsOf(w.cluster())...), "\n")
					for _, value := range material {
						if strings.Contains(said, value) {
							t.Fatalf("told: %.2000s", said)
						}
					}
				})
			})
		}
	}
}

func conditionsOf(c *v1alpha1.TalosCluster) []string {
	var out []string
	for _, condition := range c.Status.Conditions {
		out = append(out, condition.Message)
	}

	return out
}
