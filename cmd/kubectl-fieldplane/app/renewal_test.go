package app

import (
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

func withCondition(kind, message string) func(*v1alpha1.TalosMachine) {
	return func(m *v1alpha1.TalosMachine) {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Message: message})
	}
}

// backInMaintenance is a machine that ran, and answers in maintenance mode again.
func backInMaintenance(m *v1alpha1.TalosMachine) {
	approveAs(m, v1alpha1.RoleWorker)
	m.Status.Phase = v1alpha1.MachineRunning
	m.Status.Configuration = &v1alpha1.MachineConfiguration{AppliedAt: ptr.To(metav1.NewTime(now()))}
	withCondition(conditionBackInMaintenance, "it was wiped")(m)
}

// anotherDisk is an approved machine whose /dev/sda is no longer the one that was approved.
func anotherDisk(m *v1alpha1.TalosMachine) {
	approveAs(m, v1alpha1.RoleWorker)
	m.Status.Approval.InstallDisk = &v1alpha1.MachineDisk{Path: "/dev/sda", SizeBytes: 2e12, Model: "OLD", Serial: "OLD1", WWID: "naa.0"}
}

// sentApprovals lists spec.approved and the resourceVersion of each write.
func (s *session) sentApprovals() []string {
	var out []string
	for _, action := range s.writes() {
		sent := action.(clienttesting.UpdateActionImpl).GetObject().(*v1alpha1.TalosMachine)
		word := "un-approve at "
		if approved(sent) {
			word = "approve at "
		}
		out = append(out, word+sent.ResourceVersion)
	}
	return out
}

// versioned makes the store give every write a resourceVersion of its own, and fail those that a case says.
func (s *session) versioned(fails map[int]error) {
	writes := 0
	s.client.PrependReactor("update", "talosmachines", func(action clienttesting.Action) (bool, runtime.Object, error) {
		writes++
		if err := fails[writes]; err != nil {
			return true, nil, err
		}
		stored := action.(clienttesting.UpdateAction).GetObject().DeepCopyObject().(*v1alpha1.TalosMachine)
		stored.ResourceVersion = strings.Repeat("9", writes)
		return true, stored, s.client.Tracker().Update(action.GetResource(), stored, action.GetNamespace())
	})
}

// Req: T-13, T-18
func TestAnApprovalIsGivenAnewAfterAQuestionOfItsOwn(t *testing.T) {
	const disk = "/dev/sda (4.0 TB ST4000NM, serial ZC1A, wwid naa.1)"
	both := []string{"un-approve at 4711", "approve at 9"}
	for _, test := range []struct {
		name  string
		edit  func(*v1alpha1.TalosMachine)
		args  []string
		input string
		want  []string
		out   string
	}{
		{name: "back in maintenance mode, asked", edit: backInMaintenance, args: approvalArgs(), input: "y\n", want: both,
			out: "\nThe machine was configured before, and is back in maintenance mode: an approval installs it again. What is on " + disk + " is wiped AGAIN. Renew the approval as worker? [y/N]: "},
		{name: "--yes does not answer it", edit: backInMaintenance, args: approvalArgs("--yes"), input: "y\n", want: both, out: "is wiped AGAIN. Renew"},
		{name: "--renew does, the ordinary question stays", edit: backInMaintenance, args: approvalArgs("--renew"), input: "y\n", want: both, out: "Approve it as worker? What is on " + disk + " is lost."},
		{name: "both without a terminal", edit: backInMaintenance, args: approvalArgs("--renew", "--yes"), want: both, out: "approved as worker\n"},
		{name: "with other values at once", edit: backInMaintenance, args: approvalArgs("--renew", "--yes", "--hostname", "mixer-1"), want: both, out: "spec.network.hostname   (unset) -> mixer-1"},
		{name: "the last approval was taken back before", edit: func(m *v1alpha1.TalosMachine) { backInMaintenance(m); m.Spec.Approved = ptr.To(false) },
			args: approvalArgs("--renew", "--yes"), want: []string{"approve at 4711"}, out: "approved as worker\n"},
		{name: "the disk is another", edit: anotherDisk, args: approvalArgs(), input: "y\n", want: both,
			out: "The disk that was approved is /dev/sda (2.0 TB OLD, serial OLD1, wwid naa.0); now it would be " + disk},
		{name: "another disk that is asked for is a change like any other", edit: anotherDisk, want: []string{"approve at 4711"},
			args: []string{"approve", "machine", uuid, "--role", "worker", "--install-disk", "/dev/sdb", "--yes"}, out: "spec.install.disk   /dev/sda -> /dev/sdb"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(pendingMachine(test.edit), plantCluster())
			s.versioned(nil)
			s.input, s.noTerminal = test.input, test.input == ""
			s.run(t, test.args...).wantOK(t)
			if have := s.sentApprovals(); !slices.Equal(have, test.want) {
				t.Errorf("writes: %v, want %v", have, test.want)
			}
			wantContains(t, s.out, test.out)
		})
	}
}

