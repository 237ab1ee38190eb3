package localcluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// The cluster of all tests of this package, started once.
var (
	shared   *Cluster
	testBins string
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "testpod" {
		os.Exit(testPod(os.Args[1:]))
	}
	flag.Parse()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "localcluster tests:", err)
		return 1
	}
	// Not t.TempDir: it would have to exist before any test. The name is long, so
	// that the fallback for unix sockets is used.
	dir, err := os.MkdirTemp("", "localcluster-"+strings.Repeat("x", 90))
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if testBins, err = binaries(filepath.Join(dir, "bin")); err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	shared, err = Start(ctx, Options{
		Dir:    filepath.Join(dir, "cluster"),
		BinDir: testBins,
		Nodes: []Node{
			{Name: "node-a", Labels: map[string]string{"zone": "a"}},
			{Name: "node-b", Labels: map[string]string{"zone": "b"}},
		},
		// So long that only an annotation can be the reason of a refresh.
		VolumeRefresh: time.Hour,
		Progress: func(step string, took time.Duration) {
			if took > 0 {
				fmt.Fprintf(os.Stderr, "%s: %s\n", step, took.Round(time.Millisecond))
			}
		},
	})
	if err != nil {
		return fail(err)
	}
	defer shared.Stop()
	return m.Run()
}

// binaries builds the control plane where needed and returns a directory with
// links to it and to the program that the tests' pods run.
func binaries(dir string) (string, error) {
	built := os.Getenv("LOCALCLUSTER_BIN_DIR")
	if built == "" {
		var err error
		if built, err = filepath.Abs("../../_local/bin"); err != nil {
			return "", err
		}
		build := exec.Command("./build.sh", built)
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			return "", fmt.Errorf("build.sh: %w", err)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	links := map[string]string{"testpod": self}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"} {
		links[name] = filepath.Join(built, name)
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(testBins, "kubectl"), args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+shared.Kubeconfig())
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return string(output)
}

// newNamespace makes a namespace whose ServiceAccount exists, and deletes it at
// the end of the test.
func newNamespace(t *testing.T) string {
	t.Helper()
	object, err := shared.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = shared.Client().CoreV1().Namespaces().Delete(context.Background(), object.Name, metav1.DeleteOptions{})
	})
	eventually(t, 10*time.Second, "ServiceAccount default", func(ctx context.Context) (bool, error) {
		_, err := shared.Client().CoreV1().ServiceAccounts(object.Name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	return object.Name
}

func eventually(t *testing.T, limit time.Duration, what string, check func(ctx context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, limit, true, check); err != nil {
		t.Fatalf("%s: not within %s: %v", what, limit, err)
	}
}

// servingPod is a pod that serves on port 9080 of its own address and shows the
// file of a ConfigMap and of an optional Secret.
func servingPod(name string) *corev1.Pod {
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("health")}},
			PeriodSeconds: 1, FailureThreshold: 1,
		}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(20)),
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example/testpod:v1",
				Command: []string{"/usr/bin/testpod"},
				Args:    []string{"--listen=$(POD_IP):9080", "--file=/etc/test/config/config.json"},
				Env: []corev1.EnvVar{
					{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
					{Name: "POD_NAMESPACE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}},
					{Name: "CREDENTIALS", Value: "/etc/test/credentials/password"},
				},
				Ports: []corev1.ContainerPort{{Name: "health", ContainerPort: 9080}},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "config", MountPath: "/etc/test/config"},
					{Name: "credentials", MountPath: "/etc/test/credentials"},
				},
				LivenessProbe:  probe("/livez"),
				ReadinessProbe: probe("/readyz"),
			}},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}}},
				{Name: "credentials", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "credentials", Optional: new(true)}}},
			},
		},
	}
}

func idlePod(name string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(20)),
			Containers:                    []corev1.Container{{Name: "main", Image: "testpod", Args: args}},
		},
	}
}

