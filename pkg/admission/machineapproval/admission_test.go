package machineapproval

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
	"github.com/fieldplane/fieldplane/pkg/admission/initializer"
)

const (
	machineName    = "4c4c4544-0042-3510-8051-b4c04f4b4c32"
	serviceAccount = "system:serviceaccount:fieldplane-system:fieldplane-apiserver"
	loopback       = "system:apiserver"
)

// recorder answers every question alike and keeps what was asked.
type recorder struct {
	decision authorizer.Decision
	err      error
	asked    []string
}

func (r *recorder) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	r.asked = append(r.asked, fmt.Sprintf("%s %s %s.%s/%s %s/%s", a.GetUser().GetName(), a.GetVerb(), a.GetResource(), a.GetAPIGroup(), a.GetSubresource(), a.GetNamespace(), a.GetName()))
	return r.decision, "", r.err
}

func pending() *talos.TalosMachine {
	return &talos.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: machineName, Namespace: "site-a"},
		Spec: talos.TalosMachineSpec{
			ClusterRef: talos.ClusterReference{Name: "c1"},
			Identity:   talos.MachineIdentity{UUID: machineName},
			Endpoint:   "192.0.2.1",
		},
	}
}

func approved() *talos.TalosMachine {
	machine := pending()
	machine.Spec.Approved = ptr.To(true)
	machine.Spec.Role = talos.RoleWorker
	machine.Spec.Install = &talos.MachineInstall{Disk: "/dev/sda"}
	machine.Spec.DiskRoles = []talos.DiskRole{{Role: "data", MinSize: "10GiB"}}
	machine.Spec.Network = &talos.MachineNetwork{Hostname: "w1", Links: []talos.MachineLinkConfig{{PermanentMAC: "b4:45:06:aa:00:02"}}}
	machine.Spec.ConfigPatches = []string{"machine: {}"}
	machine.Spec.NodeLabels = map[string]string{"zone": "a"}
	return machine
}

// with is a machine after a change.
func with(machine *talos.TalosMachine, change func(*talos.TalosMachineSpec)) *talos.TalosMachine {
	change(&machine.Spec)
	return machine
}

func newPlugin(authz authorizer.UnconditionalAuthorizer) *Approval {
	plugin := New()
	plugin.SetUncachedAuthorizer(authz)
	plugin.SetFieldplaneClient(fake.NewClientset())
	plugin.SetServerIdentity(initializer.NewServerIdentity(serviceAccount, loopback))
	return plugin
}

