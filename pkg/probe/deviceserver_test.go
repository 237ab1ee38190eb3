package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// post sends a body and returns the status and the answer.
func post(t *testing.T, url string, body any) (int, string) {
	t.Helper()
	raw, ok := body.(string)
	if !ok {
		marshalled, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		raw = string(marshalled)
	}
	response, err := http.Post(url, "application/json", strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSpace(string(text))
}

// shared is a site of one module, uid-a, whose device does what is set on it, and the address of the probe's API.
func shared(t *testing.T) (*site, *fakeDevice, string) {
	t.Helper()
	s := newSite(t)
	d := s.device("tcp://a")
	s.apply(t, entry("a", "tcp://a", 1))
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return s, d, server.URL
}

func write(sequence uint64, value string) api.WriteRequest {
	return api.WriteRequest{Client: "runtime", Sequence: sequence, Channel: api.Channel{Address: "holding:0"}, Value: api.Value{Type: driver.String, Text: value}}
}

// Req: P-14, P-13
func TestOthersReadAndWriteThroughTheProbe(t *testing.T) {
	_, d, url := shared(t)
	var asked []driver.Channel
	d.read = func(_ context.Context, channels []driver.Channel) ([]driver.Sample, error) {
		asked = channels
		return []driver.Sample{
			{Value: int16(-2), Status: 0x00300000},
			driver.Refused(&driver.Error{Reason: driver.ReasonConfigurationError, Answered: true, Err: errors.New("no such register")}),
		}, nil
	}
	channels := []api.Channel{{Name: "a", Address: "holding:0", DataType: driver.Int16, WordOrder: "CDAB", Count: 1, Access: driver.AccessRead}, {Address: "holding:9"}}
	code, answer := post(t, url+api.ReadPath("uid-a"), api.ReadRequest{Channels: channels})
	const want = `{"samples":[{"value":{"type":"int16","text":"-2"},"status":3145728},{"status":2156462080,"error":{"reason":"ConfigurationError","answered":true,"message":"no such register"}}]}`
	if code != http.StatusOK || answer != want {
		t.Errorf("read: %d %s", code, answer)
	}
	if len(asked) != 2 || asked[0] != channels[0].Driver() {
		t.Errorf("the device was asked for %+v", asked)
	}
	d.read = func(context.Context, []driver.Channel) ([]driver.Sample, error) {
		return nil, &driver.Error{Reason: driver.ReasonTimeout, Err: errors.New("no answer")}
	}
	if code, answer := post(t, url+api.ReadPath("uid-a"), api.ReadRequest{Channels: channels}); code != http.StatusOK || answer != `{"error":{"reason":"Timeout","message":"no answer"}}` {
		t.Errorf("read over a link that is down: %d %s", code, answer)
	}
	d.read = func(context.Context, []driver.Channel) ([]driver.Sample, error) { panic("bytes that nobody foresaw") }
	if code, answer := post(t, url+api.ReadPath("uid-a"), api.ReadRequest{Channels: channels}); code != http.StatusOK || !strings.Contains(answer, "ProtocolError") {
		t.Errorf("read by a driver that panics: %d %s", code, answer)
	}

	wrote := map[string]any{}
	d.write = func(_ context.Context, channel driver.Channel, value any) error {
		wrote[channel.Address] = value
		return nil
	}
	if code, answer := post(t, url+api.WritePath("uid-a"), write(1, "open")); code != http.StatusOK || answer != "{}" || wrote["holding:0"] != "open" {
		t.Errorf("write: %d %s, wrote %v", code, answer, wrote)
	}
	d.write = func(context.Context, driver.Channel, any) error {
		return &driver.Error{Reason: driver.ReasonAccessDenied, Answered: true, Err: errors.New("not you")}
	}
	if code, answer := post(t, url+api.WritePath("uid-a"), write(2, "open")); code != http.StatusOK || answer != `{"error":{"reason":"AccessDenied","answered":true,"message":"not you"}}` {
		t.Errorf("refused write: %d %s", code, answer)
	}
	if code, answer := post(t, url+api.CheckPath("uid-a"), api.CheckRequest{}); code != http.StatusOK || answer != "{}" {
		t.Errorf("check: %d %s", code, answer)
	}
	d.set(refuses)
	if code, answer := post(t, url+api.CheckPath("uid-a"), api.CheckRequest{}); code != http.StatusOK || !strings.Contains(answer, `"reason":"Refused"`) {
		t.Errorf("failed check: %d %s", code, answer)
	}
}

// Req: P-15 (a write is done once, and never after one that was sent later)
func TestAWriteIsDoneOnceAndNeverAfterALaterOne(t *testing.T) {
	_, d, url := shared(t)
	var mu sync.Mutex
	var wrote []any
	began, goOn := make(chan struct{}, 9), make(chan struct{})
	d.write = func(_ context.Context, _ driver.Channel, value any) error {
		began <- struct{}{}
		<-goOn
		mu.Lock()
		defer mu.Unlock()
		wrote = append(wrote, value)
		return nil
	}
	const notSent = `{"error":{"reason":"NotMeasured","message":"not sent: `
	var others sync.WaitGroup
	answers := make([]string, 3)
	others.Go(func() { _, answers[0] = post(t, url+api.WritePath("uid-a"), write(1, "first")) })
	<-began
	// The second waits for its turn while the third comes.
	others.Go(func() { _, answers[1] = post(t, url+api.WritePath("uid-a"), write(2, "second")) })
	time.Sleep(50 * time.Millisecond)
	others.Go(func() { _, answers[2] = post(t, url+api.WritePath("uid-a"), write(3, "hold")) })
	time.Sleep(50 * time.Millisecond)
	close(goOn)
	others.Wait()
	if answers[0] != "{}" || !strings.HasPrefix(answers[1], notSent) || answers[2] != "{}" {
		t.Errorf("answers %q", answers)
	}
	for _, again := range []uint64{1, 2, 3} {
		if code, answer := post(t, url+api.WritePath("uid-a"), write(again, "again")); code != http.StatusOK || !strings.HasPrefix(answer, notSent) {
			t.Errorf("write %d again: %d %s", again, code, answer)
		}
	}
	other := write(1, "of another")
	other.Client = "another runtime"
	if _, answer := post(t, url+api.WritePath("uid-a"), other); answer != "{}" {
		t.Errorf("another client's first write: %s", answer)
	}
	if len(wrote) != 3 || wrote[0] != "first" || wrote[1] != "hold" || wrote[2] != "of another" {
		t.Errorf("wrote %v", wrote)
	}
}

// Req: P-15
func TestTheOrderOfWritesOutlivesAChangeOfTheSpecification(t *testing.T) {
	s, d, url := shared(t)
	writes := 0
	d.write = func(context.Context, driver.Channel, any) error { writes++; return nil }
	post(t, url+api.WritePath("uid-a"), write(5, "new"))
	s.apply(t, strings.Replace(entry("a", "tcp://a", 2), `"protocol"`, `"probe":{"period":"2s"},"protocol"`, 1))
	if _, answer := post(t, url+api.WritePath("uid-a"), write(4, "old")); !strings.Contains(answer, "not sent") || writes != 1 {
		t.Errorf("an old write after the change: %s, %d writes", answer, writes)
	}
}

// Req: P-11
func TestOnlySupervisedModulesAreUsed(t *testing.T) {
	s, _, url := shared(t)
	s.apply(t, entry("a", "tcp://a", 1), `{"name":"broken","uid":"uid-broken","spec":{"protocol":"modbus"}}`)
	for _, c := range []struct {
		name, path string
		body       any
		code       int
		says       string
	}{
		{"a module that is not there", api.ReadPath("uid-b"), api.ReadRequest{Channels: []api.Channel{{Address: "x"}}}, http.StatusNotFound, "NotFound"},
		{"a module by its name", api.WritePath("a"), write(1, "x"), http.StatusNotFound, "NotFound"},
		{"no module", api.WritePath(""), write(1, "x"), http.StatusNotFound, ""},
		{"a module that cannot be supervised", api.ReadPath("uid-broken"), api.ReadRequest{Channels: []api.Channel{{Address: "x"}}}, http.StatusOK, "spec.modbus is missing"},
		{"no channels", api.ReadPath("uid-a"), api.ReadRequest{}, http.StatusBadRequest, "Invalid"},
		{"no JSON", api.ReadPath("uid-a"), "hello", http.StatusBadRequest, "Invalid"},
		{"an unknown member", api.ReadPath("uid-a"), `{"chanels":[]}`, http.StatusBadRequest, "Invalid"},
		{"too much", api.ReadPath("uid-a"), string(bytes.Repeat([]byte(" "), api.MaxDeviceRequest+1)), http.StatusRequestEntityTooLarge, "Invalid"},
		{"a write without a client", api.WritePath("uid-a"), api.WriteRequest{Sequence: 1, Value: api.Value{Type: driver.Bool, Text: "true"}}, http.StatusBadRequest, "client"},
		{"a write without a sequence", api.WritePath("uid-a"), api.WriteRequest{Client: "c", Value: api.Value{Type: driver.Bool, Text: "true"}}, http.StatusBadRequest, "sequence"},
		{"a write of no value", api.WritePath("uid-a"), api.WriteRequest{Client: "c", Sequence: 1, Value: api.Value{Type: driver.Int16, Text: "70000"}}, http.StatusBadRequest, "value"},
		{"another verb", api.ModulesPath + "/uid-a/erase", "{}", http.StatusNotFound, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if code, answer := post(t, url+c.path, c.body); code != c.code || !strings.Contains(answer, c.says) {
				t.Errorf("%d %s, want %d and %q", code, answer, c.code, c.says)
			}
		})
	}
	if response, _ := get(t, url+api.WritePath("uid-a")); response.StatusCode != http.StatusMethodNotAllowed && response.StatusCode != http.StatusNotFound {
		t.Errorf("GET: %d", response.StatusCode)
	}
	// What was removed, or mended, is not told as it was.
	s.apply(t, entry("broken", "tcp://b", 2))
	if code, answer := post(t, url+api.CheckPath("uid-broken"), api.CheckRequest{}); code != http.StatusOK || answer != "{}" {
		t.Errorf("the mended module: %d %s", code, answer)
	}
	if code, answer := post(t, url+api.CheckPath("uid-a"), api.CheckRequest{}); code != http.StatusNotFound {
		t.Errorf("the removed module: %d %s", code, answer)
	}
}

