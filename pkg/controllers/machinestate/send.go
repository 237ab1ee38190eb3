package machinestate

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

// atEndpoint opens a session with the machine at spec.endpoint, the only address to which anything is sent (T-06).
func (c *Controller) atEndpoint(ctx context.Context, m *v1alpha1.TalosMachine, secrets *secrets.Bundle, role machine.Role) (machine.Client, *problem) {
	addr, err := endpoint(m)
	if err != nil {
		return nil, &problem{reasonEndpointNotSet, "spec.endpoint is not an IPv4 address"}
	}

	session, absent := c.meet(ctx, m, addr, machine.Access{Bundle: secrets, Role: role})
	if absent != nil || role != machine.RoleAdmin || m.Spec.Role != v1alpha1.RoleControlPlane {
		return session, absent
	}

	if problem := c.hasKeys(ctx, session, addr, secrets); problem != nil {
		session.Close() //nolint:errcheck // nothing was sent

		return nil, problem
	}

	return session, nil
}

// hasKeys makes sure that whoever is sent a control plane's configuration has the keys that are in it already. Any worker
// has a certificate of the cluster too, and one that somebody has taken over can say any UUID, at any address (T-18).
func (c *Controller) hasKeys(ctx context.Context, session machine.Client, addr netip.Addr, secrets *secrets.Bundle) *problem {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()

	running, err := session.Configuration(ctx)

	switch {
	case err != nil:
		return explain(addr, err, secrets)
	case !render.HasKeys(running, secrets):
		return &problem{reasonNoControlPlane, fmt.Sprintf(
			"what answers at %s does not have the keys of a control plane of this cluster, so nothing is sent to it: another machine of the cluster answers there, or it was installed as a worker, which becomes a control plane by a new installation alone",
			addr)}
	}

	return nil
}

// notSent is the problem of a configuration that was not sent, or not even tried, since the machine was not met.
func notSent(what string, absent *problem) *problem {
	if absent.reason == reasonNoControlPlane {
		return absent
	}

	return &problem{reasonMachineBusy, what + ": " + absent.message}
}

// try has the machine say what it would do with the configuration. It changes nothing there.
func (c *Controller) try(ctx context.Context, p picture, secrets *secrets.Bundle) *trial {
	session, absent := c.atEndpoint(ctx, p.machine, secrets, machine.RoleAdmin)
	if absent != nil {
		return &trial{problem: notSent("the configuration could not be tried", absent)}
	}

	defer session.Close() //nolint:errcheck // nothing hangs on how it ends

	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()

	result, err := session.Apply(ctx, p.want.config, machine.ModeAuto, true)

	switch {
	case machine.ClassOf(err) == machine.ClassRejected:
		return &trial{problem: &problem{reasonRefused, "the machine refuses the configuration, and goes on with the one it has: " + detail(err, secrets)}}
	case err != nil:
		return &trial{problem: &problem{reasonMachineBusy, "the configuration could not be tried: " + detail(err, secrets)}}
	}

	return &trial{mode: machine.Mode(result.Mode)}
}

// send opens a session, makes sure who is there, takes the cluster's turn by recording the intent, and sends, in this
// order (T-18, T-18a, A-06).
func (c *Controller) send(ctx context.Context, p *picture, status *v1alpha1.TalosMachineStatus, next step, secrets *secrets.Bundle) error {
	session, absent := c.atEndpoint(ctx, p.machine, secrets, machine.RoleAdmin)
	if absent != nil {
		p.withheld = notSent("the configuration could not be sent", absent)

		return nil
	}

	defer session.Close() //nolint:errcheck // nothing hangs on how it ends

	recorded, withheld, err := c.takeTurn(ctx, *p, status)
	if err != nil {
		return err
	}

	if withheld != nil {
		p.machine, p.withheld = recorded, withheld

		return nil
	}

	p.machine = recorded

	mode := machine.ModeNoReboot
	if next == stepStage {
		mode = machine.ModeStaged
	}

	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()

	_, err = session.Apply(ctx, p.want.config, mode, false)
	p.sent = came(err, secrets)

	klog.FromContext(ctx).Info("Configuration sent", "address", p.seen.address, "hash", p.want.hash, "mode", mode, "taken", err == nil)

	return nil
}

func came(err error, secrets *secrets.Bundle) *effect {
	if err == nil {
		return &effect{}
	}

	return &effect{failed: true, answer: answerOf(machine.ClassOf(err)), message: detail(err, secrets)}
}

