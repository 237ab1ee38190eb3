package bootstrap

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
)

// kinds are all ways in which a machine can be concerned.
func kinds() map[string]subject {
	return map[string]subject{
		"configured":              {approved: true, configured: true, required: true},
		"installing":              {approved: true, configured: true, required: true, installing: true},
		"perhaps configured":      {approved: true, required: true},
		"to be configured":        {approved: true, stranger: true},
		"un-approved":             {configured: true},
		"pending":                 {stranger: true},
		"recorded":                {approved: true, configured: true, required: true, recorded: true},
		"recorded, unconfigured":  {approved: true, required: true, recorded: true},
		"recorded, now a worker":  {configured: true, required: true, recorded: true},
		"recorded, un-approved":   {configured: true, recorded: true, released: true},
		"recorded, of old bundle": {approved: true, configured: true, required: true, recorded: true, bundleHash: "former"},
	}
}

// Req. Every pair of machines, in every way in which they can be concerned, with every answer of each.
func TestNoAnswerOfAnyMachineHasTwoEtcdsMade(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	targets := 0

	check := func(recorded *v1alpha1.ClusterBootstrap, answers []answer, vain bool) {
		t.Helper()

		got := decide(recorded, answers, "hash", now, vain)
		describe := func() string {
			out := fmt.Sprintf("recorded %+v:", recorded)
			for _, a := range answers {
				out += fmt.Sprintf(" %+v says %d;", a.subject, a.finding)
			}

			return out
		}

		if hasEtcd := slices.ContainsFunc(answers, func(a answer) bool { return a.finding == member }); hasEtcd != (got.verdict.bootstrap != nil) {
			t.Errorf("%s: concluded %+v", describe(), got.verdict)
		}

		if got.target == nil {
			if _, ok := outcomes()[got.verdict.reason]; !ok || got.verdict.message == "" {
				t.Errorf("%s: verdict %+v", describe(), got.verdict)
			}

			return
		}

		targets++

		if !got.target.approved || !got.target.configured || got.target.finding != never || got.target.bundleHash == "former" {
			t.Errorf("%s: would bootstrap %+v", describe(), got.target)
		}

		for _, a := range answers {
			switch {
			case a.finding == member, a.finding == unclear:
				t.Errorf("%s: would bootstrap although %s may have an etcd", describe(), a.name)
			case a.required && a.finding != never && a.finding != notControlPlane:
				t.Errorf("%s: would bootstrap although %s has not said that it has none", describe(), a.name)
			case a.recorded && a.approved && got.target.name != a.name:
				t.Errorf("%s: would bootstrap another than the recorded one", describe())
			}
		}

		if recorded != nil && now.Sub(recorded.IntendedAt.Time) < settling && !(vain && got.target.recorded) {
			t.Errorf("%s: would bootstrap too soon", describe())
		}
	}

	at := func(age time.Duration) *v1alpha1.ClusterBootstrap {
		time := metav1.NewTime(now.Add(-age))

		return &v1alpha1.ClusterBootstrap{MachineName: "a", Endpoint: "192.0.2.1", IntendedAt: &time}
	}

	for _, first := range kinds() {
		for _, second := range kinds() {
			if second.recorded {
				continue
			}

			for firstSays := silent; firstSays <= member; firstSays++ {
				for secondSays := silent; secondSays <= member; secondSays++ {
					first.name, second.name = "a", "b"
					answers := []answer{
						{subject: first, finding: firstSays, address: netip.MustParseAddr("192.0.2.1"), members: membersOf(firstSays, 1)},
						{subject: second, finding: secondSays, address: netip.MustParseAddr("192.0.2.2"), members: membersOf(secondSays, 2)},
					}

					if !first.recorded {
						check(nil, answers, false)
						// Deleted, and its address empty.
						check(at(time.Second), append(answers, answer{subject: subject{name: "c", recorded: true, released: true}}), false)
						check(at(time.Hour), append(answers, answer{subject: subject{name: "c", recorded: true, released: true}}), false)

						continue
					}

					for _, age := range []time.Duration{0, settling - time.Second, settling, time.Hour} {
						check(at(age), answers, false)
						check(at(age), answers, true)
					}
				}
			}
		}
	}

	if targets < 100 {
		t.Errorf("only %d cases end with a bootstrap", targets)
	}
}

func membersOf(f finding, id uint64) []machine.EtcdMember {
	if f != member {
		return nil
	}

	return []machine.EtcdMember{{ID: id}}
}

func TestEveryReasonHasAnOutcome(t *testing.T) {
	for r, o := range outcomes() {
		done := r == reasonBootstrapped || r == reasonEtcdFound

		if (o.status == metav1.ConditionTrue) != done {
			t.Errorf("%s is %s", r, o.status)
		}

		if done && o.again != 0 {
			t.Errorf("%s is looked at again", r)
		}
	}
}
