package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	talosv1alpha1 "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/pki"
)

const (
	name      = "fieldplane-apiserver"
	namespace = "fieldplane-system"
)

func find[T any, P interface {
	*T
	GetName() string
}](t *testing.T, objects []runtime.Object, name string) P {
	t.Helper()
	for _, object := range objects {
		if typed, ok := object.(P); ok && typed.GetName() == name {
			return typed
		}
	}
	t.Fatalf("no %T %s", P(nil), name)
	return nil
}

func has[T any, P interface{ *T }](objects []runtime.Object) bool {
	return slices.ContainsFunc(objects, func(object runtime.Object) bool { _, ok := object.(P); return ok })
}

// Req
func TestAPIServicesAreVerified(t *testing.T) {
	for kustomization, port := range map[string]int32{"base": 443, "ha": 443, "local": 18443} {
		t.Run(kustomization, func(t *testing.T) {
			objects := render(t, kustomization)
			for _, version := range []struct{ group, version string }{
				{physicalv1alpha1.SchemeGroupVersion.Group, physicalv1alpha1.SchemeGroupVersion.Version},
				{talosv1alpha1.SchemeGroupVersion.Group, talosv1alpha1.SchemeGroupVersion.Version},
			} {
				service := find[apiregistrationv1.APIService](t, objects, version.version+"."+version.group)
				spec := service.Spec
				if spec.Group != version.group || spec.Version != version.version || spec.GroupPriorityMinimum == 0 || spec.VersionPriority == 0 {
					t.Errorf("%s: %+v", service.Name, spec)
				}
				if spec.InsecureSkipTLSVerify || len(spec.CABundle) > 0 {
					t.Errorf("%s: the server publishes its CA itself, and verification is never skipped", service.Name)
				}
				if spec.Service.Name != name || spec.Service.Namespace != namespace || *spec.Service.Port != port {
					t.Errorf("%s: leads to %s/%s:%d, want port %d", service.Name, spec.Service.Namespace, spec.Service.Name, *spec.Service.Port, port)
				}
				role := find[rbacv1.ClusterRole](t, objects, name)
				if !slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
					return slices.Contains(rule.Resources, "apiservices") && slices.Contains(rule.ResourceNames, service.Name) && slices.Contains(rule.Verbs, "patch")
				}) {
					t.Errorf("the server may not patch %s", service.Name)
				}
			}
		})
	}
}

// The names in the roles are those that the code uses.
//
// Req: A-10, P-11
func TestRolesNameTheSecretsThatTheServerKeeps(t *testing.T) {
	objects := render(t, "base")
	var named []string
	for _, rule := range append(find[rbacv1.ClusterRole](t, objects, name).Rules, find[rbacv1.Role](t, objects, name).Rules...) {
		if slices.Contains(rule.Resources, "secrets") && slices.Contains(rule.Verbs, "update") {
			named = append(named, rule.ResourceNames...)
		}
	}
	if want := []string{pki.NamespaceSecretName, pki.ServingSecretName}; !slices.Equal(named, want) {
		t.Errorf("secrets that may be updated: %q, want %q", named, want)
	}
}

