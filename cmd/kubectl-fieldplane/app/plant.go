package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	physical "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	talos "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// plant is how everything stands at one moment.
type plant struct {
	units       []physical.Unit
	modules     []physical.IOModule
	controllers []physical.Controller
	machines    []talos.TalosMachine
	clusters    []talos.TalosCluster
	// missing are the kinds that could not be read, notes says why.
	missing map[string]bool
	notes   []string
	now     time.Time
}

// plantRow is one line of a section: the object, how it is, and how urgent that is.
type plantRow struct {
	kind            schema.GroupVersionKind
	namespace, name string
	object          runtime.Object
	// state is what a line of a change tells of it.
	state string
	// cells are those of the table, wide the ones with -o wide.
	cells, wide []span
	// rank orders rows, the worst first.
	rank int
}

// section is the table of one kind.
type section struct {
	kind         schema.GroupVersionKind
	header, wide []string
	rows         []plantRow
}

// read reads all kinds at once. One that cannot be read is missing, and that is no failure: somebody may answer for the
// machines alone.
func (c *statusCommand) read(ctx context.Context) (*plant, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	plant := &plant{missing: map[string]bool{}, now: c.clock.Now()}
	ofPhysical, ofTalos := c.client.PhysicalV1alpha1(), c.client.TalosV1alpha1()
	reads := []struct {
		resource string
		read     func() error
	}{
		{"units", func() error {
			list, err := ofPhysical.Units(c.namespace).List(ctx, metav1.ListOptions{})
			if err == nil {
				plant.units = list.Items
			}
			return err
		}},
		{"iomodules", func() error {
			list, err := ofPhysical.IOModules(c.namespace).List(ctx, metav1.ListOptions{})
			if err == nil {
				plant.modules = list.Items
			}
			return err
		}},
		{"controllers", func() error {
			list, err := ofPhysical.Controllers(c.namespace).List(ctx, metav1.ListOptions{})
			if err == nil {
				plant.controllers = list.Items
			}
			return err
		}},
		{"talosmachines", func() error {
			list, err := ofTalos.TalosMachines(c.namespace).List(ctx, metav1.ListOptions{})
			if err == nil {
				plant.machines = list.Items
			}
			return err
		}},
		{"talosclusters", func() error {
			list, err := ofTalos.TalosClusters(c.namespace).List(ctx, metav1.ListOptions{})
			if err == nil {
				plant.clusters = list.Items
			}
			return err
		}},
	}
	errs := make([]error, len(reads))
	var all sync.WaitGroup
	for i := range reads {
		all.Go(func() { errs[i] = reads[i].read() })
	}
	all.Wait()

	var forbidden []string
	for i, err := range errs {
		resource := reads[i].resource
		switch {
		case err == nil:
			continue
		case apierrors.IsForbidden(err):
			forbidden = append(forbidden, resource)
		case notServed(err):
			plant.notes = append(plant.notes, fmt.Sprintf("Not shown, because this cluster does not serve them: %s.", resource))
		default:
			plant.notes = append(plant.notes, fmt.Sprintf("Not shown, because they cannot be read: %s: %s", resource, clean(err.Error())))
		}
		plant.missing[resource] = true
	}
	if len(forbidden) > 0 {
		plant.notes = append(plant.notes, "Not shown, because you may not list them: "+strings.Join(forbidden, ", ")+".")
	}
	if len(plant.missing) == len(reads) {
		return nil, c.explain(errs[0])
	}
	return plant, nil
}

// explain tells why nothing can be read.
func (c *statusCommand) explain(err error) error {
	failed := &failure{cause: err, what: "cannot read how the plant stands: " + clean(err.Error())}
	switch {
	case notServed(err):
		failed.what = "this cluster does not serve the API groups of fieldplane"
		failed.todo = "Check that fieldplane is installed, and that this is the cluster you mean: kubectl get apiservice " + physicalAPIService
	case apierrors.IsForbidden(err):
		failed.todo = "It needs list on units, iomodules, controllers, talosmachines and talosclusters, as the ClusterRole fieldplane-view grants it."
		if c.namespace == metav1.NamespaceAll {
			failed.todo += " Without -A only one namespace is read."
		}
	case apierrors.IsUnauthorized(err):
		failed.todo = "Check the credentials of your kubeconfig: kubectl auth whoami"
	case unavailable(err):
		failed.todo = "Check that the fieldplane server runs: kubectl get apiservice " + physicalAPIService
	default:
		failed.todo = "Check that the cluster answers: kubectl version"
	}
	return failed
}

