package discovery

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// A machine that answers to two namespaces' ranges belongs to the first one that registered it. Discovery runs in one
// process, one sweep at a time; what it wrote a moment ago is perhaps not in the informer yet, so before the first
// machine of a sweep is created all names are read once from the API.

const (
	// lateCreation is how long a creation whose answer was lost may still come true.
	lateCreation = 2 * time.Minute
	// namesPage is how many machines are read at once.
	namesPage = 500
)

// creations remembers the creations whose end is not known, and of which namespace they were.
type creations struct {
	mu   sync.Mutex
	open map[string]openCreation
}

type openCreation struct {
	namespace string
	at        time.Time
}

func newCreations() *creations { return &creations{open: make(map[string]openCreation)} }

func (c *creations) lost(uuid, namespace string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for uuid, one := range c.open {
		if now.Sub(one.at) > lateCreation {
			delete(c.open, uuid)
		}
	}

	c.open[uuid] = openCreation{namespace: namespace, at: now}
}

// mayComeTrue tells that another namespace may yet get a machine of that name.
func (c *creations) mayComeTrue(uuid, namespace string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	one, ok := c.open[uuid]

	return ok && one.namespace != namespace && now.Sub(one.at) <= lateCreation
}

// roster is the names of the machines of all other namespaces, read at most once for a sweep; nil until then.
type roster struct {
	// turn has room for whoever reads.
	turn  chan struct{}
	names map[string]bool
}

func newRoster() *roster { return &roster{turn: make(chan struct{}, 1)} }

// heldElsewhere tells whether another namespace has a machine of that UUID.
func (s *sweep) heldElsewhere(ctx context.Context, uuid string) (bool, error) {
	if s.knownElsewhere(uuid) {
		return true, nil
	}

	select {
	case s.roster.turn <- struct{}{}:
		defer func() { <-s.roster.turn }()
	case <-ctx.Done():
		return false, fmt.Errorf("names of all machines: %w", ctx.Err())
	}

	if s.roster.names == nil {
		names, err := s.namesElsewhere(ctx)
		if err != nil {
			return false, fmt.Errorf("names of all machines: %w", err)
		}

		s.roster.names = names
	}

	return s.roster.names[uuid], nil
}

// knownElsewhere is what the informer says.
func (s *sweep) knownElsewhere(uuid string) bool {
	objects, err := s.machineInformer.GetIndexer().ByIndex(byName, uuid)
	if err != nil {
		return false // Run has said so
	}

	for _, object := range objects {
		if machine, ok := object.(*v1alpha1.TalosMachine); ok && machine.Namespace != s.cluster.Namespace {
			return true
		}
	}

	return false
}

func (s *sweep) namesElsewhere(ctx context.Context) (map[string]bool, error) {
	names := make(map[string]bool)
	options := metav1.ListOptions{Limit: namesPage}

	for {
		page, err := s.client.TalosV1alpha1().TalosMachines(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, err
		}

		for i := range page.Items {
			if machine := &page.Items[i]; machine.Namespace != s.cluster.Namespace {
				names[machine.Name] = true
			}
		}

		if page.Continue == "" {
			return names, nil
		}

		options.Continue = page.Continue
	}
}
