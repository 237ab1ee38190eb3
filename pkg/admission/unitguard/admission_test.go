package unitguard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
	"github.com/fieldplane/fieldplane/pkg/admission/initializer"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

const (
	namespace = "site-a"
	loopback  = "system:apiserver"
)

// reviewer answers whether a user may, by the names of Units for which he may; "" is all of them.
type reviewer struct {
	may   []string
	err   error
	asked []authorizer.Attributes
}

func (r *reviewer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.asked = append(r.asked, a)
	if r.err != nil {
		return authorizer.DecisionNoOpinion, "", r.err
	}
	if slices.Contains(r.may, "") || a.GetName() != "" && slices.Contains(r.may, a.GetName()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// plant is what the plugin can see.
type plant struct {
	objects []runtime.Object
	failing string // resource that cannot be read
	reviewer
	informed, live *corev1.Namespace
	liveErr        error
	unsynced       bool
}

func site(terminating bool) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if terminating {
		ns.DeletionTimestamp = ptr.To(metav1.NewTime(time.Unix(0, 0)))
	}
	return ns
}

func (p *plant) plugin(t *testing.T) *Guard {
	t.Helper()
	host := kubefake.NewClientset()
	if p.live != nil {
		host = kubefake.NewClientset(p.live)
	}
	if p.liveErr != nil {
		host.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, p.liveErr })
	}
	client := fake.NewClientset(p.objects...)
	if p.failing != "" {
		client.PrependReactor("*", p.failing, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("the store is away")
		})
	}
	factory := kubeinformers.NewSharedInformerFactory(host, 0)
	if p.informed != nil {
		if err := factory.Core().V1().Namespaces().Informer().GetIndexer().Add(p.informed); err != nil {
			t.Fatal(err)
		}
	}
	guard := New()
	guard.SetUncachedAuthorizer(&p.reviewer)
	guard.SetFieldplaneClient(client)
	guard.SetServerIdentity(initializer.NewServerIdentity(loopback))
	guard.SetExternalKubeClientSet(host)
	guard.SetExternalKubeInformerFactory(factory)
	if err := guard.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	guard.Synced = func() bool { return !p.unsynced }
	return guard
}

// write asks the plugin about an update, or, without an object, a deletion. A deletecollection names nothing.
func (p *plant) write(t *testing.T, stored, updated runtime.Object, as string, named bool) error {
	t.Helper()
	resource, name := "", ""
	switch stored := stored.(type) {
	case *physical.Unit:
		resource, name = "units", stored.Name
	case *physical.ControlModule:
		resource, name = "controlmodules", stored.Name
	case *physical.IOModule:
		resource, name = "iomodules", stored.Name
	}
	if !named {
		name = ""
	}
	operation := admission.Update
	if updated == nil {
		operation = admission.Delete
	}
	return p.plugin(t).Validate(context.Background(), admission.NewAttributesRecord(updated, stored, schema.GroupVersionKind{}, namespace, name,
		schema.GroupVersionResource{Group: physical.GroupName, Version: "v1alpha1", Resource: resource}, "", operation, nil, false, &user.DefaultInfo{Name: as}), nil)
}

func code(err error) int32 {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &status):
		return status.Status().Code
	}
	return 0
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }

func servedUnit(name string, state v1alpha1.UnitState) *v1alpha1.Unit {
	return &v1alpha1.Unit{ObjectMeta: meta(name), Status: v1alpha1.UnitStatus{State: state}}
}

// served is a ControlModule of a Unit, with a tag that is read from each module.
func served(name, unit string, modules ...string) *v1alpha1.ControlModule {
	module := &v1alpha1.ControlModule{ObjectMeta: meta(name), Spec: v1alpha1.ControlModuleSpec{UnitRef: v1alpha1.UnitReference{Name: unit}}}
	for i, ref := range modules {
		module.Spec.Tags = append(module.Spec.Tags, v1alpha1.Tag{Name: fmt.Sprint("t", i), Address: fmt.Sprint("holding:", i), IOModuleRef: v1alpha1.IOModuleReference{Name: ref}})
	}
	return module
}

func storedUnit(state physical.UnitState) *physical.Unit {
	return &physical.Unit{ObjectMeta: meta("mixer"), Status: physical.UnitStatus{State: state}, Spec: physical.UnitSpec{
		HoldOn:           []physical.ModuleState{physical.ModuleFault, physical.ModuleOffline},
		UnknownHoldAfter: &metav1.Duration{Duration: time.Minute},
		HoldTimeout:      &metav1.Duration{Duration: 30 * time.Second},
	}}
}

