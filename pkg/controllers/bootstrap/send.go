package bootstrap

import (
	"context"
	"errors"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
)

// attempt is one bootstrap on its way to one machine.
type attempt struct {
	cluster *v1alpha1.TalosCluster
	target  answer
	secrets *secrets.Bundle
	hash    string
}

// send opens the one connection, finds out who is there and that it has no etcd, records the intent, and sends, all on
// that connection (T-18, A-06).
func (c *Controller) send(ctx context.Context, a attempt) (verdict, error) {
	meetCtx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()

	session, got := c.meet(meetCtx, a.target.subject, a.target.address, machine.Access{Bundle: a.secrets, Role: machine.RoleAdmin})
	if session != nil {
		defer session.Close() //nolint:errcheck // nothing hangs on how it ends

		got = etcdOf(meetCtx, session, got, a.secrets)
	}

	if ctx.Err() != nil {
		return verdict{}, ctx.Err() // what was said then says nothing of the machine
	}

	// It said that it has none a moment ago; whatever it says now is what counts.
	if session == nil || got.finding != never {
		if decided := c.decide(a.cluster, []answer{got}, a.hash); decided.target == nil {
			return decided.verdict, nil
		}

		return wait(reasonEtcdUnknown, "control plane %s at %s does not say the same twice", got.name, got.address).verdict, nil
	}

	intent, err := c.intend(ctx, a)
	if err != nil {
		return verdict{}, err
	}

	if stopped, err := c.stillMeant(ctx, a); err != nil || stopped != nil {
		c.vain.note(a.cluster.UID, intent.Status.Bootstrap.IntendedAt.Time)

		if err != nil {
			return verdict{}, err
		}

		return *stopped, nil
	}

	sendCtx, cancelSend := context.WithTimeout(ctx, sendTimeout)
	defer cancelSend()

	if late := c.clock.Since(intent.Status.Bootstrap.IntendedAt.Time); late > sendWindow {
		return verdict{}, fmt.Errorf("TalosCluster %s/%s: %s passed since the intent to bootstrap it was recorded, so nothing was sent",
			a.cluster.Namespace, a.cluster.Name, late)
	}

	err = session.Bootstrap(sendCtx)
	klog.FromContext(ctx).Info("Control plane was told to bootstrap etcd", "machine", a.target.name, "address", a.target.address, "answer", machine.ClassOf(err))

	return c.told(a, intent, err), nil
}

// intend records who is about to be bootstrapped. The write fails when somebody else recorded something since the machines
// were asked: another process that leads meanwhile, for instance. Then nothing is sent.
func (c *Controller) intend(ctx context.Context, a attempt) (*v1alpha1.TalosCluster, error) {
	clusters := c.client.TalosV1alpha1().TalosClusters(a.cluster.Namespace)
	name := a.cluster.Namespace + "/" + a.cluster.Name
	changed := func(what string) error {
		return apierrors.NewConflict(v1alpha1.Resource("talosclusters"), a.cluster.Name, errors.New(what))
	}

	for {
		current, err := clusters.Get(ctx, a.cluster.Name, metav1.GetOptions{})

		switch {
		case err != nil:
			return nil, fmt.Errorf("TalosCluster %s: %w", name, err)
		case current.UID != a.cluster.UID || !current.DeletionTimestamp.IsZero():
			return nil, changed("it is gone, so nothing was sent")
		case current.Spec.Paused:
			return nil, changed("it was paused, so nothing was sent")
		case !equality.Semantic.DeepEqual(current.Status.Bootstrap, a.cluster.Status.Bootstrap):
			return nil, changed("somebody else records its bootstrap, so nothing was sent")
		}

		now := metav1.NewTime(c.clock.Now())

		desired := current.DeepCopy()
		desired.Status.Bootstrap = &v1alpha1.ClusterBootstrap{
			MachineName: a.target.name, Endpoint: a.target.address.String(), IntendedAt: &now,
		}

		recorded, err := clusters.UpdateStatus(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})

		switch {
		case err == nil:
			// What is stored has whole seconds, and is what others compare with.
			a.cluster.Status.Bootstrap = recorded.Status.Bootstrap.DeepCopy()

			if before := current.Status.Bootstrap; !intended(before) || before.MachineName != a.target.name {
				c.event(recorded, corev1.EventTypeNormal, reasonBootstrapping, fmt.Sprintf("etcd is bootstrapped on control plane %s at %s", a.target.name, a.target.address))
			}

			return recorded, nil
		case !apierrors.IsConflict(err):
			return nil, fmt.Errorf("TalosCluster %s: the intent to bootstrap it could not be recorded, so nothing was sent: %w", name, err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		// Discovery and the counts change the same object: only what is compared above matters.
	}
}

// stillMeant looks at the machine again, now that whoever takes its approval back can see that it is about to be
// bootstrapped. The verdict is nil when nothing speaks against it.
func (c *Controller) stillMeant(ctx context.Context, a attempt) (*verdict, error) {
	current, err := c.client.TalosV1alpha1().TalosMachines(a.cluster.Namespace).Get(ctx, a.target.name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("TalosMachine %s/%s: %w", a.cluster.Namespace, a.target.name, err)
	}

	if err == nil && current.UID == a.target.uid {
		if s, _ := subjectOf(current); s.eligible() && s.uuid == a.target.uuid && s.bundleHash == a.target.bundleHash {
			return nil, nil
		}
	}

	stopped := wait(reasonAwaitingControlPlane, "control plane %s was to be bootstrapped, and is not approved or configured any more: nothing was sent", a.target.name).verdict

	return &stopped, nil
}

// told is the verdict on what the machine answered.
func (c *Controller) told(a attempt, intent *v1alpha1.TalosCluster, err error) verdict {
	who := fmt.Sprintf("control plane %s at %s", a.target.name, a.target.address)

	switch class := machine.ClassOf(err); {
	case err == nil:
		return wait(reasonBootstrapping, "%s bootstraps etcd", who).verdict
	case class == machine.ClassAlreadyBootstrapped:
		// Whoever did it: it is there, and shows itself as soon as it runs.
		return wait(reasonBootstrapping, "%s has data of etcd already, which starts", who).verdict
	case class == machine.ClassBusy:
		c.vain.note(a.cluster.UID, intent.Status.Bootstrap.IntendedAt.Time)

		return wait(reasonBusy, "%s cannot be bootstrapped yet: %s", who, explain(err, a.secrets)).verdict
	case class == machine.ClassRejected, class == machine.ClassDenied:
		return wait(reasonRefused, "%s refuses to bootstrap etcd: %s", who, explain(err, a.secrets)).verdict
	default:
		return wait(reasonOutcomeUnknown, "it is not known whether %s bootstraps etcd: %s; it is asked before anything is sent again", who, explain(err, a.secrets)).verdict
	}
}