func createConfigMap(t *testing.T, namespace, content string) {
	t.Helper()
	_, err := shared.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "config"}, Data: map[string]string{"config.json": content},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func createPod(t *testing.T, namespace string, pod *corev1.Pod) {
	t.Helper()
	if _, err := shared.Client().CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// podWhere waits for a pod in the state that is asks for.
func podWhere(t *testing.T, namespace, name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	defer func() {
		if t.Failed() && pod != nil {
			status, _ := json.MarshalIndent(pod.Status, "", "  ")
			t.Logf("pod %s/%s: %s", namespace, name, status)
		}
	}()
	eventually(t, 20*time.Second, "pod "+name+" "+what, func(ctx context.Context) (bool, error) {
		got, err := shared.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, nil
		}
		pod = got
		return is(pod), nil
	})
	return pod
}

func isReady(pod *corev1.Pod) bool { return conditionIs(pod, corev1.ConditionTrue) }

func conditionIs(pod *corev1.Pod, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == status
	})
}

func podGone(t *testing.T, namespace, name string, limit time.Duration) {
	t.Helper()
	eventually(t, limit, "pod "+name+" gone", func(ctx context.Context) (bool, error) {
		_, err := shared.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

func ask(t *testing.T, method string, pod *corev1.Pod, path string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+pod.Status.PodIP+":9080"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		return response.Status
	}
	return string(body)
}

func pidOf(t *testing.T, pod *corev1.Pod) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimPrefix(pod.Status.ContainerStatuses[0].ContainerID, "process://"))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func running(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestControlPlaneIsTheStampedVersion(t *testing.T) {
	output := kubectl(t, "version")
	if got := strings.Count(output, "v1.37.2"); got != 2 {
		t.Errorf("kubectl version names v1.37.2 %d times, want client and server:\n%s", got, output)
	}
}

func TestAggregatorPublishesAllRequestHeaders(t *testing.T) {
	configMap, err := shared.Client().CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"requestheader-allowed-names":        `["front-proxy-client"]`,
		"requestheader-uid-headers":          `["X-Remote-Uid"]`,
		"requestheader-username-headers":     `["X-Remote-User"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	} {
		if got := configMap.Data[key]; got != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	if configMap.Data["requestheader-client-ca-file"] == configMap.Data["client-ca-file"] {
		t.Error("the front proxy's CA is the clients' CA: every user could pass for the aggregator")
	}
}

// An aggregated server on loopback is reached through a Service of type
// ExternalName, by its serving name, with the caller's identity in headers that
// the front proxy's certificate vouches for.
func TestAggregatorReachesAServerOnLoopback(t *testing.T) {
	namespace := newNamespace(t)
	certPEM, keyPEM, err := shared.pki.cluster.issue(leafRequest{commonName: "aggregated", server: true, dnsNames: []string{"aggregated." + namespace + ".svc"}})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	frontProxy := x509.NewCertPool()
	frontProxy.AddCert(shared.pki.frontProxy.cert)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if request.URL.Path != "/apis/test.example/v1/whoami" {
			fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"test.example/v1","resources":[]}`)
			return
		}
		_ = json.NewEncoder(w).Encode([]string{
			request.TLS.PeerCertificates[0].Subject.CommonName,
			request.Header.Get("X-Remote-User"),
			strings.Join(request.Header.Values("X-Remote-Group"), " "),
		})
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: frontProxy}
	server.StartTLS()
	defer server.Close()
	port := server.Listener.Addr().(*net.TCPAddr).Port

	if _, err := shared.Client().CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "aggregated"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "127.0.0.1"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	manifest := fmt.Sprintf(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.test.example"},"spec":{
		"group":"test.example","version":"v1","groupPriorityMinimum":1000,"versionPriority":10,"caBundle":%q,
		"service":{"name":"aggregated","namespace":%q,"port":%d}}}`,
		base64.StdEncoding.EncodeToString(shared.pki.cluster.certPEM), namespace, port)
	const apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"
	if err := shared.Client().CoreV1().RESTClient().Post().AbsPath(apiServices).Body([]byte(manifest)).SetHeader("Content-Type", "application/json").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = shared.Client().CoreV1().RESTClient().Delete().AbsPath(apiServices + "/v1.test.example").Do(context.Background()).Error()
	})
	cfg, err := shared.UserConfig("alice", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var last error
	var answer []byte
	eventually(t, 10*time.Second, "an answer through the aggregator", func(ctx context.Context) (bool, error) {
		answer, last = client.CoreV1().RESTClient().Get().AbsPath("/apis/test.example/v1/whoami").Do(ctx).Raw()
		return last == nil, nil
	})
	if got, want := strings.TrimSpace(string(answer)), `["front-proxy-client","alice","system:masters system:authenticated"]`; got != want {
		t.Errorf("the server saw %s, want %s", got, want)
	}
}

func whoAmI(t *testing.T, cfg *rest.Config) authenticationv1.UserInfo {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

func TestCredentialsAreWhoTheySay(t *testing.T) {
	t.Run("a user has its groups and no rights of its own", func(t *testing.T) {
		cfg, err := shared.UserConfig("alice", "operators")
		if err != nil {
			t.Fatal(err)
		}
		if info := whoAmI(t, cfg); info.Username != "alice" || !slices.Contains(info.Groups, "operators") {
			t.Errorf("got %q of %v", info.Username, info.Groups)
		}
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("listing nodes: %v, want it forbidden", err)
		}
	})
	t.Run("a ServiceAccount's kubeconfig is good for more than 30 days", func(t *testing.T) {
		path, err := shared.ServiceAccountKubeconfig(t.Context(), "kube-system", "default")
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		if info := whoAmI(t, cfg); info.Username != "system:serviceaccount:kube-system:default" {
			t.Errorf("got %q", info.Username)
		}
		if left := time.Until(tokenExpiry(t, cfg.BearerToken)); left < 30*24*time.Hour {
			t.Errorf("the token is good for %s", left)
		}
	})
}

func TestPodRunsAsAProcessOnItsOwnAddress(t *testing.T) {
	namespace := newNamespace(t)
	createConfigMap(t, namespace, "one")
	createPod(t, namespace, servingPod("first"))
	createPod(t, namespace, servingPod("second"))
	pod := podWhere(t, namespace, "first", "Ready", isReady)
	other := podWhere(t, namespace, "second", "Ready", isReady)

	if ip := netip.MustParseAddr(pod.Status.PodIP); !netip.MustParsePrefix("127.64.0.0/10").Contains(ip) {
		t.Errorf("podIP is %s", ip)
	}
	if pod.Status.PodIP == other.Status.PodIP {
		t.Errorf("both pods have the address %s", pod.Status.PodIP)
	}
	if got := ask(t, http.MethodGet, pod, "/file"); got != "one" {
		t.Errorf("the file shows %q, want the ConfigMap's content", got)
	}
	if got := ask(t, http.MethodGet, pod, "/env/POD_NAMESPACE"); got != namespace {
		t.Errorf("POD_NAMESPACE is %q, want %q", got, namespace)
	}
	if got := ask(t, http.MethodGet, pod, "/env/CREDENTIALS"); !strings.HasSuffix(got, "/volumes/credentials/password") {
		t.Errorf("CREDENTIALS is %q, want it below the pod's volume", got)
	}
	if got := kubectl(t, "logs", "-n", namespace, "first"); got != "testpod started\n" {
		t.Errorf("kubectl logs shows %q", got)
	}

	t.Run("an annotation brings a changed ConfigMap and a new Secret at once", func(t *testing.T) {
		update := fmt.Appendf(nil, `{"data":{"config.json":%q}}`, "two")
		if _, err := shared.Client().CoreV1().ConfigMaps(namespace).Patch(t.Context(), "config", types.MergePatchType, update, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := shared.Client().CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "credentials"}, StringData: map[string]string{"password": "secret"},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := shared.Client().CoreV1().Pods(namespace).Patch(t.Context(), "first", types.MergePatchType, []byte(`{"metadata":{"annotations":{"hash":"2"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Second, "the new content", func(context.Context) (bool, error) {
			return ask(t, http.MethodGet, pod, "/file") == "two", nil
		})
		t.Logf("after %s", time.Since(began).Round(time.Millisecond))
		password, err := os.ReadFile(ask(t, http.MethodGet, pod, "/env/CREDENTIALS"))
		if err != nil || string(password) != "secret" {
			t.Errorf("the Secret's file shows %q, %v", password, err)
		}
		if got := ask(t, http.MethodGet, other, "/file"); got != "one" {
			t.Errorf("the pod without a new annotation shows %q: refreshed before its time", got)
		}
		// A status written meanwhile must not bring the old annotations back.
		ask(t, http.MethodPost, pod, "/readyz")
		changed := podWhere(t, namespace, "first", "not Ready", func(pod *corev1.Pod) bool { return conditionIs(pod, corev1.ConditionFalse) })
		if changed.Annotations["hash"] != "2" {
			t.Errorf("annotations are %v after a change of the status", changed.Annotations)
		}
		if restarts := changed.Status.ContainerStatuses[0].RestartCount; restarts != 0 {
			t.Errorf("%d restarts for a failed readiness probe", restarts)
		}
	})
	t.Run("a failed liveness probe restarts the process on the same address", func(t *testing.T) {
		pid := pidOf(t, other)
		ask(t, http.MethodPost, other, "/livez")
		again := podWhere(t, namespace, "second", "restarted and Ready", func(pod *corev1.Pod) bool {
			return pod.Status.ContainerStatuses[0].RestartCount == 1 && isReady(pod)
		})
		if running(pid) {
			t.Errorf("process %d still runs", pid)
		}
		if again.Status.PodIP != other.Status.PodIP {
			t.Errorf("the address changed from %s to %s", other.Status.PodIP, again.Status.PodIP)
		}
		if got := kubectl(t, "logs", "-n", namespace, "second", "--previous"); !strings.HasSuffix(got, "testpod ended\n") {
			t.Errorf("the previous log is %q", got)
		}
	})
	t.Run("a killed process is started again", func(t *testing.T) {
		_ = syscall.Kill(pidOf(t, pod), syscall.SIGKILL)
		podWhere(t, namespace, "first", "restarted", func(pod *corev1.Pod) bool {
			return pod.Status.ContainerStatuses[0].RestartCount == 1 && isReady(pod)
		})
	})
	t.Run("a pod with a missing ConfigMap waits for it", func(t *testing.T) {
		pod := servingPod("waiting")
		pod.Spec.Volumes[0].ConfigMap.Name = "later"
		createPod(t, namespace, pod)
		podWhere(t, namespace, "waiting", "waiting for the ConfigMap", func(pod *corev1.Pod) bool {
			return len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].State.Waiting != nil &&
				strings.Contains(pod.Status.ContainerStatuses[0].State.Waiting.Message, `"later" not found`)
		})
		if _, err := shared.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "later"}, Data: map[string]string{"config.json": "late"},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		podWhere(t, namespace, "waiting", "Ready", isReady)
	})
}

