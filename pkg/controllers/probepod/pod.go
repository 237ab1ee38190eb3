// Package probepod builds the pods of this server's programs on the plant's nodes. Those that run io-probe (P-10), the shared ones of a
// namespace and those of a Controller, differ in where they are pinned and who owns them, and in nothing else. A Unit's runtime (P-15) is
// another program, which keeps a state of its own.
package probepod

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// The labels and annotations of probe pods and their ConfigMaps.
const (
	// ManagedByLabel and ManagedBy mark what this server made.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "fieldplane"
	// KindLabel marks probes and their ConfigMaps, and is what informers select by; its value is the Kind.
	KindLabel = "fieldplane.dev/probe"
	// RuntimeLabel does the same for the runtimes of Units: whoever follows probes must not meet them.
	RuntimeLabel = "fieldplane.dev/runtime"
	// ConfigHashAnnotation of a pod changes with the config file, which makes the kubelet refresh the mounted ConfigMap
	// at once rather than within a minute.
	ConfigHashAnnotation = "fieldplane.dev/config-hash"
	// SpecHashAnnotation of a pod tells whether it is what Build would make today. The pod's own spec cannot tell:
	// admission in the host cluster adds to it.
	SpecHashAnnotation = "fieldplane.dev/pod-spec-hash"
)

// Kind is what a pod is for.
type Kind string

const (
	// Network probes are shared by the controller-less modules of a namespace (P-08).
	Network Kind = "network"
	// Controller probes belong to one Controller (P-04).
	Controller Kind = "controller"
	// Unit runtimes belong to one Unit (P-15).
	Unit Kind = "unit"
)

// What the programs are told by their arguments.
const (
	// ContainerName and RuntimeContainerName are those of the one container of a probe's pod and of a runtime's.
	ContainerName        = "io-probe"
	RuntimeContainerName = "unit-runtime"
	// APIPort serves the mTLS API.
	APIPort = api.Port
	// HealthPort serves /livez, /readyz and /metrics.
	HealthPort = 9080
	// ConfigKey is the key of the ConfigMap, and the config file's name.
	ConfigKey = "config.json"
	// TLSSecret holds the namespace's certificate (P-11).
	TLSSecret = "fieldplane-tls"
	// CredentialsSecret holds the devices' credentials; it is the operator's, and may be absent.
	CredentialsSecret = "fieldplane-device-credentials"

	tlsDir         = "/etc/fieldplane/tls"
	credentialsDir = "/etc/fieldplane/credentials"
	stateDir       = "/var/lib/fieldplane"
)

// program is what a pod runs.
type program struct {
	// name is that of its container, command and image.
	name string
	// label is the key that marks its pods and ConfigMaps.
	label     string
	configDir string
	// state is the name of the file in which it keeps what must survive its own end; "" for none.
	state string
	// memory is all that it may take.
	memory string
}

func programOf(kind Kind) program {
	if kind == Unit {
		return program{name: RuntimeContainerName, label: RuntimeLabel, configDir: "/etc/fieldplane/unit-runtime", state: "state.json", memory: "1Gi"}
	}
	return program{name: ContainerName, label: KindLabel, configDir: "/etc/fieldplane/io-probe", memory: "512Mi"}
}

// Pod says which pod to build.
type Pod struct {
	Namespace string
	// Name of the pod and of the ConfigMap that it mounts.
	Name  string
	Kind  Kind
	Image string
	// ConfigHash identifies the content of the ConfigMap; it is no part of the pod's spec.
	ConfigHash string
	// NodeSelector pins a shared probe to the nodes of a zone (P-09), and a runtime to those of its Unit; empty pins it nowhere.
	NodeSelector map[string]string
	// NodeName pins a Controller's probe to its node, through the scheduler and whatever the node's taints (P-04).
	NodeName string
	// Owner is the Controller whose probe this is, or the Unit whose runtime. A shared probe has none: it outlives each of its modules
	// (P-08).
	Owner *metav1.OwnerReference
}

// Labels are those of a pod and its ConfigMap.
func Labels(kind Kind) map[string]string {
	runs := programOf(kind)
	return map[string]string{
		"app.kubernetes.io/name": runs.name,
		ManagedByLabel:           ManagedBy,
		runs.label:               string(kind),
	}
}

// IsProbe tells whether this server made an object for probes of any kind.
func IsProbe(object metav1.Object) bool { return IsOurs(object, Network) || IsOurs(object, Controller) }

