package machinestate

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/fakeapi"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/machine/machinetest"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

// history is a cluster to which anything may happen, and what must hold all the time.
type history struct {
	*world
	random   *rand.Rand
	machines []int
	// commands are the requests for reboots, by machine.
	commands map[int]int
	// value is in the last patch.
	value int
}

func (h *history) one() int { return h.machines[h.random.Intn(len(h.machines))] }

// watch has what is sent to a machine checked against what stands in the API at that moment.
func (h *history) watch(n int) {
	node := h.node(n)
	node.Before(machine.OpApply, func(_ context.Context, call machinetest.Call) error {
		m := h.machine(n)

		switch update := m.Status.Update; {
		case !followed(m):
			h.t.Errorf("machine %d is sent something, and is not approved", n)
		case update == nil || update.IntendedAt == nil || update.AppliedAt != nil || update.Hash != render.HashOf(call.Config):
			h.t.Errorf("machine %d is sent something, and there stands %+v", n, update)
		case call.Mode == machine.ModeStaged && !update.RebootRequired, call.Mode != machine.ModeStaged && call.Mode != machine.ModeNoReboot:
			h.t.Errorf("machine %d is sent something as %s, and there stands %+v", n, call.Mode, update)
		case render.HashOf(renderFor(m, h.cluster(), bundleOf(0)).config) != render.HashOf(call.Config):
			h.t.Errorf("machine %d is sent something that is not what is rendered", n)
		}

		if h.cluster().Spec.Paused {
			h.t.Errorf("machine %d is sent something, and the cluster is paused", n)
		}

		for _, other := range h.machines {
			if other != n && holdsTurn(h.machine(other)) {
				h.t.Errorf("machine %d is sent something, and machine %d has the turn", n, other)
			}
		}

		return nil
	})
	node.Before(machine.OpReboot, func(context.Context, machinetest.Call) error {
		m := h.machine(n)
		_, staged := h.node(n).Configuration()

		switch reboot := m.Status.Reboot; {
		case !followed(m):
			h.t.Errorf("machine %d is rebooted, and is not approved", n)
		case reboot == nil || reboot.IntendedAt == nil || reboot.CompletedAt != nil:
			h.t.Errorf("machine %d is rebooted, and there stands %+v", n, reboot)
		case staged != nil && reboot.Hash != render.HashOf(staged):
			h.t.Errorf("machine %d is rebooted into another configuration than was asked for", n)
		}

		return nil
	})
}

func (h *history) cluster() *v1alpha1.TalosCluster {
	h.t.Helper()

	c, err := h.api.Fake.TalosV1alpha1().TalosClusters(namespace).Get(context.Background(), "c", metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}

	return c
}

func (h *history) command(n int) {
	if update := h.machine(n).Status.Update; update != nil && update.RebootRequired {
		h.commands[n]++
		h.askReboot(n)
	}
}

func (h *history) approve(n int, approved bool) {
	h.edit(n, func(m *v1alpha1.TalosMachine) { m.Spec.Approved = ptr.To(approved) })

	if approved {
		h.editStatus(n, func(s *v1alpha1.TalosMachineStatus) {
			s.Approval = &v1alpha1.MachineApproval{User: "ada", Time: metav1.Now()}
		})
	}
}

// happen lets one thing happen.
func (h *history) happen() {
	n := h.one()
	lost := func(op machine.Op) func(context.Context, machinetest.Call) error {
		return func(context.Context, machinetest.Call) error {
			return &machine.Error{Class: machine.ClassOutcomeUnknown, Op: op}
		}
	}

	switch h.random.Intn(16) {
	case 0, 1:
		h.value++
		h.edit(n, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = sysctl(h.value) })
	case 2:
		h.value++
		h.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.ConfigPatches = sysctl(h.value) })
	case 3:
		h.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Paused = !c.Spec.Paused })
	case 4:
		h.approve(n, !ptr.Deref(h.machine(n).Spec.Approved, false))
	case 5:
		h.node(n).Fail(machine.OpDial, []machine.Class{machine.ClassUnreachable, machine.ClassInMaintenance, machine.ClassUntrusted}[h.random.Intn(3)])
	case 6:
		h.node(n).Recover(machine.OpDial)
	case 7:
		h.node(n).SetStatus(machine.Status{Stage: []string{"running", "booting", "rebooting", ""}[h.random.Intn(4)]})
	case 8:
		h.node(n).SetStatus(machine.Status{Stage: "running", Ready: true})
	case 9:
		h.node(n).After(machine.OpApply, lost(machine.OpApply)).After(machine.OpReboot, lost(machine.OpReboot))
	case 10:
		h.node(n).NeedsReboot(func([]byte, []byte) bool { return h.value%2 == 0 })
	case 11, 12:
		h.command(n)
	case 13:
		h.stop()
		h.run()
	case 14:
		h.crash()
	case 15:
		h.node(n).SetConfiguration(renderFor(h.machine(n), newCluster(), bundleOf(0)).config)
	}
}