// Req: P-11, P-13
func TestAModuleThatGoesEndsItsUsesBeforeItsDeviceIsClosed(t *testing.T) {
	s, d, url := shared(t)
	began := make(chan struct{})
	closedWhileRead := false
	d.read = func(ctx context.Context, _ []driver.Channel) ([]driver.Sample, error) {
		close(began)
		<-ctx.Done()
		d.mu.Lock()
		defer d.mu.Unlock()
		closedWhileRead = d.closed > 0
		return nil, ctx.Err()
	}
	var answer string
	var reading sync.WaitGroup
	reading.Go(func() {
		_, answer = post(t, url+api.ReadPath("uid-a"), api.ReadRequest{Channels: []api.Channel{{Address: "x"}}})
	})
	<-began
	s.apply(t)
	reading.Wait()
	if closedWhileRead || !strings.Contains(answer, "NotMeasured") {
		t.Errorf("closed while it was read: %v; the reader was told %s", closedWhileRead, answer)
	}
}

// Req: P-11
func TestAUseEndsWithItsTime(t *testing.T) {
	_, d, url := shared(t)
	d.read = func(ctx context.Context, _ []driver.Channel) ([]driver.Sample, error) {
		<-ctx.Done()
		return nil, driver.LinkError(ctx.Err(), "a")
	}
	began := time.Now()
	code, answer := post(t, url+api.ReadPath("uid-a"), api.ReadRequest{Channels: []api.Channel{{Address: "x"}}, TimeoutMilliseconds: 50})
	if took := time.Since(began); code != http.StatusOK || !strings.Contains(answer, "Timeout") || took > 2*time.Second {
		t.Errorf("%d %s after %s", code, answer, took)
	}
}