// sections are the tables, in the order in which they are shown, each sorted with the worst first.
func (p *plant) sections() []section {
	sections := []section{
		{kind: physical.SchemeGroupVersion.WithKind("Unit"), header: []string{"UNIT", "STATE", "SINCE", "MODE", "HELD BY", "RUNTIME", "ALARMS"}, wide: []string{"RUNTIME POD", "LAST COMMAND"}},
		{kind: physical.SchemeGroupVersion.WithKind("IOModule"), header: []string{"IOMODULE", "STATE", "REASON", "SINCE", "ENDPOINT"}, wide: []string{"PROBE", "MESSAGE"}},
		{kind: physical.SchemeGroupVersion.WithKind("Controller"), header: []string{"CONTROLLER", "PHASE", "REASON", "SINCE", "NODE"}, wide: []string{"MESSAGE"}},
		{kind: talos.SchemeGroupVersion.WithKind("TalosMachine"), header: []string{"MACHINE", "CLUSTER", "ADDRESS", "PHASE", "WAITS FOR"}, wide: []string{"SERIAL", "HARDWARE"}},
		{kind: talos.SchemeGroupVersion.WithKind("TalosCluster"), header: []string{"TALOSCLUSTER", "REASON", "FINDINGS"}, wide: []string{"MESSAGE"}},
	}
	add := func(at int, object metav1.Object, row plantRow) {
		row.kind, row.namespace, row.name = sections[at].kind, object.GetNamespace(), object.GetName()
		row.object, _ = object.(runtime.Object)
		sections[at].rows = append(sections[at].rows, row)
	}
	for i := range p.units {
		add(0, &p.units[i], p.unitRow(&p.units[i]))
	}
	for i := range p.modules {
		if module := &p.modules[i]; module.Status.State != physical.ModuleOnline {
			add(1, module, p.moduleRow(module))
		}
	}
	for i := range p.controllers {
		if controller := &p.controllers[i]; !controllerReady(controller) {
			add(2, controller, p.controllerRow(controller))
		}
	}
	for i := range p.machines {
		if row, waits := p.machineRow(&p.machines[i]); waits {
			add(3, &p.machines[i], row)
		}
	}
	for i := range p.clusters {
		if row, unsettled := p.clusterRow(&p.clusters[i]); unsettled {
			add(4, &p.clusters[i], row)
		}
	}
	for i := range sections {
		slices.SortStableFunc(sections[i].rows, func(a, b plantRow) int {
			return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
		})
	}
	return sections
}

// grid is a section as a table.
func (s section) grid(namespaces, wide bool) *grid {
	table := &grid{header: slices.Clone(s.header)}
	if wide {
		table.header = append(table.header, s.wide...)
	}
	if namespaces {
		table.header = append([]string{"NAMESPACE"}, table.header...)
	}
	for _, row := range s.rows {
		var cells []span
		if namespaces {
			cells = append(cells, span{text: row.namespace})
		}
		cells = append(append(cells, span{text: row.name}), row.cells...)
		if wide {
			cells = append(cells, row.wide...)
		}
		table.add(cells...)
	}
	return table
}

// The ranks of a Unit, the worst first.
const (
	rankAlarm = iota
	rankAborted
	rankHeld
	rankStopped
	rankUnhealthy
	rankPaused
	rankUnderWay
	rankRunning
	rankResting
)