func storedControlModule() *physical.ControlModule {
	return &physical.ControlModule{ObjectMeta: meta("drive"), Spec: physical.ControlModuleSpec{
		UnitRef: physical.UnitReference{Name: "mixer"},
		Tags: []physical.Tag{
			{Name: "speed", IOModuleRef: physical.IOModuleReference{Name: "press"}, Address: "holding:1", DataType: physical.DataTypeUint16, Access: physical.AccessReadWrite,
				Period: &metav1.Duration{Duration: time.Second}, HoldValue: ptr.To("0"), Scaling: &physical.Scaling{Factor: ptr.To(0.1)}, Unit: "1/min"},
			{Name: "level", IOModuleRef: physical.IOModuleReference{Name: "press"}, Address: "holding:2", DataType: physical.DataTypeUint16, Access: physical.AccessRead, Scaling: &physical.Scaling{Factor: ptr.To(0.1)}},
		},
	}}
}

func storedIOModule() *physical.IOModule {
	return &physical.IOModule{ObjectMeta: meta("press"), Spec: physical.IOModuleSpec{
		Protocol: physical.ProtocolModbus,
		Modbus:   &physical.ModbusConnection{Endpoint: "tcp://192.0.2.1", UnitID: ptr.To(int32(1)), WordOrder: physical.WordOrderABCD, Addressing: physical.ModbusAddressingZeroBased, MaxConnections: ptr.To(int32(4))},
		Probe: &physical.ProbeSettings{
			Period: &metav1.Duration{Duration: 500 * time.Millisecond}, Timeout: &metav1.Duration{Duration: 500 * time.Millisecond}, FailureThreshold: ptr.To(int32(2)), SuccessThreshold: ptr.To(int32(3)),
		},
	}}
}

func changed[T runtime.Object](stored T, edits ...func(T)) T {
	updated := stored.DeepCopyObject().(T)
	for _, edit := range edits {
		edit(updated)
	}
	return updated
}

// writes are all rows of P-16a, and what stands beside them and disarms nothing.
type write struct {
	name            string
	stored, updated runtime.Object
	// needs is what the refusal says is done; "": the verb is not needed.
	needs string
}

