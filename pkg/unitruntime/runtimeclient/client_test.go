package runtimeclient

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/pkg/isa88"
	probeapi "github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/probetest"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// serve starts a server that stands for a runtime of site-a, and returns a client of it.
func serve(t *testing.T, c clock.Clock, handler http.HandlerFunc) *Client {
	t.Helper()
	client, _ := serveCounting(t, c, handler)
	return client
}

// serveCounting counts connections too.
func serveCounting(t *testing.T, c clock.Clock, handler http.HandlerFunc) (*Client, *atomic.Int32) {
	t.Helper()
	ca := probetest.NewAuthority(t)
	server := httptest.NewUnstartedServer(handler)
	server.Listener = tls.NewListener(server.Listener, probeapi.ServerConfig("site-a", ca.Credentials(t, ca.Namespace(t, "site-a"))))
	server.Start()
	t.Cleanup(server.Close)
	var dials atomic.Int32
	client := New(server.Listener.Addr().String(), "site-a", ca.Controllers(t), func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}, c)
	t.Cleanup(client.Close)
	return client, &dials
}

func send(t *testing.T, w http.ResponseWriter, documents ...any) {
	for _, d := range documents {
		if err := json.NewEncoder(w).Encode(d); err != nil {
			t.Error(err)
		}
	}
	if err := http.NewResponseController(w).Flush(); err != nil {
		t.Error(err)
	}
}

// Req: P-16b, P-15
func TestEveryMethodAsksAsTheProtocolSays(t *testing.T) {
	var asked string
	c := serve(t, clock.RealClock{}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked = r.Method + " " + r.URL.String() + " " + string(body)
		switch {
		case r.URL.Path == api.UnitPath:
			send(t, w, api.Report{Applied: true})
		case r.Method == http.MethodPut:
			send(t, w, api.WriteResponse{Results: []api.WriteResult{{Done: true}}})
		default:
			send(t, w, api.TagList{Tags: []api.TagValue{{Name: "level"}}})
		}
	})
	for _, tc := range []struct {
		name string
		call func() (bool, error)
		want string
	}{
		{"a report", func() (bool, error) {
			r, err := c.Report(t.Context())
			return r != nil && r.Applied, err
		}, `GET /v1/unit `},
		{"an order", func() (bool, error) {
			r, err := c.Put(t.Context(), api.Order{UID: "u", Revision: 7, State: isa88.Holding})
			return r != nil && r.Applied, err
		}, `PUT /v1/unit {"uid":"u","revision":7,"state":"Holding"}`},
		{"the tags", func() (bool, error) {
			l, err := c.Tags(t.Context())
			return l != nil && len(l.Tags) == 1, err
		}, `GET /v1/tags `},
		{"a write", func() (bool, error) {
			r, err := c.WriteTags(t.Context(), api.WriteRequest{UID: "u", Writes: []api.TagWrite{{TagKey: api.TagKey{ControlModule: "m", Name: "n"}, Value: "1"}}})
			return r != nil && r.Results[0].Done, err
		}, `PUT /v1/tags {"uid":"u","writes":[{"controlModule":"m","name":"n","value":"1"}]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if ok, err := tc.call(); err != nil || !ok {
				t.Errorf("answer taken: %t, %v", ok, err)
			}
			if asked != tc.want {
				t.Errorf("asked %q, want %q", asked, tc.want)
			}
		})
	}
}

// Req: P-16b
func TestOrdersShareOneConnection(t *testing.T) {
	c, dials := serveCounting(t, clock.RealClock{}, func(w http.ResponseWriter, _ *http.Request) { send(t, w, api.Report{}) })
	for i := range 5 {
		if _, err := c.Put(t.Context(), api.Order{Revision: int64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections for five orders, want 1", n)
	}
}

// Req: P-16b
func TestARefusalIsTyped(t *testing.T) {
	answer := func(http.ResponseWriter) {}
	c := serve(t, clock.RealClock{}, func(w http.ResponseWriter, _ *http.Request) { answer(w) })
	put := func() error {
		_, err := c.Put(t.Context(), api.Order{})
		return err
	}
	answer = func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusConflict)
		send(t, w, api.Error{Code: http.StatusConflict, Message: "revision 3 is older than 4"})
	}
	if refused, ok := errors.AsType[*api.Error](put()); !ok || refused.Code != http.StatusConflict || refused.Message != "revision 3 is older than 4" {
		t.Errorf("have %v, want an Error 409", refused)
	}
	answer = func(w http.ResponseWriter) { http.Error(w, strings.Repeat("x", 5000), http.StatusServiceUnavailable) }
	if status, ok := errors.AsType[*StatusError](put()); !ok || status.Code != http.StatusServiceUnavailable || len(status.Body) > 256 {
		t.Errorf("have %v, want a short StatusError 503", status)
	}
	answer = func(w http.ResponseWriter) {
		http.Redirect(w, &http.Request{Method: http.MethodPut}, "https://elsewhere/", http.StatusFound)
	}
	if status, ok := errors.AsType[*StatusError](put()); !ok || status.Code != http.StatusFound {
		t.Errorf("have %v, want a StatusError 302", status)
	}
	answer = func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"applied":`) }
	if err := put(); err == nil {
		t.Error("half an answer was taken")
	}
	answer = func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, `{"applied":true}`+strings.Repeat(" ", maxReport))
	}
	if err := put(); err == nil || !strings.Contains(err.Error(), "longer than 4 MiB") {
		t.Errorf("an endless answer gives %v", err)
	}
}