// Req: T-13, T-18
func TestAnApprovalIsNotGivenAnew(t *testing.T) {
	asControlPlane := func(m *v1alpha1.TalosMachine) {
		backInMaintenance(m)
		m.Spec.Role, m.Spec.AcceptUnverifiedFingerprint = v1alpha1.RoleControlPlane, true
	}
	for _, test := range []struct {
		name       string
		edit       func(*v1alpha1.TalosMachine)
		args       []string
		input      string
		what, todo string
	}{
		{name: "without a terminal by --yes alone", edit: backInMaintenance, args: approvalArgs("--yes"), what: "no terminal", todo: "--renew --yes"},
		{name: "after the answer no", edit: backInMaintenance, args: approvalArgs("--yes"), input: "n\n", what: "the answer was not yes", todo: "nothing was written"},
		{name: "to a control plane by the acceptance of the last one", edit: asControlPlane,
			args: []string{"approve", "machine", uuid, "--role", "controlplane", "--renew", "--yes"}, what: "no fingerprint says", todo: "console"},
		{name: "by the fingerprint of the last one", edit: func(m *v1alpha1.TalosMachine) { backInMaintenance(m); m.Spec.AcceptedFingerprint = other },
			args: approvalArgs("--renew", "--yes"), what: "the fingerprint that was accepted for the last approval is no longer the machine's", todo: "add --fingerprint"},
		{name: "to a machine that waits for its first", edit: func(*v1alpha1.TalosMachine) {}, args: approvalArgs("--renew", "--yes"), what: "there is no approval to renew", todo: "Leave --renew out"},
		{name: "to a machine that runs", edit: func(m *v1alpha1.TalosMachine) { approveAs(m, v1alpha1.RoleWorker) }, args: approvalArgs("--renew", "--yes"),
			what: "there is no approval to renew", todo: "Leave --renew out"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(pendingMachine(test.edit), plantCluster())
			s.input, s.noTerminal = test.input, test.input == ""
			s.run(t, test.args...).wantRefused(t, test.what, test.todo)
		})
	}
}

// Req: T-13
func TestAnApprovalThatWasOnlyTakenBackIsTold(t *testing.T) {
	conflict := apierrors.NewConflict(v1alpha1.Resource("talosmachines"), uuid, errors.New("modified"))
	for _, test := range []struct {
		name  string
		fails map[int]error
		// changes is what happens to the machine between the two writes.
		changes func(*v1alpha1.TalosMachine)
		want    []string
		what    string
	}{
		{name: "a controller wrote its status", fails: map[int]error{2: conflict}, changes: func(m *v1alpha1.TalosMachine) { m.Status.Phase = v1alpha1.MachinePending },
			want: []string{"un-approve at 4711", "approve at 9", "approve at 9"}},
		{name: "somebody edited it", fails: map[int]error{2: conflict}, changes: func(m *v1alpha1.TalosMachine) { m.Spec.ConfigPatches = []string{"machine: {}"} },
			want: []string{"un-approve at 4711", "approve at 9"}, what: "was taken back, and the new one was not given: the machine changed after it was shown"},
		{name: "other hardware answers", fails: map[int]error{2: conflict}, changes: func(m *v1alpha1.TalosMachine) { m.Status.Hardware.Fingerprint = other },
			want: []string{"un-approve at 4711", "approve at 9"}, what: "the machine changed after it was shown"},
		{name: "the right was taken away", fails: map[int]error{2: apierrors.NewForbidden(v1alpha1.Resource("talosmachines"), uuid, errors.New("no"))},
			want: []string{"un-approve at 4711", "approve at 9"}, what: "was taken back, and the new one was not given: the server refuses"},
		{name: "nothing was written at all", fails: map[int]error{1: conflict}, want: []string{"un-approve at 4711"}, what: "changed after it was shown; nothing was written"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(pendingMachine(backInMaintenance), plantCluster())
			s.versioned(test.fails)
			gets := 0
			s.client.PrependReactor("get", "talosmachines", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if gets++; gets == 1 || test.changes == nil {
					return false, nil, nil
				}
				stored, err := s.client.Tracker().Get(action.GetResource(), "site-a", uuid)
				test.changes(stored.(*v1alpha1.TalosMachine))
				return true, stored, err
			})
			s.run(t, approvalArgs("--renew", "--yes")...)
			if have := s.sentApprovals(); !slices.Equal(have, test.want) {
				t.Errorf("writes: %v, want %v", have, test.want)
			}
			if test.what == "" {
				s.wantOK(t)
				return
			}
			s.client.ClearActions()
			s.wantRefused(t, test.what, "Run the same command again")
		})
	}
}

