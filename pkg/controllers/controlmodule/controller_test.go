package controlmodule

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
	"github.com/fieldplane/fieldplane/generated/informers"
)

const ns = "site-north"

func inlet(tags ...v1alpha1.Tag) *v1alpha1.ControlModule {
	c := &v1alpha1.ControlModule{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "inlet", Generation: 3}}
	c.Spec.UnitRef.Name = "mixer"
	c.Spec.Tags = tags
	return c
}

func tag(name, module, address string) v1alpha1.Tag {
	return v1alpha1.Tag{Name: name, IOModuleRef: v1alpha1.IOModuleReference{Name: module}, Address: address}
}

func modbus(name string) *v1alpha1.IOModule {
	return &v1alpha1.IOModule{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       v1alpha1.IOModuleSpec{Protocol: v1alpha1.ProtocolModbus, Modbus: &v1alpha1.ModbusConnection{Endpoint: "tcp://192.0.2.1:502"}},
	}
}

// Req: P-14
func TestWhatDoesNotResolveIsTold(t *testing.T) {
	many := make([]v1alpha1.Tag, 9)
	for i := range many {
		many[i] = tag(strings.Repeat("t", i+1), "flow", "nonsense")
	}
	for _, tc := range []struct {
		name     string
		tags     []v1alpha1.Tag
		noUnit   bool
		reason   string
		messages []string
	}{
		{name: "nothing to refer to", reason: ReasonResolved},
		{name: "all is there", tags: []v1alpha1.Tag{tag("a", "flow", "holding:1"), tag("b", "level", "coil:0")}, reason: ReasonResolved},
		{name: "no Unit", noUnit: true, reason: ReasonUnitNotFound, messages: []string{"there is no Unit mixer"}},
		{name: "no module, told once", tags: []v1alpha1.Tag{tag("a", "gone", "holding:1"), tag("b", "gone", "holding:2")},
			reason: ReasonIOModuleNotFound, messages: []string{"there is no IOModule gone"}},
		{name: "an address that is none", tags: []v1alpha1.Tag{tag("a", "flow", "ns=2;i=5")},
			reason: ReasonTagInvalid, messages: []string{"tag a.address", "on IOModule flow"}},
		{name: "everything at once, the worst first", noUnit: true, tags: []v1alpha1.Tag{tag("a", "flow", "x"), tag("b", "gone", "holding:2")},
			reason: ReasonUnitNotFound, messages: []string{"there is no Unit mixer; there is no IOModule gone; tag a.address"}},
		{name: "more than can be told", tags: many, reason: ReasonTagInvalid, messages: []string{"and 4 more"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reason, message, err := resolve(inlet(tc.tags...), !tc.noUnit, func(name string) (*v1alpha1.IOModule, error) {
				if name == "gone" {
					return nil, nil
				}
				return modbus(name), nil
			})
			if err != nil || reason != tc.reason {
				t.Errorf("%s: %s, %v; want %s", reason, message, err, tc.reason)
			}
			for _, part := range tc.messages {
				if !strings.Contains(message, part) || strings.Count(message, "there is no IOModule gone") > 1 {
					t.Errorf("the message is %q, want %q in it", message, part)
				}
			}
		})
	}
}

// Req: P-14
func TestTheConditionFollowsWhatComesAndGoesAndIsWrittenOnce(t *testing.T) {
	client := fake.NewSimpleClientset(inlet(tag("a", "flow", "holding:1")))
	factory := informers.NewSharedInformerFactory(client, 0)
	physical := factory.Physical().V1alpha1()
	c := New(Options{
		Client: client.PhysicalV1alpha1(), ControlModules: physical.ControlModules(), Units: physical.Units(), Modules: physical.IOModules(),
		Clock: clock.RealClock{},
	})
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	becomes := func(what, want string) {
		t.Helper()
		got := ""
		for end := time.Now().Add(10 * time.Second); got != want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: the condition is %q, want %q", what, got, want)
			}
			is, err := client.PhysicalV1alpha1().ControlModules(ns).Get(ctx, "inlet", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if condition := meta.FindStatusCondition(is.Status.Conditions, ConditionReferencesResolved); condition != nil && is.Status.ObservedGeneration == is.Generation {
				got = string(condition.Status) + " " + condition.Reason
			}
		}
	}
	becomes("alone", "False UnitNotFound")
	unit := &v1alpha1.Unit{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mixer"}}
	if _, err := client.PhysicalV1alpha1().Units(ns).Create(ctx, unit, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes("with its Unit", "False IOModuleNotFound")
	if _, err := client.PhysicalV1alpha1().IOModules(ns).Create(ctx, modbus("flow"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes("with its module", "True Resolved")
	changed := modbus("flow")
	changed.Generation, changed.Spec = 2, v1alpha1.IOModuleSpec{Protocol: v1alpha1.ProtocolOPCUA}
	if _, err := client.PhysicalV1alpha1().IOModules(ns).Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes("with a module of another protocol", "False TagInvalid")
	if err := client.PhysicalV1alpha1().IOModules(ns).Delete(ctx, "flow", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes("without its module", "False IOModuleNotFound")

	time.Sleep(2 * batchWindow)
	client.ClearActions()
	other := modbus("other")
	if _, err := client.PhysicalV1alpha1().IOModules(ns).Create(ctx, other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * batchWindow)
	for _, a := range client.Actions() {
		if a.GetVerb() == "update" {
			t.Errorf("what does not concern it has it written: %v", a)
		}
	}
}

// Req: P-14
func TestReferrersForgetWhatNoLongerRefers(t *testing.T) {
	r := newReferrers()
	key := keyOf(inlet())
	r.set(key, inlet(tag("a", "flow", "holding:1"), tag("b", "flow", "holding:2"), tag("c", "level", "holding:1")))
	flow, level := modbus("flow"), modbus("level")
	if len(r.of(moduleTarget(keyOf(flow)))) != 1 || len(r.of(moduleTarget(keyOf(level)))) != 1 {
		t.Errorf("referrers %v", r.by)
	}
	r.set(key, inlet(tag("c", "level", "holding:1")))
	if len(r.of(moduleTarget(keyOf(flow)))) != 0 || len(r.of(moduleTarget(keyOf(level)))) != 1 {
		t.Errorf("referrers %v", r.by)
	}
	r.set(key, nil)
	if len(r.by)+len(r.targets) != 0 {
		t.Errorf("referrers %v", r.by)
	}
}