// IsOurs tells whether this server made an object for pods of this kind. Nothing else is ever changed or deleted.
func IsOurs(object metav1.Object, kind Kind) bool {
	labels := object.GetLabels()
	return labels[ManagedByLabel] == ManagedBy && labels[programOf(kind).label] == string(kind)
}

// Build returns the pod (P-10).
func Build(p Pod) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace,
			Name:      p.Name,
			Labels:    Labels(p.Kind),
		},
		Spec: spec(p),
	}
	if p.Owner != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*p.Owner}
	}
	pod.Annotations = map[string]string{
		ConfigHashAnnotation: p.ConfigHash,
		SpecHashAnnotation:   specHash(pod.Spec),
	}
	return pod
}

func spec(p Pod) corev1.PodSpec {
	runs := programOf(p.Kind)
	args := []string{
		"--config=" + runs.configDir + "/" + ConfigKey,
		"--tls-dir=" + tlsDir,
		"--credentials-dir=" + credentialsDir,
		fmt.Sprintf("--listen=$(POD_IP):%d", APIPort),
		fmt.Sprintf("--health-listen=$(POD_IP):%d", HealthPort),
		"--namespace=$(POD_NAMESPACE)",
	}
	mounts := []corev1.VolumeMount{
		{Name: "config", MountPath: runs.configDir, ReadOnly: true},
		{Name: "tls", MountPath: tlsDir, ReadOnly: true},
		{Name: "credentials", MountPath: credentialsDir, ReadOnly: true},
	}
	volumes := []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: p.Name},
		}}},
		{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: TLSSecret,
		}}},
		// Optional, so that credentials may come later without a new pod.
		{Name: "credentials", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: CredentialsSecret,
			Optional:   ptr.To(true),
		}}},
	}
	if runs.state != "" {
		args = append(args, "--state-file="+stateDir+"/"+runs.state)
		mounts = append(mounts, corev1.VolumeMount{Name: "state", MountPath: stateDir})
		// It survives the program, which is what it is for; with the pod goes the order that it was for.
		volumes = append(volumes, corev1.Volume{Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			SizeLimit: ptr.To(resource.MustParse("16Mi")),
		}}})
	}
	return corev1.PodSpec{
		NodeSelector:                  p.NodeSelector,
		Affinity:                      onNode(p.NodeName),
		Tolerations:                   tolerations(p.NodeName),
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](10),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			RunAsUser:      ptr.To[int64](65532),
			RunAsGroup:     ptr.To[int64](65532),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:            runs.name,
			Image:           p.Image,
			ImagePullPolicy: corev1.PullIfNotPresent,
			Command:         []string{runs.name},
			Args:            args,
			Env: []corev1.EnvVar{
				fromField("POD_IP", "status.podIP"),
				fromField("POD_NAMESPACE", "metadata.namespace"),
			},
			Ports: []corev1.ContainerPort{
				{Name: "api", ContainerPort: APIPort, Protocol: corev1.ProtocolTCP},
				{Name: "health", ContainerPort: HealthPort, Protocol: corev1.ProtocolTCP},
			},
			// A limit on CPU would throttle checks into timeouts, which look like faults of the devices.
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{
					corev1.ResourceCPU:    resource.MustParse("50m"),
					corev1.ResourceMemory: resource.MustParse("64Mi"),
				},
				Limits: corev1.ResourceList{
					corev1.ResourceMemory: resource.MustParse(runs.memory),
				},
			},
			LivenessProbe:  get("/livez", 5),
			ReadinessProbe: get("/readyz", 2),
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				ReadOnlyRootFilesystem:   ptr.To(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: mounts,
		}},
		Volumes: volumes,
	}
}

// onNode lets the scheduler place the pod on one node and no other. Setting spec.nodeName instead would go past it, and
// past the question whether the node has room.
func onNode(name string) *corev1.Affinity {
	if name == "" {
		return nil
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{
					Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name},
				}},
			}},
		},
	}}
}

// tolerations are what a DaemonSet's pods have and more: taints keep strangers from a node, and this pod has no other. It
// stays on a node that is cordoned, dedicated, or not heard of for a while: to be evicted would not have it measure elsewhere.
func tolerations(nodeName string) []corev1.Toleration {
	if nodeName == "" {
		return nil
	}
	return []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path},
	}}
}

func get(path string, periodSeconds int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromInt32(HealthPort), Scheme: corev1.URISchemeHTTP,
		}},
		PeriodSeconds:    periodSeconds,
		TimeoutSeconds:   2,
		FailureThreshold: 3,
	}
}

func specHash(spec corev1.PodSpec) string {
	// A PodSpec always encodes: it holds no channel, function or float.
	encoded, _ := json.Marshal(spec)
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:8])
}