func writes() []write {
	u, c, m := storedUnit(physical.UnitRunning), storedControlModule(), storedIOModule()
	unit := func(name, needs string, edit func(*physical.Unit)) write {
		return write{"Unit: " + name, u, changed(u, edit), needs}
	}
	module := func(name, needs string, edit func(*physical.ControlModule)) write {
		return write{"ControlModule: " + name, c, changed(c, edit), needs}
	}
	device := func(name, needs string, edit func(*physical.IOModule)) write {
		return write{"IOModule: " + name, m, changed(m, edit), needs}
	}
	opcua := changed(m, func(m *physical.IOModule) {
		m.Spec.Protocol, m.Spec.Modbus = physical.ProtocolOPCUA, nil
		m.Spec.OPCUA = &physical.OPCUAConnection{Endpoint: "opc.tcp://192.0.2.1", SecurityPolicy: physical.OPCUASecurityPolicyBasic256Sha256, UserName: "a", TrustedThumbprint: "aa"}
	})
	enip := changed(m, func(m *physical.IOModule) {
		m.Spec.Protocol, m.Spec.Modbus = physical.ProtocolEtherNetIP, nil
		m.Spec.Ethernetip = &physical.EtherNetIPConnection{Endpoint: "tcp://192.0.2.1", Path: "1,0"}
	})
	finalized := func(meta *metav1.ObjectMeta) {
		meta.DeletionTimestamp, meta.Finalizers = &metav1.Time{}, []string{"test.example/hold"}
	}
	dying, dyingDevice := changed(c, func(c *physical.ControlModule) { finalized(&c.ObjectMeta) }), changed(m, func(m *physical.IOModule) { finalized(&m.ObjectMeta) })
	declared := changed(m, func(m *physical.IOModule) {
		m.Spec.Channels = []physical.Channel{{Name: "a", Address: "holding:0", DataType: physical.DataTypeInt32}, {Name: "a2", Address: "holding:0", DataType: physical.DataTypeInt16}, {Name: "c", Address: "holding:9"}}
	})
	labelled := func(meta *metav1.ObjectMeta) { meta.Labels = map[string]string{"a": "b"} }

	return []write{
		{"Unit: deleting it", u, nil, `delete Unit "mixer"`},
		unit("Offline holds no more", "change spec.holdOn of", func(u *physical.Unit) { u.Spec.HoldOn = u.Spec.HoldOn[:1] }),
		unit("Unknown instead of Offline", "change spec.holdOn of", func(u *physical.Unit) {
			u.Spec.HoldOn = []physical.ModuleState{physical.ModuleFault, physical.ModuleUnknown}
		}),
		unit("Unknown as well", "", func(u *physical.Unit) { u.Spec.HoldOn = append(u.Spec.HoldOn, physical.ModuleUnknown) }),
		unit("the same in another order", "", func(u *physical.Unit) { slices.Reverse(u.Spec.HoldOn) }),
		unit("Unknown holds later", "change spec.unknownHoldAfter of", func(u *physical.Unit) { u.Spec.UnknownHoldAfter.Duration++ }),
		unit("Unknown never holds", "change spec.unknownHoldAfter of", func(u *physical.Unit) { u.Spec.UnknownHoldAfter.Duration = 0 }),
		unit("Unknown holds sooner", "", func(u *physical.Unit) { u.Spec.UnknownHoldAfter.Duration = time.Second }),
		unit("Unknown holds by default, which is as soon", "", func(u *physical.Unit) { u.Spec.UnknownHoldAfter = nil }),
		{"Unit: Unknown holds, where it never did", changed(u, func(u *physical.Unit) { u.Spec.UnknownHoldAfter.Duration = 0 }), u, ""},
		{"Unit: Unknown holds later than by default", changed(u, func(u *physical.Unit) { u.Spec.UnknownHoldAfter = nil }),
			changed(u, func(u *physical.Unit) { u.Spec.UnknownHoldAfter.Duration = time.Hour }), "change spec.unknownHoldAfter of"},
		unit("the alarm comes later, the runtime runs elsewhere", "", func(u *physical.Unit) {
			u.Spec.HoldTimeout.Duration, u.Spec.NodeSelector = time.Hour, map[string]string{"zone": "b"}
		}),
		unit("a label", "", func(u *physical.Unit) { labelled(&u.ObjectMeta) }),
		unit("nothing", "", func(*physical.Unit) {}),

		{"ControlModule: deleting it", c, nil, `delete ControlModule "drive"`},
		{"ControlModule: deleting it for good", dying, changed(dying, func(c *physical.ControlModule) { c.Finalizers = nil }), `delete ControlModule "drive"`},
		{"ControlModule: one finalizer of two", changed(dying, func(c *physical.ControlModule) { c.Finalizers = []string{"a/b", "c/d"} }), dying, ""},
		module("moving it to another Unit", "change spec.unitRef of", func(c *physical.ControlModule) { c.Spec.UnitRef.Name = "press" }),
		module("removing a tag", "change spec.tags[level] of", func(c *physical.ControlModule) { c.Spec.Tags = c.Spec.Tags[:1] }),
		module("removing all tags", "change spec.tags[speed], spec.tags[level] of", func(c *physical.ControlModule) { c.Spec.Tags = nil }),
		module("renaming a tag", "change spec.tags[level] of", func(c *physical.ControlModule) { c.Spec.Tags[1].Name = "height" }),
		module("another module", "change spec.tags[level].ioModuleRef of", func(c *physical.ControlModule) { c.Spec.Tags[1].IOModuleRef.Name = "other" }),
		module("another address", "change spec.tags[level].address of", func(c *physical.ControlModule) { c.Spec.Tags[1].Address = "holding:9" }),
		module("another type", "change spec.tags[level].dataType of", func(c *physical.ControlModule) { c.Spec.Tags[1].DataType = physical.DataTypeInt16 }),
		module("two tags exchanged", "change spec.tags[speed].address, spec.tags[level].address of", func(c *physical.ControlModule) {
			c.Spec.Tags[0].Address, c.Spec.Tags[1].Address = c.Spec.Tags[1].Address, c.Spec.Tags[0].Address
		}),
		module("no hold value", "change spec.tags[speed].holdValue of", func(c *physical.ControlModule) { c.Spec.Tags[0].HoldValue = nil }),
		module("another hold value", "change spec.tags[speed].holdValue of", func(c *physical.ControlModule) { c.Spec.Tags[0].HoldValue = ptr.To("100") }),
		module("another scale of a hold value", "change spec.tags[speed].scaling of", func(c *physical.ControlModule) { c.Spec.Tags[0].Scaling.Factor = ptr.To(10.0) }),
		module("a hold value more", "", func(c *physical.ControlModule) { c.Spec.Tags[1].HoldValue = ptr.To("1") }),
		module("another scale of a value", "", func(c *physical.ControlModule) { c.Spec.Tags[1].Scaling = nil }),
		module("read less often", "", func(c *physical.ControlModule) { c.Spec.Tags[0].Period.Duration = time.Minute }),
		module("shown otherwise", "", func(c *physical.ControlModule) { c.Spec.Tags[0].Unit = "Hz" }),
		module("a tag more", "", func(c *physical.ControlModule) { c.Spec.Tags = append(c.Spec.Tags, physical.Tag{Name: "new"}) }),
		module("the tags in another order", "", func(c *physical.ControlModule) { slices.Reverse(c.Spec.Tags) }),
		module("a label", "", func(c *physical.ControlModule) { labelled(&c.ObjectMeta) }),

		{"IOModule: deleting it", m, nil, `delete IOModule "press"`},
		{"IOModule: deleting it for good", dyingDevice, changed(dyingDevice, func(m *physical.IOModule) { m.Finalizers = nil }), `delete IOModule "press"`},
		device("another protocol", "change spec.protocol, spec.controllerRef, spec.modbus of", func(m *physical.IOModule) {
			m.Spec.Protocol, m.Spec.Modbus, m.Spec.ControllerRef = physical.ProtocolSimulation, nil, &physical.ControllerReference{Name: "sim"}
		}),
		device("another Controller", "change spec.controllerRef of", func(m *physical.IOModule) { m.Spec.ControllerRef = &physical.ControllerReference{Name: "c"} }),
		device("another zone", "change spec.probePlacement of", func(m *physical.IOModule) {
			m.Spec.ProbePlacement = &physical.ProbePlacement{NodeSelector: map[string]string{"zone": "b"}}
		}),
		device("a selector of nothing", "", func(m *physical.IOModule) { m.Spec.ProbePlacement = &physical.ProbePlacement{} }),
		device("another address", "change spec.modbus of", func(m *physical.IOModule) { m.Spec.Modbus.Endpoint = "tcp://192.0.2.2" }),
		device("another unit id", "change spec.modbus of", func(m *physical.IOModule) { m.Spec.Modbus.UnitID = ptr.To(int32(2)) }),
		device("another order of words", "change spec.modbus of", func(m *physical.IOModule) { m.Spec.Modbus.WordOrder = physical.WordOrderDCBA }),
		device("another addressing", "change spec.modbus of", func(m *physical.IOModule) { m.Spec.Modbus.Addressing = physical.ModbusAddressingReference }),
		device("fewer connections, closed each time", "", func(m *physical.IOModule) { m.Spec.Modbus.MaxConnections, m.Spec.Modbus.CloseAfterPoll = nil, true }),
		device("a channel that no tag reads", "", func(m *physical.IOModule) { m.Spec.Channels = []physical.Channel{{Name: "a", Address: "holding:100"}} }),
		device("a channel whose order a tag would take over", "change spec.channels[holding:0] of", func(m *physical.IOModule) {
			m.Spec.Channels = []physical.Channel{{Name: "a", Address: "holding:0", WordOrder: physical.WordOrderDCBA}}
		}),
		{"IOModule: a channel that a tag reads, as float64", declared, changed(declared, func(m *physical.IOModule) { m.Spec.Channels[0].DataType = physical.DataTypeFloat64 }), "change spec.channels[holding:0] of"},
		{"IOModule: no channel where a tag reads", declared, changed(declared, func(m *physical.IOModule) { m.Spec.Channels = m.Spec.Channels[2:] }), "change spec.channels[holding:0] of"},
		{"IOModule: the second channel of an address", declared, changed(declared, func(m *physical.IOModule) { m.Spec.Channels[1].WordOrder = physical.WordOrderBADC }), ""},
		{"IOModule: channels exchanged", declared, changed(declared, func(m *physical.IOModule) { slices.Reverse(m.Spec.Channels) }), "change spec.channels[holding:0] of"},
		{"IOModule: names, units and scales of channels, one more, and one element instead of none said", declared, changed(declared, func(m *physical.IOModule) {
			m.Spec.Channels[0].Name, m.Spec.Channels[0].Unit, m.Spec.Channels[0].Count = "b", "bar", ptr.To(int32(1))
			m.Spec.Channels = append(m.Spec.Channels, physical.Channel{Address: "holding:7"})
		}), ""},
		{"IOModule: a channel that no tag reads, and another device", declared, changed(declared, func(m *physical.IOModule) {
			m.Spec.Channels[2].DataType, m.Spec.Modbus.Endpoint = physical.DataTypeBool, "tcp://192.0.2.2"
		}),
			"change spec.modbus, spec.channels[holding:9] of"},
		{"IOModule: another OPC UA server", opcua, changed(opcua, func(m *physical.IOModule) { m.Spec.OPCUA.Endpoint = "opc.tcp://192.0.2.2" }), "change spec.opcua of"},
		{"IOModule: any OPC UA server", opcua, changed(opcua, func(m *physical.IOModule) { m.Spec.OPCUA.TrustedThumbprint = "" }), "change spec.opcua of"},
		{"IOModule: an OPC UA server that nobody can tell from another", opcua, changed(opcua, func(m *physical.IOModule) { m.Spec.OPCUA.SecurityPolicy = physical.OPCUASecurityPolicyNone }), "change spec.opcua of"},
		{"IOModule: another user of the OPC UA server", opcua, changed(opcua, func(m *physical.IOModule) { m.Spec.OPCUA.UserName, m.Spec.OPCUA.CredentialsKey = "b", "key" }), ""},
		{"IOModule: another slot", enip, changed(enip, func(m *physical.IOModule) { m.Spec.Ethernetip.Path = "1,1" }), "change spec.ethernetip of"},
		{"IOModule: asked for its identity alone", enip, changed(enip, func(m *physical.IOModule) { m.Spec.Ethernetip.IdentityOnly = true }), "change spec.ethernetip of"},
		{"IOModule: fewer CIP connections", enip, changed(enip, func(m *physical.IOModule) { m.Spec.Ethernetip.MaxConnections = ptr.To(int32(1)) }), ""},
		device("asked less often", "change spec.probe.period of", func(m *physical.IOModule) { m.Spec.Probe.Period.Duration = 2 * time.Second }),
		device("with more time for an answer", "change spec.probe.timeout of", func(m *physical.IOModule) { m.Spec.Probe.Timeout.Duration = time.Second }),
		device("forgiven more failures", "change spec.probe.failureThreshold of", func(m *physical.IOModule) { m.Spec.Probe.FailureThreshold = ptr.To(int32(10)) }),
		device("Online sooner", "change spec.probe.successThreshold of", func(m *physical.IOModule) { m.Spec.Probe.SuccessThreshold = ptr.To(int32(1)) }),
		device("probed by default, which is less often", "change spec.probe.period, spec.probe.timeout, spec.probe.failureThreshold, spec.probe.successThreshold of", func(m *physical.IOModule) { m.Spec.Probe = nil }),
		device("probed more closely", "", func(m *physical.IOModule) {
			m.Spec.Probe = &physical.ProbeSettings{Period: &metav1.Duration{Duration: 250 * time.Millisecond}, Timeout: &metav1.Duration{Duration: 50 * time.Millisecond}, FailureThreshold: ptr.To(int32(1)), SuccessThreshold: ptr.To(int32(10))}
		}),
		device("a label", "", func(m *physical.IOModule) { labelled(&m.ObjectMeta) }),
	}
}

