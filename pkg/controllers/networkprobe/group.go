// Package networkprobe keeps the probes of each namespace: one pod and one ConfigMap per distinct node selector of its
// controller-less network modules, one per Controller that network modules are bound to, and none when the last module goes
// (P-04, P-06, P-08, P-09, P-11). All of a namespace are planned together, since a module may move from one to another.
//
// RBAC in the host cluster: pods and configmaps get, list, watch, create, update, patch, delete; nodes get, list, watch;
// namespaces get, list, watch; events create, patch; and what the namespace's certificate needs.
package networkprobe

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

const (
	// BaseName is the name of the Pod and ConfigMap of the unpinned modules' first shard (P-09).
	BaseName = "network-io-probe"
	// ControllerBaseName begins the names of Controllers' probes (P-04).
	ControllerBaseName = "controller-io-probe"
)

// Monitors tells whether a module is watched by a shared probe: a network protocol without a Controller (P-06).
func Monitors(module *v1alpha1.IOModule) bool {
	return module.Spec.ControllerRef == nil && module.Spec.Protocol != v1alpha1.ProtocolSimulation
}

// NodeOf is the node that the probe of a Controller belongs on; "" if it can have none: it awaits its node, is a simulation,
// or goes away (P-04). On a node that is not ready it has one, which measures again as soon as the node does.
func NodeOf(controller *v1alpha1.Controller) string {
	if controller == nil || controller.DeletionTimestamp != nil || controller.Spec.Simulation {
		return ""
	}
	switch controller.Status.Phase {
	case v1alpha1.ControllerReady, v1alpha1.ControllerNotReady:
		return controller.Status.NodeName
	default:
		return ""
	}
}

// group is the modules of a namespace that belong on the same nodes.
type group struct {
	// selector is nil for the unpinned group, and for those of Controllers.
	selector map[string]string
	// controller is nil for the shared groups.
	controller *v1alpha1.Controller
	// base is the name of the group's first shard.
	base    string
	modules []*v1alpha1.IOModule
}

// groups sorts the modules that a probe watches by selector or Controller, then by name. Modules of a Controller that has no
// node are in none.
func groups(modules []*v1alpha1.IOModule, controllers map[string]*v1alpha1.Controller) []*group {
	byBase := map[string]*group{}
	for _, module := range modules {
		var g group
		switch ref := module.Spec.ControllerRef; {
		case Monitors(module):
			g.selector = selectorOf(module)
			g.base = baseName(g.selector)
		case module.Spec.Protocol == v1alpha1.ProtocolSimulation, NodeOf(controllers[ref.Name]) == "":
			continue
		default:
			g.controller = controllers[ref.Name]
			g.base = controllerBaseName(ref.Name)
		}
		if byBase[g.base] == nil {
			byBase[g.base] = &g
		}
		byBase[g.base].modules = append(byBase[g.base].modules, module)
	}
	sorted := make([]*group, 0, len(byBase))
	for _, g := range byBase {
		slices.SortFunc(g.modules, func(a, b *v1alpha1.IOModule) int { return cmp.Compare(a.Name, b.Name) })
		sorted = append(sorted, g)
	}
	slices.SortFunc(sorted, func(a, b *group) int { return cmp.Compare(a.base, b.base) })
	return sorted
}

// selectorOf is the module's selector; an empty one is none (P-09).
func selectorOf(module *v1alpha1.IOModule) map[string]string {
	placement := module.Spec.ProbePlacement
	if placement == nil || len(placement.NodeSelector) == 0 {
		return nil
	}
	return placement.NodeSelector
}

// baseName is the name of a selector's first shard.
func baseName(selector map[string]string) string {
	if len(selector) == 0 {
		return BaseName
	}
	// Neither keys nor values of labels hold "=" or ",", and String sorts: one text per selector.
	return BaseName + "-" + shortHash(labels.Set(selector).String())
}

// controllerBaseName is the name of the first shard of a Controller's probe. The hash keeps apart what is cut, and a
// Controller cell-1-2 from the second shard of cell-1.
func controllerBaseName(controller string) string {
	readable := strings.TrimRight(controller[:min(len(controller), maxReadable)], "-.")
	return fmt.Sprintf("%s-%s-%s", ControllerBaseName, readable, shortHash(controller))
}

// maxReadable is how much of a Controller's name stands in its probe's. Names of pods have at most 253 characters.
const maxReadable = 200

func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:hashLength/2])
}

// hashLength is the number of hex digits that stand for a selector or a Controller. Shard numbers never get so long, which
// keeps the two kinds of suffix apart.
const hashLength = 10

// shardName is the name of the n-th shard, from 1.
func shardName(base string, n int) string {
	if n == 1 {
		return base
	}
	return fmt.Sprintf("%s-%d", base, n)
}

var shardPattern = regexp.MustCompile(fmt.Sprintf(`^(%[1]s(?:-[0-9a-f]{%[3]d})?|%[2]s-[a-z0-9.-]+-[0-9a-f]{%[3]d})(?:-([1-9][0-9]{0,%[4]d}))?$`,
	BaseName, ControllerBaseName, hashLength, hashLength-3))

// parseName is the reverse of shardName; ok is false for a name that no shard has.
func parseName(name string) (base string, n int, ok bool) {
	match := shardPattern.FindStringSubmatch(name)
	if match == nil {
		return "", 0, false
	}
	if match[2] == "" {
		return match[1], 1, true
	}
	n, err := strconv.Atoi(match[2])
	if err != nil || n < 2 {
		return "", 0, false
	}
	return match[1], n, true
}

// kind is what the group's probe is.
func (g *group) kind() probepod.Kind {
	if g.controller != nil {
		return probepod.Controller
	}
	return probepod.Network
}