func (p *plant) unitRow(unit *physical.Unit) plantRow {
	status := &unit.Status
	alarms, alarm := unitAlarms(unit)
	rank, emphasis := unitRank(status.State)
	if alarm && rank > rankUnhealthy && isa88.Active(isa88.State(status.State)) {
		rank = rankUnhealthy
	}
	if findCondition(unit, conditionTransientTimeout, metav1.ConditionTrue) != nil {
		rank = rankAlarm
	}
	held := heldBy(unit, shownModules)
	alarmTone := plain
	if alarm {
		alarmTone = wrong
	}
	runtime, runtimeTone := "", plain
	switch found := meta.FindStatusCondition(status.Conditions, conditionRuntimeReady); {
	case found == nil:
	case found.Status == metav1.ConditionTrue:
		runtime = "ready"
	default:
		runtime, runtimeTone = found.Reason, doubtful
	}
	row := plantRow{
		state: strings.TrimSpace(string(status.State) + " " + held),
		rank:  rank,
		cells: []span{
			{string(status.State), emphasis}, {text: p.since(status.LastTransitionTime)}, {text: string(status.Mode)}, {held, emphasis},
			{runtime, runtimeTone}, {strings.Join(alarms, ", "), alarmTone},
		},
	}
	if len(alarms) > 0 {
		row.state += " (" + strings.Join(alarms, ", ") + ")"
	}
	last := ""
	if status.LastCommand != nil {
		last = describeRecord(status.LastCommand, p.now)
	}
	row.wide = []span{{text: status.RuntimePodName}, {text: last}}
	return row
}

func unitRank(state physical.UnitState) (int, tone) {
	switch state {
	case physical.UnitAborting, physical.UnitAborted:
		return rankAborted, wrong
	case physical.UnitHolding, physical.UnitHeld:
		return rankHeld, wrong
	case physical.UnitStopping, physical.UnitStopped:
		return rankStopped, doubtful
	case physical.UnitPausing, physical.UnitPaused:
		return rankPaused, doubtful
	case physical.UnitRestarting, physical.UnitCompleting, physical.UnitResetting:
		return rankUnderWay, doubtful
	case physical.UnitRunning:
		return rankRunning, fine
	case physical.UnitIdle, physical.UnitComplete:
		return rankResting, plain
	default:
		return rankAlarm, wrong
	}
}

// unitAlarms are the conditions that somebody has to know of, by their reasons; and whether one of them is urgent.
func unitAlarms(unit *physical.Unit) (alarms []string, urgent bool) {
	if findCondition(unit, conditionTransientTimeout, metav1.ConditionTrue) != nil {
		alarms, urgent = append(alarms, conditionTransientTimeout), true
	}
	for _, of := range []struct {
		kind   string
		status metav1.ConditionStatus
		// urgent is how it is when the Unit is at work.
		urgent bool
	}{
		{conditionHoldValuesWritten, metav1.ConditionFalse, true},
		{conditionHoldValuesWritten, metav1.ConditionUnknown, false},
		{conditionEquipmentHealthy, metav1.ConditionFalse, true},
		{conditionEquipmentHealthy, metav1.ConditionUnknown, true},
		{conditionRestored, metav1.ConditionTrue, true},
		// Unknown is when the runtime does not answer, which has a column of its own.
		{conditionRuntimeConnected, metav1.ConditionFalse, true},
		{conditionRuntimeDeployed, metav1.ConditionFalse, true},
	} {
		if found := findCondition(unit, of.kind, of.status); found != nil {
			alarms, urgent = append(alarms, cmp.Or(found.Reason, of.kind)), urgent || of.urgent
		}
	}
	if last := unit.Status.LastCommand; last != nil && last.Outcome == physical.CommandAccepted {
		alarms = append(alarms, string(last.Command)+" not carried out yet")
	}
	if count := len(unit.Status.Overridden); count > 0 {
		alarms, urgent = append(alarms, fmt.Sprintf("%d passed over", count)), true
	}
	return alarms, urgent
}

func (p *plant) moduleRow(module *physical.IOModule) plantRow {
	status := &module.Status
	state := status.State
	rank, emphasis := 2, doubtful
	switch state {
	case physical.ModuleFault:
		rank, emphasis = 0, wrong
	case physical.ModuleOffline:
		rank, emphasis = 1, wrong
	case "":
		state = physical.ModuleUnknown
	}
	return plantRow{
		state: strings.TrimSpace(string(state) + " " + status.Reason),
		rank:  rank,
		cells: []span{{string(state), emphasis}, {text: status.Reason}, {text: p.since(status.LastTransitionTime)}, {text: endpoint(module)}},
		wide:  []span{{text: status.ProbePodName}, {text: status.Message}},
	}
}

