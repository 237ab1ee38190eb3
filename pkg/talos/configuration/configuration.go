// Package configuration tells people what a machine's configuration is, and how it differs from what the machine runs,
// without any secret (T-15).
package configuration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	typed "github.com/fieldplane/fieldplane/generated/clientset/versioned/typed/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/addresses"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

// retryAfter is what a client is told to wait, in seconds, before it asks for a machine again that did not answer.
const retryAfter = 5

// Reader reads what the answers are made of. All its errors are of the API: they are shown to the one who asked.
type Reader struct {
	client  typed.TalosV1alpha1Interface
	bundles *bundle.Store
	dial    machine.Factory
}

// NewReader returns a reader that asks machines by the factory.
func NewReader(client typed.TalosV1alpha1Interface, bundles *bundle.Store, dial machine.Factory) *Reader {
	return &Reader{client: client, bundles: bundles, dial: dial}
}

// Rendered is the configuration that the machine would be sent now, redacted YAML. It needs no approval: an approver may
// want to see it first.
func (r *Reader) Rendered(ctx context.Context, namespace, name string) ([]byte, error) {
	_, _, config, err := r.render(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	text, err := render.RedactedConfig(config)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return text, nil
}

// Difference is what would change of the configuration that the machine runs, redacted; empty when nothing would. The
// machine is asked over mutual TLS, and is only believed when it has the UUID of the one that is meant.
func (r *Reader) Difference(ctx context.Context, namespace, name string) (string, error) {
	stored, secrets, config, err := r.render(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	if sent := stored.Status.Configuration; sent == nil || sent.AppliedAt == nil {
		return "", refuse(name, "the machine was not sent a configuration yet: there is nothing to compare with")
	}
	running, err := r.running(ctx, stored, secrets)
	if err != nil {
		return "", err
	}
	text, err := render.Difference(running, config)
	if err != nil {
		return "", apierrors.NewInternalError(err)
	}
	return text, nil
}

func (r *Reader) render(ctx context.Context, namespace, name string) (*v1alpha1.TalosMachine, *secrets.Bundle, []byte, error) {
	fail := func(err error) (*v1alpha1.TalosMachine, *secrets.Bundle, []byte, error) { return nil, nil, nil, err }

	stored, err := r.client.TalosMachines(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fail(unanswered(ctx, err, "the machine could not be read"))
	}
	cluster, err := r.client.TalosClusters(namespace).Get(ctx, stored.Spec.ClusterRef.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fail(refuse(name, fmt.Sprintf("TalosCluster %q does not exist in this namespace", stored.Spec.ClusterRef.Name)))
	case err != nil:
		return fail(unanswered(ctx, err, "the machine's TalosCluster could not be read"))
	case stored.Spec.Role == "":
		// Before the bundle is looked for: this is what the one who asks can do something about.
		return fail(refuse(name, render.ErrRoleNotSet.Error()))
	}
	secrets, problem, err := r.bundles.Load(ctx, cluster)
	switch {
	case err != nil:
		return fail(unanswered(ctx, err, "the secrets bundle could not be read"))
	case problem != nil:
		return fail(refuse(name, string(problem.Reason)+": "+problem.Message))
	}
	config, err := render.Render(render.Input{Cluster: cluster, Machine: stored, Bundle: secrets})
	if err != nil {
		return fail(refuse(name, err.Error())) // it is without bundle material
	}
	return stored, secrets, config, nil
}

// running reads the configuration off the machine, at the first of its addresses at which it is.
func (r *Reader) running(ctx context.Context, stored *v1alpha1.TalosMachine, secrets *secrets.Bundle) ([]byte, error) {
	candidates := addresses.Of(stored)
	if len(candidates) == 0 {
		return nil, refuse(stored.Name, "spec.endpoint is not set: there is nobody to ask")
	}
	var last error
	for i, address := range candidates {
		config, err := r.ask(ctx, address.String(), len(candidates)-i, stored.Spec.Identity.UUID, secrets)
		if err == nil {
			return config, nil
		}
		last = errors.Join(last, err)
	}
	// The machine chose some of these words.
	said := render.Redact(last.Error(), secrets)
	var elsewhere *otherMachine
	switch {
	case errors.As(last, &elsewhere):
		return nil, refuse(stored.Name, render.Redact(elsewhere.Error(), secrets))
	case ctx.Err() != nil:
		return nil, apierrors.NewTimeoutError(fmt.Sprintf("the machine did not tell its configuration in time: %s", said), retryAfter)
	}
	return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("the machine did not tell its configuration: %s", said))
}

// otherMachine is the error for an address at which another machine of the cluster is.
type otherMachine struct{ address, uuid string }

func (e *otherMachine) Error() string {
	return fmt.Sprintf("at %s is another machine, of UUID %s", e.address, e.uuid)
}

// ask reads the configuration at one address, in its share of the time that is left when so many addresses are.
func (r *Reader) ask(ctx context.Context, address string, left int, uuid string, secrets *secrets.Bundle) ([]byte, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	session, err := r.dial(ctx, address, machine.Access{Bundle: secrets, Role: machine.RoleAdmin})
	if err != nil {
		return nil, err
	}
	defer session.Close() //nolint:errcheck // there is nothing left to lose

	read, err := session.Identity(ctx)
	if err != nil {
		return nil, err
	}
	// Any node of the cluster has a certificate of the cluster, and addresses move.
	if found := read.Identity().UUID; found != uuid {
		return nil, &otherMachine{address: address, uuid: found}
	}
	return session.Configuration(ctx)
}

// refuse is the error for what the one who asks can change.
func refuse(name, why string) error {
	return apierrors.NewConflict(v1alpha1.Resource("talosmachines"), name, errors.New(why))
}

// unanswered is the error for a call that failed: what an API said is passed on, but for reasons that would blame the one
// who asked for what the server itself may not do.
func unanswered(ctx context.Context, err error, what string) error {
	switch {
	case ctx.Err() != nil:
		return apierrors.NewTimeoutError(what+" in time", retryAfter)
	case apierrors.IsNotFound(err):
		return err
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf("%s: %v", what, err))
}