func validate(plugin *Approval, stored, machine *talos.TalosMachine, subresource string, dryRun bool, who string) error {
	op, name := admission.Update, machine.Name
	var old runtime.Object
	if stored != nil {
		old = stored
	} else {
		op, name = admission.Create, "" // the path of a create has no name
	}
	return plugin.Validate(context.Background(), admission.NewAttributesRecord(machine, old, schema.GroupVersionKind{}, "site-a", name,
		schema.GroupVersionResource{Group: talos.GroupName, Version: "v1alpha1", Resource: "talosmachines"}, subresource, op, nil, dryRun, &user.DefaultInfo{Name: who}), nil)
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

// sent is a machine whose configuration is being sent, or was.
func sent(machine *talos.TalosMachine, applied bool) *talos.TalosMachine {
	now := metav1.Now()
	machine.Status.Configuration = &talos.MachineConfiguration{IntendedAt: &now}
	if applied {
		machine.Status.Configuration.AppliedAt = &now
	}
	return machine
}

// Every path × every change × every answer of the authorizer, for real and as a dry run.
//
// Req: T-13, T-18, A-05
func TestEveryCell(t *testing.T) {
	type change struct {
		name            string
		stored, machine *talos.TalosMachine
		needs           string // what the refusal says the verb is needed for; "": the verb is not needed
	}
	spec := func(change func(*talos.TalosMachineSpec)) *talos.TalosMachine { return with(approved(), change) }
	altering := func(what string) string { return "change " + what + " of an approved machine" }
	rejected := func(reason string) *talos.TalosMachine {
		return with(pending(), func(s *talos.TalosMachineSpec) { s.Rejected = &talos.MachineRejection{Reason: reason} })
	}
	accepting := func(fingerprint string) *talos.TalosMachine {
		return with(pending(), func(s *talos.TalosMachineSpec) { s.AcceptedFingerprint = fingerprint })
	}
	const (
		rejecting = "reject a machine or take a rejection back"
		accepted  = "set or change spec.acceptedFingerprint, which an approver accepts"
	)

	updates := []change{
		{"nothing, pending", pending(), pending(), ""},
		{"nothing, approved", approved(), approved(), ""},
		{"approve", pending(), approved(), "set spec.approved to true"},
		{"approve what was explicitly not", with(pending(), func(s *talos.TalosMachineSpec) { s.Approved = ptr.To(false) }), approved(), "set spec.approved to true"},
		{"say explicitly that it is not approved", pending(), with(pending(), func(s *talos.TalosMachineSpec) { s.Approved = ptr.To(false) }), ""},
		{"un-approve", approved(), spec(func(s *talos.TalosMachineSpec) { s.Approved = ptr.To(false) }), "un-approve"},
		{"un-approve by leaving out, where the strategy keeps nothing", approved(), spec(func(s *talos.TalosMachineSpec) { s.Approved = nil }), "un-approve"},
		{"un-approve and change the role", approved(), spec(func(s *talos.TalosMachineSpec) { s.Approved, s.Role = nil, "" }), "un-approve"},

		{"role of an approved machine", approved(), spec(func(s *talos.TalosMachineSpec) { s.Role = talos.RoleControlPlane }), altering("spec.role")},
		{"install disk of an approved machine", approved(), spec(func(s *talos.TalosMachineSpec) { s.Install.Disk = "/dev/sdb" }), altering("spec.install")},
		{"wipe of an approved machine", approved(), spec(func(s *talos.TalosMachineSpec) { s.Install.Wipe = true }), altering("spec.install")},
		{"disk roles of an approved machine", approved(), spec(func(s *talos.TalosMachineSpec) { s.DiskRoles[0].MinSize = "20GiB" }), altering("spec.diskRoles")},
		{"network of an approved machine", approved(), spec(func(s *talos.TalosMachineSpec) { s.Network.Links[0].Gateway = "192.0.2.254" }), altering("spec.network")},
		{"network taken from an approved machine", approved(), spec(func(s *talos.TalosMachineSpec) { s.Network = nil }), altering("spec.network")},
		{"patches of an approved machine", approved(), spec(func(s *talos.TalosMachineSpec) { s.ConfigPatches = []string{"cluster: {}"} }), altering("spec.configPatches")},
		{"order of the patches of an approved machine", with(approved(), func(s *talos.TalosMachineSpec) { s.ConfigPatches = []string{"a: 1", "b: 1"} }),
			spec(func(s *talos.TalosMachineSpec) { s.ConfigPatches = []string{"b: 1", "a: 1"} }), altering("spec.configPatches")},
		{"fingerprint of an approved machine", approved(), spec(func(s *talos.TalosMachineSpec) { s.AcceptedFingerprint = "x" }), altering("spec.acceptedFingerprint")},
		{"unverified fingerprint of an approved machine", approved(), spec(func(s *talos.TalosMachineSpec) { s.AcceptUnverifiedFingerprint = true }), altering("spec.acceptUnverifiedFingerprint")},
		{"shared hardware of an approved machine", approved(), spec(func(s *talos.TalosMachineSpec) { s.AcceptSharedHardware = true }), altering("spec.acceptSharedHardware")},
		{"several members of an approved machine", approved(), spec(func(s *talos.TalosMachineSpec) { s.Role, s.Network = "", nil }), altering("spec.role, spec.network")},

		{"labels and taints of an approved machine", approved(), spec(func(s *talos.TalosMachineSpec) {
			s.NodeLabels, s.NodeTaints = map[string]string{"zone": "b"}, []talos.NodeTaint{{Key: "k"}}
		}), ""},
		{"endpoint of an approved machine that waits for its configuration", approved(), spec(func(s *talos.TalosMachineSpec) { s.Endpoint = "192.0.2.2" }), altering("spec.endpoint")},
		{"endpoint of a machine whose sending has begun", sent(approved(), false), sent(spec(func(s *talos.TalosMachineSpec) { s.Endpoint = "192.0.2.2" }), false), altering("spec.endpoint")},
		{"endpoint of a configured machine", sent(approved(), true), sent(spec(func(s *talos.TalosMachineSpec) { s.Endpoint = "192.0.2.2" }), true), ""},
		{"endpoint of a pending machine", pending(), with(pending(), func(s *talos.TalosMachineSpec) { s.Endpoint = "192.0.2.2" }), ""},
		{"empty lists where there were none", with(approved(), func(s *talos.TalosMachineSpec) { s.DiskRoles = nil }), spec(func(s *talos.TalosMachineSpec) { s.DiskRoles = []talos.DiskRole{} }), ""},
		{"role, disk and network of a pending machine", pending(), with(approved(), func(s *talos.TalosMachineSpec) { s.Approved = nil }), ""},
		{"rejection of a pending machine", pending(), rejected("spare"), rejecting},
		{"another reason of a rejection", rejected("spare"), rejected("broken"), rejecting},
		{"a rejection taken back", rejected("spare"), pending(), rejecting},
		{"a rejected machine's endpoint", rejected("spare"), with(rejected("spare"), func(s *talos.TalosMachineSpec) { s.Endpoint = "192.0.2.2" }), ""},
		{"patches of a pending machine", pending(), with(pending(), func(s *talos.TalosMachineSpec) { s.ConfigPatches = []string{"cluster: {}"} }), ""},

		{"fingerprint of a pending machine", pending(), accepting("a"), accepted},
		{"another fingerprint of a pending machine", accepting("a"), accepting("b"), accepted},
		{"a fingerprint taken from a pending machine", accepting("a"), pending(), accepted},
		{"unverified fingerprint of a pending machine", pending(), with(pending(), func(s *talos.TalosMachineSpec) { s.AcceptUnverifiedFingerprint = true }),
			"set or change spec.acceptUnverifiedFingerprint, which an approver accepts"},
		{"shared hardware of a pending machine", pending(), with(pending(), func(s *talos.TalosMachineSpec) { s.AcceptSharedHardware = true }),
			"set or change spec.acceptSharedHardware, which an approver accepts"},
		{"all at once on a pending machine", pending(), with(accepting("a"), func(s *talos.TalosMachineSpec) { s.AcceptUnverifiedFingerprint, s.AcceptSharedHardware = true, true }),
			"set or change spec.acceptedFingerprint, spec.acceptUnverifiedFingerprint, spec.acceptSharedHardware"},
		{"what was accepted, untouched", accepting("a"), with(accepting("a"), func(s *talos.TalosMachineSpec) { s.Role = talos.RoleWorker }), ""},
		{"un-approve and accept something", approved(), with(accepting("a"), func(s *talos.TalosMachineSpec) { s.Role = talos.RoleWorker }), "un-approve"},
	}
	creates := []change{
		{"create a pending machine", nil, pending(), ""},
		{"create with approved false", nil, with(pending(), func(s *talos.TalosMachineSpec) { s.Approved = ptr.To(false) }), ""},
		{"create a prepared machine", nil, with(approved(), func(s *talos.TalosMachineSpec) { s.Approved = nil }), ""},
		{"create an approved machine", nil, approved(), "set spec.approved to true"},
		{"create a rejected machine", nil, rejected("spare"), rejecting},
		{"create a machine with a fingerprint", nil, accepting("a"), accepted},
		{"create a machine with shared hardware accepted", nil, with(pending(), func(s *talos.TalosMachineSpec) { s.AcceptSharedHardware = true }),
			"set or change spec.acceptSharedHardware"},
	}

	answers := []struct {
		name     string
		decision authorizer.Decision
		err      error
		code     int32
	}{
		{"verb yes", authorizer.DecisionAllow, nil, http.StatusOK},
		{"verb no", authorizer.DecisionNoOpinion, nil, http.StatusForbidden},
		{"verb denied", authorizer.DecisionDeny, nil, http.StatusForbidden},
		{"review failed", authorizer.DecisionNoOpinion, errors.New("host is away"), http.StatusServiceUnavailable},
	}

	walk := func(path string, changes []change, subresource string) {
		for _, c := range changes {
			needs := c.needs
			if needs == "" && subresource == Subresource {
				needs = "write the approval subresource"
			}
			for _, answer := range answers {
				for _, dryRun := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s/%s/dryRun=%v", path, c.name, answer.name, dryRun), func(t *testing.T) {
						authz := &recorder{decision: answer.decision, err: answer.err}
						err := validate(newPlugin(authz), c.stored, c.machine, subresource, dryRun, "alice")

						var wantAsked []string
						wantCode := int32(http.StatusOK)
						if needs != "" {
							wantAsked = []string{"alice approve talosmachines.talos.fieldplane.dev/approval site-a/" + machineName}
							wantCode = answer.code
						}
						if !slices.Equal(authz.asked, wantAsked) {
							t.Errorf("asked %q, want %q", authz.asked, wantAsked)
						}
						if have := code(err); have != wantCode {
							t.Fatalf("have %d (%v), want %d", have, err, wantCode)
						}
						if wantCode == http.StatusForbidden {
							for _, text := range []string{`verb "approve"`, `"talosmachines/approval"`, machineName, needs} {
								if !strings.Contains(err.Error(), text) {
									t.Errorf("%q does not say %q", err, text)
								}
							}
						}
					})
				}
			}
		}
	}
	walk("create", creates, "")
	walk("main", updates, "")
	walk("approval", updates, Subresource)
	walk("endpoint", updates, "endpoint")
	walk("status", updates, "status")
}

