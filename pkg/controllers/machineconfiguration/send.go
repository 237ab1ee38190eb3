package machineconfiguration

import (
	"context"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hardware"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/talos/identity"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// attempt is one configuration on its way to one machine.
type attempt struct {
	machine *v1alpha1.TalosMachine
	cluster *v1alpha1.TalosCluster
	bundle  *secrets.Bundle
	config  []byte
	// target is the address with its port; intent what will be recorded before anything is sent there.
	target string
	intent v1alpha1.MachineConfiguration
}

// send opens the one connection, finds out who is there, records the intent and sends, all on that connection (T-18,
//
func (c *Controller) send(ctx context.Context, a attempt) (verdict, error) {
	session, stopped := c.meet(ctx, a)
	if stopped != nil {
		return *stopped, nil
	}

	defer session.Close() //nolint:errcheck // nothing hangs on how it ends

	// Neither is what the machine's resourceVersion guards.
	if cluster, err := c.clusters.TalosClusters(a.cluster.Namespace).Get(a.cluster.Name); err == nil && cluster.Spec.Paused {
		return a.verdict(reasonPaused, fmt.Sprintf("spec.paused of TalosCluster %s stops everything", cluster.Name)), nil
	}

	// From here on the machine may have the configuration, unless it says otherwise.
	uncertain := perhapsSent(a.machine)

	recorded, err := c.intend(ctx, a)
	if err != nil {
		return verdict{}, err
	}

	a.machine = recorded

	applyCtx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()

	result, err := session.ApplyConfiguration(applyCtx, a.config, maintenance.ApplyOptions{})
	if err != nil {
		return c.notApplied(a, err, uncertain), nil
	}

	now := metav1.NewTime(c.clock.Now())
	configuration := recorded.Status.Configuration.DeepCopy()
	configuration.AppliedAt = &now

	message := fmt.Sprintf("%s took the configuration", configuration.Endpoint)
	for _, warning := range result.Warnings {
		message += "; " + warning
	}

	klog.FromContext(ctx).Info("Machine took its configuration", "endpoint", configuration.Endpoint, "hash", configuration.Hash)

	out := a.verdict(reasonApplied, notice.Redacted(message, a.bundle))
	out.configuration = configuration

	return out, nil
}

// meet opens a session with the machine at the target and makes sure that it is the approved one. Either the session or
// the verdict is returned.
func (c *Controller) meet(ctx context.Context, a attempt) (maintenance.Client, *verdict) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()

	// As long as it is open whether an earlier attempt got through, silence says nothing new.
	unasked := func(r reason, message string) *verdict {
		if perhapsSent(a.machine) && !answered(r) {
			r, message = reasonOutcomeUnknown, fmt.Sprintf(
				"it is not known whether %s took the configuration: %s", a.machine.Status.Configuration.Endpoint, message)
		}

		// The machine chose some of these words.
		out := a.verdict(r, notice.Redacted(message, a.bundle))

		return &out
	}

	session, err := c.dial(ctx, a.target)
	if err != nil {
		return nil, unasked(askReason(maintenance.ClassOf(err)), explain(err, a.bundle))
	}

	stop := func(r reason, message string) (maintenance.Client, *verdict) {
		session.Close() //nolint:errcheck // nothing was sent

		return nil, unasked(r, message)
	}

	read, err := session.Identity(ctx)
	if err != nil {
		return stop(askReason(maintenance.ClassOf(err)), explain(err, a.bundle))
	}

	if found := hardware.Identity(read); !hardware.Equal(a.machine.Spec.Identity, found) {
		return stop(reasonIdentityMismatch, fmt.Sprintf("another machine answers at %s, so nothing was sent: %s",
			a.intent.Endpoint, difference(a.machine.Spec.Identity, found)))
	}

	if accepted := a.machine.Spec.AcceptedFingerprint; accepted != "" && !maintenance.SameFingerprint(accepted, session.Fingerprint()) {
		return stop(reasonFingerprintMismatch, fmt.Sprintf(
			"the certificate at %s has the fingerprint %s, not the accepted one, so nothing was sent: it is new after each boot and every 12 hours; compare it with the console and approve again",
			a.intent.Endpoint, session.Fingerprint()))
	}

	if r, message := checkInstallDisk(a.machine, read); r != "" {
		return stop(r, message+", so nothing was sent")
	}

	// A machine that took a configuration stays reachable for a moment.
	switch read.Stage {
	case "", "unknown", "maintenance":
	default:
		return stop(reasonMachineBusy, fmt.Sprintf("%s is not ready for a configuration: its stage is %s", a.intent.Endpoint, read.Stage))
	}

	if perhapsSent(a.machine) && c.clock.Since(a.machine.Status.Configuration.IntendedAt.Time) < settling {
		return stop(reasonMachineBusy, "it still answers in maintenance mode; it is given time to leave it")
	}

	return session, nil
}

// intend records what is about to be sent, where and when. The write fails when the machine changed since it was read,
// for instance because its approval was taken back: then nothing is sent (A-06, T-12).
func (c *Controller) intend(ctx context.Context, a attempt) (*v1alpha1.TalosMachine, error) {
	now := metav1.NewTime(c.clock.Now())

	desired := a.machine.DeepCopy()
	desired.Status.Configuration = a.intent.DeepCopy()
	desired.Status.Configuration.IntendedAt = &now
	desired.Status.Phase = v1alpha1.MachineConfiguring

	recorded, err := c.client.TalosV1alpha1().TalosMachines(desired.Namespace).
		UpdateStatus(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})

	switch {
	case apierrors.IsConflict(err):
		return nil, fmt.Errorf("TalosMachine %s/%s changed before its configuration was sent, so nothing was: %w", desired.Namespace, desired.Name, err)
	case err != nil:
		return nil, fmt.Errorf("TalosMachine %s/%s: the intent to configure it could not be recorded, so nothing was sent: %w", desired.Namespace, desired.Name, err)
	}

	return recorded, nil
}

// notApplied is the verdict on a failed sending. The intent stands as long as the machine may have the configuration.
func (c *Controller) notApplied(a attempt, err error, uncertain bool) verdict {
	r := applyReason(maintenance.ClassOf(err))

	// A machine that is busy, or configured meanwhile, may be so because of the earlier attempt.
	if uncertain && r != reasonRefused {
		r = reasonOutcomeUnknown
	}

	out := a.verdict(r, explain(err, a.bundle))
	// Whether an approval is newer than a refusal is told by the time of the last one.
	out.anew = r == reasonRefused

	if r != reasonOutcomeUnknown {
		out.configuration = a.intent.DeepCopy()
	}

	return out
}

func (a attempt) verdict(r reason, message string) verdict {
	return verdict{problem: problem{r, message}, machine: a.machine}
}

// difference says in what the machine that answers is not the approved one.
func difference(approved v1alpha1.MachineIdentity, found identity.Identity) string {
	want := hardware.FromStored(approved)
	match := identity.Compare(want, found)

	switch {
	case !match.UUID:
		return fmt.Sprintf("its UUID is %q", found.UUID)
	case !match.Serial:
		return fmt.Sprintf("its serial number is %q, not %q", found.Serial, want.Serial)
	default:
		return fmt.Sprintf("its MAC addresses are %v, not %v", found.MACs, want.MACs)
	}
}