// heal ends whatever is not well.
func (h *history) heal() {
	h.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.Paused = false })

	for _, n := range h.machines {
		h.node(n).Recover(machine.OpDial).SetStatus(machine.Status{Stage: "running", Ready: true}).
			After(machine.OpApply, nil).After(machine.OpReboot, nil)

		if !ptr.Deref(h.machine(n).Spec.Approved, false) {
			h.approve(n, true)
		}
	}
}

// crash has the process end in the middle of something, and another take over.
func (h *history) crash() {
	left := h.random.Intn(12)
	gone := func(context.Context, fakeapi.Call) error {
		if left--; left < 0 {
			return errors.New("the process is no more")
		}

		return nil
	}

	if h.random.Intn(2) == 0 {
		h.api.Before(gone)
	} else {
		h.api.After(gone)
	}

	h.pass(time.Duration(h.random.Intn(20)) * time.Second)
	h.stop()
	h.api.Before(nil)
	h.api.After(nil)
	h.run()
}

// Whatever happens, in whatever order, nothing is sent to whom it must not be, one machine of the cluster is changed at a
// time, and nobody is rebooted who was not to be; and when all is well again, all machines get what is wanted.
// Req: T-12, T-18a, A-06
func TestWhateverHappens(t *testing.T) {
	seeds := int64(6)
	if testing.Short() {
		seeds = 1
	}

	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &history{
					world:    prepare(t, newCluster(), worker(1), worker(2), controlPlane(3)),
					random:   rand.New(rand.NewSource(seed)),
					machines: []int{1, 2, 3}, commands: map[int]int{}, value: 1,
				}
				for _, n := range h.machines {
					h.watch(n)
				}

				h.run()

				for range 100 {
					h.happen()
					h.pass(time.Duration(h.random.Intn(40)) * time.Second)

					// Else it would soon be so broken that nothing happens any more.
					if h.random.Intn(6) == 0 {
						h.heal()
						h.pass(time.Duration(h.random.Intn(90)) * time.Second)
					}
				}

				h.heal()
				h.editCluster(func(c *v1alpha1.TalosCluster) { c.Spec.ConfigPatches = sysctl(1000000) })

				for _, n := range h.machines {
					h.edit(n, func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = nil })
				}

				for range 40 {
					h.pass(time.Minute)

					for _, n := range h.machines {
						if status := h.machine(n).Status; slices.Contains([]reason{reasonRebootRequired, reasonRebootFailed}, reasonOf(&status, ConditionUpToDate)) {
							h.command(n)
						}
					}
				}

				sent, boots := 0, 0

				for _, n := range h.machines {
					h.expect(n, reasonReady, reasonUpToDate, reasonAsSent, reasonNotRequired)

					status := h.machine(n).Status
					if !h.running(n) || status.Update != nil || status.Phase != v1alpha1.MachineRunning ||
						meta.FindStatusCondition(status.Conditions, ConditionBackInMaintenance) != nil {
						t.Errorf("machine %d: %+v", n, status)
					}

					if have := h.node(n).Boots(); have > h.commands[n] {
						t.Errorf("machine %d was rebooted %d times, and was to be %d times", n, have, h.commands[n])
					}

					boots += h.node(n).Boots()

					sent += len(h.node(n).Calls(machine.OpApply))
				}

				t.Logf("sent %d times, rebooted %d times", sent, boots)

				if sent < 6 {
					t.Error("nothing much happened")
				}
			})
		})
	}
}
