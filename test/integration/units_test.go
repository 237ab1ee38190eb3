package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/tagwatch"
	"github.com/fieldplane/fieldplane/test/harness"
)

// equipment is a Unit with a simulated module behind it: nothing of it opens a connection but the Unit's runtime.
type equipment struct {
	namespace string
}

// newEquipment makes the Unit mixer, whose ControlModule drive reads the IOModule tank. With a Controller that beats the
// module is Online.
func newEquipment(t *testing.T, online bool) equipment {
	t.Helper()
	e := equipment{namespace: env.Namespace(t)}
	client := env.Admin(t).PhysicalV1alpha1()
	if online {
		if _, err := client.Controllers(e.namespace).Create(t.Context(), &v1alpha1.Controller{
			ObjectMeta: metav1.ObjectMeta{Name: "sim"}, Spec: v1alpha1.ControllerSpec{Simulation: true},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.IOModules(e.namespace).Create(t.Context(), &v1alpha1.IOModule{
		ObjectMeta: metav1.ObjectMeta{Name: "tank"},
		Spec: v1alpha1.IOModuleSpec{
			Protocol: v1alpha1.ProtocolSimulation, ControllerRef: &v1alpha1.ControllerReference{Name: "sim"},
			Channels: []v1alpha1.Channel{
				{Name: "speed", Address: "holding:0", DataType: v1alpha1.DataTypeFloat64, Access: v1alpha1.AccessReadWrite},
				{Name: "level", Address: "holding:4", DataType: v1alpha1.DataTypeFloat64, Access: v1alpha1.AccessRead},
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Units(e.namespace).Create(t.Context(), &v1alpha1.Unit{ObjectMeta: metav1.ObjectMeta{Name: "mixer"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ControlModules(e.namespace).Create(t.Context(), &v1alpha1.ControlModule{
		ObjectMeta: metav1.ObjectMeta{Name: "drive"},
		Spec: v1alpha1.ControlModuleSpec{UnitRef: v1alpha1.UnitReference{Name: "mixer"}, Tags: []v1alpha1.Tag{
			{Name: "speed", IOModuleRef: v1alpha1.IOModuleReference{Name: "tank"}, Address: "holding:0", DataType: v1alpha1.DataTypeFloat64, Access: v1alpha1.AccessReadWrite, HoldValue: ptr.To("0")},
			{Name: "level", IOModuleRef: v1alpha1.IOModuleReference{Name: "tank"}, Address: "holding:4", DataType: v1alpha1.DataTypeFloat64, Access: v1alpha1.AccessRead},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e equipment) unit(t testing.TB) *v1alpha1.Unit {
	t.Helper()
	unit, err := env.Admin(t).PhysicalV1alpha1().Units(e.namespace).Get(t.Context(), "mixer", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return unit
}

// command sends one as a user; "" is the administrator.
func (e equipment) command(t testing.TB, user string, spec v1alpha1.UnitCommandSpec, dryRun ...string) (*v1alpha1.UnitCommand, error) {
	t.Helper()
	client := env.Admin(t)
	if user != "" {
		client = env.As(t, user)
	}
	return client.PhysicalV1alpha1().Units(e.namespace).Command(t.Context(), "mixer", &v1alpha1.UnitCommand{Spec: spec}, metav1.CreateOptions{DryRun: dryRun})
}

// is waits until the Unit is in a state.
func (e equipment) is(t testing.TB, state v1alpha1.UnitState) {
	t.Helper()
	harness.Eventually(t, 20*time.Second, func() string {
		if unit := e.unit(t); unit.Status.State != state {
			return fmt.Sprintf("the Unit is %s, and not %s: %s", unit.Status.State, state, toJSON(unit.Status))
		}
		return ""
	})
}

// run starts the Unit whatever its modules and its runtime are.
func (e equipment) run(t testing.TB) {
	t.Helper()
	answer, err := e.command(t, "", v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandStart, Override: true, Reason: "a test"})
	if err != nil || answer.Status.Record.Outcome != v1alpha1.CommandDone || answer.Status.State != v1alpha1.UnitRunning {
		t.Fatalf("START: %s, %v", toJSON(answer), err)
	}
}

// settled waits until the runtime serves the tags, and the module is Online.
func (e equipment) settled(t testing.TB) {
	t.Helper()
	harness.Eventually(t, 60*time.Second, func() string {
		tags, err := env.Admin(t).PhysicalV1alpha1().Units(e.namespace).GetTags(t.Context(), "mixer", metav1.GetOptions{})
		switch {
		case err != nil:
			return err.Error()
		case len(tags.Items) != 2 || tags.Items[0].Quality != v1alpha1.QualityGood:
			return toJSON(tags)
		}
		return ""
	})
	env.MustKubectl(t, "", "wait", "iomodules.physical.fieldplane.dev/tank", "-n", e.namespace, "--for=jsonpath={.status.state}=Online", "--timeout=60s")
}

// Req, P-16c
func TestACommandIsRecordedWithWhoeverSentItAndCarriedOutOnce(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, false)
	grant(t, e.namespace, "operator", rule("create", "units/command"))

	// Without override the module keeps the Unit from running, and the refusal says so.
	_, err := e.command(t, "operator", v1alpha1.UnitCommandSpec{ID: "first", Command: v1alpha1.CommandStart})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "START is refused") || !strings.Contains(err.Error(), "tank") || !strings.Contains(err.Error(), "these are allowed: START") {
		t.Errorf("START: %v", err)
	}
	// What was refused is refused when it is sent again, and is not tried again.
	_, again := e.command(t, "operator", v1alpha1.UnitCommandSpec{ID: "first", Command: v1alpha1.CommandStart})
	if !apierrors.IsConflict(again) || again.Error() != err.Error() {
		t.Errorf("START again: %v", again)
	}
	// The administrator's right is on everything, which override is a part of.
	e.run(t)
	version := e.unit(t).ResourceVersion

	// Whatever the body says of the actor, the outcome and the state, the record says what is true.
	forged := `{"apiVersion":"physical.fieldplane.dev/v1alpha1","kind":"UnitCommand","metadata":{"name":"mixer","labels":{"a":"b"}},
		"spec":{"command":"MANUAL","id":"m-1","reason":"Prüfung"},
		"status":{"state":"Aborted","record":{"id":"x","actor":"root","outcome":"Done","command":"ABORT"}}}`
	path := "/apis/physical.fieldplane.dev/v1alpha1/namespaces/" + e.namespace + "/units/mixer/command"
	output := env.MustKubectl(t, forged, "create", "--raw", path, "-f", "-", "--as=operator")
	var answer v1alpha1.UnitCommand
	if err := json.Unmarshal([]byte(output), &answer); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if r := answer.Status.Record; r == nil || r.Actor != "operator" || r.Outcome != v1alpha1.CommandDone || r.ID != "m-1" || r.Reason != "Prüfung" || answer.Status.State != v1alpha1.UnitRunning || len(answer.Labels) > 0 {
		t.Errorf("answered with %s", output)
	}
	unit := e.unit(t)
	if unit.Status.Mode != v1alpha1.UnitModeManual || unit.Status.State != v1alpha1.UnitRunning || unit.ResourceVersion == version || unit.Labels != nil {
		t.Errorf("the Unit is %s", toJSON(unit))
	}
	// The same again writes nothing, and another's id is not taken.
	repeated, err := e.command(t, "operator", v1alpha1.UnitCommandSpec{ID: "m-1", Command: v1alpha1.CommandManual})
	if err != nil || repeated.Status.Record.Outcome != v1alpha1.CommandDone || e.unit(t).Status.LastCommand.ID != "m-1" || len(e.unit(t).Status.RecentCommands) != len(unit.Status.RecentCommands) {
		t.Errorf("again: %s, %v", toJSON(repeated), err)
	}
	if _, err := e.command(t, "", v1alpha1.UnitCommandSpec{ID: "m-1", Command: v1alpha1.CommandManual}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "operator") {
		t.Errorf("the id of another's: %v", err)
	}
	if _, err := e.command(t, "operator", v1alpha1.UnitCommandSpec{ID: "m-1", Command: v1alpha1.CommandAutomatic}); !apierrors.IsConflict(err) {
		t.Errorf("the id of another command: %v", err)
	}

	// A dry run judges and writes nothing.
	before := e.unit(t).Status
	if dry, err := e.command(t, "operator", v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandHold}, metav1.DryRunAll); err != nil || dry.Status.Record.Outcome != v1alpha1.CommandAccepted {
		t.Errorf("dry run: %s, %v", toJSON(dry), err)
	}
	if _, err := e.command(t, "operator", v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandReset}, metav1.DryRunAll); !apierrors.IsConflict(err) {
		t.Errorf("dry run of what is not allowed: %v", err)
	}
	if after := e.unit(t).Status; toJSON(after.LastCommand) != toJSON(before.LastCommand) || after.State != before.State {
		t.Errorf("a dry run wrote %s", toJSON(after))
	}

	// HOLD asks nobody.
	if held, err := e.command(t, "operator", v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandHold, Reason: "smoke"}); err != nil || held.Status.Record.ID == "" || held.Status.State != v1alpha1.UnitHolding && held.Status.State != v1alpha1.UnitHeld {
		t.Errorf("HOLD: %s, %v", toJSON(held), err)
	}
	if hold := e.unit(t).Status.Hold; hold == nil || hold.PreviousState != v1alpha1.UnitRunning || len(hold.Causes) == 0 || hold.Causes[0].Actor != "operator" {
		t.Errorf("held: %s", toJSON(hold))
	}
}

// Req. What comes of a request that is wrong, by every way to make one.
func TestAWrongCommandChangesNothing(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, false)
	client := env.Admin(t).PhysicalV1alpha1().RESTClient()
	path := "/apis/physical.fieldplane.dev/v1alpha1/namespaces/" + e.namespace + "/units/"
	body := func(spec fields) fields {
		return fields{"apiVersion": "physical.fieldplane.dev/v1alpha1", "kind": "UnitCommand", "spec": spec}
	}
	named := body(fields{"command": "START"})
	named["metadata"] = fields{"name": "press"}
	elsewhere := body(fields{"command": "START"})
	elsewhere["metadata"] = fields{"namespace": "default"}
	for name, tc := range map[string]struct {
		unit string
		body any
		code int
		text string
	}{
		"another Unit's name":         {"mixer", named, http.StatusBadRequest, "press"},
		"another namespace":           {"mixer", elsewhere, http.StatusBadRequest, "namespace"},
		"no such Unit":                {"nobody", body(fields{"command": "START"}), http.StatusNotFound, "nobody"},
		"no command":                  {"mixer", body(fields{}), http.StatusUnprocessableEntity, "spec.command: Required"},
		"an unknown command":          {"mixer", body(fields{"command": "start"}), http.StatusUnprocessableEntity, `supported values: "START"`},
		"an id of a megabyte":         {"mixer", body(fields{"command": "START", "id": strings.Repeat("x", 1<<20)}), http.StatusUnprocessableEntity, "spec.id: Too long"},
		"a body of four megabytes":    {"mixer", body(fields{"command": "START", "reason": strings.Repeat("x", 4<<20)}), http.StatusRequestEntityTooLarge, "too large"},
		"override without reason":     {"mixer", body(fields{"command": "START", "override": true}), http.StatusUnprocessableEntity, "spec.reason: Required"},
		"override of HOLD":            {"mixer", body(fields{"command": "HOLD", "override": true, "reason": "x"}), http.StatusUnprocessableEntity, "spec.override: Forbidden"},
		"control characters":          {"mixer", body(fields{"command": "START", "reason": "\x1b]0;x\a"}), http.StatusUnprocessableEntity, "spec.reason"},
		"a Unit":                      {"mixer", kindOf("Unit").object(e.namespace, "mixer").Object, http.StatusBadRequest, "Unit"},
		"what is no JSON":             {"mixer", "{", http.StatusBadRequest, ""},
		"an override of another type": {"mixer", body(fields{"command": "START", "override": "yes"}), http.StatusBadRequest, "override"},
		"HOLD of what is idle":        {"mixer", body(fields{"command": "HOLD"}), http.StatusConflict, "HOLD is not allowed in state Idle; in state Idle these are allowed: START, AUTOMATIC, MANUAL"},
	} {
		text, ok := tc.body.(string)
		if !ok {
			text = toJSON(tc.body)
		}
		result := client.Post().AbsPath(path+tc.unit+"/command").SetHeader("Content-Type", "application/json").Body([]byte(text)).Do(t.Context())
		var code int
		result.StatusCode(&code)
		if err := result.Error(); code != tc.code || err == nil || !strings.Contains(err.Error(), tc.text) || len(err.Error()) > 4096 {
			t.Errorf("%s: have %d: %.300v", name, code, err)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		result := client.Verb(method).AbsPath(path+"mixer/command").SetHeader("Content-Type", string(types.MergePatchType)).Body([]byte(toJSON(body(fields{"command": "START"})))).Do(t.Context())
		if err := result.Error(); !apierrors.IsMethodNotSupported(err) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if unit := e.unit(t); unit.Status.LastCommand != nil || unit.Status.State != v1alpha1.UnitIdle {
		t.Errorf("the Unit is %s", toJSON(unit.Status))
	}
}

// Req, P-16a, P-16c
func TestWhoMaySendCommandsAndOverride(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, false)
	for user, tc := range map[string]struct {
		verbs, resources string
		names            []string
		may, override    bool
	}{
		"writes units":                        {"*", "units", nil, false, false},
		"writes their status":                 {"*", "units/status", nil, false, false},
		"commands":                            {"create", "units/command", nil, true, false},
		"commands this one":                   {"create", "units/command", []string{"mixer"}, true, false},
		"commands another one":                {"create,override", "units/command", []string{"press"}, false, false},
		"overrides, and sends no commands":    {"override", "units/command", nil, false, false},
		"commands and overrides":              {"create,override", "units/command", nil, true, true},
		"commands and overrides this one":     {"create,override", "units/command", []string{"mixer"}, true, true},
		"commands, and has override on units": {"create,override", "units/command,units", []string{"other"}, false, false},
	} {
		user += "." + e.namespace
		grant(t, e.namespace, user, rule(tc.verbs, tc.resources, tc.names...))
		_, err := e.command(t, user, v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandManual}, metav1.DryRunAll)
		if tc.may != (err == nil) || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", user, err)
		}
		_, err = e.command(t, user, v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandStart, Override: true, Reason: "x"}, metav1.DryRunAll)
		if tc.override != (err == nil) || err != nil && !apierrors.IsForbidden(err) || tc.may && !tc.override && !strings.Contains(err.Error(), `needs the verb "override" on resource "units/command"`) {
			t.Errorf("%s, with override: %v", user, err)
		}
	}
	// A right that is taken back denies the next request: override is not answered from a cache.
	user := "revoked." + e.namespace
	grant(t, e.namespace, user, rule("create", "units/command"))
	revoke := grant(t, e.namespace, user, rule("override", "units/command"))
	if _, err := e.command(t, user, v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandStart, Override: true, Reason: "x"}, metav1.DryRunAll); err != nil {
		t.Error(err)
	}
	revoke()
	if _, err := e.command(t, user, v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandStart, Override: true, Reason: "x"}, metav1.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("revoked: %v", err)
	}
}

// Req: A-06, P-16c. Of many commands of one instant each is judged after the one before.
func TestCommandsOfTheSameMomentAreCarriedOutOneByOne(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, false)
	e.run(t)
	var all sync.WaitGroup
	outcomes := make(chan error, 20)
	for i := range 20 {
		all.Go(func() {
			// Two by two they are the same.
			_, err := e.command(t, "", v1alpha1.UnitCommandSpec{ID: fmt.Sprint("hold-", i/2), Command: v1alpha1.CommandHold})
			outcomes <- err
		})
	}
	all.Wait()
	close(outcomes)
	for err := range outcomes {
		if err != nil && !apierrors.IsConflict(err) {
			t.Errorf("HOLD: %v", err)
		}
	}
	unit := e.unit(t)
	ids := []string{unit.Status.LastCommand.ID}
	for _, record := range unit.Status.RecentCommands {
		ids = append(ids, record.ID)
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 1+len(unit.Status.RecentCommands) || unit.Status.Hold == nil {
		t.Errorf("remembered are %v", ids)
	}
}

// Req: A-05. The status of a Unit that runs is what it was after every write of a user to the main resource.
func TestNoWriteToAUnitTouchesItsStatus(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, false)
	e.run(t)
	k := kindOf("Unit")
	client := objects(t, k, e.namespace)
	change := fields{"metadata": fields{"labels": fields{"touched": "yes"}}, "status": fields{"state": "Idle", "lastCommand": nil, "hold": fields{"cause": "Operator"}, "mode": "Manual"}}
	for _, write := range writes() {
		stored := get(t, k, e.namespace, "mixer")
		if _, err := write.do(t, client, stored, change, false); err != nil {
			t.Errorf("%s: %v", write.name, err)
		}
		unit := e.unit(t)
		if unit.Status.State != v1alpha1.UnitRunning || unit.Status.LastCommand == nil || unit.Status.Hold != nil || unit.Status.Mode != v1alpha1.UnitModeAutomatic {
			t.Errorf("%s: the status is %s", write.name, toJSON(unit.Status))
		}
		if _, err := write.do(t, client, stored, change, false, "status"); !apierrors.IsForbidden(err) {
			t.Errorf("%s to status: %v", write.name, err)
		}
	}
	for _, entry := range get(t, k, e.namespace, "mixer").GetManagedFields() {
		if entry.Manager == matrixManager && strings.Contains(string(entry.FieldsV1.GetRawBytes()), "f:status") {
			t.Errorf("%s owns status: %s", matrixManager, entry.FieldsV1.GetRawBytes())
		}
	}
}

// Req, P-15, P-16b
func TestTagsAreReadFollowedAndWritten(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, true)
	e.settled(t)
	units := env.Admin(t).PhysicalV1alpha1().Units(e.namespace)

	output := env.MustKubectl(t, "", "get", "units.physical.fieldplane.dev", "mixer", "-n", e.namespace, "--subresource=tags")
	if header, rows, _ := strings.Cut(output, "\n"); strings.Join(strings.Fields(header), " ") != "MODULE TAG VALUE UNIT QUALITY TIME" || !strings.Contains(rows, "Good") || strings.Count(output, "\n") != 3 {
		t.Errorf("kubectl shows\n%s", output)
	}
	wide := env.MustKubectl(t, "", "get", "units.physical.fieldplane.dev", "mixer", "-n", e.namespace, "--subresource=tags", "-o", "wide")
	if header, _, _ := strings.Cut(wide, "\n"); strings.Join(strings.Fields(header), " ") != "MODULE TAG VALUE UNIT QUALITY TIME STATUS IOMODULE ADDRESS ACCESS MESSAGE" {
		t.Errorf("kubectl -o wide shows\n%s", wide)
	}
	tags, err := units.GetTags(t.Context(), "mixer", metav1.GetOptions{})
	if err != nil || tags.Name != "mixer" || tags.UID == "" || tags.Items[0].Name != "level" || tags.Items[1].Name != "speed" || tags.Items[1].SourceTime == nil || tags.Items[1].IOModule != "tank" {
		t.Fatalf("have %s, %v", toJSON(tags), err)
	}

	write := func(value, reason string) error {
		_, err := units.WriteTags(t.Context(), "mixer", &v1alpha1.UnitTags{
			ObjectMeta: metav1.ObjectMeta{Name: "mixer"}, Reason: reason,
			Writes: []v1alpha1.TagWrite{{ControlModule: "drive", Name: "speed", Value: value}},
		}, metav1.UpdateOptions{})
		return err
	}
	if err := write("7.5", ""); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "Running alone") {
		t.Errorf("a write to an idle Unit: %v", err)
	}
	if _, err := e.command(t, "", v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandStart}); err != nil {
		t.Fatal(err)
	}
	watcher, err := tagwatch.WatchTags(t.Context(), env.Admin(t).PhysicalV1alpha1().RESTClient(), e.namespace, "mixer")
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if event := nextEvent(t, watcher); event.Type != watch.Added || len(event.Object.(*v1alpha1.UnitTags).Items) != 2 {
		t.Errorf("the watch begins with %s %s", event.Type, toJSON(event.Object))
	}
	// The runtime hears of the new state a moment after it is stored.
	harness.Eventually(t, 10*time.Second, func() string {
		if err := write("7.5", "trial"); err != nil {
			return err.Error()
		}
		return ""
	})
	record := e.unit(t).Status.Writes[0]
	if record.ControlModule != "drive" || record.Name != "speed" || record.Value != "7.5" || record.Outcome != v1alpha1.WriteDone || record.Actor == "" || record.Reason != "trial" || record.Time == nil {
		t.Errorf("recorded is %s", toJSON(record))
	}
	for shown := false; !shown; {
		event := nextEvent(t, watcher)
		if event.Type != watch.Modified && event.Type != watch.Bookmark {
			t.Fatalf("the watch shows %s %s", event.Type, toJSON(event.Object))
		}
		for _, tag := range event.Object.(*v1alpha1.UnitTags).Items {
			shown = shown || tag.Name == "speed" && tag.Value != nil && *tag.Value == "7.5"
		}
	}

	// HOLD, and nothing else is written; what is held has its hold value.
	if _, err := e.command(t, "", v1alpha1.UnitCommandSpec{Command: v1alpha1.CommandHold}); err != nil {
		t.Fatal(err)
	}
	if err := write("9", ""); !apierrors.IsConflict(err) {
		t.Errorf("a write to a Unit that is held: %v", err)
	}
	e.is(t, v1alpha1.UnitHeld)
	harness.Eventually(t, 10*time.Second, func() string {
		tags, err := units.GetTags(t.Context(), "mixer", metav1.GetOptions{})
		if err != nil || *tags.Items[1].Value != "0" {
			return fmt.Sprintf("%s, %v", toJSON(tags), err)
		}
		return ""
	})
}