// Req: A-06 (a write is recorded as failed or as uncertain)
func TestThatNothingWasSentCanBeToldFromThatNobodyKnows(t *testing.T) {
	c := serve(t, clock.RealClock{}, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	})
	_, err := c.WriteTags(t.Context(), api.WriteRequest{})
	if _, never := errors.AsType[*ConnectError](err); err == nil || never {
		t.Errorf("a connection that breaks after the request gives %v, want anything but a ConnectError", err)
	}
	nobody := New("127.0.0.1:1", "site-a", probetest.NewAuthority(t).Controllers(t), (&net.Dialer{}).DialContext, clock.RealClock{})
	_, err = nobody.WriteTags(t.Context(), api.WriteRequest{})
	if _, never := errors.AsType[*ConnectError](err); !never {
		t.Errorf("nobody there gives %v, want a ConnectError", err)
	}
	stranger := New(strings.TrimPrefix(c.base, "https://"), "site-a", probetest.NewAuthority(t).Controllers(t), (&net.Dialer{}).DialContext, clock.RealClock{})
	_, err = stranger.WriteTags(t.Context(), api.WriteRequest{})
	if _, never := errors.AsType[*ConnectError](err); !never {
		t.Errorf("a certificate that is not believed gives %v, want a ConnectError", err)
	}
}

// Req: P-16b (a runtime that is silent is not in contact)
func TestASilentRuntimeIsStaleAfterThreeHeartbeats(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	c := serve(t, fake, func(w http.ResponseWriter, r *http.Request) {
		send(t, w, api.Report{})
		<-r.Context().Done()
	})
	err := c.WatchReports(t.Context(), func(api.Report) {
		// The timer was set for three seconds just before.
		go fake.Step(3 * time.Second)
	})
	if stale, ok := errors.AsType[*StaleError](err); !ok || stale.Silence != 3*time.Second {
		t.Errorf("the watch ended with %v, want a StaleError of 3 s", err)
	}
}

// Req: P-15
func TestAWatchOfTagsPassesOnEveryEvent(t *testing.T) {
	c := serve(t, clock.RealClock{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/v1/tags?watch=true" {
			t.Errorf("asked %s", r.URL)
		}
		send(t, w, api.TagEvent{Type: api.TagSnapshot}, api.TagEvent{Type: api.TagHeartbeat}, api.TagEvent{Type: api.TagChange})
	})
	var got []api.TagEventType
	err := c.WatchTags(t.Context(), func(e api.TagEvent) { got = append(got, e.Type) })
	if !errors.Is(err, io.EOF) {
		t.Errorf("the watch ended with %v, want EOF", err)
	}
	if want := []api.TagEventType{api.TagSnapshot, api.TagHeartbeat, api.TagChange}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func TestAWatchEndsWithItsContextAndWithWhatIsTooLong(t *testing.T) {
	c := serve(t, clock.RealClock{}, func(w http.ResponseWriter, r *http.Request) {
		send(t, w, api.Report{})
		_, _ = fmt.Fprintf(w, "%q\n", strings.Repeat("x", maxReport))
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.WatchReports(ctx, func(api.Report) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v, want Canceled", err)
	}
	reports := 0
	if err := c.WatchReports(t.Context(), func(api.Report) { reports++ }); err == nil || reports != 1 {
		t.Errorf("the watch ended with %v after %d reports, want an error after 1", err, reports)
	}
}