// Req: T-05, T-18
func TestSharedHardwareIsAcceptedByTheApproverAlone(t *testing.T) {
	shares := withCondition(conditionSharesHardware, "same serial as machine "+secondUUID)
	for _, test := range []struct {
		name string
		edit func(*v1alpha1.TalosMachine)
		args []string
		what string
		want bool
	}{
		{name: "not at all", edit: shares, args: approvalArgs("--yes"), what: "one of the two may be a machine that you do not mean: same serial as machine " + secondUUID},
		{name: "not by a manifest", edit: func(m *v1alpha1.TalosMachine) { shares(m); m.Spec.AcceptSharedHardware = true }, args: approvalArgs("--yes"), what: "shares hardware with another"},
		{name: "not for an approved machine that came to share it, even if nothing else changes", edit: func(m *v1alpha1.TalosMachine) { approveAs(m, v1alpha1.RoleWorker); shares(m) },
			args: approvalArgs("--yes"), what: "shares hardware with another"},
		{name: "by the flag", edit: shares, args: approvalArgs("--yes", "--accept-shared-hardware"), want: true},
		{name: "kept while the machine stays approved", edit: func(m *v1alpha1.TalosMachine) {
			approveAs(m, v1alpha1.RoleWorker)
			shares(m)
			m.Spec.AcceptSharedHardware = true
		}, args: approvalArgs("--yes", "--hostname", "mixer-1"), want: true},
		{name: "not where nothing is shared and only a manifest says so", edit: func(m *v1alpha1.TalosMachine) { m.Spec.AcceptSharedHardware = true }, args: approvalArgs("--yes")},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(pendingMachine(test.edit), plantCluster()).run(t, test.args...)
			if test.what != "" {
				s.wantRefused(t, test.what, "--accept-shared-hardware")
				return
			}
			s.wantOK(t)
			if have := s.approval(t).GetObject().(*v1alpha1.TalosMachine).Spec.AcceptSharedHardware; have != test.want {
				t.Errorf("accepted %v", have)
			}
			if test.want && !strings.Contains(s.out, "Warning: hardware is shared: same serial as machine "+secondUUID) {
				t.Errorf("does not say with what:\n%s", s.out)
			}
		})
	}
}

// Req: T-18
func TestADryRunShowsTheDiskThatWouldBeWiped(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*v1alpha1.TalosMachine)
		args []string
		out  []string
	}{
		{"the one that a selector finds", func(*v1alpha1.TalosMachine) {}, []string{"approve", "machine", uuid, "--role", "worker", "--install-disk-selector", "type=nvme", "--dry-run"},
			[]string{"\nInstall disk: /dev/nvme0n1 (960 GB PM9A3, serial S64G, wwid eui.1)\n", "\nWhat would be wiped: /dev/nvme0n1 (960 GB PM9A3, serial S64G, wwid eui.1)\n"}},
		{"as it is named, of a machine whose disks are not known", func(m *v1alpha1.TalosMachine) { m.Status.Hardware = nil }, approvalArgs("--dry-run"),
			[]string{"\nWhat would be wiped: /dev/sda\n"}},
		{"again", backInMaintenance, approvalArgs("--dry-run"),
			[]string{"an approval installs it again.\nThe approval would be taken back, and given again.\n", "\nWhat would be wiped: /dev/sda (4.0 TB"}},
		{"none of a machine that is installed", func(m *v1alpha1.TalosMachine) {
			backInMaintenance(m)
			m.Status.Conditions = nil
		}, approvalArgs("--dry-run", "--hostname", "mixer-1"), []string{"\nWhat would be wiped: nothing, it is installed already\n"}},
		{"the new one, not the approved one", anotherDisk, approvalArgs("--dry-run"), []string{"\nWhat would be wiped: /dev/sda (4.0 TB ST4000NM, serial ZC1A"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(pendingMachine(test.edit), plantCluster())
			s.noTerminal = true
			s.run(t, test.args...).wantOK(t)
			if have := s.approval(t).UpdateOptions.DryRun; len(have) != 1 {
				t.Errorf("dryRun %v", have)
			}
			wantContains(t, s.out, test.out...)
		})
	}
}

// Req: T-13
func TestWhatTheClusterDecidesIsShownToTheApprover(t *testing.T) {
	cluster := plantCluster(func(c *v1alpha1.TalosCluster) { c.Spec.InstallImage = "factory.example.com/installer:v1.13.9" })
	s := newSession(pendingMachine(func(m *v1alpha1.TalosMachine) { approveAs(m, v1alpha1.RoleWorker) }), cluster).run(t, approvalArgs("--hostname", "mixer-1", "--yes")...).wantOK(t)
	wantContains(t, s.out, "https://192.0.2.5:6443", "v1.36.2", "v1.13", "factory.example.com/installer:v1.13.9", "Patches:         1",
		"Warning: TalosCluster plant was changed 8m ago, after the machine was approved.")
}

// Req: T-18a
func TestAChangeOfAMachineThatRunsIsNotAskedForAsAWipe(t *testing.T) {
	s := newSession(pendingMachine(backInMaintenance, func(m *v1alpha1.TalosMachine) { m.Status.Conditions = nil }), plantCluster())
	s.input = "y\n"
	s.run(t, approvalArgs("--hostname", "mixer-1")...).wantOK(t)
	s.approval(t)
	wantContains(t, s.out, "It is installed already, and what changes is sent to it; no disk is wiped. Approve it as worker? [y/N]: ")
	if strings.Contains(s.out, "is lost") {
		t.Errorf("threatens with a wipe:\n%s", s.out)
	}
}
