package bundle

import (
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

// Req: T-16
func TestAnEmptyNamespaceFailsOutright(t *testing.T) {
	if _, err := NewStore(fake.NewClientset().CoreV1(), ""); err == nil || !strings.Contains(err.Error(), "POD_NAMESPACE") {
		t.Errorf("err %v", err)
	}
}

// Req: T-15
func TestTheHashOfABundleIsThatOfItsContentAlone(t *testing.T) {
	hash := func(data []byte) string {
		t.Helper()

		bundle, err := render.ParseBundle(data)
		if err != nil {
			t.Fatal(err)
		}

		sum, err := HashOf(bundle)
		if err != nil {
			t.Fatal(err)
		}

		return sum
	}

	one, err := render.GenerateBundle("v1.13")
	if err != nil {
		t.Fatal(err)
	}

	two, err := render.GenerateBundle("v1.13")
	if err != nil {
		t.Fatal(err)
	}

	if hash(one) != hash(append([]byte("# written by hand\n\n"), one...)) {
		t.Error("a comment changes the hash")
	}

	if hash(one) == hash(two) {
		t.Error("two bundles have one hash")
	}
}
