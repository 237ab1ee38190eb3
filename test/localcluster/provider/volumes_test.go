package provider

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// newTestRunner returns the runner of a pod that is not started.
func newTestRunner(t *testing.T, pod *corev1.Pod) *podRunner {
	t.Helper()
	bins := t.TempDir()
	if err := os.WriteFile(filepath.Join(bins, "io-probe"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	p := New(Config{
		Dir: t.TempDir(), LogDir: t.TempDir(), BinDir: bins,
		Client: fake.NewClientset(
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "site", Name: "settings"}, Data: map[string]string{"level": "7", "name": "line $(A)"}, BinaryData: map[string][]byte{"raw": {1}}},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "site", Name: "keys"}, Data: map[string][]byte{"password": []byte("pw")}},
		),
		Recorder:      record.NewFakeRecorder(100),
		Addresses:     NewAddresses(1),
		Allocatable:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
		APIServerHost: "127.0.0.1", APIServerPort: "6443",
		Clock: clock.RealClock{}, VolumeRefresh: time.Hour,
	})
	r := newPodRunner(p, pod)
	r.ip = "127.64.0.9"
	return r
}

func testPod(container corev1.Container, volumes ...corev1.Volume) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "site", Name: "probe", UID: "u-1",
			Labels: map[string]string{"b": "2", "a": "1"}, Annotations: map[string]string{"hash": `q"x`},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", ServiceAccountName: "default", Containers: []corev1.Container{container}, Volumes: volumes},
	}
}

func fieldRef(path string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
}

func TestCommandIsWhatAKubeletWouldRunWithPathsRewritten(t *testing.T) {
	settings := corev1.LocalObjectReference{Name: "settings"}
	absent := corev1.LocalObjectReference{Name: "absent"}
	pod := testPod(corev1.Container{
		Name: "main", Image: "registry.example/other:v1",
		Command:      []string{"/usr/local/bin/io-probe", "--first"},
		Args:         []string{"--listen=$(POD_IP):9443", "--config=$(CONFIG)", "--escaped=$$(POD_IP)"},
		VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/config"}},
		EnvFrom:      []corev1.EnvFromSource{{Prefix: "S_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: settings}}},
		Env: []corev1.EnvVar{
			{Name: "POD_IP", ValueFrom: fieldRef("status.podIP")},
			{Name: "NODE", ValueFrom: fieldRef("spec.nodeName")},
			{Name: "LABEL", ValueFrom: fieldRef("metadata.labels['a']")},
			{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "password"}}},
			{Name: "NONE", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: absent, Key: "x", Optional: new(true)}}},
			{Name: "MEMORY", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory", Divisor: resource.MustParse("1Mi")}}},
			{Name: "CONFIG", Value: "/etc/config/$(S_level).json"},
			{Name: "LATER", Value: "$(NOT_YET)"},
			{Name: "NOT_YET", Value: "x"},
		},
	})
	r := newTestRunner(t, pod)
	command, err := r.command(t.Context(), pod, &pod.Spec.Containers[0])
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(r.dir, "volumes", "config", "7.json")
	if want := filepath.Join(r.p.config.BinDir, "io-probe"); command.path != want {
		t.Errorf("program is %s, want %s", command.path, want)
	}
	wantArgs := []string{"--first", "--listen=127.64.0.9:9443", "--config=" + config, "--escaped=$(POD_IP)"}
	if len(command.args) != len(wantArgs) {
		t.Fatalf("arguments are %q, want %q", command.args, wantArgs)
	}
	for i, want := range wantArgs {
		if command.args[i] != want {
			t.Errorf("argument %d is %q, want %q", i, command.args[i], want)
		}
	}
	env := map[string]string{}
	for _, pair := range command.env {
		name, value, _ := cut(pair)
		env[name] = value
	}
	for name, want := range map[string]string{
		"POD_IP": "127.64.0.9", "NODE": "node-1", "LABEL": "1", "PASSWORD": "pw", "MEMORY": "1024",
		"CONFIG": config, "S_level": "7", "S_name": "line $(A)", "LATER": "$(NOT_YET)",
		"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "6443", "HOSTNAME": "probe",
	} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	if _, ok := env["NONE"]; ok {
		t.Error("a variable from a missing optional key is set")
	}
}

func cut(pair string) (name, value string, ok bool) {
	for i := range pair {
		if pair[i] == '=' {
			return pair[:i], pair[i+1:], true
		}
	}
	return pair, "", false
}

