package app

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
)

// What the plugin exits with.
const (
	exitDone = 0
	// exitFailed: it was refused, or could not be asked for; nothing was changed by it.
	exitFailed = 1
	// exitUnfinished: it was sent, and is not finished or nobody knows what became of it.
	exitUnfinished = 2
)

// failure is an error as a user reads it: the first line says what happened, the second what to do.
type failure struct {
	what, todo string
	cause      error
	// code is what the plugin exits with; 0 stands for exitFailed.
	code int
}

func (f *failure) Error() string { return f.what + "\n" + f.todo }

func (f *failure) Unwrap() error { return f.cause }

func told(what, todo string) error { return &failure{what: what, todo: todo} }

// unfinished is told where something was sent whose end is not known.
func unfinished(what, todo string) error {
	return &failure{what: what, todo: todo, code: exitUnfinished}
}

// exitCode is what the plugin exits with after an error, or without one.
func exitCode(err error) int {
	var failed *failure
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &failed) && failed.code != 0:
		return failed.code
	default:
		return exitFailed
	}
}

// right is what RBAC has to allow beside reading.
type right struct {
	verb, resource, subresource string
	// role is the ClusterRole that has it.
	role string
}

func operatorRight(verb, resource, subresource string) right {
	return right{verb: verb, resource: resource, subresource: subresource, role: "fieldplane-talos-operator"}
}

func approveRight() right {
	return right{verb: "approve", resource: "talosmachines", subresource: "approval", role: "fieldplane-approver"}
}

// attempt is what the plugin asked the server for.
type attempt struct {
	// to ends the sentence "cannot".
	to string
	// namespace is empty for every namespace; machine and cluster are empty where it is about no single one.
	namespace, machine, cluster string
	writes                      bool
	// needs is the right beside reading that it needs, if any.
	needs right
}

// explain tells an error of the server. Its own message always stays: it names the verb, the field or the rule.
func (a attempt) explain(err error) error {
	failed := &failure{cause: err}
	switch {
	// A NotFound that is no Status of the API: the path itself is unknown.
	case notServed(err) && a.needs.subresource != "" && a.needs != approveRight():
		failed.what = fmt.Sprintf("the fieldplane server of this cluster does not know %s/%s", a.needs.resource, a.needs.subresource)
		failed.todo = "It is older than this plugin. The plugin's version: kubectl fieldplane --version"
	case notServed(err):
		failed.what = "this cluster does not serve the API group talos.fieldplane.dev"
		failed.todo = "Check that fieldplane is installed, and that this is the cluster you mean: kubectl get apiservice " + apiService
	case a.machine != "" && notFound(err, a.machine):
		failed.what = fmt.Sprintf("there is no machine %s in namespace %s", clean(a.machine), a.namespace)
		failed.todo = "See what waits, and where: kubectl fieldplane pending -A"
	case a.cluster != "" && notFound(err, a.cluster):
		failed.what = fmt.Sprintf("there is no TalosCluster %s in namespace %s", clean(a.cluster), a.namespace)
		failed.todo = "See which there are: kubectl get talosclusters -A"
	case apierrors.IsConflict(err) && a.needs == approveRight() && strings.Contains(err.Error(), "TalosCluster"):
		// It was not the machine that changed, and what decides the rest of its configuration is part of what is approved.
		failed.what = "the server refuses: " + clean(err.Error())
		failed.todo = "Nothing was written. Run the same command again after some seconds, and look at what it shows of the TalosCluster."
	case apierrors.IsConflict(err) && a.needs == approveRight():
		failed.what = fmt.Sprintf("machine %s changed after it was shown; nothing was written", a.machine)
		failed.todo = "Run the same command again: it shows the machine as it is now."
	case apierrors.IsForbidden(err) && a.needs != right{}:
		failed.what = "the server refuses: " + clean(err.Error())
		failed.todo = a.explainRight()
	case apierrors.IsForbidden(err):
		failed.what = "the server refuses: " + clean(err.Error())
		failed.todo = "Reading machines needs get and list on talosmachines, as the ClusterRoles fieldplane-view, fieldplane-approver and fieldplane-talos-operator grant it."
		if a.cluster != "" {
			failed.todo = "Reading clusters needs get and list on talosclusters, as the ClusterRoles fieldplane-view and fieldplane-talos-operator grant it."
		}
		if a.namespace == "" {
			failed.todo += " Without -A only one namespace is read."
		}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		failed.what = "the server refuses: " + clean(err.Error())
		failed.todo = "Nothing was written. Correct what it names and run the command again."
	case apierrors.IsUnauthorized(err):
		failed.what = "the server does not know you: " + clean(err.Error())
		failed.todo = "Check the credentials of your kubeconfig: kubectl auth whoami"
	case strings.Contains(err.Error(), "the machine did not tell"):
		failed.what = fmt.Sprintf("cannot %s: %s", a.to, clean(err.Error()))
		failed.todo = fmt.Sprintf("The server runs, and asked the machine. What it knows of it: kubectl -n %s describe talosmachine %s", a.namespace, a.machine)
	case unavailable(err):
		failed.what = fmt.Sprintf("cannot %s: %s", a.to, clean(err.Error()))
		failed.todo = "Check that the fieldplane server runs: kubectl get apiservice " + apiService
	case answered(err):
		failed.what = fmt.Sprintf("cannot %s: %s", a.to, clean(err.Error()))
		failed.todo = "Settle what the server names, and run the command again."
		if a.writes {
			failed.todo = "Nothing was written. " + failed.todo
		}
	default:
		failed.what = fmt.Sprintf("cannot %s: %s", a.to, clean(err.Error()))
		failed.todo = "Check that the cluster answers: kubectl version"
	}
	if a.writes && outcomeUnknown(err) {
		failed.todo = fmt.Sprintf("Whether it was stored is not known. Look before trying again: kubectl -n %s get %s", a.namespace, a.getArguments())
	}
	return failed
}

func (a attempt) getArguments() string {
	if a.machine != "" {
		return "talosmachine " + a.machine
	}
	return "taloscluster " + a.cluster
}

func (a attempt) explainRight() string {
	return fmt.Sprintf("If a right is missing: it is %s on %s/%s, which the ClusterRole %s has. Ask for a RoleBinding in namespace %s, and check with: "+
		"kubectl auth can-i %s %s.%s/%s --subresource=%s -n %s",
		a.needs.verb, a.needs.resource, a.needs.subresource, a.needs.role, a.namespace,
		a.needs.verb, a.needs.resource, v1alpha1.GroupName, a.machine+a.cluster, a.needs.subresource, a.namespace)
}

const apiService = "v1alpha1.talos.fieldplane.dev"

func notServed(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// notFound tells whether it is the object of this name that is missing, and not another one that the server looked for.
func notFound(err error, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == "" || details.Name == name
}

func unavailable(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError
}

// answered tells whether the server decided at all.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// outcomeUnknown tells whether a write may have been stored although it failed: no answer, or one that says nothing of it.
func outcomeUnknown(err error) bool { return !answered(err) || unavailable(err) }
