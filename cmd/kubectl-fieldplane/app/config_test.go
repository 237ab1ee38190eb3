package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		{"the machine does not answer", apierrors.NewServiceUnavailable("192.0.2.10 does not answer"), "192.0.2.10 does not answer", "kubectl get apiservice"},
		{"the server is older", apierrors.NewGenericServerResponse(404, "get", group, uuid, "404 page not found", 0, true), "does not know talosmachines/config", "older than this plugin"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession()
			s.configurationErr = test.answer
			s.run(t, "config", "machine", uuid, "--diff").wantRefused(t, test.what, test.todo)
		})
	}
}

// Req: T-15
func TestTheConfigurationIsReadOffItsSubresource(t *testing.T) {
	for diff, want := range map[bool]string{
		false: "/namespaces/site-a/talosmachines/" + uuid + "/config",
		true:  "/namespaces/site-a/talosmachines/" + uuid + "/config?diff=running",
	} {
		have := ""
		client := &fake.RESTClient{
			NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
			GroupVersion:         v1alpha1.SchemeGroupVersion,
			Client: fake.CreateHTTPClient(func(req *http.Request) (*http.Response, error) {
				have = req.Method + " " + req.URL.RequestURI()
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewBufferString("machine: {}\n"))}, nil
			}),
		}
		text, err := newConfigurationReader(client)(context.Background(), "site-a", uuid, diff)
		if err != nil || string(text) != "machine: {}\n" || !strings.HasPrefix(have, "GET ") || !strings.HasSuffix(have, want) {
			t.Errorf("%v %q, asked for %s, want %s", err, text, have, want)
		}
	}
}