func TestCommandNamesWhatIsMissing(t *testing.T) {
	for name, container := range map[string]corev1.Container{
		"a program":   {Name: "main", Image: "nothing"},
		"a ConfigMap": {Name: "main", Image: "io-probe", EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "absent"}}}}},
		"a key": {Name: "main", Image: "io-probe", Env: []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "absent"}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testPod(container)
			if _, err := newTestRunner(t, pod).command(t.Context(), pod, &container); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestVolumesShowTheirSources(t *testing.T) {
	name := func(s string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: s} }
	for title, test := range map[string]struct {
		source corev1.VolumeSource
		want   map[string]string
		fails  bool
	}{
		"a ConfigMap's keys, binary ones too": {
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: name("settings")}},
			want:   map[string]string{"level": "7", "name": "line $(A)", "raw": "\x01"},
		},
		"items at their paths": {
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: name("settings"), Items: []corev1.KeyToPath{{Key: "level", Path: "deep/level.txt"}}}},
			want:   map[string]string{"deep/level.txt": "7"},
		},
		"a missing key fails": {
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: name("settings"), Items: []corev1.KeyToPath{{Key: "absent", Path: "x"}}}},
			fails:  true,
		},
		"a Secret": {
			source: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}},
			want:   map[string]string{"password": "pw"},
		},
		"a missing Secret fails": {
			source: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "absent"}},
			fails:  true,
		},
		"a missing optional Secret is empty": {
			source: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "absent", Optional: new(true)}},
			want:   map[string]string{},
		},
		"the downward API": {
			source: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
				{Path: "annotations", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"}},
			}}},
			want: map[string]string{"labels": "a=\"1\"\nb=\"2\"", "annotations": `hash="q\"x"`},
		},
		"a projection of several": {
			source: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: name("keys")}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: name("absent"), Optional: new(true)}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "ip", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}},
			}}},
			want: map[string]string{"password": "pw", "ip": "127.64.0.9"},
		},
		"a persistent volume is not supported": {
			source: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}},
			fails:  true,
		},
	} {
		t.Run(title, func(t *testing.T) {
			r := newTestRunner(t, testPod(corev1.Container{Name: "main"}, corev1.Volume{Name: "v", VolumeSource: test.source}))
			err := r.syncVolumes(t.Context())
			if (err != nil) != test.fails {
				t.Fatalf("error is %v", err)
			}
			if test.fails {
				return
			}
			if got := visible(t, r.volumeDir("v")); !maps.Equal(got, test.want) {
				t.Errorf("the volume shows %q, want %q", got, test.want)
			}
		})
	}
}

func TestAddressesOfANetworkNamespaceAreItsOwn(t *testing.T) {
	network := netip.MustParsePrefix("198.18.7.0/24")
	addresses := NewAddressesOf(network)
	seen := map[string]bool{}
	var last string
	for {
		ip, err := addresses.Acquire("")
		if err != nil {
			break
		}
		if seen[ip] || !network.Contains(netip.MustParseAddr(ip)) {
			t.Errorf("%s was given out twice, or is no address of %s", ip, network)
		}
		seen[ip], last = true, ip
	}
	if len(seen) < 200 {
		t.Errorf("only %d pods have an address: %v", len(seen), seen)
	}
	addresses.Release(last)
	if ip, err := addresses.Acquire("127.64.0.1"); err != nil || ip != last {
		t.Errorf("got %s, %v, want the one that was released, %s", ip, err, last)
	}
	addresses.Release(last)
	if ip, err := addresses.Acquire(last); err != nil || ip != last {
		t.Errorf("got %s, %v, want the preferred %s", ip, err, last)
	}
}

func TestAddressesAreUniqueOnTheMachine(t *testing.T) {
	// Two clusters with the same seed: the same sequence, but never the same address.
	one, two := NewAddresses(42), NewAddresses(42)
	seen := map[string]bool{}
	for range 20 {
		for _, addresses := range []*Addresses{one, two} {
			ip, err := addresses.Acquire("")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { addresses.Release(ip) })
			if seen[ip] {
				t.Errorf("%s was given out twice", ip)
			}
			seen[ip] = true
		}
	}
	ip, err := one.Acquire("")
	if err != nil {
		t.Fatal(err)
	}
	if other, err := two.Acquire(ip); err != nil || other == ip {
		t.Errorf("the preferred address %s was given out while another cluster holds it (%v)", other, err)
	} else {
		two.Release(other)
	}
	one.Release(ip)
	if again, err := two.Acquire(ip); err != nil || again != ip {
		t.Errorf("got %s, %v, want the preferred free address %s", again, err, ip)
	}
	two.Release(ip)
}
