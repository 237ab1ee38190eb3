package machinestate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

// look looks at one machine and brings it as far as it goes. Its errors are those of API calls and hold nothing of a
// bundle.
func (c *Controller) look(ctx context.Context, key types.NamespacedName) (retry, error) {
	cached, err := c.machines.TalosMachines(key.Namespace).Get(key.Name)
	if err != nil || !followed(cached) {
		return retryNever, nil // gone, or not to be touched
	}

	// What the cache says may be out of date, and this may end in an effect.
	m, err := c.client.TalosV1alpha1().TalosMachines(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return retryNever, nil
	case err != nil:
		return retryNever, fmt.Errorf("TalosMachine %s: %w", key, err)
	case !followed(m):
		return retryNever, nil
	}

	p, secrets, err := c.gather(ctx, m)
	if err != nil {
		return retryNever, err
	}

	return c.proceed(ctx, p, secrets)
}

// gather collects what is known before anything is decided.
func (c *Controller) gather(ctx context.Context, m *v1alpha1.TalosMachine) (picture, *secrets.Bundle, error) {
	p := picture{machine: m, now: c.clock.Now()}

	cluster, err := c.cluster(ctx, m)
	if err != nil {
		return p, nil, err
	}

	if p.stopped = stopped(m, cluster); p.stopped != nil {
		return p, nil, nil
	}

	p.cluster = cluster

	secrets, trouble, err := c.bundles.Load(ctx, cluster)
	if err != nil {
		return p, nil, err
	}

	if trouble != nil {
		p.stopped = &problem{reason(trouble.Reason), trouble.Message}

		return p, nil, nil
	}

	if p.bundleHash, err = bundle.HashOf(secrets); err != nil {
		p.stopped = &problem{reason(bundle.Invalid), err.Error()}

		return p, nil, nil
	}

	p.want = c.wantedFor(m, cluster, secrets)
	p.seen = c.observe(ctx, m, secrets)
	p.difference = differenceOf(p.want, p.seen, secrets)
	p.peers = c.peers(m, func(other *v1alpha1.TalosMachine) string {
		// Only a control plane with a change waits for workers to have theirs.
		if p.want.hash == m.Status.ConfigHash || m.Spec.Role != v1alpha1.RoleControlPlane || other.Spec.Role == v1alpha1.RoleControlPlane {
			return ""
		}

		return c.wantedFor(other, cluster, secrets).hash
	})
	p.now = c.clock.Now()

	return p, secrets, nil
}

// cluster reads a machine's cluster, nil when there is none.
func (c *Controller) cluster(ctx context.Context, m *v1alpha1.TalosMachine) (*v1alpha1.TalosCluster, error) {
	cluster, err := c.client.TalosV1alpha1().TalosClusters(m.Namespace).Get(ctx, m.Spec.ClusterRef.Name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none, and that is no error
	case err != nil:
		return nil, fmt.Errorf("TalosCluster %s/%s: %w", m.Namespace, m.Spec.ClusterRef.Name, err)
	}

	return cluster, nil
}

// stopped is why a cluster's machines are not touched at all.
func stopped(m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster) *problem {
	switch {
	case cluster == nil:
		return &problem{reasonClusterNotFound, fmt.Sprintf("TalosCluster %s does not exist in this namespace", m.Spec.ClusterRef.Name)}
	case !cluster.DeletionTimestamp.IsZero():
		return &problem{reasonClusterNotFound, fmt.Sprintf("TalosCluster %s is being deleted", cluster.Name)}
	case cluster.Spec.Paused:
		return &problem{reasonPaused, fmt.Sprintf("spec.paused of TalosCluster %s stops everything: the machine is not looked at", cluster.Name)}
	}

	return nil
}

func (c *Controller) wantedFor(m *v1alpha1.TalosMachine, cluster *v1alpha1.TalosCluster, secrets *secrets.Bundle) wanted {
	config, err := c.render(render.Input{Cluster: cluster, Machine: m, Bundle: secrets})
	if err != nil {
		return wanted{problem: &problem{reasonRenderFailed, notice.Redacted(err.Error(), secrets)}}
	}

	return wanted{config: config, hash: render.HashOf(config)}
}

// peers are the other machines of the cluster that are followed, by name, as the cache has them.
func (c *Controller) peers(m *v1alpha1.TalosMachine, want func(*v1alpha1.TalosMachine) string) []peer {
	machines, err := c.machines.TalosMachines(m.Namespace).List(labels.Everything())
	if err != nil {
		return nil // a lister of a cache does not fail
	}

	return peersAmong(machines, m, want)
}

// proceed decides and does, until nothing is left to do.
func (c *Controller) proceed(ctx context.Context, p picture, secrets *secrets.Bundle) (retry, error) {
	for {
		status, next := decide(p)

		var err error

		// Each step leaves something in the picture that it does not leave a second time, so this ends.
		switch next {
		case stepNone:
			return again(status), c.record(ctx, p, status)
		case stepTry:
			p.trial = c.try(ctx, p, secrets)
		case stepAskPeers:
			p.asked = c.askPeers(ctx, p, secrets)
		case stepApply, stepStage:
			err = c.send(ctx, &p, status, next, secrets)
		case stepReboot:
			err = c.reboot(ctx, &p, status, secrets)
		}

		if err != nil {
			return retryNever, err
		}

		p.now = c.clock.Now()
	}
}

func peersAmong(machines []*v1alpha1.TalosMachine, m *v1alpha1.TalosMachine, want func(*v1alpha1.TalosMachine) string) []peer {
	var out []peer

	for _, other := range machines {
		if other.Name != m.Name && other.Spec.ClusterRef.Name == m.Spec.ClusterRef.Name && followed(other) {
			out = append(out, peer{machine: other, want: want(other)})
		}
	}

	slices.SortFunc(out, func(a, b peer) int { return strings.Compare(a.machine.Name, b.machine.Name) })

	return out
}