// Req: T-13
func TestAliceHasUpdateOnTheApprovalSubresourceButNotApprove(t *testing.T) {
	granted := map[string]bool{"update": true}
	plugin := newPlugin(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "alice" && a.GetResource() == "talosmachines" && a.GetSubresource() == "approval" && granted[a.GetVerb()] {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))

	for _, step := range []struct {
		name    string
		approve bool
		code    int32
	}{
		{"without approve", false, http.StatusForbidden},
		{"with approve, at the next request", true, http.StatusOK},
		{"revoked, at the next request", false, http.StatusForbidden},
	} {
		granted["approve"] = step.approve
		for _, subresource := range []string{"", "approval", "status"} {
			err := validate(plugin, pending(), approved(), subresource, false, "alice")
			if have := code(err); have != step.code {
				t.Errorf("%s, path %q: have %d (%v)", step.name, subresource, have, err)
			}
			if step.code == http.StatusForbidden && !strings.Contains(err.Error(), `user "alice" needs the verb "approve"`) {
				t.Errorf("%s, path %q: %q does not name the verb", step.name, subresource, err)
			}
		}
	}
}

// Req: T-03, T-13
func TestTheServerItselfNeverApproves(t *testing.T) {
	for _, who := range []string{serviceAccount, loopback} {
		for _, tc := range []struct {
			name            string
			stored, machine *talos.TalosMachine
			subresource     string
			code            int32
			asked           int
		}{
			{"create approved", nil, approved(), "", http.StatusForbidden, 0},
			{"create pending", nil, pending(), "", http.StatusOK, 0},
			{"approve on main", pending(), approved(), "", http.StatusForbidden, 0},
			{"approve on approval", pending(), approved(), "approval", http.StatusForbidden, 0},
			{"approve on status", pending(), approved(), "status", http.StatusForbidden, 0},
			{"alter what was approved", approved(), with(approved(), func(s *talos.TalosMachineSpec) { s.Role = talos.RoleControlPlane }), "", http.StatusForbidden, 0},
			{"write the approval subresource", pending(), pending(), "approval", http.StatusForbidden, 0},
			{"accept a fingerprint beforehand", pending(), with(pending(), func(s *talos.TalosMachineSpec) { s.AcceptedFingerprint = "x" }), "", http.StatusForbidden, 0},
			{"register a machine with shared hardware accepted", nil, with(pending(), func(s *talos.TalosMachineSpec) { s.AcceptSharedHardware = true }), "", http.StatusForbidden, 0},
			{"reject", pending(), with(pending(), func(s *talos.TalosMachineSpec) { s.Rejected = &talos.MachineRejection{Reason: "x"} }), "", http.StatusForbidden, 0},
			{"write the status of an approved machine", approved(), approved(), "status", http.StatusOK, 0},
			{"un-approve, which only stops something", approved(), pending(), "", http.StatusOK, 1},
		} {
			t.Run(who+": "+tc.name, func(t *testing.T) {
				authz := &recorder{decision: authorizer.DecisionAllow}
				err := validate(newPlugin(authz), tc.stored, tc.machine, tc.subresource, false, who)
				if have := code(err); have != tc.code || len(authz.asked) != tc.asked {
					t.Errorf("have %d (%v), asked %q", have, err, authz.asked)
				}
			})
		}
	}
}

