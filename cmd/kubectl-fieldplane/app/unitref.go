package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// parseUnit reads "UNIT" and "unit/UNIT", the first argument of a command about one Unit.
func parseUnit(form string, args []string) (string, error) {
	form = "Write: kubectl fieldplane " + form + ". See which there are: kubectl get units -A"
	if len(args) == 0 {
		return "", told("which Unit is not said", form)
	}
	kind, name, qualified := strings.Cut(args[0], "/")
	if !qualified {
		kind, name = "unit", args[0]
	}
	resource, group, _ := strings.Cut(strings.ToLower(kind), ".")
	if group != "" && group != v1alpha1.GroupName || resource != "unit" && resource != "units" && resource != "un" {
		return "", told(fmt.Sprintf("a Unit is expected, and %q is none", kind), form)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", told(fmt.Sprintf("%q is not the name of a Unit", name), form)
	}
	return name, nil
}

func unitResource(name string) string { return "unit." + v1alpha1.GroupName + "/" + name }

// lookAtUnit reads a Unit, in no more than a single look's time.
func (t target) lookAtUnit(ctx context.Context, name string) (*v1alpha1.Unit, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return t.client.PhysicalV1alpha1().Units(t.namespace).Get(ctx, name, metav1.GetOptions{})
}

// unitAttempt is what the plugin asked the server for about a Unit.
type unitAttempt struct {
	// to ends the sentence "cannot".
	to              string
	namespace, unit string
	// verb and subresource are what RBAC has to allow; no subresource is the Unit itself.
	verb, subresource string
	// role is the ClusterRole that allows it.
	role string
	// override tells that the verb override on units/command was needed too.
	override bool
}

// explain tells an error of the server that decided something. Its own words always stay.
func (a unitAttempt) explain(err error) error {
	failed := &failure{cause: err, what: fmt.Sprintf("cannot %s: %s", a.to, clean(err.Error()))}
	switch {
	case notServed(err):
		failed.what = "the fieldplane server of this cluster does not know " + strings.TrimSuffix("units/"+a.subresource, "/")
		failed.todo = "Check that fieldplane is installed and as new as this plugin: kubectl fieldplane --version"
	case notFound(err, a.unit):
		failed.what = fmt.Sprintf("there is no Unit %s in namespace %s", a.unit, a.namespace)
		failed.todo = "See which there are: kubectl get units -A"
	case apierrors.IsConflict(err):
		failed.what = "the server refuses: " + clean(err.Error())
		failed.todo = fmt.Sprintf("Nothing was changed by it. How the Unit stands: kubectl -n %s describe unit %s", a.namespace, a.unit)
	case apierrors.IsForbidden(err):
		failed.what, failed.todo = "the server refuses: "+clean(err.Error()), a.explainRight()
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		failed.what = "the server refuses: " + clean(err.Error())
		failed.todo = "Nothing was changed by it. Correct what it names and run the command again."
	case apierrors.IsUnauthorized(err):
		failed.what = "the server does not know you: " + clean(err.Error())
		failed.todo = "Check the credentials of your kubeconfig: kubectl auth whoami"
	case unavailable(err):
		failed.todo = "Check that the fieldplane server runs, and that the Unit has a runtime: kubectl get apiservice " + physicalAPIService +
			fmt.Sprintf("; kubectl -n %s describe unit %s", a.namespace, a.unit)
	case answered(err):
		failed.todo = "Settle what the server names, and run the command again."
	default:
		failed.todo = "Check that the cluster answers: kubectl version"
	}
	return failed
}

// ClusterRoles that errors name.
const (
	viewRole         = "fieldplane-view"
	unitOperatorRole = "fieldplane-unit-operator"
)

const physicalAPIService = "v1alpha1.physical.fieldplane.dev"

func (a unitAttempt) explainRight() string {
	needs := a.verb + " on " + strings.TrimSuffix("units/"+a.subresource, "/") + ", which the ClusterRole " + a.role + " has"
	if a.override {
		needs += ", and for --override the verb override on it, which fieldplane-unit-override has"
	}
	subresource := ""
	if a.subresource != "" {
		subresource = " --subresource=" + a.subresource
	}
	return fmt.Sprintf("If a right is missing: it is %s. Check with: kubectl auth can-i %s units.%s/%s%s -n %s",
		needs, a.verb, v1alpha1.GroupName, a.unit, subresource, a.namespace)
}

// lost tells whether an error leaves open what became of a request, so that it has to be sent again, or looked for. One that
// was turned away because there are too many was not looked at.
func lost(err error) bool {
	return err != nil && (outcomeUnknown(err) || apierrors.IsTooManyRequests(err))
}

// completeUnits offers the Units of the namespace that a command is for, with how each is.
func (p plugin) completeUnits(cmd *cobra.Command, toComplete string, offers func(*v1alpha1.Unit) bool) ([]cobra.Completion, cobra.ShellCompDirective) {
	t, err := p.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	list, err := t.client.PhysicalV1alpha1().Units(t.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for i := range list.Items {
		if unit := &list.Items[i]; strings.HasPrefix(unit.Name, toComplete) && offers(unit) {
			out = append(out, cobra.CompletionWithDesc(unit.Name, strings.TrimSpace(string(unit.Status.State)+" "+heldBy(unit, shownModules))))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
