package machinestate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/hardware"
	"github.com/fieldplane/fieldplane/pkg/controllers/internal/notice"
	"github.com/fieldplane/fieldplane/pkg/talos/addresses"
	"github.com/fieldplane/fieldplane/pkg/talos/identity"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

func endpoint(m *v1alpha1.TalosMachine) (netip.Addr, error) {
	addr, err := netip.ParseAddr(m.Spec.Endpoint)
	if err == nil && !addr.Is4() {
		err = errors.New("not IPv4")
	}

	return addr, err
}

// meet opens a session with the machine, and makes sure, on that very connection, that it is the machine: any node of
// the cluster has a certificate of the cluster (T-18). Either the session or the problem is returned.
func (c *Controller) meet(ctx context.Context, m *v1alpha1.TalosMachine, addr netip.Addr, access machine.Access) (machine.Client, *problem) {
	ctx, cancel := context.WithTimeout(ctx, meetTimeout)
	defer cancel()

	session, err := c.dial(ctx, hardware.Target(addr), access)
	if err != nil {
		return nil, explain(addr, err, access.Bundle)
	}

	read, err := session.Identity(ctx)

	found := identity.UUID(read.UUID)
	if err == nil && found == m.Spec.Identity.UUID {
		return session, nil
	}

	session.Close() //nolint:errcheck // nothing hangs on how it ends

	if err != nil {
		return nil, explain(addr, err, access.Bundle)
	}

	return nil, &problem{reasonIdentityMismatch, fmt.Sprintf("another machine answers at %s, so nothing else is asked of it: its UUID is %q", addr, found)}
}

// observe finds the machine and asks it how it is.
func (c *Controller) observe(ctx context.Context, m *v1alpha1.TalosMachine, bundle *secrets.Bundle) sighting {
	var absent *problem

	for i, addr := range addresses.Of(m) {
		own, err := endpoint(m)
		atEndpoint := err == nil && own == addr

		out, problem := c.read(ctx, m, addr, bundle)
		if problem == nil {
			out.atEndpoint = atEndpoint

			return out
		}

		if problem.reason == reasonBackInMaintenance {
			problem = c.inMaintenance(m, addr, atEndpoint)
		}

		// Silence somewhere else says less than an answer.
		if i == 0 || absent.reason == reasonUnreachable {
			absent = problem
		}
	}

	if absent == nil {
		absent = &problem{reasonEndpointNotSet, fmt.Sprintf("spec.endpoint %q is not an IPv4 address: the machine cannot be found", m.Spec.Endpoint)}
	}

	return sighting{absent: absent}
}

// read asks the machine at one address.
func (c *Controller) read(ctx context.Context, m *v1alpha1.TalosMachine, addr netip.Addr, bundle *secrets.Bundle) (sighting, *problem) {
	session, absent := c.meet(ctx, m, addr, machine.Access{Bundle: bundle, Role: machine.RoleReader})
	if absent != nil {
		return sighting{}, absent
	}

	defer session.Close() //nolint:errcheck // nothing hangs on how it ends

	out := sighting{address: addr.String()}

	readCtx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()

	status, err := session.Status(readCtx)
	if err != nil {
		out.statusProblem = explain(addr, err, bundle)

		return out, nil
	}

	status.Stage = notice.Redacted(status.Stage, bundle)
	status.TalosVersion = notice.Redacted(status.TalosVersion, bundle)

	for i, text := range status.Unmet {
		status.Unmet[i] = notice.Redacted(text, bundle)
	}

	out.status = status

	if out.steady() {
		out.running, out.runningProblem = c.readConfiguration(ctx, m, addr, bundle)
	}

	if out.running != nil {
		out.runs = render.HashOf(out.running)
	}

	return out, nil
}

// readConfiguration reads what the machine runs, in a session of its own: that alone needs an administrator's certificate.
func (c *Controller) readConfiguration(ctx context.Context, m *v1alpha1.TalosMachine, addr netip.Addr, bundle *secrets.Bundle) ([]byte, *problem) {
	session, absent := c.meet(ctx, m, addr, machine.Access{Bundle: bundle, Role: machine.RoleAdmin})
	if absent != nil {
		return nil, absent
	}

	defer session.Close() //nolint:errcheck // nothing hangs on how it ends

	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()

	data, err := session.Configuration(ctx)
	if err != nil {
		return nil, explain(addr, err, bundle)
	}

	running, err := render.Normalise(data)
	if err != nil {
		return nil, &problem{reasonUnreadable, err.Error()}
	}

	return running, nil
}

