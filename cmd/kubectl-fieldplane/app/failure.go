package app

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// failure is an error as a user reads it: the first line says what happened, the second what to do.
type failure struct {
	what, todo string
	cause      error
}

func (f *failure) Error() string { return f.what + "\n" + f.todo }

func (f *failure) Unwrap() error { return f.cause }

func told(what, todo string) error { return &failure{what: what, todo: todo} }

// attempt is what the plugin asked the server for.
type attempt struct {
	// to ends the sentence "cannot".
	to string
	// namespace is empty for every namespace; machine is empty where it is about no single one.
	namespace, machine string
	writes             bool
}

// explain tells an error of the server. Its own message always stays: it names the verb, the field or the rule.
func (a attempt) explain(err error) error {
	failed := &failure{cause: err}
	switch {
	// A NotFound that is no Status of the API: the path itself is unknown.
	case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		failed.what = "this cluster does not serve the API group talos.fieldplane.dev"
		failed.todo = "Check that fieldplane is installed, and that this is the cluster you mean: kubectl get apiservice " + apiService
	case apierrors.IsNotFound(err) && a.machine != "":
		failed.what = fmt.Sprintf("there is no machine %s in namespace %s", clean(a.machine), a.namespace)
		failed.todo = "See what waits, and where: kubectl fieldplane pending -A"
	case apierrors.IsConflict(err):
		failed.what = fmt.Sprintf("machine %s changed after it was shown; nothing was written", a.machine)
		failed.todo = "Run the same command again: it shows the machine as it is now."
	case apierrors.IsForbidden(err) && a.writes:
		failed.what = "the server refuses: " + clean(err.Error())
		failed.todo = fmt.Sprintf("If a right is missing: the ClusterRole fieldplane-approver has it. Ask for a RoleBinding in namespace %s, and check with: "+
			"kubectl auth can-i approve talosmachines.talos.fieldplane.dev/%s --subresource=approval -n %s", a.namespace, a.machine, a.namespace)
	case apierrors.IsForbidden(err):
		failed.what = "the server refuses: " + clean(err.Error())
		failed.todo = "Reading machines needs get and list on talosmachines, as the ClusterRoles fieldplane-view and fieldplane-approver grant it."
		if a.namespace == "" {
			failed.todo += " Without -A only one namespace is read."
		}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		failed.what = "the server refuses: " + clean(err.Error())
		failed.todo = "Nothing was written. Correct what it names and run the command again."
	case apierrors.IsUnauthorized(err):
		failed.what = "the server does not know you: " + clean(err.Error())
		failed.todo = "Check the credentials of your kubeconfig: kubectl auth whoami"
	case unavailable(err):
		failed.what = fmt.Sprintf("cannot %s: %s", a.to, clean(err.Error()))
		failed.todo = "Check that the fieldplane server runs: kubectl get apiservice " + apiService
	default:
		failed.what = fmt.Sprintf("cannot %s: %s", a.to, clean(err.Error()))
		failed.todo = "Check that the cluster answers: kubectl version"
	}
	if a.writes && outcomeUnknown(err) {
		failed.todo = fmt.Sprintf("Whether it was stored is not known. Look before trying again: kubectl -n %s get talosmachine %s", a.namespace, a.machine)
	}
	return failed
}

const apiService = "v1alpha1.talos.fieldplane.dev"

func unavailable(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError
}

// outcomeUnknown tells whether a write may have been stored although it failed: no answer, or one that says nothing of it.
func outcomeUnknown(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError
}
