package integration

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
)

// hold sends HOLD and wants it carried out at once.
func (e equipment) hold(t *testing.T) {
	t.Helper()
	answer, err := e.command(t, "", v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandHold, Reason: "a test"})
	if err != nil || answer.Status.Record.Outcome != v1alpha1.CommandDone {
		t.Fatalf("HOLD: %s, %v", toJSON(answer), err)
	}
	if state := e.unit(t).Status.State; state != v1alpha1.UnitHolding && state != v1alpha1.UnitHeld {
		t.Errorf("the Unit is %s", state)
	}
}

// A policy that is wrong about us, and a webhook that nobody answers, are what a plant meets first.
//
// Req: P-16, A-04
func TestPoliciesAndWebhooksOfOthersKeepNoUnitRunning(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, true)
	validating(t, "status-"+e.namespace, e.namespace,
		`request.subResource != 'status' && (!has(object.metadata.labels) || !('forbidden' in object.metadata.labels))`, "no status for anybody",
		"units", "units/status", "iomodules", "iomodules/status")
	if _, err := env.Host().AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "away-" + e.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "away.example.com", Rules: writesOf("units/status", "iomodules/status", "units"), NamespaceSelector: in(e.namespace),
			FailurePolicy: ptr.To(admissionregistrationv1.Fail), SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To(int32(1)),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/"), CABundle: nil},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	unit := kindOf("Unit")
	harness.Eventually(t, noticed, func() string {
		if err := dryCreate(t, unit, e.namespace, "forbidden"); !apierrors.IsInvalid(err) {
			return "the policy does not act yet: " + text(err)
		}
		if err := dryCreate(t, unit, e.namespace, "allowed"); err == nil {
			return "the webhook is not asked yet"
		}
		return ""
	})
	e.run(t)
	e.hold(t)
	harness.Eventually(t, noticed, func() string {
		module, err := env.Admin(t).PhysicalV1alpha1().IOModules(e.namespace).Get(t.Context(), "tank", metav1.GetOptions{})
		if err != nil || module.Status.State != v1alpha1.ModuleOnline {
			return "no state of the module is stored: " + toJSON(module)
		}
		return ""
	})
}

// labelsOf is a patch that adds labels of some bytes.
func labelsOf(bytes int) []byte {
	labels := map[string]string{}
	for i := range bytes / 72 {
		labels[fmt.Sprintf("l%06d", i)] = strings.Repeat("v", 63)
	}
	return []byte(toJSON(map[string]any{"metadata": map[string]any{"labels": labels}}))
}

// Somebody who may write labels, and may not override, makes the Unit as large as he can.
//
// Req: P-16, P-16a
func TestAnObjectIsNeverSoLargeThatItsStatusCannotBeStored(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, true)
	e.run(t)
	config := env.As(t, editor(t, e.namespace)).PhysicalV1alpha1()
	patch := func(bytes int) error {
		_, err := config.Units(e.namespace).Patch(t.Context(), "mixer", types.MergePatchType, labelsOf(bytes), metav1.PatchOptions{})
		return err
	}
	least, most := 1<<10, 3<<20
	for most-least > 4<<10 {
		if middle := (least + most) / 2; patch(middle) == nil {
			least = middle
		} else {
			most = middle
		}
	}
	if err := patch(most); err == nil || !strings.Contains(err.Error(), "without its status") && !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("%d bytes of labels: %v", most, err)
	}
	if err := patch(least); err != nil {
		t.Errorf("%d bytes of labels: %v", least, err)
	}
	t.Logf("a Unit takes %d bytes of labels", least)
	// A thousand characters of four bytes in all that is remembered of commands.
	for range 20 {
		if _, err := e.command(t, "", v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandManual, Reason: strings.Repeat("😀", 1024)}); err != nil {
			t.Fatal(err)
		}
	}
	e.hold(t)
	if err := patch(1 << 10); err != nil {
		t.Errorf("it cannot be made smaller: %v", err)
	}
}

// Req: P-16, P-16a
func TestALabelThatIsWrittenWithoutAPauseKeepsNoUnitRunning(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, true)
	e.run(t)
	client := env.As(t, editor(t, e.namespace)).PhysicalV1alpha1()
	done := make(chan struct{})
	var writing sync.WaitGroup
	var writes atomic.Int64
	for w := range 8 {
		writing.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				if _, err := client.Units(e.namespace).Patch(t.Context(), "mixer", types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"annotations":{"w%d":"%d"}}}`, w, i)), metav1.PatchOptions{}); err == nil {
					writes.Add(1)
				}
			}
		})
	}
	defer writing.Wait()
	defer close(done)
	time.Sleep(time.Second)
	before, began := writes.Load(), time.Now()
	e.hold(t)
	took := time.Since(began)
	t.Logf("held after %s; %d writes came before, %d meanwhile", took, before, writes.Load()-before)
	if before == 0 {
		t.Error("nobody wrote")
	}
}
