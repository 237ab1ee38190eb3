package machineconfiguration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hardware"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	bundlestore "github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

// configurable tells whether a machine is one to be configured: approved, and without a configuration. Any other is
// left untouched, its status included (T-12); one that was configured never is again by itself.
func configurable(machine *v1alpha1.TalosMachine) bool {
	return ptr.Deref(machine.Spec.Approved, false) && machine.Spec.Rejected == nil &&
		machine.DeletionTimestamp.IsZero() && !applied(machine)
}

func applied(machine *v1alpha1.TalosMachine) bool {
	return machine.Status.Configuration != nil && machine.Status.Configuration.AppliedAt != nil
}

// perhapsSent tells that an attempt was begun whose end was never written down: the process ended, or the connection
// did.
func perhapsSent(machine *v1alpha1.TalosMachine) bool {
	return machine.Status.Configuration != nil && machine.Status.Configuration.IntendedAt != nil && !applied(machine)
}

// problem is a reason with what to tell people. The message holds nothing of a bundle (T-15).
type problem struct {
	reason  reason
	message string
}

// verdict is what an attempt came to.
type verdict struct {
	problem
	// machine is the version that the verdict is about.
	machine *v1alpha1.TalosMachine
	// configuration is what status.configuration becomes; nil leaves it.
	configuration *v1alpha1.MachineConfiguration
	// anew tells that the problem is a new one, although the same may have stood before.
	anew bool
}

// reconcile brings one machine as far as it goes. Its errors are those of API calls and hold nothing of a bundle.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (retry, error) {
	cached, err := c.machines.TalosMachines(key.Namespace).Get(key.Name)
	if err != nil || !configurable(cached) {
		return retryNever, nil // gone, or not to be touched
	}

	// What the cache says may be out of date, and this ends in an effect that cannot be undone.
	machine, err := c.client.TalosV1alpha1().TalosMachines(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return retryNever, nil
	case err != nil:
		return retryNever, fmt.Errorf("TalosMachine %s: %w", key, err)
	case !configurable(machine):
		return retryNever, nil
	}

	result, err := c.advance(ctx, machine)
	if err != nil {
		return retryNever, err
	}

	if err := c.record(ctx, result); err != nil {
		return retryNever, err
	}

	return outcomes()[result.reason].retry, nil
}

// advance goes from the approved machine to the sent configuration, and stops at the first thing that is in the way.
func (c *Controller) advance(ctx context.Context, machine *v1alpha1.TalosMachine) (verdict, error) {
	stop := func(r reason, format string, args ...any) (verdict, error) {
		return verdict{problem: problem{r, fmt.Sprintf(format, args...)}, machine: machine}, nil
	}

	cluster, err := c.client.TalosV1alpha1().TalosClusters(machine.Namespace).Get(ctx, machine.Spec.ClusterRef.Name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return stop(reasonClusterNotFound, "TalosCluster %s does not exist in this namespace", machine.Spec.ClusterRef.Name)
	case err != nil:
		return verdict{}, fmt.Errorf("TalosCluster %s/%s: %w", machine.Namespace, machine.Spec.ClusterRef.Name, err)
	case !cluster.DeletionTimestamp.IsZero():
		return stop(reasonClusterNotFound, "TalosCluster %s is being deleted", cluster.Name)
	case cluster.Spec.Paused:
		return stop(reasonPaused, "spec.paused of TalosCluster %s stops everything", cluster.Name)
	}

	// First of all, and whatever became of the bundle or the spec meanwhile.
	if perhapsSent(machine) && c.left(ctx, machine.Status.Configuration.Endpoint) {
		now := metav1.NewTime(c.clock.Now())
		configuration := machine.Status.Configuration.DeepCopy()
		configuration.AppliedAt = &now

		return verdict{
			problem: problem{reasonAppliedUnconfirmed, fmt.Sprintf(
				"%s was being sent the configuration when the outcome was lost, and asks for a certificate now: it has it", configuration.Endpoint)},
			machine:       machine,
			configuration: configuration,
		}, nil
	}

	if sharing := c.unacceptedSharing(machine); len(sharing) > 0 {
		return stop(reasonSharedNotAccepted,
			"%s, so nothing was sent: most likely they are one box; if they are not, approve it again with acceptSharedHardware", hardware.ExplainSharing(sharing))
	}

	bundle, trouble, err := c.bundles.Load(ctx, cluster)
	if err != nil {
		return verdict{}, err
	}

	if trouble != nil {
		return stop(reason(trouble.Reason), "%s", trouble.Message)
	}

	config, err := render.Render(render.Input{Cluster: cluster, Machine: machine, Bundle: bundle})
	if err != nil {
		return stop(reasonRenderFailed, "%s", notice.Redacted(err.Error(), bundle))
	}

	addr, err := netip.ParseAddr(machine.Spec.Endpoint)
	if err != nil || !addr.Is4() {
		return stop(reasonEndpointNotSet, "spec.endpoint %q is not an IPv4 address: there is nowhere to send the configuration", machine.Spec.Endpoint)
	}

	if machine.Spec.Role == v1alpha1.RoleControlPlane && machine.Spec.AcceptedFingerprint == "" && !machine.Spec.AcceptUnverifiedFingerprint {
		return stop(reasonFingerprintRequired,
			"a control plane gets the cluster's keys: approve it with the fingerprint that its console shows (acceptedFingerprint), or with acceptUnverifiedFingerprint")
	}

	bundleHash, err := bundlestore.HashOf(bundle)
	if err != nil {
		return verdict{}, err
	}

	attempt := attempt{
		machine: machine,
		cluster: cluster,
		bundle:  bundle,
		config:  config,
		target:  hardware.Target(addr),
		intent:  v1alpha1.MachineConfiguration{Hash: render.HashOf(config), Endpoint: addr.String(), BundleHash: bundleHash},
	}

	if message, refused := refusedBefore(machine, attempt.intent); refused {
		return verdict{problem: problem{reasonRefused, message}, machine: machine}, nil
	}

	return c.send(ctx, attempt)
}

