package probeclient

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/probetest"
)

// serve starts a server that stands for a probe of site-a, and returns a client of it.
func serve(t *testing.T, c clock.Clock, handler http.HandlerFunc) *Client {
	t.Helper()
	ca := probetest.NewAuthority(t)
	server := httptest.NewUnstartedServer(handler)
	server.Listener = tls.NewListener(server.Listener, api.ServerConfig("site-a", ca.Credentials(t, ca.Namespace(t, "site-a"))))
	server.Start()
	t.Cleanup(server.Close)
	return New(server.Listener.Addr().String(), "site-a", ca.Controllers(t), (&net.Dialer{}).DialContext, c)
}

func send(t *testing.T, w http.ResponseWriter, events ...api.Event) {
	for _, e := range events {
		if err := json.NewEncoder(w).Encode(e); err != nil {
			t.Error(err)
		}
	}
	if err := http.NewResponseController(w).Flush(); err != nil {
		t.Error(err)
	}
}

func module(name string, online bool) api.ModuleState {
	return api.ModuleState{Name: name, Found: true, Connected: online}
}

// Req: P-11 (a probe that does not answer makes its modules Unknown)
func TestASilentProbeIsStaleAfterThreeHeartbeats(t *testing.T) {
	fake := clocktesting.NewFakeClock(time.Unix(0, 0))
	c := serve(t, fake, func(w http.ResponseWriter, r *http.Request) {
		send(t, w, api.Event{Type: api.Snapshot})
		<-r.Context().Done()
	})
	err := c.Watch(t.Context(), func(Update) {
		// The timer was set for three seconds just before.
		go fake.Step(3 * time.Second)
	})
	if stale, ok := errors.AsType[*StaleError](err); !ok || stale.Silence != 3*time.Second {
		t.Errorf("the watch ended with %v, want a StaleError of 3 s", err)
	}
}

func TestAWatchEndsWithTheStreamAndWithItsContext(t *testing.T) {
	c := serve(t, clock.RealClock{}, func(w http.ResponseWriter, _ *http.Request) {
		send(t, w, api.Event{Type: api.Snapshot})
	})
	if err := c.Watch(t.Context(), func(Update) {}); !errors.Is(err, io.EOF) {
		t.Errorf("the watch ended with %v, want EOF", err)
	}

	c = serve(t, clock.RealClock{}, func(w http.ResponseWriter, r *http.Request) {
		send(t, w, api.Event{Type: api.Snapshot})
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Watch(ctx, func(Update) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v, want Canceled", err)
	}
}

func TestWhatIsNoStreamIsAnError(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
	}{
		{"a refusal", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "too many", http.StatusServiceUnavailable) }},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) }},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := serve(t, clock.RealClock{}, c.answer)
			if err := client.Watch(t.Context(), func(u Update) { t.Errorf("update %+v", u) }); err == nil {
				t.Error("no error of the watch")
			}
			if list, err := client.List(t.Context()); err == nil {
				t.Errorf("list %+v", list)
			}
		})
	}
	client := serve(t, clock.RealClock{}, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "too many", http.StatusServiceUnavailable)
	})
	_, err := client.List(t.Context())
	if status, ok := errors.AsType[*StatusError](err); !ok || status.Code != http.StatusServiceUnavailable {
		t.Errorf("the list ended with %v, want a StatusError 503", err)
	}
}

// Req: P-11
func TestUpdatesAreTheSumOfTheEvents(t *testing.T) {
	var got []Update
	state := Update{}
	for _, e := range []api.Event{
		{Type: api.Snapshot, Modules: []api.ModuleState{module("a", true), module("b", true)}},
		{Type: api.Heartbeat},
		{Type: api.Change, Modules: []api.ModuleState{module("b", false), module("c", true)}, Removed: []string{"a"}},
		{Type: api.Heartbeat, Stale: []string{"c"}},
		{Type: api.Heartbeat, Stale: []string{"c"}},
		{Type: api.Heartbeat},
		{Type: api.Change, Modules: []api.ModuleState{{Name: "b", Found: true, Identity: &driver.Identity{Vendor: "Acme"}}}},
		{Type: api.Snapshot, Modules: []api.ModuleState{module("z", true)}},
	} {
		state = next(state, e)
		got = append(got, state)
	}
	for i, want := range []struct{ changed, removed []string }{
		{[]string{"a", "b"}, nil},
		{nil, nil},
		{[]string{"b", "c"}, []string{"a"}},
		{[]string{"c"}, nil},
		{nil, nil},
		{[]string{"c"}, nil},
		{[]string{"b"}, nil},
		{[]string{"z"}, []string{"b", "c"}},
	} {
		if !slices.Equal(got[i].Changed, want.changed) || !slices.Equal(got[i].Removed, want.removed) {
			t.Errorf("update %d: changed %v, removed %v, want %v, %v", i, got[i].Changed, got[i].Removed, want.changed, want.removed)
		}
	}
	if m := got[1].Modules; !m["a"].Connected || !m["b"].Connected {
		t.Errorf("a later event changed an earlier update: %+v", m)
	}
	if m := got[4].Modules["c"]; !m.Stale {
		t.Errorf("c is stale, and the update says %+v", m)
	}
}