func TestPodsEndAsTheirGracePeriodSays(t *testing.T) {
	namespace := newNamespace(t)
	tests := []struct {
		name  string
		args  []string
		grace int64
		// gone is when process and object must be gone, notBefore when not yet.
		gone, notBefore time.Duration
	}{
		{name: "ends-by-itself-long-before-its-grace-period", grace: 60, gone: 5 * time.Second},
		{name: "ignores-sigterm-and-is-killed-after-its-grace-period", args: []string{"--ignore-term"}, grace: 2, gone: 8 * time.Second, notBefore: 1900 * time.Millisecond},
		{name: "is-killed-at-once-without-grace", args: []string{"--ignore-term"}, grace: 0, gone: 5 * time.Second},
	}
	for _, test := range tests {
		createPod(t, namespace, idlePod(test.name, test.args...))
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pid := pidOf(t, podWhere(t, namespace, test.name, "Ready", isReady))
			began := time.Now()
			if err := shared.Client().CoreV1().Pods(namespace).Delete(t.Context(), test.name, metav1.DeleteOptions{GracePeriodSeconds: &test.grace}); err != nil {
				t.Fatal(err)
			}
			eventually(t, test.gone, "the process's end", func(context.Context) (bool, error) { return !running(pid), nil })
			podGone(t, namespace, test.name, test.gone)
			if took := time.Since(began); took < test.notBefore {
				t.Errorf("it took %s, before its grace period was over", took)
			}
		})
	}
	t.Run("a pod created anew under the same name starts", func(t *testing.T) {
		createPod(t, namespace, idlePod("again", "--ignore-term"))
		first := podWhere(t, namespace, "again", "Ready", isReady)
		if err := shared.Client().CoreV1().Pods(namespace).Delete(t.Context(), "again", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
		createPod(t, namespace, idlePod("again"))
		second := podWhere(t, namespace, "again", "Ready", func(pod *corev1.Pod) bool { return pod.UID != first.UID && isReady(pod) })
		if running(pidOf(t, first)) || pidOf(t, first) == pidOf(t, second) {
			t.Error("the first pod's process still runs")
		}
	})
}