// in has every Unit of a write in a state.
func (w write) in(state physical.UnitState) (write, []runtime.Object) {
	if stored, ok := w.stored.(*physical.Unit); ok {
		w.stored = changed(stored, func(u *physical.Unit) { u.Status.State = state })
		if updated, ok := w.updated.(*physical.Unit); ok && updated != nil {
			w.updated = changed(updated, func(u *physical.Unit) { u.Status.State = state })
		}
	}
	return w, []runtime.Object{servedUnit("mixer", v1alpha1.UnitState(state)), servedUnit("other", v1alpha1.UnitRunning), served("drive", "mixer", "press", "press"), served("pump", "other", "tank")}
}

// Every row of P-16a, in every state, by who has the verb, who has not, and when nobody can say.
//
// Req: P-16a
func TestEveryWriteInEveryState(t *testing.T) {
	for _, w := range writes() {
		for _, state := range append(isa88.States(), "", "Nonsense") {
			t.Run(fmt.Sprintf("%s/in %q", w.name, state), func(t *testing.T) {
				w, objects := w.in(physical.UnitState(state))
				needed := w.needs != "" && isa88.Active(state)
				for _, tc := range []struct {
					name string
					reviewer
					want int32
				}{
					{"with the verb", reviewer{may: []string{""}}, http.StatusOK},
					{"with the verb on this Unit", reviewer{may: []string{"mixer"}}, http.StatusOK},
					{"with the verb on another", reviewer{may: []string{"other"}}, http.StatusForbidden},
					{"without the verb", reviewer{}, http.StatusForbidden},
					{"and nobody can say", reviewer{err: errors.New("host is away")}, http.StatusServiceUnavailable},
				} {
					for _, named := range []bool{true, false} {
						if !named && w.updated != nil {
							continue
						}
						want := tc.want
						if !needed {
							want = http.StatusOK
						}
						p := &plant{objects: objects, reviewer: tc.reviewer, informed: site(false), live: site(false)}
						err := p.write(t, w.stored, w.updated, "ada", named)
						if have := code(err); have != want {
							t.Errorf("%s: have %d: %v", tc.name, have, err)
						}
						if !needed && len(p.asked) > 0 {
							t.Errorf("%s: asked, and need not", tc.name)
						}
						if want == http.StatusForbidden {
							for _, text := range []string{w.needs, `"ada"`, `"override"`, "units/command", `Unit "mixer" is ` + string(state)} {
								if !strings.Contains(err.Error(), text) {
									t.Errorf("%q does not say %q", err, text)
								}
							}
						}
						for _, a := range p.asked {
							if a.GetVerb() != "override" || a.GetResource() != "units" || a.GetSubresource() != "command" || a.GetNamespace() != namespace || a.GetName() != "mixer" || a.GetUser().GetName() != "ada" {
								t.Errorf("asked %+v", a)
							}
						}
					}
				}
				// The server's own controllers.
				p := &plant{objects: objects, informed: site(false), live: site(false)}
				if err := p.write(t, w.stored, w.updated, loopback, true); err != nil || len(p.asked) > 0 {
					t.Errorf("the server itself: %v", err)
				}
			})
		}
	}
}

