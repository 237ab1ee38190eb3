package talosmachine

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fieldplane/fieldplane/apis/talos"
)

// configurations answers as it is told to, and keeps what it was asked.
type configurations struct {
	err     error
	asked   []string
	patient bool
}

func (c *configurations) answer(ctx context.Context, what, namespace, name string) (string, error) {
	c.asked = append(c.asked, what+" "+namespace+"/"+name)
	deadline, bounded := ctx.Deadline()
	c.patient = !bounded || time.Until(deadline) > configPatience
	return what + "\n", c.err
}

func (c *configurations) Rendered(ctx context.Context, namespace, name string) ([]byte, error) {
	text, err := c.answer(ctx, "rendered", namespace, name)
	return []byte(text), err
}

func (c *configurations) Difference(ctx context.Context, namespace, name string) (string, error) {
	return c.answer(ctx, "difference", namespace, name)
}

// one is a store with one machine.
type one struct{}

func (one) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if name != uuid {
		return nil, apierrors.NewNotFound(talos.Resource("talosmachines"), name)
	}
	return pending(), nil
}

// responder keeps the error that was answered.
type responder struct{ err error }

func (*responder) Object(int, runtime.Object) {}
func (r *responder) Error(err error)          { r.err = err }

// Req: T-15, T-18a
func TestAMachinesConfigurationIsShown(t *testing.T) {
	refusal := apierrors.NewConflict(talos.Resource("talosmachines"), uuid, context.Canceled)
	for _, tc := range []struct {
		name, query string
		err         error
		asked, text string
		fits        func(error) bool
	}{
		{name: "as it would be sent", asked: "rendered plant/" + uuid, text: "rendered\n"},
		{name: "as it differs from what runs", query: "?diff=running", asked: "difference plant/" + uuid, text: "difference\n"},
		{name: "whatever else clients add", query: "?timeout=5s", asked: "rendered plant/" + uuid, text: "rendered\n"},
		{name: "not as it differs from anything else", query: "?diff=yesterday", fits: apierrors.IsBadRequest},
		{name: "not two differences", query: "?diff=running&diff=running", fits: apierrors.IsBadRequest},
		{name: "not an empty difference", query: "?diff=", fits: apierrors.IsBadRequest},
		{name: "not when there is none", err: refusal, asked: "rendered plant/" + uuid, fits: apierrors.IsConflict},
		{name: "not when the machine is away", query: "?diff=running", err: apierrors.NewServiceUnavailable("away"), asked: "difference plant/" + uuid, fits: apierrors.IsServiceUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			source, answered := &configurations{err: tc.err}, &responder{}
			config := &Config{machines: one{}, configurations: source}
			handler, err := config.Connect(as("ada", "get", "config"), uuid, nil, answered)
			if err != nil {
				t.Fatal(err)
			}
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/"+tc.query, nil))
			if have := strings.Join(source.asked, ","); have != tc.asked || source.patient {
				t.Errorf("asked %q, want %q; without a limit: %v", have, tc.asked, source.patient)
			}
			if tc.fits != nil {
				if !tc.fits(answered.err) || recorder.Body.Len() > 0 {
					t.Errorf("have %v and %q", answered.err, recorder.Body)
				}
				return
			}
			if answered.err != nil || recorder.Code != http.StatusOK || recorder.Body.String() != tc.text || !strings.HasPrefix(recorder.Header().Get("Content-Type"), "text/yaml") {
				t.Errorf("have %v, %d %v %q", answered.err, recorder.Code, recorder.Header(), recorder.Body)
			}
		})
	}
	if _, err := (&Config{machines: one{}}).Connect(as("ada", "get", "config"), "other", nil, &responder{}); !apierrors.IsNotFound(err) {
		t.Errorf("a machine that does not exist: %v", err)
	}
}
