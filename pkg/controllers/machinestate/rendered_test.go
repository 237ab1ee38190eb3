package machinestate

import (
	"crypto/sha256"
	"encoding/json"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

// renderings remember what was rendered from what, for all tests: under the race detector a rendering takes tens of
// milliseconds, there are thousands, and they are of a few machines.
type renderings struct {
	mu   sync.Mutex
	made map[[sha256.Size]byte]rendering
}

type rendering struct {
	config []byte
	err    error
}

var onceRenderings = sync.OnceValue(func() *renderings { return &renderings{made: map[[sha256.Size]byte]rendering{}} })

// rendered is render.Render, whose result follows from the specifications, the cluster's name and the bundle alone.
func rendered(in render.Input) ([]byte, error) {
	hash, err := bundle.HashOf(in.Bundle)
	if err != nil {
		return nil, err
	}

	text, err := json.Marshal([]any{in.Machine.Spec, in.Cluster.Name, in.Cluster.Spec, hash})
	if err != nil {
		return nil, err
	}

	all, key := onceRenderings(), sha256.Sum256(text)

	all.mu.Lock()
	defer all.mu.Unlock()

	r, ok := all.made[key]
	if !ok {
		r.config, r.err = render.Render(in)
		all.made[key] = r
	}

	return append([]byte(nil), r.config...), r.err
}

// renderFor is what a machine is to have.
func renderFor(m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster, secrets *secrets.Bundle) wanted {
	return (&Controller{render: rendered}).wantedFor(m, cluster, secrets)
}