// Req: P-16a. What cannot be seen is not taken to be at rest.
func TestALookupThatFailsRefusesAndAsksToTryAgain(t *testing.T) {
	for _, w := range writes() {
		for _, failing := range []string{"units", "controlmodules"} {
			_, unit := w.stored.(*physical.Unit)
			_, module := w.stored.(*physical.ControlModule)
			w, objects := w.in(physical.UnitIdle)
			p := &plant{objects: objects, failing: failing, reviewer: reviewer{may: []string{""}}, informed: site(false), live: site(false)}
			want := int32(http.StatusOK)
			looked := w.needs != "" && !unit && (!module || failing == "units")
			// Which tags read a channel is not seen in the module.
			if stored, ok := w.stored.(*physical.IOModule); ok && w.updated != nil && failing == "controlmodules" {
				looked = looked || len(disarmIOModule(stored, w.updated.(*physical.IOModule))) > 0
			}
			if looked {
				want = http.StatusServiceUnavailable
			}
			err := p.write(t, w.stored, w.updated, "ada", true)
			if have := code(err); have != want || err != nil && (!strings.Contains(err.Error(), "the store is away") || !strings.Contains(err.Error(), "try again")) {
				t.Errorf("%s, without %s: have %v", w.name, failing, err)
			}
		}
	}
}