// endpoint is where a device is; a simulation is its Controller's.
func endpoint(module *physical.IOModule) string {
	spec := &module.Spec
	switch {
	case spec.Modbus != nil:
		return spec.Modbus.Endpoint
	case spec.OPCUA != nil:
		return spec.OPCUA.Endpoint
	case spec.Ethernetip != nil:
		return spec.Ethernetip.Endpoint
	case spec.ControllerRef != nil:
		return "Controller " + spec.ControllerRef.Name
	default:
		return ""
	}
}

// controllerReady tells whether a Controller is as it should be. A simulation has no Node; that it lives its modules tell.
func controllerReady(controller *physical.Controller) bool {
	switch controller.Status.Phase {
	case physical.ControllerReady, physical.ControllerSimulated:
		found := meta.FindStatusCondition(controller.Status.Conditions, "Ready")
		return found == nil || found.Status == metav1.ConditionTrue
	default:
		return false
	}
}

func (p *plant) controllerRow(controller *physical.Controller) plantRow {
	status := &controller.Status
	rank, emphasis := 1, doubtful
	if status.Phase == physical.ControllerNotReady {
		rank, emphasis = 0, wrong
	}
	reason, message, since := "", "", ""
	if found := meta.FindStatusCondition(status.Conditions, "Ready"); found != nil {
		reason, message, since = found.Reason, found.Message, p.since(&found.LastTransitionTime)
	}
	return plantRow{
		state: strings.TrimSpace(string(status.Phase) + " " + reason),
		rank:  rank,
		cells: []span{{string(status.Phase), emphasis}, {text: reason}, {text: since}, {text: cmp.Or(status.NodeName, controller.Spec.NodeName)}},
		wide:  []span{{text: message}},
	}
}

// machineRow is a machine that waits for somebody, or that failed.
func (p *plant) machineRow(machine *talos.TalosMachine) (plantRow, bool) {
	waits := waitsFor(machine)
	rank, emphasis := 2, doubtful
	if condition(machine, conditionBackInMaintenance) != nil {
		rank = 1
	}
	failed := machine.Status.Phase == talos.MachineFailed
	if failed {
		rank, emphasis = 0, wrong
		if waits == "" {
			waits = failedBecause(machine)
		}
	}
	if reboot := condition(machine, conditionRebootRequired); waits == "" && reboot != nil && approved(machine) {
		rank, waits = 3, "a reboot: "+reboot.Message
	}
	hardware := hardwareOf(machine)
	return plantRow{
		state: strings.TrimSpace(string(machine.Status.Phase) + " " + waits),
		rank:  rank,
		cells: []span{{text: machine.Spec.ClusterRef.Name}, {text: address(machine)}, {string(machine.Status.Phase), emphasis}, {text: waits}},
		wide:  []span{{text: machine.Spec.Identity.Serial}, {text: product(hardware)}},
	}, waits != "" || failed
}

// failedBecause is what a machine that failed says is wrong with it.
func failedBecause(machine *talos.TalosMachine) string {
	for _, kind := range []string{"Configured", "Ready", conditionUpToDate} {
		if found := meta.FindStatusCondition(machine.Status.Conditions, kind); found != nil && found.Status != metav1.ConditionTrue {
			return strings.TrimSuffix(found.Reason+": "+found.Message, ": ")
		}
	}
	return ""
}