// Req: P-15. What was told by a runtime that is gone is not known to be true any more, and the watch says so.
func TestAWatchOfTagsEndsWithItsRuntimeAndTheNextOneIsOfTheNext(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, true)
	e.settled(t)
	client := env.Admin(t).PhysicalV1alpha1().RESTClient()
	follow := func() (watch.Interface, error) { return tagwatch.WatchTags(t.Context(), client, e.namespace, "mixer") }
	watcher, err := follow()
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if event := nextEvent(t, watcher); event.Type != watch.Added {
		t.Fatalf("the watch begins with %s", event.Type)
	}
	now := int64(0)
	if err := env.Host().CoreV1().Pods(e.namespace).Delete(t.Context(), e.unit(t).Status.RuntimePodName, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	gone := time.Now()
	for ended := false; !ended; {
		event := nextEvent(t, watcher)
		switch event.Type {
		case watch.Modified, watch.Bookmark:
		case watch.Error:
			if status, ok := event.Object.(*metav1.Status); !ok || status.Code != http.StatusServiceUnavailable || !strings.Contains(status.Message, "mixer") {
				t.Errorf("it ends with %s", toJSON(event.Object))
			}
			ended = true
		default:
			t.Fatalf("the watch shows %q %s", event.Type, toJSON(event.Object))
		}
		if time.Since(gone) > 15*time.Second {
			t.Fatal("it goes on without a runtime")
		}
	}
	harness.Eventually(t, 60*time.Second, func() string {
		again, err := follow()
		if err != nil {
			return err.Error()
		}
		defer again.Stop()
		if event := nextEvent(t, again); event.Type != watch.Added || len(event.Object.(*v1alpha1.UnitTags).Items) != 2 {
			return fmt.Sprintf("%s %s", event.Type, toJSON(event.Object))
		}
		return ""
	})
}

