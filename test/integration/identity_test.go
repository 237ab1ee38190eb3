package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientrest "k8s.io/client-go/rest"
)

// caller asks our server itself, with a client certificate or none, and follows no redirect.
type caller struct {
	client *http.Client
	base   string
}

func newCaller(t testing.TB, certificates ...tls.Certificate) caller {
	t.Helper()
	config := direct(t, env.Cluster.AdminConfig())
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: config.ServerName, Certificates: certificates, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return caller{base: config.Host, client: &http.Client{
		Transport: transport, Timeout: 10 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// get returns the status and the body; headers are names and values in turn.
func (c caller) get(t testing.TB, path string, headers ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for pair := range slices.Chunk(headers, 2) {
		request.Header.Add(pair[0], pair[1])
	}
	response, err := c.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// certificateOf is the client certificate of a configuration.
func certificateOf(t testing.TB, config *clientrest.Config) tls.Certificate {
	t.Helper()
	made, err := clientrest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := made.GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil || len(certificate.Certificate) == 0 {
		t.Fatalf("no client certificate: %v", err)
	}
	return *certificate
}

// signed is a client certificate by one of the host cluster's authorities.
func signed(t testing.TB, authority, commonName string) tls.Certificate {
	t.Helper()
	pki := filepath.Join(env.Dir, "cluster", "pki")
	ca, err := tls.LoadX509KeyPair(filepath.Join(pki, authority+".crt"), filepath.Join(pki, authority+".key"))
	if err != nil {
		t.Fatal(err)
	}
	issuer, err := x509.ParseCertificate(ca.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: commonName},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, issuer, key.Public(), ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

const everyUnit = "/apis/physical.fieldplane.dev/v1alpha1/units"

// Req: A-03 (A6)
func TestOnlyTheFrontProxySaysWhoTheUserIs(t *testing.T) {
	t.Parallel()
	claim := []string{"X-Remote-User", "claimed.identity", "X-Remote-Group", "system:masters", "X-Remote-Extra-Scopes", "all"}
	alice, err := env.Cluster.UserConfig("alice.identity")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name         string
		certificates []tls.Certificate
		status       []int
		says         string
	}{
		{"nobody", nil, []int{http.StatusUnauthorized, http.StatusForbidden}, "system:anonymous"},
		{"a user of the cluster", []tls.Certificate{certificateOf(t, alice)}, []int{http.StatusForbidden}, "alice.identity"},
		{"a certificate of the front proxy's CA with another name", []tls.Certificate{signed(t, "front-proxy-ca", "somebody-else")}, []int{http.StatusUnauthorized, http.StatusForbidden}, ""},
		{"a certificate of the cluster's CA with the front proxy's name", []tls.Certificate{signed(t, "ca", frontProxyName(t))}, []int{http.StatusForbidden}, frontProxyName(t)},
		{"the front proxy", []tls.Certificate{signed(t, "front-proxy-ca", frontProxyName(t))}, []int{http.StatusOK}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			status, body := newCaller(t, tc.certificates...).get(t, everyUnit, claim...)
			if !slices.Contains(tc.status, status) || !strings.Contains(body, tc.says) {
				t.Errorf("%d: %s", status, body)
			}
			if strings.Contains(body, "claimed.identity") {
				t.Errorf("the claimed name is believed: %s", body)
			}
		})
	}
}

// frontProxyName is the common name of the kube-apiserver's own certificate.
func frontProxyName(t testing.TB) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(env.Dir, "cluster", "pki", "front-proxy-client.crt"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(content)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate.Subject.CommonName
}

// paths are what the server serves beside our kinds, and ways to write them that a handler might redirect.
func paths() []string {
	return []string{
		"/", "/apis", "/apis/", "/apis/physical.fieldplane.dev", "/apis/physical.fieldplane.dev/", "/apis/talos.fieldplane.dev/v1alpha1", "/apis/talos.fieldplane.dev/v1alpha1/",
		everyUnit, everyUnit + "/", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/talos.fieldplane.dev/v1alpha1", "/version", "/version/",
		"/metrics", "/metrics/slis", "/statusz", "/flagz", "/configz", "/debug/pprof", "/debug/pprof/", "/debug/flags/v", "/debug/api_priority_and_fairness/dump_priority_levels",
		"//apis", "/healthz/../apis", "/index.html", "/api", "/logs",
	}
}

// Req: A-03 (A6)
func TestAnonymousReachesHealthAndNothingElse(t *testing.T) {
	t.Parallel()
	anonymous := newCaller(t)
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if status, body := anonymous.get(t, path); status != http.StatusOK || body != "ok" {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, path := range paths() {
		if status, body := anonymous.get(t, path); status != http.StatusUnauthorized && status != http.StatusForbidden {
			t.Errorf("%s: %d %.200s", path, status, body)
		}
	}
	// A token of nobody is not anonymous.
	if status, body := anonymous.get(t, everyUnit, "Authorization", "Bearer nonsense"); status != http.StatusUnauthorized {
		t.Errorf("a token of nobody: %d %s", status, body)
	}
	// Through the aggregator too.
	config := clientrest.AnonymousClientConfig(env.Cluster.AdminConfig())
	client, err := clientrest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := (caller{client: client, base: config.Host}).get(t, everyUnit); status != http.StatusForbidden && status != http.StatusUnauthorized {
		t.Errorf("through the aggregator: %d %s", status, body)
	}
}

// Req: A-03 (A6)
func TestNoHandlerEverRedirects(t *testing.T) {
	t.Parallel()
	admin := newCaller(t, certificateOf(t, env.Cluster.AdminConfig()))
	if status, body := admin.get(t, everyUnit); status != http.StatusOK {
		t.Fatalf("the administrator is not known directly: %d %s", status, body)
	}
	for _, path := range paths() {
		if status, _ := admin.get(t, path); status >= 300 && status < 400 {
			t.Errorf("%s redirects: %d", path, status)
		}
	}
}

// Req: A-03, T-13, T-14, A-10
func TestTheAggregatedRolesOfAClusterApproveNothing(t *testing.T) {
	t.Parallel()
	dangerous := []string{"approval", "endpoint", "config", "command", "discover"}
	for _, name := range []string{"view", "edit", "admin"} {
		role, err := env.Host().RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ours := 0
		for _, rule := range role.Rules {
			if !slices.ContainsFunc(rule.APIGroups, func(group string) bool { return group == "*" || strings.HasSuffix(group, ".fieldplane.dev") }) {
				continue
			}
			ours++
			for _, verb := range rule.Verbs {
				if verb == "*" || verb == "approve" || verb == "override" {
					t.Errorf("%s grants %s on %v", name, verb, rule.Resources)
				}
			}
			for _, resource := range rule.Resources {
				if _, sub, _ := strings.Cut(resource, "/"); resource == "*" || slices.Contains(dangerous, sub) {
					t.Errorf("%s grants %v on %s", name, rule.Verbs, resource)
				}
			}
		}
		if ours == 0 {
			t.Errorf("%s grants nothing of ours: it is not aggregated", name)
		}
	}
}

// Req
func TestRBACOfTheHostDecidesWhoReadsAndWritesEveryKind(t *testing.T) {
	t.Parallel()
	forEveryKind(t, func(t *testing.T, k kind, namespace string) {
		elsewhere := env.Namespace(t)
		user := "reader." + namespace
		grant(t, namespace, user, rule("get,list,watch", k.resource))
		create(t, k, k.object(namespace, k.name(1)))
		config, err := env.Cluster.UserConfig(user)
		if err != nil {
			t.Fatal(err)
		}
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		reads := client.Resource(k.gvr())
		if list, err := reads.Namespace(namespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
			t.Errorf("list: %v", err)
		}
		_, elsewhereErr := reads.Namespace(elsewhere).List(t.Context(), metav1.ListOptions{})
		_, everywhereErr := reads.List(t.Context(), metav1.ListOptions{})
		_, created := reads.Namespace(namespace).Create(t.Context(), k.object(namespace, k.name(2)), metav1.CreateOptions{})
		_, patched := reads.Namespace(namespace).Patch(t.Context(), k.name(1), types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		_, status := reads.Namespace(namespace).Patch(t.Context(), k.name(1), types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}, "status")
		deleted := reads.Namespace(namespace).Delete(t.Context(), k.name(1), metav1.DeleteOptions{})
		for what, err := range map[string]error{
			"list elsewhere": elsewhereErr, "list everywhere": everywhereErr, "create": created, "patch": patched, "patch of status": status, "delete": deleted,
		} {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), user) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}