// Req: T-13
func TestWhatNobodyMayApprove(t *testing.T) {
	deleted := func(machine *talos.TalosMachine) *talos.TalosMachine {
		machine.DeletionTimestamp = ptr.To(metav1.NewTime(time.Unix(0, 0)))
		return machine
	}
	rejected := func(machine *talos.TalosMachine) *talos.TalosMachine {
		machine.Spec.Rejected = &talos.MachineRejection{Reason: "spare"}
		return machine
	}
	for _, tc := range []struct {
		name            string
		stored, machine *talos.TalosMachine
		code            int32
		text            string
	}{
		{"a machine that is being deleted", deleted(pending()), deleted(approved()), http.StatusForbidden, "being deleted"},
		{"a machine that is being deleted, by a write that says it is not", deleted(pending()), approved(), http.StatusForbidden, "being deleted"},
		{"a rejected machine", rejected(pending()), rejected(approved()), http.StatusForbidden, "spec.rejected"},
		{"a machine that the same write rejects", pending(), rejected(approved()), http.StatusForbidden, "spec.rejected"},
		{"a new rejected machine", nil, rejected(approved()), http.StatusForbidden, "spec.rejected"},
		{"but a machine whose rejection the same write clears", rejected(pending()), approved(), http.StatusOK, ""},
		{"and a machine that is being deleted is un-approved", deleted(approved()), deleted(pending()), http.StatusOK, ""},
	} {
		for _, subresource := range []string{"", "approval"} {
			if tc.stored == nil && subresource != "" {
				continue
			}
			t.Run(tc.name+" on "+subresource, func(t *testing.T) {
				err := validate(newPlugin(&recorder{decision: authorizer.DecisionAllow}), tc.stored, tc.machine, subresource, false, "alice")
				if have := code(err); have != tc.code || err != nil && !strings.Contains(err.Error(), tc.text) {
					t.Errorf("have %d: %v", have, err)
				}
			})
		}
	}
}