// Req: P-16a. A namespace that is going away takes all with it; nothing but a deletion goes by that.
func TestANamespaceThatIsGoingAwayTakesItsUnitsAlong(t *testing.T) {
	for _, w := range writes() {
		if w.needs == "" {
			continue
		}
		w, objects := w.in(physical.UnitRunning)
		deletes := strings.HasPrefix(w.needs, "delete")
		for _, tc := range []struct {
			name  string
			plant plant
			going bool
			want  int32
		}{
			{"the informer knows", plant{informed: site(true), live: site(true)}, true, http.StatusForbidden},
			{"the informer knows, and nothing can be read", plant{informed: site(true), live: site(true), failing: "*"}, true, http.StatusServiceUnavailable},
			{"the informer is behind", plant{informed: site(false), live: site(true)}, true, http.StatusForbidden},
			{"it is gone", plant{informed: site(false)}, true, http.StatusForbidden},
			{"the informer has not synced", plant{unsynced: true, informed: site(true), live: site(true)}, true, http.StatusForbidden},
			{"it stays", plant{informed: site(false), live: site(false)}, false, http.StatusForbidden},
			{"it stays, and the informer has not synced", plant{unsynced: true, informed: site(true), live: site(false)}, false, http.StatusForbidden},
			{"nobody knows", plant{informed: site(false), liveErr: errors.New("host is away")}, false, http.StatusForbidden},
		} {
			for _, named := range []bool{true, false} {
				want := tc.want
				_, unit := w.stored.(*physical.Unit)
				switch {
				case deletes && tc.going:
					want = http.StatusOK
				case deletes && tc.plant.liveErr != nil:
					want = http.StatusServiceUnavailable
				case unit:
					want = http.StatusForbidden // nothing has to be read
				}
				p := tc.plant
				p.objects = objects
				err := p.write(t, w.stored, w.updated, "system:serviceaccount:kube-system:namespace-controller", named)
				if have := code(err); have != want {
					t.Errorf("%s, %s: have %d, want %d: %v", w.name, tc.name, have, want, err)
				}
			}
		}
	}
}