func TestPodEndsInThePhaseOfItsExitCode(t *testing.T) {
	namespace := newNamespace(t)
	for _, test := range []struct {
		name  string
		args  []string
		phase corev1.PodPhase
	}{
		{"code-0-succeeds", []string{"--exit=0"}, corev1.PodSucceeded},
		{"code-3-fails", []string{"--exit=3"}, corev1.PodFailed},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := idlePod(test.name, test.args...)
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			createPod(t, namespace, pod)
			podWhere(t, namespace, test.name, string(test.phase), func(pod *corev1.Pod) bool { return pod.Status.Phase == test.phase })
		})
	}
	t.Run("a failing program is started again and again", func(t *testing.T) {
		createPod(t, namespace, idlePod("crashing", "--exit=1"))
		podWhere(t, namespace, "crashing", "restarted twice", func(pod *corev1.Pod) bool {
			return len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].RestartCount >= 2
		})
	})
	t.Run("a program that does not exist is named", func(t *testing.T) {
		pod := idlePod("nothing")
		pod.Spec.Containers[0].Image = "registry.example/nothing:v1"
		createPod(t, namespace, pod)
		podWhere(t, namespace, "nothing", "waiting", func(pod *corev1.Pod) bool {
			return len(pod.Status.ContainerStatuses) == 1 && pod.Status.ContainerStatuses[0].State.Waiting != nil &&
				strings.Contains(pod.Status.ContainerStatuses[0].State.Waiting.Message, `no program "nothing"`)
		})
	})
}

