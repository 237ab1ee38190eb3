package bootstrap

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
)

// decision is what is to be done: either there is a target to bootstrap, or a verdict.
type decision struct {
	target  *answer
	verdict verdict
}

// verdict is what a look at a cluster came to.
type verdict struct {
	reason  reason
	message string
	// bootstrap is what status.bootstrap becomes; nil leaves it.
	bootstrap *v1alpha1.ClusterBootstrap
	// warning is a Warning Event of its own.
	warning string
}

func wait(r reason, format string, args ...any) decision {
	return decision{verdict: verdict{reason: r, message: fmt.Sprintf(format, args...)}}
}

// decide decides from what the machines say, and from what was recorded, whom to bootstrap, if anybody. It is pure.
//
// The order is the point of it: an etcd that anybody has ends everything; then nothing is done while anybody who may have
// one has not said that it has none; then nobody but the recorded machine is bootstrapped, as long as it is ours to wait
// for.
func decide(recorded *v1alpha1.ClusterBootstrap, answers []answer, bundleHash string, now time.Time, vain bool) decision {
	if found := having(answers, func(a answer) bool { return a.finding == member }); len(found) > 0 {
		return decision{verdict: adopted(recorded, found, now)}
	}

	if open, ok := firstOpen(answers, bundleHash, now); ok {
		return open
	}

	eligible := having(answers, func(a answer) bool { return a.eligible() && a.finding == never })

	if intended(recorded) {
		since := now.Sub(recorded.IntendedAt.Time)
		mine := having(answers, func(a answer) bool { return a.recorded })

		switch {
		case len(mine) > 0 && mine[0].eligible() && mine[0].finding == never:
			if since < settling && !vain {
				return wait(reasonBootstrapping, "control plane %s at %s was to be bootstrapped, and its etcd is given time to start",
					recorded.MachineName, recorded.Endpoint)
			}

			return aim(mine[0], bundleHash)
		case len(mine) > 0 && mine[0].approved:
			return wait(reasonAwaitingControlPlane, "control plane %s is the one to be bootstrapped, and waits for its configuration", mine[0].name)
		// Another is chosen; but not while what was sent to this one may still have an effect.
		case since < settling:
			return wait(reasonBootstrapping,
				"control plane %s was to be bootstrapped and is not one of the cluster's any more; what was sent to it is given time to show",
				recorded.MachineName)
		}
	}

	if len(eligible) == 0 {
		if waiting := having(answers, func(a answer) bool { return a.approved }); len(waiting) > 0 {
			return wait(reasonAwaitingControlPlane, "no control plane has its configuration yet: %s", names(waiting))
		}

		return wait(reasonNoControlPlane, "no control plane of this cluster is approved")
	}

	return aim(eligible[0], bundleHash)
}

// aim makes a machine the target, unless it was configured with other secrets than those at hand.
func aim(a answer, bundleHash string) decision {
	if a.bundleHash != "" && a.bundleHash != bundleHash {
		return rotated(a)
	}

	return decision{target: &a}
}

func rotated(a answer) decision {
	return wait(reasonBundleRotated,
		"the cluster's bundle is another than the one that control plane %s was configured with: put that one back, or configure the machine anew", a.name)
}

func intended(recorded *v1alpha1.ClusterBootstrap) bool {
	return recorded != nil && recorded.IntendedAt != nil && recorded.MachineName != ""
}