// takeTurn records that a configuration is about to be sent. The write fails when the machine changed since it was read,
// for instance because its approval was taken back: then nothing is sent. It is the claim to the cluster's turn too: each
// machine writes its claim first and then looks for others, so that of two leaders that overlap at most one goes on; and
// who finds another claim takes its own back.
func (c *Controller) takeTurn(ctx context.Context, p picture, status *v1alpha1.TalosMachineStatus) (*v1alpha1.TalosMachine, *problem, error) {
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}

	if holder, err := c.holder(ctx, p.machine); err != nil || holder != "" {
		return p.machine, &problem{reasonWaitingForTurn, turnTaken(holder)}, err
	}

	claim := status.DeepCopy()
	claim.Update.IntendedAt, claim.Update.AppliedAt = ptr.To(metav1.NewTime(c.clock.Now())), nil

	claimed, err := c.intend(ctx, p.machine, claim)
	if err != nil {
		return nil, nil, err
	}

	withheld, err := c.overtaken(ctx, claimed)
	if withheld == nil || err != nil {
		return claimed, nil, err
	}

	back := claimed.Status.DeepCopy()
	back.Update.IntendedAt = nil

	recorded, err := c.intend(ctx, claimed, back)

	return recorded, withheld, err
}

// overtaken tells what came between the look at the cluster and the claim to its turn.
func (c *Controller) overtaken(ctx context.Context, m *v1alpha1.TalosMachine) (*problem, error) {
	holder, err := c.holder(ctx, m)

	switch {
	case err != nil:
		return nil, err
	case holder != "":
		return &problem{reasonWaitingForTurn, turnTaken(holder)}, nil
	}

	// The cluster is not what the machine's resourceVersion guards.
	cluster, err := c.cluster(ctx, m)
	if err != nil {
		return nil, err
	}

	if stopped(m, cluster) != nil {
		return &problem{reasonWaitingForTurn, fmt.Sprintf("a change waits: TalosCluster %s was paused", m.Spec.ClusterRef.Name)}, nil
	}

	return nil, nil //nolint:nilnil // nothing came
}

// holder is the machine of the cluster that has its turn, beside this one, as the API has it now.
func (c *Controller) holder(ctx context.Context, m *v1alpha1.TalosMachine) (string, error) {
	list, err := c.client.TalosV1alpha1().TalosMachines(m.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("TalosMachines of %s: %w", m.Namespace, err)
	}

	machines := make([]*v1alpha1.TalosMachine, len(list.Items))
	for i := range list.Items {
		machines[i] = &list.Items[i]
	}

	return turnHolder(peersAmong(machines, m, func(*v1alpha1.TalosMachine) string { return "" })), nil
}

// reboot opens a session, makes sure who is there, records the intent, and reboots. The configuration is staged by then.
func (c *Controller) reboot(ctx context.Context, p *picture, status *v1alpha1.TalosMachineStatus, secrets *secrets.Bundle) error {
	session, absent := c.atEndpoint(ctx, p.machine, secrets, machine.RoleOperator)
	if absent != nil {
		p.rebooted = &effect{failed: true, answer: answerNot, message: absent.message}

		return nil
	}

	defer session.Close() //nolint:errcheck // nothing hangs on how it ends

	now := ptr.To(metav1.NewTime(c.clock.Now()))
	claim := status.DeepCopy()
	claim.Reboot.IntendedAt = now

	if claim.Update.AppliedAt == nil {
		claim.Update.AppliedAt = now
	}

	recorded, err := c.intend(ctx, p.machine, claim)
	if err != nil {
		return err
	}

	p.machine = recorded

	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()

	err = session.Reboot(ctx)
	p.rebooted = came(err, secrets)

	klog.FromContext(ctx).Info("Machine told to reboot", "address", p.seen.address, "hash", p.want.hash, "heard", err == nil)

	return nil
}

// intend writes an intent into the status of exactly the version that was read, so that nothing happens to a machine that
// was changed meanwhile (A-06, T-12).
func (c *Controller) intend(ctx context.Context, m *v1alpha1.TalosMachine, status *v1alpha1.TalosMachineStatus) (*v1alpha1.TalosMachine, error) {
	desired := m.DeepCopy()
	desired.Status = *status

	recorded, err := c.client.TalosV1alpha1().TalosMachines(m.Namespace).
		UpdateStatus(ctx, desired, metav1.UpdateOptions{FieldManager: fieldManager})

	switch {
	case apierrors.IsConflict(err):
		return nil, fmt.Errorf("TalosMachine %s/%s changed before anything was sent to it, so nothing was: %w", m.Namespace, m.Name, err)
	case err != nil:
		return nil, fmt.Errorf("TalosMachine %s/%s: the intent to change it could not be recorded, so nothing was sent: %w", m.Namespace, m.Name, err)
	}

	c.tell(m, &recorded.Status)

	return recorded, nil
}