func TestPodGetsTheTokenOfItsServiceAccount(t *testing.T) {
	namespace := newNamespace(t)
	pod := idlePod("token")
	pod.Spec.Containers[0].Args = []string{"--listen=$(POD_IP):9080", "--file=/var/run/secrets/kubernetes.io/serviceaccount/token"}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
	createPod(t, namespace, pod)
	created := podWhere(t, namespace, "token", "Ready", isReady)
	var token string
	eventually(t, 5*time.Second, "the token", func(ctx context.Context) (bool, error) {
		response, err := http.Get("http://" + created.Status.PodIP + ":9080/file")
		if err != nil {
			return false, nil
		}
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		token = string(content)
		return err == nil && response.StatusCode == http.StatusOK, nil
	})
	cfg := rest.AnonymousClientConfig(shared.AdminConfig())
	cfg.BearerToken = token
	info := whoAmI(t, cfg)
	if want := "system:serviceaccount:" + namespace + ":default"; info.Username != want {
		t.Errorf("the token is %q's, want %q's", info.Username, want)
	}
	if got := info.Extra["authentication.kubernetes.io/pod-name"]; !slices.Equal(got, []string{"token"}) {
		t.Errorf("the token is bound to pod %v", got)
	}
}

func TestSchedulerHonoursNodeLabels(t *testing.T) {
	namespace := newNamespace(t)
	for zone, node := range map[string]string{"a": "node-a", "b": "node-b"} {
		pod := idlePod("zone-" + zone)
		pod.Spec.NodeSelector = map[string]string{"zone": zone}
		createPod(t, namespace, pod)
		if got := podWhere(t, namespace, "zone-"+zone, "Ready", isReady).Spec.NodeName; got != node {
			t.Errorf("the pod of zone %s runs on %s", zone, got)
		}
	}
}

func TestNodesComeAndGo(t *testing.T) {
	namespace := newNamespace(t)
	if err := shared.AddNode(t.Context(), "node-c", map[string]string{"zone": "c"}); err != nil {
		t.Fatal(err)
	}
	pod := servingPod("on-c")
	pod.Spec.NodeSelector = map[string]string{"zone": "c"}
	createConfigMap(t, namespace, "one")
	createPod(t, namespace, pod)
	created := podWhere(t, namespace, "on-c", "Ready", isReady)

	if err := shared.LoseNode("node-c"); err != nil {
		t.Fatal(err)
	}
	ask(t, http.MethodPost, created, "/readyz")
	time.Sleep(3 * time.Second)
	if got := podWhere(t, namespace, "on-c", "still there", func(*corev1.Pod) bool { return true }); !isReady(got) {
		t.Error("a lost node reported that its pod is not Ready any more")
	}
	if !running(pidOf(t, created)) {
		t.Error("the process of a lost node ended")
	}
	if err := shared.RestoreNode(t.Context(), "node-c"); err != nil {
		t.Fatal(err)
	}
	back := podWhere(t, namespace, "on-c", "not Ready", func(pod *corev1.Pod) bool { return conditionIs(pod, corev1.ConditionFalse) })
	if pidOf(t, back) != pidOf(t, created) || back.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the process was started again when the node came back")
	}

	if err := shared.RemoveNode(t.Context(), "node-c"); err != nil {
		t.Fatal(err)
	}
	if running(pidOf(t, created)) {
		t.Error("the process outlived its node")
	}
	podGone(t, namespace, "on-c", 5*time.Second)
	if _, err := shared.Client().CoreV1().Nodes().Get(t.Context(), "node-c", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("getting the node: %v, want NotFound", err)
	}
}