// Req: P-16a. Of several Units each counts, and the refusal names one for which the user may not.
func TestAModuleThatSeveralUnitsRequire(t *testing.T) {
	stored := storedIOModule()
	dying := servedUnit("dying", v1alpha1.UnitRunning)
	dying.DeletionTimestamp, dying.Finalizers = &metav1.Time{}, []string{"a/b"}
	elsewhere := served("elsewhere", "far", "press")
	elsewhere.Namespace = "site-b"
	far := servedUnit("far", v1alpha1.UnitRunning)
	far.Namespace = "site-b"
	objects := []runtime.Object{
		servedUnit("c", v1alpha1.UnitRunning), servedUnit("a", v1alpha1.UnitHeld), servedUnit("b", v1alpha1.UnitCompleting), servedUnit("d", v1alpha1.UnitPaused),
		servedUnit("idle", v1alpha1.UnitIdle), servedUnit("unrelated", v1alpha1.UnitRunning), dying, elsewhere, far,
		served("m1", "c", "x", "press"), served("m2", "a", "press"), served("m3", "b", "press"), served("m4", "d", "press"), served("m5", "idle", "press"),
		served("m6", "unrelated", "x"), served("m7", "nobody", "press"), served("m8", "dying", "press"),
	}
	for _, tc := range []struct {
		name  string
		may   []string
		want  int32
		text  string
		asked []string
	}{
		{"on all", []string{""}, http.StatusOK, "", []string{""}},
		{"on each", []string{"a", "b", "c", "d"}, http.StatusOK, "", []string{"", "a", "b", "c", "d"}},
		{"on all but one", []string{"a", "b", "d"}, http.StatusForbidden, `while Unit "c" is Running, Unit "a" is Held, Unit "b" is Completing, 1 more are not at rest`, []string{"", "a", "b", "c"}},
		{"on none", nil, http.StatusForbidden, `while Unit "a" is Held, Unit "b" is Completing, Unit "c" is Running, 1 more are not at rest`, []string{"", "a"}},
	} {
		p := &plant{objects: objects, reviewer: reviewer{may: tc.may}, informed: site(false), live: site(false)}
		err := p.write(t, stored, nil, "ada", true)
		if have := code(err); have != tc.want || err != nil && !(strings.Contains(err.Error(), tc.text) && strings.Contains(err.Error(), `iomodules.physical.fieldplane.dev "press" is forbidden`)) {
			t.Errorf("%s: have %d: %v", tc.name, have, err)
		}
		var asked []string
		for _, a := range p.asked {
			asked = append(asked, a.GetName())
		}
		if !slices.Equal(asked, tc.asked) {
			t.Errorf("%s: asked %q", tc.name, asked)
		}
	}
}