// Req: T-13, T-18. Whoever approves has seen that the machine shares hardware with another, or says so.
func TestAMachineThatSharesHardwareIsApprovedOnlyByAcceptingIt(t *testing.T) {
	sharing := func(machine *talos.TalosMachine, status metav1.ConditionStatus, message string) *talos.TalosMachine {
		machine.Status.Conditions = []metav1.Condition{{Type: "SharesHardware", Status: status, Message: message}}
		return machine
	}
	const told = "the serial S1 is that of TalosMachine other, too"
	accepted := func(s *talos.TalosMachineSpec) { s.AcceptSharedHardware = true }
	for _, tc := range []struct {
		name            string
		stored, machine *talos.TalosMachine
		code            int32
		texts           []string
	}{
		{"approving", sharing(pending(), "True", told), approved(), http.StatusForbidden, []string{told, "spec.acceptSharedHardware"}},
		{"approving, without a message", sharing(pending(), "True", ""), approved(), http.StatusForbidden, []string{"with another"}},
		{"approving with a condition that the write forges", sharing(pending(), "True", told), sharing(approved(), "False", ""), http.StatusForbidden, []string{told}},
		{"approving and accepting it", sharing(pending(), "True", told), with(approved(), accepted), http.StatusOK, nil},
		{"approving what was accepted before", sharing(with(pending(), accepted), "True", told), with(approved(), accepted), http.StatusOK, nil},
		{"taking the acceptance back while approved", sharing(with(approved(), accepted), "True", told), approved(), http.StatusForbidden, []string{told}},
		{"another change of a machine approved before it was known", sharing(approved(), "True", told), with(approved(), func(s *talos.TalosMachineSpec) { s.Network = nil }), http.StatusOK, nil},
		{"un-approving", sharing(approved(), "True", told), pending(), http.StatusOK, nil},
		{"approving what no longer shares any", sharing(pending(), "False", told), approved(), http.StatusOK, nil},
		{"approving what nobody knows anything of", pending(), approved(), http.StatusOK, nil},
	} {
		for _, subresource := range []string{"", "approval"} {
			t.Run(tc.name+" on "+subresource, func(t *testing.T) {
				err := validate(newPlugin(&recorder{decision: authorizer.DecisionAllow}), tc.stored, tc.machine, subresource, false, "alice")
				if have := code(err); have != tc.code {
					t.Fatalf("have %d: %v", have, err)
				}
				for _, text := range tc.texts {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%q does not say %q", err, text)
					}
				}
			})
		}
	}
	// Who may not approve is told that, and nothing else.
	err := validate(newPlugin(&recorder{}), sharing(pending(), "True", told), approved(), "", false, "alice")
	if !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "S1") {
		t.Errorf("have %v", err)
	}
}

