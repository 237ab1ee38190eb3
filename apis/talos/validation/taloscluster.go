package validation

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	kubevalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fieldplane/fieldplane/apis/talos"
)

var (
	// talosVersion may leave the patch open: the version contract is by minor version.
	talosVersion = regexp.MustCompile(`^v1\.\d{1,3}(\.\d{1,3}(-(alpha|beta|rc)\.\d{1,3})?)?$`)
	// kubernetesVersion is whole, since it names images.
	kubernetesVersion = regexp.MustCompile(`^v1\.\d{1,3}\.\d{1,3}(-(alpha|beta|rc)\.\d{1,3})?$`)
	// image is a reference to a container image, with a tag or a digest or both.
	image = regexp.MustCompile(`^[a-z0-9]+([._:/-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`)
)

// ValidateTalosCluster checks a new TalosCluster.
func ValidateTalosCluster(cluster *talos.TalosCluster) field.ErrorList {
	return append(validateClusterName(cluster), validateClusterSpec(&cluster.Spec, field.NewPath("spec"))...)
}

// ValidateTalosClusterUpdate checks a changed TalosCluster.
func ValidateTalosClusterUpdate(cluster, _ *talos.TalosCluster) field.ErrorList {
	return validateClusterSpec(&cluster.Spec, field.NewPath("spec"))
}

// ValidateTalosClusterStatusUpdate checks a changed status.
func ValidateTalosClusterStatusUpdate(cluster, _ *talos.TalosCluster) field.ErrorList {
	return metavalidation.ValidateConditions(cluster.Status.Conditions, field.NewPath("status", "conditions"))
}

func validateClusterName(cluster *talos.TalosCluster) field.ErrorList {
	if cluster.Name == "" {
		return nil
	}
	var errs field.ErrorList
	path := field.NewPath("metadata", "name")
	for _, rule := range apivalidation.NameIsDNSSubdomain(cluster.Name, false) {
		errs = append(errs, field.Invalid(path, cluster.Name, rule))
	}
	// Else no Secret could carry the label that makes it this cluster's (T-16).
	if most := kubevalidation.LabelValueMaxLength - len(cluster.Namespace) - len("."); len(cluster.Name) > most {
		errs = append(errs, field.Invalid(path, cluster.Name, fmt.Sprintf(
			"must have at most %d characters in the namespace %q, since NAMESPACE.NAME is the value of the label talos.fieldplane.dev/cluster of the cluster's Secret", max(most, 0), cluster.Namespace)))
	}
	return errs
}

func validateClusterSpec(spec *talos.TalosClusterSpec, path *field.Path) field.ErrorList {
	errs := validateControlPlaneEndpoint(path.Child("controlPlaneEndpoint"), spec.ControlPlaneEndpoint)

	for _, text := range []struct {
		field, value string
		grammar      *regexp.Regexp
		rule         string
	}{
		{"talosVersion", spec.TalosVersion, talosVersion, `must be a Talos version v1.MINOR or v1.MINOR.PATCH, such as "v1.13"`},
		{"kubernetesVersion", spec.KubernetesVersion, kubernetesVersion, `must be a whole Kubernetes version v1.MINOR.PATCH, such as "v1.36.2"`},
		{"installImage", spec.InstallImage, image, `must be an image reference, such as "ghcr.io/siderolabs/installer:v1.13.9"`},
	} {
		if text.value != "" && !text.grammar.MatchString(text.value) {
			errs = append(errs, field.Invalid(path.Child(text.field), text.value, text.rule))
		}
	}
	return errs
}

func validateControlPlaneEndpoint(path *field.Path, endpoint string) field.ErrorList {
	if endpoint == "" {
		return nil // said by the tag
	}
	refuse := func(rule string) field.ErrorList {
		return field.ErrorList{field.Invalid(path, endpoint, "must be https://HOST[:PORT]: "+rule)}
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return refuse("it is no URL")
	case u.Scheme != "https":
		return refuse("it must begin with https://")
	case u.Opaque != "" || u.Host == "":
		return refuse("it has no host")
	case u.User != nil:
		return refuse("it must not hold a user or password")
	case u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(endpoint, "#"):
		return refuse("nothing may follow the port")
	case strings.HasSuffix(u.Host, ":"):
		return refuse("the port is empty")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return refuse("the port must be between 1 and 65535")
		}
	}
	if rule := checkHost(u.Hostname()); rule != "" {
		return refuse(rule)
	}
	return nil
}
