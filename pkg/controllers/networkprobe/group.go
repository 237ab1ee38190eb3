// Package networkprobe keeps the shared probes of each namespace: one pod and one ConfigMap per distinct node selector
// of its controller-less network modules, and none when the last module goes (P-06, P-08, P-09, P-11).
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

	"k8s.io/apimachinery/pkg/labels"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// BaseName is the name of the Pod and ConfigMap of the unpinned modules' first shard (P-09).
const BaseName = "network-io-probe"

// Monitors tells whether a module is watched by a shared probe: a network protocol without a Controller (P-06).
func Monitors(module *v1alpha1.IOModule) bool {
	return module.Spec.ControllerRef == nil && module.Spec.Protocol != v1alpha1.ProtocolSimulation
}

// group is the modules of a namespace that one selector holds together.
type group struct {
	// selector is nil for the unpinned group.
	selector map[string]string
	// base is the name of the group's first shard.
	base    string
	modules []*v1alpha1.IOModule
}

// groups sorts the modules that a shared probe watches by selector, then by name.
func groups(modules []*v1alpha1.IOModule) []*group {
	byBase := map[string]*group{}
	for _, module := range modules {
		if !Monitors(module) {
			continue
		}
		selector := selectorOf(module)
		base := baseName(selector)
		g := byBase[base]
		if g == nil {
			g = &group{selector: selector, base: base}
			byBase[base] = g
		}
		g.modules = append(g.modules, module)
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
	sum := sha256.Sum256([]byte(labels.Set(selector).String()))
	return BaseName + "-" + hex.EncodeToString(sum[:hashLength/2])
}

// hashLength is the number of hex digits that stand for a selector. Shard numbers never get so long, which keeps
// the two kinds of suffix apart.
const hashLength = 10

// shardName is the name of the n-th shard, from 1.
func shardName(base string, n int) string {
	if n == 1 {
		return base
	}
	return fmt.Sprintf("%s-%d", base, n)
}

var shardPattern = regexp.MustCompile(fmt.Sprintf(`^(%s(?:-[0-9a-f]{%d})?)(?:-([1-9][0-9]{0,%d}))?$`, BaseName, hashLength, hashLength-3))

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