func TestUnexpectedObjectsAreRefused(t *testing.T) {
	resource := schema.GroupVersionResource{Group: talos.GroupName, Version: "v1alpha1", Resource: "talosmachines"}
	plugin := newPlugin(&recorder{decision: authorizer.DecisionAllow})
	for name, a := range map[string]admission.Attributes{
		"a wrong object":         admission.NewAttributesRecord(&metav1.Status{}, nil, schema.GroupVersionKind{}, "", "", resource, "", admission.Create, nil, false, nil),
		"an update from nothing": admission.NewAttributesRecord(approved(), nil, schema.GroupVersionKind{}, "", "", resource, "", admission.Update, nil, false, nil),
	} {
		if err := plugin.Validate(context.Background(), a, nil); !apierrors.IsInternalError(err) {
			t.Errorf("%s: have %v", name, err)
		}
	}
	clusters := schema.GroupVersionResource{Group: talos.GroupName, Version: "v1alpha1", Resource: "talosclusters"}
	for name, a := range map[string]admission.Attributes{
		"a wrong object for a cluster":         admission.NewAttributesRecord(&metav1.Status{}, nil, schema.GroupVersionKind{}, "", "", clusters, "", admission.Create, nil, false, nil),
		"an update of a cluster from nothing":  admission.NewAttributesRecord(&talos.TalosCluster{}, nil, schema.GroupVersionKind{}, "", "", clusters, "", admission.Update, nil, false, nil),
		"an update of a cluster that is wrong": admission.NewAttributesRecord(&metav1.Status{}, &talos.TalosCluster{}, schema.GroupVersionKind{}, "", "", clusters, "status", admission.Update, nil, false, nil),
	} {
		if err := plugin.Validate(context.Background(), a, nil); !apierrors.IsInternalError(err) {
			t.Errorf("%s: have %v", name, err)
		}
	}
	for name, a := range map[string]admission.Attributes{
		"another resource":      admission.NewAttributesRecord(&metav1.Status{}, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{Group: "example.com", Resource: "talosmachines"}, "", admission.Create, nil, false, nil),
		"a request to reboot":   admission.NewAttributesRecord(&talos.RebootRequest{}, nil, schema.GroupVersionKind{}, "", "", resource, "reboot", admission.Create, nil, false, nil),
		"a request to discover": admission.NewAttributesRecord(&talos.DiscoveryRequest{}, nil, schema.GroupVersionKind{}, "", "", clusters, "discover", admission.Create, nil, false, nil),
	} {
		if err := plugin.Validate(context.Background(), a, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInitialization(t *testing.T) {
	plugins := admission.NewPlugins()
	Register(plugins)
	server := initializer.NewServerIdentity(loopback)
	client := fake.NewClientset()
	plugin, err := plugins.InitPlugin(PluginName, nil, initializer.New(nil, client, &recorder{}, server))
	if err != nil {
		t.Fatal(err)
	}
	if !plugin.Handles(admission.Create) || !plugin.Handles(admission.Update) || plugin.Handles(admission.Delete) {
		t.Error("handles the wrong operations")
	}
	for name, without := range map[string]admission.PluginInitializer{
		"an authorizer": initializer.New(nil, client, nil, server),
		"a client":      initializer.New(nil, nil, &recorder{}, server),
		"an identity":   initializer.New(nil, client, &recorder{}, initializer.NewServerIdentity()),
	} {
		if _, err := plugins.InitPlugin(PluginName, nil, without); err == nil {
			t.Errorf("initialized without %s", name)
		}
	}
}