func TestNamespaceDeletionEndsADeploymentsProcesses(t *testing.T) {
	namespace := newNamespace(t)
	template := idlePod("")
	template.Labels = map[string]string{"app": "test"}
	if _, err := shared.Client().AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "test"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)),
			Selector: &metav1.LabelSelector{MatchLabels: template.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: template.ObjectMeta, Spec: template.Spec},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "two available replicas", func(ctx context.Context) (bool, error) {
		deployment, err := shared.Client().AppsV1().Deployments(namespace).Get(ctx, "test", metav1.GetOptions{})
		return err == nil && deployment.Status.AvailableReplicas == 2, err
	})
	pods, err := shared.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.Client().CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the namespace's end", func(ctx context.Context) (bool, error) {
		_, err := shared.Client().CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	for _, pod := range pods.Items {
		if running(pidOf(t, &pod)) {
			t.Errorf("the process of %s still runs", pod.Name)
		}
	}
}

func TestSecondStartContinuesWhereTheFirstStopped(t *testing.T) {
	options := Options{Dir: t.TempDir(), BinDir: testBins, Nodes: []Node{{Name: "node-1"}}}
	start := func() (*Cluster, time.Duration) {
		began := time.Now()
		cluster, err := Start(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cluster.Stop)
		return cluster, time.Since(began)
	}
	cluster, _ := start()
	if _, err := Start(t.Context(), options); err == nil || !strings.Contains(err.Error(), "already runs") {
		t.Errorf("a second cluster on the same directory: %v", err)
	}
	pod, err := cluster.Client().CoreV1().Pods("default").Create(t.Context(), idlePod("stays"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	isRunning := func(c *Cluster, restarts int32) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			got, err := c.Client().CoreV1().Pods("default").Get(ctx, "stays", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			pod = got
			return isReady(got) && got.Status.ContainerStatuses[0].RestartCount == restarts, nil
		}
	}
	eventually(t, 10*time.Second, "the pod Ready", isRunning(cluster, 0))
	kubeconfig, err := cluster.ServiceAccountKubeconfig(t.Context(), "kube-system", "default")
	if err != nil {
		t.Fatal(err)
	}
	pids := []int{pidOf(t, pod)}
	for _, component := range cluster.components {
		pids = append(pids, component.Pid())
	}
	began := time.Now()
	cluster.Stop()
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("stopping took %s", took)
	}
	for _, pid := range pids {
		if running(pid) {
			t.Errorf("process %d still runs after Stop", pid)
		}
	}
	if err := cluster.Err(); err != nil {
		t.Errorf("Stop counts as a failure: %v", err)
	}

	again, took := start()
	t.Logf("second start: %s", took.Round(time.Millisecond))
	if took > 20*time.Second {
		t.Errorf("the second start took %s", took)
	}
	eventually(t, 10*time.Second, "the pod restarted", isRunning(again, 1))
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if info := whoAmI(t, cfg); info.Username != "system:serviceaccount:kube-system:default" {
		t.Errorf("a kubeconfig of the first start is %q's", info.Username)
	}
}

func TestAnEndedComponentIsReported(t *testing.T) {
	_, err := Start(t.Context(), Options{Dir: t.TempDir(), BinDir: testBins, ExtraArgs: map[string][]string{"kube-apiserver": {"--no-such-flag"}}})
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver ended by itself") || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("got %v, want an error that names the component and shows its log", err)
	}
}
