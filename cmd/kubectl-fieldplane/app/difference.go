package app

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

const unset = "(unset)"

// change is a field that a write changes.
type change struct{ path, from, to string }

// differences lists the fields of spec, and what status tells of the approval, in which two states of a machine differ.
func differences(from, to *v1alpha1.TalosMachine) ([]change, error) {
	before, err := flatten(from)
	if err != nil {
		return nil, err
	}
	after, err := flatten(to)
	if err != nil {
		return nil, err
	}
	paths := map[string]bool{}
	for path := range before {
		paths[path] = true
	}
	for path := range after {
		paths[path] = true
	}
	var out []change
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if before[path] != after[path] {
			out = append(out, change{path: path, from: before[path], to: after[path]})
		}
	}
	return out, nil
}

// approvalPrefixes are the paths of what an approval vouches for (T-13).
func approvalPrefixes() []string {
	return []string{
		"spec.role", "spec.nodeLabels", "spec.nodeTaints", "spec.install", "spec.diskRoles", "spec.network",
		"spec.configPatches", "spec.acceptedFingerprint", "spec.acceptUnverifiedFingerprint", "spec.acceptSharedHardware",
	}
}

// standing lists what the approval vouches for and does not change: somebody else wrote it, and the approver has to see it.
func standing(from, to *v1alpha1.TalosMachine) ([]change, error) {
	before, err := flatten(from)
	if err != nil {
		return nil, err
	}
	after, err := flatten(to)
	if err != nil {
		return nil, err
	}
	var out []change
	for _, path := range slices.Sorted(maps.Keys(after)) {
		if before[path] != after[path] {
			continue
		}
		if slices.ContainsFunc(approvalPrefixes(), func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
			out = append(out, change{path: path, from: before[path], to: after[path]})
		}
	}
	return out, nil
}

// flatten turns a machine into lines: path and value.
func flatten(machine *v1alpha1.TalosMachine) (map[string]string, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(machine)
	if err != nil {
		return nil, err
	}
	lines := map[string]string{}
	walk("spec", content["spec"], lines)
	if status, ok := content["status"].(map[string]any); ok {
		walk("status.phase", status["phase"], lines)
		// The identity it is given for stands above, and the time is now.
		if approval, ok := status["approval"].(map[string]any); ok {
			for _, member := range []string{"user", "fingerprint", "unverifiedFingerprint", "sharedHardware"} {
				walk("status.approval."+member, approval[member], lines)
			}
		}
	}
	return lines, nil
}

func walk(path string, value any, lines map[string]string) {
	switch value := value.(type) {
	case nil:
	case map[string]any:
		for key, member := range value {
			// Label keys hold dots themselves.
			if path == "spec.nodeLabels" {
				walk(path+"["+key+"]", member, lines)
			} else {
				walk(path+"."+key, member, lines)
			}
		}
	case []any:
		if path == "spec.configPatches" {
			// A patch may hold anything, and is long: kubectl get -o yaml shows it to whoever may read it.
			lines[path] = fmt.Sprintf("%d, shown by kubectl get -o yaml", len(value))
			return
		}
		var scalars []string
		for i, member := range value {
			if _, nested := member.(map[string]any); nested {
				walk(fmt.Sprintf("%s[%d]", path, i), member, lines)
			} else {
				scalars = append(scalars, fmt.Sprint(member))
			}
		}
		if scalars != nil {
			lines[path] = strings.Join(scalars, ",")
		}
	default:
		lines[path] = fmt.Sprint(value)
	}
}

func printChanges(out io.Writer, changes []change) {
	table := printers.GetNewTabWriter(out)
	defer func() { _ = table.Flush() }()
	for _, c := range changes {
		fmt.Fprintf(table, "  %s\t%s -> %s\n", clean(c.path), orUnset(c.from), orUnset(c.to))
	}
}

func printStanding(out io.Writer, lines []change) {
	table := printers.GetNewTabWriter(out)
	defer func() { _ = table.Flush() }()
	for _, c := range lines {
		fmt.Fprintf(table, "  %s\t%s\n", clean(c.path), orUnset(c.to))
	}
}

func orUnset(text string) string {
	if text == "" {
		return unset
	}
	return clean(text)
}
