package unitruntime

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/isa88"
	probeapi "github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/peer"
	"github.com/fieldplane/fieldplane/pkg/probe/probetest"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// served is a runtime behind its server, in real time.
type served struct {
	*site
	address          string
	controllers, own *http.Client
	ca               *probetest.Authority
}

func serve(t *testing.T) *served {
	t.Helper()
	s := &served{site: newSite(t), ca: probetest.NewAuthority(t)}
	pair := s.ca.Namespace(t, "site-a")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s.Handler(), TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
	ended := make(chan error, 1)
	go func() {
		ended <- server.Serve(tls.NewListener(l, probeapi.ServerConfig("site-a", s.ca.Credentials(t, pair))))
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
		s.stop()
	})
	s.address = "https://" + l.Addr().String()
	s.controllers = peer.HTTPClient("site-a", s.ca.Controllers(t), (&net.Dialer{}).DialContext, false)
	s.own = peer.HTTPClient("site-a", s.ca.Credentials(t, pair), (&net.Dialer{}).DialContext, false)
	return s
}

func (s *served) do(t *testing.T, client *http.Client, method, path string, body io.Reader) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.address+path, body)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

// Req: P-15, P-16b (who may do what)
func TestWhoMayDoWhat(t *testing.T) {
	s := serve(t)
	s.apply(configFile([]string{moduleEntry("io", 1)}, tagEntry("m/a", "io", "")))
	order := inJSON(api.Order{UID: "unit-1", Revision: 1, State: isa88.Running})
	writes := inJSON(api.WriteRequest{UID: "unit-1", Writes: []api.TagWrite{{TagKey: api.TagKey{ControlModule: "m", Name: "a"}, Value: "1"}}})
	for _, c := range []struct {
		name         string
		client       *http.Client
		method, path string
		body         string
		code         int
	}{
		{"the namespace reads the report", s.own, "GET", api.UnitPath, "", 200},
		{"the namespace reads the tags", s.own, "GET", api.TagsPath, "", 200},
		{"the namespace gives no orders", s.own, "PUT", api.UnitPath, order, 403},
		{"the namespace does not write", s.own, "PUT", api.TagsPath, writes, 403},
		{"writes before an order", s.controllers, "PUT", api.TagsPath, writes, 409},
		{"the controllers give orders", s.controllers, "PUT", api.UnitPath, order, 200},
		{"the controllers write", s.controllers, "PUT", api.TagsPath, writes, 200},
		{"the controllers read", s.controllers, "GET", api.TagsPath, "", 200},
		{"an order that is none", s.controllers, "PUT", api.UnitPath, `{"uid":`, 400},
		{"an order of a newer protocol", s.controllers, "PUT", api.UnitPath, strings.Replace(order, "{", `{"more":1,`, 1), 400},
		{"two orders", s.controllers, "PUT", api.UnitPath, order + order, 400},
		{"an order for another Unit", s.controllers, "PUT", api.UnitPath, strings.Replace(order, "unit-1", "unit-2", 1), 409},
		{"a body without end", s.controllers, "PUT", api.UnitPath, `{"uid":"` + strings.Repeat("x", maxBody) + `"}`, 413},
		{"too many writes", s.controllers, "PUT", api.TagsPath, `{"uid":"unit-1","writes":[` + strings.Repeat(`{},`, maxWrites) + `{}]}`, 400},
		{"a watch that is none", s.own, "GET", api.TagsPath + "?watch=perhaps", "", 400},
		{"a method that is none", s.own, "DELETE", api.TagsPath, "", 405},
		{"a path that is none", s.own, "GET", "/v1/secrets", "", 404},
	} {
		if code, answer := s.do(t, c.client, c.method, c.path, strings.NewReader(c.body)); code != c.code {
			t.Errorf("%s: %d %.200s, want %d", c.name, code, answer, c.code)
		}
	}
	stranger := peer.HTTPClient("site-a", s.ca.Credentials(t, s.ca.Namespace(t, "site-b")), (&net.Dialer{}).DialContext, false)
	request, _ := http.NewRequestWithContext(t.Context(), "GET", s.address+api.TagsPath, nil)
	if response, err := stranger.Do(request); err == nil {
		_ = response.Body.Close()
		t.Errorf("another namespace was let in: %d", response.StatusCode)
	}
	plain := httptest.NewRecorder()
	s.Handler().ServeHTTP(plain, httptest.NewRequest("PUT", api.UnitPath, strings.NewReader(order)))
	if plain.Code != http.StatusForbidden {
		t.Errorf("an order without a certificate: %d", plain.Code)
	}
}

func (s *served) watch(t *testing.T, path string) *bufio.Scanner {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "GET", s.address+path+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.own.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		t.Fatalf("watch: %d", response.StatusCode)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 64<<20)
	return lines
}