// Req
func TestDeployments(t *testing.T) {
	for _, tc := range []struct {
		kustomization string
		replicas      int32
		strategy      appsv1.DeploymentStrategyType
		embedded      bool
	}{
		{kustomization: "base", replicas: 1, strategy: appsv1.RecreateDeploymentStrategyType, embedded: true},
		{kustomization: "ha", replicas: 3, strategy: appsv1.RollingUpdateDeploymentStrategyType},
	} {
		t.Run(tc.kustomization, func(t *testing.T) {
			objects := render(t, tc.kustomization)
			deployment := find[appsv1.Deployment](t, objects, name)
			pod := deployment.Spec.Template
			container := pod.Spec.Containers[0]
			args := strings.Join(container.Args, "\n")

			if *deployment.Spec.Replicas != tc.replicas || deployment.Spec.Strategy.Type != tc.strategy {
				t.Errorf("%d replicas, strategy %s", *deployment.Spec.Replicas, deployment.Spec.Strategy.Type)
			}
			if tc.embedded != strings.Contains(args, "--data-dir=") || tc.embedded == strings.Contains(args, "--etcd-servers=https://") {
				t.Errorf("the wrong store: %s", args)
			}
			if tc.embedded != has[corev1.PersistentVolumeClaim](objects) || tc.embedded == has[policyv1.PodDisruptionBudget](objects) {
				t.Error("a claim goes with the embedded store, a disruption budget with several replicas")
			}
			if tc.embedded {
				dataDir := container.Args[slices.IndexFunc(container.Args, func(arg string) bool { return strings.HasPrefix(arg, "--data-dir=") })]
				if mount := container.VolumeMounts[0].MountPath; !strings.HasPrefix(dataDir, "--data-dir="+mount+"/") {
					t.Errorf("%s is not a directory inside the volume at %s: the mount itself cannot be made 0700", dataDir, mount)
				}
			} else {
				budget := find[policyv1.PodDisruptionBudget](t, objects, name)
				if !labels.SelectorFromSet(budget.Spec.Selector.MatchLabels).Matches(labels.Set(pod.Labels)) {
					t.Error("the disruption budget does not select the pods")
				}
				if len(pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) == 0 {
					t.Error("nothing keeps the replicas on nodes of their own")
				}
			}
			for _, mount := range container.VolumeMounts {
				if !slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool { return volume.Name == mount.Name }) {
					t.Errorf("mount %s has no volume", mount.Name)
				}
			}

			service := find[corev1.Service](t, objects, name)
			for _, selector := range []map[string]string{service.Spec.Selector, deployment.Spec.Selector.MatchLabels} {
				if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels)) {
					t.Errorf("selector %v does not select the pods", selector)
				}
			}
			if port := service.Spec.Ports[0]; port.Port != 443 || port.TargetPort.StrVal != container.Ports[0].Name || !slices.Contains(container.Args, fmt.Sprintf("--secure-port=%d", container.Ports[0].ContainerPort)) {
				t.Errorf("the Service's port does not lead to the container's: %+v", port)
			}
			if pod.Spec.ServiceAccountName != find[corev1.ServiceAccount](t, objects, name).Name || *pod.Spec.TerminationGracePeriodSeconds != 60 {
				t.Error("service account or grace period")
			}
			var env []string
			for _, variable := range container.Env {
				env = append(env, variable.Name)
			}
			if want := []string{"POD_NAMESPACE", "POD_NAME"}; !slices.Equal(env, want) {
				t.Errorf("environment %q, want %q", env, want)
			}
			for probe, path := range map[*corev1.Probe]string{container.LivenessProbe: "/livez", container.StartupProbe: "/livez", container.ReadinessProbe: "/readyz"} {
				if probe.HTTPGet.Path != path || probe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
					t.Errorf("probe %+v", probe.HTTPGet)
				}
			}
			restricted(t, pod.Spec)
		})
	}
}

// restricted checks what the Pod Security Standard "restricted", which the
// namespace enforces, asks of a pod.
func restricted(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	if c := pod.SecurityContext; !*c.RunAsNonRoot || *c.RunAsUser == 0 || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("pod: %+v", c)
	}
	for _, container := range pod.Containers {
		c := container.SecurityContext
		if *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Capabilities.Add) > 0 {
			t.Errorf("container %s: %+v", container.Name, c)
		}
	}
}

// Req: A-11
func TestTheLocalOverlayChangesWhereTheServerIsAndNothingElse(t *testing.T) {
	base, local := render(t, "base"), render(t, "local")
	if has[appsv1.Deployment](local) || has[corev1.PersistentVolumeClaim](local) {
		t.Error("the server runs as a process here")
	}
	if spec := find[corev1.Service](t, local, name).Spec; spec.Type != corev1.ServiceTypeExternalName || spec.ExternalName != "127.0.0.1" || len(spec.Selector)+len(spec.Ports) > 0 {
		t.Errorf("Service: %+v", spec)
	}
	rbac := func(objects []runtime.Object) (list []string) {
		for _, object := range objects {
			switch object.(type) {
			case *rbacv1.Role, *rbacv1.ClusterRole, *rbacv1.RoleBinding, *rbacv1.ClusterRoleBinding, *corev1.ServiceAccount:
				list = append(list, fmt.Sprintf("%+v", object))
			}
		}
		return list
	}
	if got, want := rbac(local), rbac(base); len(want) == 0 || !slices.Equal(got, want) {
		t.Error("the overlay changes what the server may do: what is tested with it is not what is shipped")
	}
}

// Req: A-11
func TestAFieldThatDoesNotExistIsRefused(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"kustomization.yaml": "resources: [role.yaml]\n",
		"role.yaml":          "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: x}\nrules: [{apiGroups: [\"\"], resources: [pods], verb: [get]}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Render(dir); err == nil || !strings.Contains(err.Error(), `unknown field "rules[0].verb"`) {
		t.Errorf("got %v", err)
	}
}