// unacceptedSharing lists the machines that were registered before this one and have a part of its hardware, unless whoever
// approved has accepted that. Admission refuses such an approval where it knows of the sharing; this also holds for an
// approval that came before anybody knew (T-05, T-18).
func (c *Controller) unacceptedSharing(machine *v1alpha1.TalosMachine) []hardware.Sharing {
	if machine.Spec.AcceptSharedHardware {
		return nil
	}

	namespace, err := c.machines.TalosMachines(machine.Namespace).List(labels.Everything())
	if err != nil {
		return nil // a lister of a cache does not fail
	}

	return hardware.EarlierSharers(machine, namespace)
}

// left tells whether a machine has left maintenance mode: a configured one asks for a certificate.
func (c *Controller) left(ctx context.Context, endpoint string) bool {
	addr, err := netip.ParseAddr(endpoint)
	if err != nil {
		return false
	}

	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()

	session, err := c.dial(ctx, hardware.Target(addr))
	if err == nil {
		defer session.Close() //nolint:errcheck // nothing hangs on how it ends

		// A TLS 1.3 handshake succeeds before the machine asks for the certificate.
		_, err = session.Identity(ctx)
	}

	return maintenance.ClassOf(err) == maintenance.ClassNotInMaintenance
}

// refusedBefore tells whether the same machine refused the same configuration already. Sending it again is for whoever
// approves it anew.
func refusedBefore(machine *v1alpha1.TalosMachine, intent v1alpha1.MachineConfiguration) (string, bool) {
	refused := meta.FindStatusCondition(machine.Status.Conditions, ConditionConfigurationRefused)
	last := machine.Status.Configuration

	if refused == nil || last == nil || last.Hash != intent.Hash || last.Endpoint != intent.Endpoint {
		return "", false
	}

	if approval := machine.Status.Approval; approval != nil && approval.Time.After(refused.LastTransitionTime.Time) {
		return "", false
	}

	return refused.Message, true
}

// explain is the text of a failure to talk to a machine. An error of unknown making may hold anything, and is withheld.
func explain(err error, bundle *secrets.Bundle) string {
	var failure *maintenance.Error
	if errors.As(err, &failure) {
		return notice.Redacted(failure.Error(), bundle)
	}

	if errors.Is(err, context.DeadlineExceeded) {
		return "the machine did not answer in time"
	}

	return "talking to the machine failed"
}
