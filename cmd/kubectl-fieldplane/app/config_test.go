package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest/fake"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/scheme"
)

// Req: T-15
func TestConfigPrintsWhatTheServerRenders(t *testing.T) {
	for _, test := range []struct {
		name, answer string
		args         []string
		out, errOut  string
		asked        string
	}{
		{name: "the configuration", answer: "machine:\n  token: '***'\n", args: []string{"config", "machine", uuid},
			out: "machine:\n  token: '***'\n", asked: "site-a/" + uuid + " diff=false"},
		{name: "the difference, with what a node could do to a terminal taken out", answer: "-  hostname: a\x1b[2K\r\n+  hostname: b", args: []string{"config", "machine/" + strings.ToUpper(uuid), "--diff"},
			out: "-  hostname: a\uFFFD[2K\n+  hostname: b\n", asked: "site-a/" + uuid + " diff=true"},
		{name: "no difference", args: []string{"config", "machine", uuid, "--diff", "-n", "site-b"},
			errOut: "No difference: the machine runs what it would be sent.\n", asked: "site-b/" + uuid + " diff=true"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession()
			s.configuration = test.answer
			s.run(t, test.args...).wantOK(t)
			if s.out != test.out || s.errOut != test.errOut || !slices.Equal(s.asked, []string{test.asked}) {
				t.Errorf("asked %v\nstdout %q\nstderr %q", s.asked, s.out, s.errOut)
			}
		})
	}
}

// Req: T-15
func TestConfigTellsWhatTheServerAnswers(t *testing.T) {
	group := v1alpha1.Resource("talosmachines")
	for _, test := range []struct {
		name       string
		answer     error
		what, todo string
	}{
		{"there is no such machine", apierrors.NewNotFound(group, uuid), "there is no machine " + uuid, "pending -A"},
		{"its cluster is not there", apierrors.NewNotFound(v1alpha1.Resource("talosclusters"), "plant"), `talosclusters.talos.fieldplane.dev "plant" not found`, "Settle what the server names"},
		{"the right is missing", apierrors.NewForbidden(v1alpha1.Resource("talosmachines/config"), uuid, errors.New("no")), "forbidden",
			"it is get on talosmachines/config, which the ClusterRole fieldplane-talos-operator has. Ask for a RoleBinding in namespace site-a, and check with: " +
				"kubectl auth can-i get talosmachines.talos.fieldplane.dev/" + uuid + " --subresource=config -n site-a"},
		{"it has no role yet", apierrors.NewConflict(group, uuid, errors.New("render: machine role is not set")), "machine role is not set", "Settle what the server names"},
		{"the server does not answer", apierrors.NewServiceUnavailable("192.0.2.10 does not answer"), "192.0.2.10 does not answer", "kubectl get apiservice"},
		{"the machine does not answer", apierrors.NewServiceUnavailable("the machine did not tell its configuration: nothing answers"), "nothing answers", "kubectl -n site-a describe talosmachine " + uuid},
		{"the server is older", apierrors.NewGenericServerResponse(404, "get", group, uuid, "404 page not found", 0, true), "does not know talosmachines/config", "older than this plugin"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession()
			s.configurationErr = test.answer
			s.run(t, "config", "machine", uuid, "--diff").wantRefused(t, test.what, test.todo)
		})
	}
}

// answering is a REST client that gets one answer, and tells what it was asked.
func answering(code int, contentType, body string, asked *string) *fake.RESTClient {
	return &fake.RESTClient{
		NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
		GroupVersion:         v1alpha1.SchemeGroupVersion,
		Client: fake.CreateHTTPClient(func(req *http.Request) (*http.Response, error) {
			*asked = req.Method + " " + req.URL.RequestURI()
			return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(bytes.NewBufferString(body))}, nil
		}),
	}
}

// Req: T-15
func TestTheConfigurationIsReadOffItsSubresource(t *testing.T) {
	for diff, want := range map[bool]string{
		false: "/namespaces/site-a/talosmachines/" + uuid + "/config",
		true:  "/namespaces/site-a/talosmachines/" + uuid + "/config?diff=running",
	} {
		have := ""
		client := answering(http.StatusOK, "text/yaml; charset=utf-8", "machine: {}\n", &have)
		text, err := newConfigurationReader(client)(context.Background(), "site-a", uuid, diff)
		if err != nil || string(text) != "machine: {}\n" || !strings.HasPrefix(have, "GET ") || !strings.HasSuffix(have, want) {
			t.Errorf("%v %q, asked for %s, want %s", err, text, have, want)
		}
	}
}

// Req: T-11, T-15
func TestWhyThereIsNoConfigurationIsToldInTheServersWords(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"%s","code":%d,"message":"render: machine role is not set"}`
	for _, test := range []struct {
		code   int
		reason metav1.StatusReason
	}{
		{http.StatusConflict, metav1.StatusReasonConflict},
		{http.StatusNotFound, metav1.StatusReasonNotFound},
		{http.StatusForbidden, metav1.StatusReasonForbidden},
		{http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
	} {
		client := answering(test.code, "application/json", fmt.Sprintf(status, test.reason, test.code), new(string))
		_, err := newConfigurationReader(client)(context.Background(), "site-a", uuid, false)
		if apierrors.ReasonForError(err) != test.reason || err.Error() != "render: machine role is not set" || notServed(err) {
			t.Errorf("%d: have %v", test.code, err)
		}
	}
	_, err := newConfigurationReader(answering(http.StatusNotFound, "text/plain", "404 page not found", new(string)))(context.Background(), "site-a", uuid, false)
	if !notServed(err) {
		t.Errorf("a path that is not served: %v", err)
	}
}