// Req: P-16a. What was deleted with the verb takes its ControlModules along, as garbage collection does.
func TestTheControlModulesOfAUnitThatIsDeletedOrGoneGo(t *testing.T) {
	dying := servedUnit("mixer", v1alpha1.UnitRunning)
	dying.DeletionTimestamp, dying.Finalizers = &metav1.Time{}, []string{"foregroundDeletion"}
	for name, objects := range map[string][]runtime.Object{"being deleted": {dying}, "gone": nil} {
		p := &plant{objects: objects, informed: site(false), live: site(false)}
		if err := p.write(t, storedControlModule(), nil, "system:serviceaccount:kube-system:generic-garbage-collector", true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Req: P-16c
func TestACommandWithOverrideNeedsTheVerbOnItsUnit(t *testing.T) {
	for _, tc := range []struct {
		name     string
		override bool
		reviewer
		want int32
	}{
		{"without override", false, reviewer{err: errors.New("host is away")}, http.StatusOK},
		{"with the verb", true, reviewer{may: []string{"mixer"}}, http.StatusOK},
		{"without it", true, reviewer{}, http.StatusForbidden},
		{"with that of another Unit", true, reviewer{may: []string{"other"}}, http.StatusForbidden},
		{"and nobody can say", true, reviewer{err: errors.New("host is away")}, http.StatusServiceUnavailable},
	} {
		for _, body := range []string{"", "mixer", "other"} {
			p := &plant{reviewer: tc.reviewer}
			command := &physical.UnitCommand{ObjectMeta: metav1.ObjectMeta{Name: body}, Spec: physical.UnitCommandSpec{Command: physical.CommandStart, Override: tc.override, Reason: "r"}}
			err := p.plugin(t).Validate(context.Background(), admission.NewAttributesRecord(command, nil, schema.GroupVersionKind{}, namespace, "mixer",
				schema.GroupVersionResource{Group: physical.GroupName, Version: "v1alpha1", Resource: "units"}, "command", admission.Create, nil, false, &user.DefaultInfo{Name: "ada"}), nil)
			if have := code(err); have != tc.want || have == http.StatusForbidden && !(strings.Contains(err.Error(), `START Unit "mixer"`) && strings.Contains(err.Error(), `"override"`)) {
				t.Errorf("%s, body %q: have %d: %v", tc.name, body, have, err)
			}
			for _, a := range p.asked {
				if a.GetName() != "mixer" || a.GetVerb() != "override" || a.GetSubresource() != "command" || a.GetResource() != "units" {
					t.Errorf("asked %+v", a)
				}
			}
		}
	}
}

// Req: P-16a, A-05. What is not guarded, and what the API never sends.
func TestOtherRequestsPassAndUnexpectedObjectsDoNot(t *testing.T) {
	attributes := func(resource, subresource string, operation admission.Operation, obj, old runtime.Object) admission.Attributes {
		return admission.NewAttributesRecord(obj, old, schema.GroupVersionKind{}, namespace, "mixer",
			schema.GroupVersionResource{Group: physical.GroupName, Version: "v1alpha1", Resource: resource}, subresource, operation, nil, false, &user.DefaultInfo{Name: "ada"})
	}
	running := storedUnit(physical.UnitRunning)
	narrowed := changed(running, func(u *physical.Unit) { u.Spec.HoldOn = nil })
	guard := (&plant{informed: site(false), live: site(false)}).plugin(t)
	for name, a := range map[string]admission.Attributes{
		"a new Unit":          attributes("units", "", admission.Create, narrowed, nil),
		"a new ControlModule": attributes("controlmodules", "", admission.Create, storedControlModule(), nil),
		"a new IOModule":      attributes("iomodules", "", admission.Create, storedIOModule(), nil),
		"status, which the strategy keeps from the spec": attributes("units", "status", admission.Update, narrowed, running),
		"values written":       attributes("units", "tags", admission.Update, &physical.UnitTags{}, &physical.UnitTags{}),
		"a Controller":         attributes("controllers", "", admission.Delete, nil, &physical.Controller{}),
		"another group's unit": admission.NewAttributesRecord(narrowed, running, schema.GroupVersionKind{}, namespace, "mixer", schema.GroupVersionResource{Group: "example.dev", Resource: "units"}, "", admission.Update, nil, false, nil),
	} {
		if err := guard.Validate(context.Background(), a, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, a := range map[string]admission.Attributes{
		"a deletion of something else":    attributes("units", "", admission.Delete, nil, &metav1.Status{}),
		"an update from nothing":          attributes("controlmodules", "", admission.Update, storedControlModule(), nil),
		"an update to something else":     attributes("iomodules", "", admission.Update, &metav1.Status{}, storedIOModule()),
		"a command that is none":          attributes("units", "command", admission.Create, &metav1.Status{}, nil),
		"an update of a Unit to a module": attributes("units", "", admission.Update, storedIOModule(), running),
	} {
		if err := guard.Validate(context.Background(), a, nil); !apierrors.IsInternalError(err) {
			t.Errorf("%s: have %v", name, err)
		}
	}
}

func TestInitialization(t *testing.T) {
	plugins := admission.NewPlugins()
	Register(plugins)
	guard, err := plugins.InitPlugin(PluginName, nil, admission.PluginInitializers{})
	if err == nil {
		t.Errorf("initialized with nothing: %v", guard)
	}
	host := kubefake.NewClientset()
	factory := kubeinformers.NewSharedInformerFactory(host, 0)
	identity := initializer.NewServerIdentity(loopback)
	for name, leave := range map[string]func(*Guard){
		"the authorizer":      func(g *Guard) { g.SetUncachedAuthorizer(nil) },
		"the client":          func(g *Guard) { g.SetFieldplaneClient(nil) },
		"the identity":        func(g *Guard) { g.SetServerIdentity(initializer.NewServerIdentity()) },
		"the host's client":   func(g *Guard) { g.SetExternalKubeClientSet(nil) },
		"nothing, all is set": nil,
	} {
		g := New()
		g.SetUncachedAuthorizer(&reviewer{})
		g.SetFieldplaneClient(fake.NewClientset())
		g.SetServerIdentity(identity)
		g.SetExternalKubeClientSet(host)
		g.SetExternalKubeInformerFactory(factory)
		if leave != nil {
			leave(g)
		}
		if err := g.ValidateInitialization(); (err == nil) != (leave == nil) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
