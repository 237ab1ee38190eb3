package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// show prints the Unit that is about to be set going. Who may not read it may send it commands all the same.
func (c *unitCommand) show(ctx context.Context) error {
	unit, err := c.lookAtUnit(ctx, c.unit)
	switch {
	case apierrors.IsForbidden(err):
		fmt.Fprintf(c.ErrOut, "Not shown, because you may not read Units: how %s stands.\n", c.unit)
		return nil
	case err != nil:
		return unitAttempt{to: "read the Unit, so that " + string(c.command) + " was not sent", namespace: c.namespace, unit: c.unit, verb: "get", role: viewRole}.explain(err)
	}
	now, status := c.clock.Now(), &unit.Status
	table := printers.GetNewTabWriter(c.say)
	line := func(name, value string) { fmt.Fprintf(table, "%s:\t%s\n", name, value) }
	line("Unit", unit.Name)
	line("Namespace", unit.Namespace)
	state := orNone(string(status.State))
	if status.LastTransitionTime != nil {
		state += ", for " + age(now, *status.LastTransitionTime)
	}
	line("State", state)
	line("Mode", orNone(string(status.Mode)))
	if status.Hold != nil {
		line("Held by", heldBy(unit, len(status.Hold.Modules)))
		if status.Hold.PreviousState != "" {
			line("Was", clean(string(status.Hold.PreviousState)))
		}
	}
	for _, of := range []struct{ name, kind string }{{"Equipment", conditionEquipmentHealthy}, {"Runtime", conditionRuntimeReady}} {
		if value := describeCondition(unit, of.kind); value != "" {
			line(of.name, value)
		}
	}
	if found := findCondition(unit, conditionRuntimeDeployed, metav1.ConditionFalse); found != nil {
		line("Runtime's pod", clean(strings.TrimSpace(found.Reason+" "+found.Message)))
	}
	if last := status.LastCommand; last != nil {
		line("Last command", describeRecord(last, now))
	}
	_ = table.Flush()
	fmt.Fprintln(c.say)
	return nil
}

func describeCondition(unit *v1alpha1.Unit, kind string) string {
	for _, found := range unit.Status.Conditions {
		switch {
		case found.Type != kind:
		case found.Status == metav1.ConditionTrue:
			return "well"
		default:
			return clean(strings.TrimSpace(found.Reason + " " + found.Message))
		}
	}
	return ""
}

func describeRecord(record *v1alpha1.UnitCommandRecord, now time.Time) string {
	line := fmt.Sprintf("%s of %s", record.Command, record.Actor)
	if record.Time != nil {
		line += ", " + age(now, *record.Time) + " ago"
	}
	line += ": " + string(record.Outcome)
	if record.Message != "" && record.Outcome != v1alpha1.CommandDone {
		line += ": " + record.Message
	}
	return clean(line)
}

// warn says loudly what --override passes over, as far as it can be seen: what the server passes over it records.
func (c *unitCommand) warn(ctx context.Context) {
	fmt.Fprintf(c.ErrOut, "WARNING: --override sets %s going without what it needs being known to be well.\n", c.unit)
	lines, err := c.passedOver(ctx)
	switch {
	case err != nil:
		fmt.Fprintf(c.ErrOut, "WARNING: which modules it passes over cannot be shown: %s\n", clean(err.Error()))
	case len(lines) == 0:
		fmt.Fprintf(c.ErrOut, "WARNING: every module that it needs is told to be Online now, and its runtime to be ready; whatever is not when it is carried out is passed over.\n")
	default:
		fmt.Fprintf(c.ErrOut, "WARNING: passed over, and not holding the Unit until that changes:\n")
		for _, line := range lines {
			fmt.Fprintf(c.ErrOut, "WARNING:   %s\n", clean(line))
		}
	}
	fmt.Fprintln(c.ErrOut)
}

// passedOver lists what would refuse the command, as it can be read now.
func (c *unitCommand) passedOver(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	physical := c.client.PhysicalV1alpha1()
	controlModules, err := physical.ControlModules(c.namespace).List(ctx, metav1.ListOptions{FieldSelector: v1alpha1.ControlModuleUnitRef + "=" + c.unit})
	if err != nil {
		return nil, err
	}
	required := map[string]bool{}
	for _, controlModule := range controlModules.Items {
		if controlModule.Spec.UnitRef.Name != c.unit {
			continue
		}
		for _, tag := range controlModule.Spec.Tags {
			required[tag.IOModuleRef.Name] = true
		}
	}
	modules, err := physical.IOModules(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var lines []string
	for i := range modules.Items {
		module := &modules.Items[i]
		if required[module.Name] && module.Status.State != v1alpha1.ModuleOnline {
			lines = append(lines, "IOModule "+module.Name+": "+describeModule(module, c.clock.Now()))
		}
		delete(required, module.Name)
	}
	for name := range required {
		lines = append(lines, "IOModule "+name+": does not exist")
	}
	slices.Sort(lines)
	if unit, err := physical.Units(c.namespace).Get(ctx, c.unit, metav1.GetOptions{}); err == nil {
		if runtime := describeCondition(unit, conditionRuntimeReady); runtime != "well" {
			lines = append(lines, strings.TrimSuffix("its runtime: is not known to be ready: "+runtime, ": "))
		}
	}
	return lines, nil
}

func describeModule(module *v1alpha1.IOModule, now time.Time) string {
	status := &module.Status
	line := string(status.State)
	if line == "" {
		line = string(v1alpha1.ModuleUnknown)
	}
	if status.Reason != "" {
		line += " " + status.Reason
	}
	if status.LastTransitionTime != nil {
		line += ", for " + age(now, *status.LastTransitionTime)
	}
	if status.Message != "" {
		line += ": " + status.Message
	}
	return line
}

// sayOverridden tells what the server recorded that the command passed over.
func (c *unitCommand) sayOverridden(ctx context.Context) {
	unit, err := c.lookAtUnit(ctx, c.unit)
	if err != nil || len(unit.Status.Overridden) == 0 {
		return
	}
	var names []string
	for _, module := range unit.Status.Overridden {
		state := string(module.State)
		if state == "" {
			state = "does not exist"
		}
		names = append(names, fmt.Sprintf("%s (%s)", module.Module, state))
	}
	fmt.Fprintf(c.ErrOut, "WARNING: recorded as passed over: %s\n", clean(strings.Join(names, ", ")))
}