// Req: P-16b (the report is told at once, at every change, and with every heartbeat)
func TestTheReportIsFollowed(t *testing.T) {
	s := serve(t)
	s.apply(configFile(nil))
	lines := s.watch(t, api.UnitPath)
	next := func(is func(api.Report) bool) {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && lines.Scan(); {
			var report api.Report
			if err := json.Unmarshal(lines.Bytes(), &report); err != nil {
				t.Fatal(err)
			}
			if is(report) {
				return
			}
		}
		t.Fatalf("not told: %v", lines.Err())
	}
	next(func(r api.Report) bool { return r.Order == nil && r.Runtime.UID == "unit-1" })
	began := time.Now()
	next(func(api.Report) bool { return true })
	if took := time.Since(began); took > 2*api.Heartbeat {
		t.Errorf("a heartbeat took %s", took)
	}
	s.order(3, isa88.Holding, "e")
	began = time.Now()
	next(func(r api.Report) bool { return r.Order != nil && r.Order.Revision == 3 && r.Applied })
	if took := time.Since(began); took > api.Heartbeat/2 {
		t.Errorf("a change took %s", took)
	}
}

// Req: P-15 (a slow reader is sent fewer events, with the newest values; nobody waits for it)
func TestASlowReaderGetsTheNewestValues(t *testing.T) {
	s := serve(t)
	var tags []string
	d := s.device("uid-io")
	for i := range 3000 {
		name := fmt.Sprint("t", i)
		d.values[name] = int16(0)
		tags = append(tags, tagEntry("m/"+name, "io", `"period":"20ms"`))
	}
	s.apply(configFile([]string{moduleEntry("io", 1)}, tags...))
	lines := s.watch(t, api.TagsPath)
	if !lines.Scan() {
		t.Fatal(lines.Err())
	}
	time.Sleep(time.Second)
	d.with(func(d *fakeDevice) {
		for name := range d.values {
			d.values[name] = int16(7)
		}
	})
	began, events, newest := time.Now(), 0, map[string]string{}
	for lines.Scan() {
		events++
		var event api.TagEvent
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		done := len(event.Tags) > 0
		for _, v := range event.Tags {
			if v.Value != nil {
				newest[v.Name] = *v.Value
			}
			done = done && v.Value != nil && *v.Value == "7"
		}
		if done && len(event.Tags) == 3000 {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("the newest values did not come; %d events", events)
		}
	}
	if events > 30 {
		t.Errorf("%d events were kept for a reader that slept for a second", events)
	}
}

// Req: P-15 (places for followers are bounded)
func TestFollowersAreBounded(t *testing.T) {
	s := serve(t)
	s.apply(configFile(nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range maxWatches + 1 {
		request, _ := http.NewRequestWithContext(ctx, "GET", s.address+api.UnitPath+"?watch=true", nil)
		response, err := s.own.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		if want := map[bool]int{false: 200, true: 503}[i == maxWatches]; response.StatusCode != want {
			t.Fatalf("watch %d: %d, want %d", i, response.StatusCode, want)
		}
	}
}

// Req: P-16b (no body makes the runtime fail, or run what was not ordered)
func FuzzRequestsNeverPanic(f *testing.F) {
	f.Add([]byte(inJSON(api.Order{UID: "unit-1", Revision: 1, State: isa88.Holding})), true)
	f.Add([]byte(inJSON(api.WriteRequest{UID: "unit-1", Writes: []api.TagWrite{{TagKey: api.TagKey{ControlModule: "m", Name: "a"}, Value: "1"}}})), false)
	f.Add([]byte(`{"uid":"unit-1","writes":null}`), false)
	s := &site{state: f.TempDir() + "/state.json", devices: map[string]*fakeDevice{}, opened: map[string]int{}}
	s.boot()
	f.Cleanup(func() { s.stop() })
	c, err := ParseConfig([]byte(configFile([]string{moduleEntry("io", 1)}, tagEntry("m/a", "io", `"access":"ReadWrite","dataType":"int16","holdValue":"0"`))))
	if err != nil {
		f.Fatal(err)
	}
	s.Apply(c)
	handler := s.Handler()
	ca := probetest.NewAuthority(f)
	certificate, _, err := ca.Controllers(f)()
	if err != nil {
		f.Fatal(err)
	}
	state := &tls.ConnectionState{PeerCertificates: append(tls.ConnectionState{}.PeerCertificates, certificate.Leaf)}
	f.Fuzz(func(t *testing.T, data []byte, order bool) {
		path := api.TagsPath
		if order {
			path = api.UnitPath
		}
		request := httptest.NewRequest("PUT", path, bytes.NewReader(data))
		request.TLS = state
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		switch answer.Code {
		case 200, 400, 409, 413:
		default:
			t.Fatalf("%d %s", answer.Code, answer.Body)
		}
		if answer.Code == 200 && order {
			var o api.Order
			if err := json.Unmarshal(data, &o); err != nil || o.UID != "unit-1" {
				t.Fatalf("%q was taken as an order", data)
			}
		}
	})
}
