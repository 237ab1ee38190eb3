package unit

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// Req: P-16c
func TestACacheThatIsBehindIsNotBelieved(t *testing.T) {
	n := newNewest[*v1alpha1.IOModule]()
	at := func(version string) *v1alpha1.IOModule {
		return &v1alpha1.IOModule{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "flow", ResourceVersion: version}}
	}
	step := func(what string, cached, want string) {
		t.Helper()
		if got := n.of(at(cached)).ResourceVersion; got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	step("nothing was read", "9", "9")
	n.remember(at("10"))
	step("the cache is behind", "9", "10")
	n.remember(at("8"))
	step("what was read earlier comes later", "9", "10")
	step("the cache has caught up", "10", "10")
	if len(n.objects) > 0 {
		t.Error("it is remembered for ever")
	}
	n.remember(at("10"))
	step("the cache is ahead", "11", "11")
	n.remember(at("10"))
	n.forget(nn("flow"))
	step("it was deleted", "9", "9")
	n.remember(at("new"))
	step("no number", "9", "9")
}