func TestAChangeBeforeAnySnapshotDoesNoHarm(t *testing.T) {
	if u := next(Update{}, api.Event{Type: api.Change, Modules: []api.ModuleState{module("a", true)}, Removed: []string{"b"}}); len(u.Modules) != 1 {
		t.Errorf("update %+v", u)
	}
}

// Req: P-12 (who edits one namespace's probe takes no memory from the others)
func TestAProbeThatNeverStopsToNameModulesIsGivenUp(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	for name, endless := range map[string]func(i int) api.ModuleState{
		"messages": func(i int) api.ModuleState { return api.ModuleState{Name: strconv.Itoa(i), Message: text} },
		"names":    func(i int) api.ModuleState { return api.ModuleState{Name: text + strconv.Itoa(i)} },
		"identities": func(i int) api.ModuleState {
			return api.ModuleState{Name: strconv.Itoa(i), Identity: &driver.Identity{Vendor: text}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, clock.RealClock{}, func(w http.ResponseWriter, r *http.Request) {
				for i := 0; r.Context().Err() == nil && i < 100; i++ {
					if json.NewEncoder(w).Encode(api.Event{Type: api.Change, Modules: []api.ModuleState{endless(i)}}) != nil {
						return
					}
				}
				<-r.Context().Done()
			})
			most := 0
			err := c.Watch(t.Context(), func(u Update) { most = max(most, len(u.Modules)) })
			if err == nil || !strings.Contains(err.Error(), "more than any probe has to say") {
				t.Errorf("have error %v", err)
			}
			if most != 15 {
				t.Errorf("%d modules of a MiB each were taken, want 15", most)
			}
		})
	}
}

// Req: P-06
func TestChannelsAreReadInPagesAndRefusalsAreTyped(t *testing.T) {
	var asked string
	answer := func(w http.ResponseWriter) {
		_ = json.NewEncoder(w).Encode(api.ChannelPage{Module: "a", Total: 7, Continue: "next"})
	}
	c := serve(t, clock.RealClock{}, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		answer(w)
	})
	page, err := c.Channels(t.Context(), "a", 0, "")
	if err != nil || page.Total != 7 || page.Continue != "next" || asked != "/v1/modules/a/channels" && asked != "/v1/modules/a/channels?" {
		t.Errorf("%+v, %v, asked %s", page, err, asked)
	}
	if _, err := c.Channels(t.Context(), "a/b?", 5, "x&y"); err != nil || asked != "/v1/modules/a%2Fb%3F/channels?continue=x%26y&limit=5" {
		t.Errorf("%v, asked %s", err, asked)
	}

	answer = func(w http.ResponseWriter) {
		w.WriteHeader(410)
		_ = json.NewEncoder(w).Encode(api.Error{Code: 410, Reason: api.ErrorExpired, Message: "start again"})
	}
	_, err = c.Channels(t.Context(), "a", 0, "old")
	if failure, ok := errors.AsType[*api.Error](err); !ok || failure.Reason != api.ErrorExpired || failure.Message != "start again" {
		t.Errorf("%v, want Expired", err)
	}
	answer = func(w http.ResponseWriter) {
		w.WriteHeader(404)
		_, _ = io.WriteString(w, "404 page not found"+strings.Repeat(" ", 10000))
	}
	_, err = c.Channels(t.Context(), "a", 0, "")
	if status, ok := errors.AsType[*StatusError](err); !ok || status.Code != 404 || len(status.Body) > 256 {
		t.Errorf("%v, want the status of an older probe", err)
	}
	answer = func(w http.ResponseWriter) { _, _ = io.WriteString(w, "{") }
	if _, err = c.Channels(t.Context(), "a", 0, ""); err == nil {
		t.Error("half a page was taken")
	}
}