// Req, P-15
func TestWhoMayReadFollowAndWriteTags(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, false)
	for user, tc := range map[string]struct {
		verbs, resources   string
		names              []string
		get, follow, write bool
	}{
		"everything of units":  {"*", "units,units/status", nil, false, false, false},
		"reads":                {"get", "units/tags", nil, true, false, false},
		"lists":                {"list", "units/tags", nil, false, false, false},
		"follows":              {"watch", "units/tags", nil, false, true, false},
		"writes":               {"update", "units/tags", nil, false, false, true},
		"patches":              {"patch,create,delete", "units/tags", nil, false, false, false},
		"all, of this Unit":    {"get,watch,update", "units/tags", []string{"mixer"}, true, true, true},
		"all, of another Unit": {"get,watch,update", "units/tags", []string{"press"}, false, false, false},
	} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			user := strings.NewReplacer(" ", "-", ",", "").Replace(user) + "." + e.namespace
			grant(t, e.namespace, user, rule(tc.verbs, tc.resources, tc.names...))
			client := env.As(t, user).PhysicalV1alpha1()
			_, got := client.Units(e.namespace).GetTags(t.Context(), "mixer", metav1.GetOptions{})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			watcher, followed := tagwatch.WatchTags(ctx, client.RESTClient(), e.namespace, "mixer")
			if followed == nil {
				watcher.Stop()
			}
			_, written := client.Units(e.namespace).WriteTags(t.Context(), "mixer", &v1alpha1.UnitTags{
				ObjectMeta: metav1.ObjectMeta{Name: "mixer"}, Writes: []v1alpha1.TagWrite{{ControlModule: "drive", Name: "speed", Value: "1"}},
			}, metav1.UpdateOptions{})
			// Who may is told what keeps it from being done.
			for what, have := range map[string]struct {
				err error
				may bool
			}{"get": {got, tc.get}, "watch": {followed, tc.follow}, "update": {written, tc.write}} {
				if apierrors.IsForbidden(have.err) == have.may {
					t.Errorf("%s: %v", what, have.err)
				}
			}
		})
	}
}