// adopted is the verdict on a cluster that has an etcd. Only what the recorded machine has is ours.
func adopted(recorded *v1alpha1.ClusterBootstrap, found []answer, now time.Time) verdict {
	at := metav1.NewTime(now)
	who := found[0]
	done := &v1alpha1.ClusterBootstrap{CompletedAt: &at}
	out := verdict{reason: reasonEtcdFound, bootstrap: done}

	if i := slices.IndexFunc(found, func(a answer) bool { return a.recorded }); i >= 0 && intended(recorded) {
		who, out.reason = found[i], reasonBootstrapped
		done.IntendedAt = recorded.IntendedAt
	}

	done.MachineName, done.Endpoint = who.name, who.address.String()
	out.message = fmt.Sprintf("etcd runs on control plane %s at %s, with %s", who.name, who.address, counted(len(who.members), "member"))

	switch {
	case out.reason != reasonEtcdFound:
	case intended(recorded):
		out.message += fmt.Sprintf("; control plane %s was to be bootstrapped, and has not said what came of that", recorded.MachineName)
	default:
		out.message += "; it was found there, and nothing was sent"
	}

	for _, other := range found {
		if !slices.ContainsFunc(other.members, func(m machine.EtcdMember) bool { return slices.ContainsFunc(who.members, sameID(m)) }) {
			out.warning = fmt.Sprintf(
				"control planes %s and %s have an etcd each, without a common member: the cluster is split; find out which one is wanted, and reset the other",
				who.name, other.name)

			break
		}
	}

	return out
}

func sameID(a machine.EtcdMember) func(machine.EtcdMember) bool {
	return func(b machine.EtcdMember) bool { return a.ID == b.ID }
}

// firstOpen finds what stands in the way of concluding that nobody has an etcd. Of several things it tells the one that
// somebody has to do something about, with all the machines that it is so with.
func firstOpen(answers []answer, bundleHash string, now time.Time) (decision, bool) {
	is := func(f finding) func(answer) bool {
		return func(a answer) bool { return a.required && a.finding == f }
	}
	young := func(a answer) bool { return a.installing || now.Sub(a.appliedAt) < leaving }

	if found := having(answers, func(a answer) bool {
		return is(strange)(a) && a.bundleHash != "" && a.bundleHash != bundleHash
	}); len(found) > 0 {
		return rotated(found[0]), true
	}

	if found := having(answers, is(another)); len(found) > 0 {
		return wait(reasonIdentityMismatch, "another machine answers at %s, where control plane %s should: %s. Nothing is bootstrapped before that one says that it has no etcd",
			found[0].address, found[0].name, found[0].detail), true
	}

	if found := having(answers, is(strange)); len(found) > 0 {
		return wait(reasonUntrusted, "what answers for control plane %s at %s is not known to be of this cluster: %s",
			found[0].name, found[0].address, found[0].detail), true
	}

	if found := having(answers, func(a answer) bool { return is(inMaintenance)(a) && a.configured && now.Sub(a.appliedAt) >= leaving }); len(found) > 0 {
		return wait(reasonInMaintenance,
			"control plane %s was configured, and a machine in maintenance mode answers at %s: un-approve it, and approve it again if it was wiped, or it is never configured again",
			found[0].name, found[0].address), true
	}

	if found := having(answers, func(a answer) bool { return is(silent)(a) && a.configured && !young(a) }); len(found) > 0 {
		return wait(reasonUnreachable,
			"control plane %s may have an etcd and does not answer: bring it back, or un-approve it if it is lost; nothing is bootstrapped before", names(found)), true
	}

	// Whoever it is, it has a certificate of the cluster, and perhaps an etcd that does not run just now.
	if found := having(answers, func(a answer) bool { return a.finding == unclear }); len(found) > 0 {
		return wait(reasonEtcdUnknown, "control plane %s at %s cannot say yet whether it has an etcd: %s",
			found[0].name, found[0].address, found[0].detail), true
	}

	if found := having(answers, func(a answer) bool { return a.required && a.finding != never && a.finding != notControlPlane }); len(found) > 0 {
		return wait(reasonAwaitingControlPlane, "control plane %s is being configured or installed", names(found)), true
	}

	return decision{}, false
}

func having(answers []answer, is func(answer) bool) []answer {
	var out []answer

	for _, a := range answers {
		if is(a) {
			out = append(out, a)
		}
	}

	return out
}

func names(answers []answer) string {
	const shown = 4

	var listed []string
	for _, a := range answers[:min(len(answers), shown)] {
		listed = append(listed, a.name)
	}

	out := strings.Join(listed, ", ")
	if more := len(answers) - shown; more > 0 {
		out += fmt.Sprintf(" and %d more", more)
	}

	return out
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}

	return fmt.Sprintf("%d %ss", n, what)
}