// clusterRow is a cluster with something to settle. That no ranges are declared is how one begins, and may stay.
func (p *plant) clusterRow(cluster *talos.TalosCluster) (plantRow, bool) {
	reason, message := "", ""
	rank, emphasis := 2, plain
	if cluster.Spec.Paused {
		reason, rank, emphasis = "Paused", 1, doubtful
	}
	for _, kind := range []string{"BundleReady", "DiscoveryReady", "Bootstrapped"} {
		found := meta.FindStatusCondition(cluster.Status.Conditions, kind)
		if found != nil && found.Status == metav1.ConditionFalse && found.Reason != "NoRanges" {
			if reason == "" {
				reason, rank, emphasis = found.Reason, 0, wrong
			}
			message = cmp.Or(message, found.Message)
		}
	}
	found := ""
	if swept := cluster.Status.Discovery; swept != nil {
		var parts []string
		if count := len(swept.Weak); count > 0 {
			parts = append(parts, fmt.Sprintf("%d without a full identity", count))
		}
		if count := len(swept.Collisions); count > 0 {
			parts = append(parts, fmt.Sprintf("%d with another's identity", count))
		}
		found = strings.Join(parts, ", ")
	}
	return plantRow{
		state: strings.TrimSpace(reason + " " + found),
		rank:  rank,
		cells: []span{{reason, emphasis}, {text: found}},
		wide:  []span{{text: message}},
	}, reason != "" || found != ""
}

func (p *plant) since(at *metav1.Time) string {
	if at == nil || at.IsZero() {
		return ""
	}
	return age(p.now, *at)
}

// summaryLines is the summary on a terminal, broken between kinds where it does not fit.
func (p *plant) summaryLines(where string, width int) []line {
	const separator = "; "
	whole := p.summary(where)[0]
	var out []line
	now := ""
	for _, part := range strings.SplitAfter(whole.text, separator) {
		if now != "" && columnsOf(strings.TrimRight(now+part, " ")) > width {
			out = append(out, line{{now, whole.tone}})
			now = "  "
		}
		now += part
	}
	return append(out, line{{now, whole.tone}})
}

// summary counts everything in one line.
func (p *plant) summary(where string) line {
	var parts []string
	emphasis := fine
	worse := func(than tone) {
		if emphasis == fine || than == wrong {
			emphasis = than
		}
	}
	sections := p.sections()
	count := func(resource, one, many string, total int, of map[string]int, order []string, tones map[string]tone) {
		if p.missing[resource] {
			return
		}
		name := many
		if total == 1 {
			name = one
		}
		text := fmt.Sprintf("%d %s", total, name)
		var states []string
		for _, state := range order {
			if of[state] > 0 {
				states = append(states, fmt.Sprintf("%d %s", of[state], state))
				if tone, bad := tones[state]; bad {
					worse(tone)
				}
			}
		}
		if len(states) > 0 {
			text += " (" + strings.Join(states, ", ") + ")"
		}
		parts = append(parts, text)
	}

	states, order, tones := map[string]int{}, []string{}, map[string]tone{}
	for _, row := range sections[0].rows {
		state := cmp.Or(clean(row.cells[0].text), "of no state")
		if states[state]++; states[state] == 1 {
			order = append(order, state)
		}
		if t := row.cells[0].tone; t == wrong || t == doubtful {
			tones[state] = t
		}
		if row.rank == rankAlarm {
			worse(wrong)
		} else if row.rank == rankUnhealthy {
			worse(doubtful)
		}
	}
	count("units", "Unit", "Units", len(p.units), states, order, tones)

	states = map[string]int{}
	for i := range p.modules {
		states[string(cmp.Or(p.modules[i].Status.State, physical.ModuleUnknown))]++
	}
	count("iomodules", "IOModule", "IOModules", len(p.modules), states, []string{"Fault", "Offline", "Unknown", "Online"},
		map[string]tone{"Fault": wrong, "Offline": wrong, "Unknown": doubtful})

	notReady := len(sections[2].rows)
	count("controllers", "Controller", "Controllers", len(p.controllers), map[string]int{"not ready": notReady, "ready": len(p.controllers) - notReady},
		[]string{"not ready", "ready"}, map[string]tone{"not ready": doubtful})

	waiting := len(sections[3].rows)
	count("talosmachines", "machine", "machines", len(p.machines), map[string]int{"waiting": waiting}, []string{"waiting"}, map[string]tone{"waiting": doubtful})
	unsettled := len(sections[4].rows)
	count("talosclusters", "TalosCluster", "TalosClusters", len(p.clusters), map[string]int{"with something to settle": unsettled}, []string{"with something to settle"},
		map[string]tone{"with something to settle": doubtful})
	return line{{clean(where + ": " + strings.Join(parts, "; ")), emphasis}}
}