// inMaintenance is what it means that a machine in maintenance mode answers: it shows no certificate that says who it is.
func (c *Controller) inMaintenance(m *v1alpha1.TalosMachine, addr netip.Addr, atEndpoint bool) *problem {
	if c.clock.Since(m.Status.Configuration.AppliedAt.Time) <= leaving {
		return &problem{reasonLeavingMaintenance, "the machine has taken its configuration and has not left maintenance mode yet"}
	}

	if other := c.observedAt(m, addr); other != "" {
		return &problem{reasonAnotherMachine, fmt.Sprintf("TalosMachine %s answers at %s, in maintenance mode", other, addr)}
	}

	if !atEndpoint {
		return &problem{reasonAnotherMachine, fmt.Sprintf("a machine answers at %s in maintenance mode, which is not spec.endpoint", addr)}
	}

	return &problem{reasonBackInMaintenance, fmt.Sprintf(
		"the machine was configured, and at %s a machine answers in maintenance mode: it was wiped or reinstalled; it is not configured again by itself: un-approve it and approve it anew",
		addr)}
}

// observedAt is a machine without a configuration that discovery saw at an address, and which is therefore more likely to
// be what answers there.
func (c *Controller) observedAt(m *v1alpha1.TalosMachine, addr netip.Addr) string {
	// Discovery knows by its identity that it is this one.
	if meta.IsStatusConditionTrue(m.Status.Conditions, ConditionBackInMaintenance) {
		return ""
	}

	machines, err := c.machines.TalosMachines(m.Namespace).List(labels.Everything())
	if err != nil {
		return "" // a lister of a cache does not fail
	}

	for _, other := range machines {
		if other.Name != m.Name && other.Status.Configuration == nil && other.Status.ObservedEndpoint == addr.String() {
			return other.Name
		}
	}

	return ""
}

// askPeers asks the machines of the cluster that ran how they are, control planes first.
func (c *Controller) askPeers(ctx context.Context, p picture, bundle *secrets.Bundle) *neighbours {
	out := &neighbours{}

	if p.machine.Spec.Role == v1alpha1.RoleControlPlane && ran(p.machine) {
		_, view := c.askPeer(ctx, p.machine, bundle)
		out.etcd = append(out.etcd, *view)
	}

	for _, controlPlanes := range []bool{true, false} {
		for _, peer := range p.peers {
			m := peer.machine
			if !ran(m) || (m.Spec.Role == v1alpha1.RoleControlPlane) != controlPlanes {
				continue
			}

			unready, view := c.askPeer(ctx, m, bundle)
			if view != nil {
				out.etcd = append(out.etcd, *view)
			}

			if unready != "" && out.unready == "" {
				out.unready = unready
			}

			// The others cannot make it better.
			if view != nil && view.problem != "" || view == nil && unready != "" {
				return out
			}
		}
	}

	return out
}

// askPeer asks one machine whether it is ready, and, if it is a control plane, for etcd.
func (c *Controller) askPeer(ctx context.Context, m *v1alpha1.TalosMachine, bundle *secrets.Bundle) (unready string, view *etcdView) {
	if m.Spec.Role == v1alpha1.RoleControlPlane {
		view = &etcdView{machine: m.Name, problem: "TalosMachine " + m.Name + " does not answer"}
	}

	unready = "TalosMachine " + m.Name + " does not answer"

	for _, addr := range addresses.Of(m) {
		session, problem := c.meet(ctx, m, addr, machine.Access{Bundle: bundle, Role: machine.RoleReader})
		if problem != nil {
			continue
		}

		defer session.Close() //nolint:errcheck // nothing hangs on how it ends

		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()

		if status, err := session.Status(ctx); err == nil {
			unready = ""

			if !(sighting{status: status}).healthy() {
				unready = "TalosMachine " + m.Name + " is not ready"
			}
		}

		if view == nil {
			return unready, nil
		}

		members, err := session.EtcdMembers(ctx)

		switch {
		case machine.ClassOf(err) == machine.ClassNotBootstrapped:
			view.problem, view.none = "", true
		case err != nil:
			view.problem = "etcd of TalosMachine " + m.Name + " does not answer"
		default:
			view.problem = ""

			for _, member := range members {
				view.members = append(view.members, member.ID)

				if member.Learner {
					view.learners++
				}
			}
		}

		return unready, view
	}

	return unready, view
}

// explain is a failure to talk to a machine in words. Details that change with every attempt stay out, since a condition
// is written when it changes; an error of unknown making may hold anything, and is withheld.
func explain(addr netip.Addr, err error, bundle *secrets.Bundle) *problem {
	r := unheard(machine.ClassOf(err))

	switch r {
	case reasonUnreachable:
		return &problem{r, fmt.Sprintf("nothing answers at %s", addr)}
	case reasonNotTalos:
		return &problem{r, fmt.Sprintf("what answers at %s is no Talos node", addr)}
	case reasonUntrusted:
		return &problem{r, fmt.Sprintf("what answers at %s has no certificate of the cluster's bundle: another cluster's node, or the bundle was replaced", addr)}
	case reasonIdentityAbsent:
		return &problem{r, fmt.Sprintf("the machine at %s has not read yet who it is", addr)}
	}

	return &problem{r, detail(err, bundle)}
}

func detail(err error, bundle *secrets.Bundle) string {
	var failure *machine.Error
	if errors.As(err, &failure) {
		return notice.Redacted(failure.Error(), bundle)
	}

	if errors.Is(err, context.DeadlineExceeded) {
		return "the machine did not answer in time"
	}

	return "talking to the machine failed"
}