// Req, P-15. Requests that are wrong, on every way there is to tags.
func TestAWrongRequestForTagsIsRefused(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, false)
	client := env.Admin(t).PhysicalV1alpha1().RESTClient()
	path := "/apis/physical.fieldplane.dev/v1alpha1/namespaces/" + e.namespace + "/units/mixer/tags"
	body := func(name, value string) string {
		return toJSON(fields{
			"apiVersion": "physical.fieldplane.dev/v1alpha1", "kind": "UnitTags", "metadata": fields{"name": name},
			"writes": []any{fields{"controlModule": "drive", "name": "speed", "value": value}},
		})
	}
	for name, tc := range map[string]struct {
		method, path, query, body string
		code                      int
		text                      string
	}{
		"?watch=1":                     {http.MethodGet, path, "watch=1", "", http.StatusBadRequest, "watch/namespaces"},
		"?watch=true and a time limit": {http.MethodGet, path, "watch=true&timeoutSeconds=5", "", http.StatusBadRequest, "watch/namespaces"},
		"a selector":                   {http.MethodGet, path, "labelSelector=a%3Db", "", http.StatusBadRequest, "neither selected"},
		"a merge patch":                {http.MethodPatch, path, "", body("mixer", "1"), http.StatusMethodNotAllowed, ""},
		"a POST":                       {http.MethodPost, path, "", body("mixer", "1"), http.StatusMethodNotAllowed, ""},
		"a DELETE":                     {http.MethodDelete, path, "", "", http.StatusMethodNotAllowed, ""},
		"another Unit's name":          {http.MethodPut, path, "", body("press", "1"), http.StatusBadRequest, "press"},
		"no name":                      {http.MethodPut, path, "", body("", "1"), http.StatusBadRequest, "name"},
		"no number":                    {http.MethodPut, path, "", body("mixer", "NaN"), http.StatusConflict, "Running alone"},
		"no Unit":                      {http.MethodGet, strings.Replace(path, "mixer", "nobody", 1), "", "", http.StatusNotFound, "nobody"},
		"no Unit to follow":            {http.MethodGet, strings.Replace(strings.Replace(path, "mixer", "nobody", 1), "v1alpha1/", "v1alpha1/watch/", 1), "", "", http.StatusNotFound, "nobody"},
		"all Units to follow":          {http.MethodGet, strings.Replace(strings.Replace(path, "/mixer/tags", "", 1), "v1alpha1/", "v1alpha1/watch/", 1) + "/tags", "timeoutSeconds=1", "", http.StatusOK, ""},
		"a label to follow":            {http.MethodGet, strings.Replace(path, "v1alpha1/", "v1alpha1/watch/", 1), "labelSelector=a%3Db", "", http.StatusBadRequest, "not selected"},
		"more than is remembered": {http.MethodPut, path, "", toJSON(fields{
			"apiVersion": "physical.fieldplane.dev/v1alpha1", "kind": "UnitTags", "metadata": fields{"name": "mixer"}, "writes": slices.Repeat([]any{fields{"controlModule": "drive", "name": "speed", "value": "1"}}, 33),
		}), http.StatusUnprocessableEntity, "must have at most 32"},
		"nothing to write":       {http.MethodPut, path, "", `{"apiVersion":"physical.fieldplane.dev/v1alpha1","kind":"UnitTags","metadata":{"name":"mixer"}}`, http.StatusUnprocessableEntity, "writes: Required"},
		"a value of a megabyte":  {http.MethodPut, path, "", body("mixer", strings.Repeat("1", 1<<20)), http.StatusUnprocessableEntity, "writes[0].value"},
		"a body of 4 megabytes":  {http.MethodPut, path, "", body("mixer", strings.Repeat("1", 4<<20)), http.StatusRequestEntityTooLarge, "too large"},
		"a number for its value": {http.MethodPut, path, "", strings.Replace(body("mixer", "1"), `"1"`, "1", 1), http.StatusBadRequest, "value"},
	} {
		request := client.Verb(tc.method).AbsPath(tc.path).SetHeader("Content-Type", "application/json")
		if tc.method == http.MethodPatch {
			request.SetHeader("Content-Type", string(types.MergePatchType))
		}
		for _, pair := range strings.Split(tc.query, "&") {
			if key, value, ok := strings.Cut(pair, "="); ok {
				request.Param(key, strings.ReplaceAll(value, "%3D", "="))
			}
		}
		if tc.body != "" {
			request.Body([]byte(tc.body))
		}
		result := request.Do(t.Context())
		var code int
		result.StatusCode(&code)
		if err := result.Error(); code != tc.code || err != nil && (!strings.Contains(err.Error(), tc.text) || len(err.Error()) > 4096) {
			t.Errorf("%s: have %d: %.300v", name, code, err)
		}
	}
	if unit := e.unit(t); unit.Status.Writes != nil {
		t.Errorf("recorded is %s", toJSON(unit.Status.Writes))
	}
}

// Req: A-05, P-15. Long-running requests are cut after a minute, unless the server knows them as watches: this path is one.
func TestTagsAreFollowedForLongerThanAMinuteThroughTheAggregator(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 75 s")
	}
	e := newEquipment(t, true)
	e.settled(t)
	watcher, err := tagwatch.WatchTags(t.Context(), env.Admin(t).PhysicalV1alpha1().RESTClient(), e.namespace, "mixer")
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	const long = 75 * time.Second
	start := time.Now()
	events := 0
	for time.Since(start) < long {
		select {
		case event, open := <-watcher.ResultChan():
			if !open || event.Type == watch.Error {
				t.Fatalf("after %s and %d events the watch ends: %s", time.Since(start), events, toJSON(event.Object))
			}
			events++
		case <-time.After(15 * time.Second):
			t.Fatalf("the watch says nothing for 15 s after %d events", events)
		}
	}
	// A simulated value changes every second.
	if events < 30 {
		t.Errorf("%d events in %s", events, long)
	}
}
