package app

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	physical "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

func twoPages(next string) (*physical.IOModuleChannels, error) {
	switch next {
	case "":
		return &physical.IOModuleChannels{ListMeta: metav1.ListMeta{Continue: "2"}, Items: []physical.ModuleChannel{
			{Name: "Plant/Speed", Address: "nsu=urn:x;s=Speed", DataType: physical.DataTypeFloat64, Count: 1, Access: physical.AccessReadWrite, Unit: "1/min", Range: &physical.ValueRange{High: 3000}},
			{Name: "Recipe\x1b[2K", Address: "Program:Main.Recipe[0]", DeviceType: "Recipe", Count: 5},
		}}, nil
	case "2":
		return &physical.IOModuleChannels{Truncated: true, Items: []physical.ModuleChannel{
			{Name: "valve", Address: "coil:7", DataType: physical.DataTypeBool, Count: 1, Declared: true, Problem: "ConfigurationError", Message: "no such coil"},
		}}, nil
	}
	return nil, apierrors.NewBadRequest("continue=" + next)
}

// Req: P-06
func TestChannelsListsEveryPage(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		out  string
	}{
		{"for people", []string{"channels", "mixer"}, "" +
			"NAME            ADDRESS                  TYPE        ACCESS      UNIT     PROBLEM\n" +
			"Plant/Speed     nsu=urn:x;s=Speed        float64     ReadWrite   1/min    <none>\n" +
			"Recipe\uFFFD[2K     Program:Main.Recipe[0]   Recipe[5]   <none>      <none>   <none>\n" +
			"valve           coil:7                   bool        <none>      <none>   ConfigurationError\n"},
		{"addresses", []string{"channels", "iomodule/mixer", "-o", "address"}, "nsu=urn:x;s=Speed\nProgram:Main.Recipe[0]\ncoil:7\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession()
			s.pages = twoPages
			s.run(t, test.args...).wantOK(t)
			for _, line := range strings.Split(strings.TrimSpace(test.out), "\n") {
				wantContains(t, strings.Join(strings.Fields(s.out), " "), strings.Join(strings.Fields(line), " "))
			}
			if !slices.Equal(s.asked, []string{`site-a/mixer ""`, `site-a/mixer "2"`}) || !strings.Contains(s.errOut, "more channels than these 3") {
				t.Errorf("asked %v\n%s", s.asked, s.errOut)
			}
		})
	}

	s := newSession()
	s.pages = twoPages
	s.run(t, "channels", "mixer", "-o", "wide").wantOK(t)
	wantContains(t, s.out, "0 to 3000", "no such coil", "true")

	s = newSession()
	s.pages = twoPages
	s.run(t, "channels", "mixer", "-o", "json").wantOK(t)
	wantContains(t, s.out, `"kind": "IOModuleChannels"`, `"address": "coil:7"`, `"truncated": true`)
	if strings.Contains(s.out, `"continue"`) {
		t.Error("a whole list asks for more")
	}

	s = newSession()
	s.run(t, "channels", "mixer").wantOK(t)
	if s.out != "" || !strings.Contains(s.errOut, "No channels were found on mixer") {
		t.Errorf("%q %q", s.out, s.errOut)
	}
}

// Req: P-06
func TestChannelsThatAreDiscoveredAnewMeanwhileAreReadAgain(t *testing.T) {
	s := newSession()
	expired := false
	s.pages = func(next string) (*physical.IOModuleChannels, error) {
		if next == "2" && !expired {
			expired = true
			return nil, apierrors.NewResourceExpired("discovered anew")
		}
		return twoPages(next)
	}
	s.run(t, "channels", "mixer", "-o", "address").wantOK(t)
	if lines := strings.Count(s.out, "\n"); lines != 3 || len(s.asked) != 4 {
		t.Errorf("%d lines, asked %v", lines, s.asked)
	}
}

// Req: A-03, P-06
func TestChannelsTellsWhatTheServerAnswers(t *testing.T) {
	group := physical.Resource("iomodules")
	for _, test := range []struct {
		name       string
		args       []string
		answer     error
		what, todo string
	}{
		{"no module", []string{"channels"}, nil, "which module is not said", "kubectl get iomodules"},
		{"two modules", []string{"channels", "a", "b"}, nil, "one module is listed at a time", "kubectl get iomodules"},
		{"an output that is none", []string{"channels", "a", "-o", "name"}, nil, "-o name is not possible", "-o wide, json, yaml or address"},
		{"there is no such module", []string{"channels", "a"}, apierrors.NewNotFound(group, "a"), "there is no IOModule a in namespace site-a", "kubectl get iomodules -A"},
		{"the right is missing", []string{"channels", "a"}, apierrors.NewForbidden(group, "a", errors.New("no")), "forbidden", "fieldplane-view"},
		{"the server is older", []string{"channels", "a"}, apierrors.NewGenericServerResponse(404, "get", group, "a", "404 page not found", 0, true), "does not know iomodules/channels", "--version"},
		{"nothing measures it", []string{"channels", "a"}, apierrors.NewServiceUnavailable("no probe measures it yet"), "no probe measures it yet", "describe iomodule a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession()
			s.pages = func(string) (*physical.IOModuleChannels, error) { return nil, test.answer }
			s.run(t, test.args...).wantRefused(t, test.what, test.todo)
		})
	}
}

// Req: P-06
func TestChannelsAreReadOffTheirSubresourceInPages(t *testing.T) {
	have := ""
	client := answering(http.StatusOK, "application/json", `{"kind":"IOModuleChannels","apiVersion":"physical.fieldplane.dev/v1alpha1","items":[{"name":"a","address":"b"}]}`, &have)
	client.GroupVersion = physical.SchemeGroupVersion
	page, err := newChannelsReader(client)(context.Background(), "site-a", "mixer", "x y")
	if err != nil || len(page.Items) != 1 || !strings.HasSuffix(have, "/namespaces/site-a/iomodules/mixer/channels?continue=x+y&limit=1000") {
		t.Errorf("%v %+v, asked for %s", err, page, have)
	}
}
