package opcua

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// reader makes the fixture answer reads of ns=2;s=0 and on, each with its number, within a limit that it tells or keeps to itself.
type reader struct {
	mu       sync.Mutex
	limit    int
	told     bool
	values   map[string]*ua.DataValue
	requests []int
}

func (r *reader) answer(request any) any {
	read, ok2 := request.(*ua.ReadRequest)
	if !ok2 || read.NodesToRead[0].NodeID.Namespace() == 0 {
		if ok2 && r.told && read.NodesToRead[0].NodeID.String() == "i=11705" {
			return &ua.ReadResponse{ResponseHeader: ok(), Results: []*ua.DataValue{{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(uint32(r.limit))}}}
		}
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, len(read.NodesToRead))
	if r.limit > 0 && len(read.NodesToRead) > r.limit {
		return &ua.ServiceFault{ResponseHeader: &ua.ResponseHeader{ServiceResult: ua.StatusBadTooManyOperations, ServiceDiagnostics: &ua.DiagnosticInfo{}, AdditionalHeader: ua.NewExtensionObject(nil)}}
	}
	results := make([]*ua.DataValue, len(read.NodesToRead))
	for i, node := range read.NodesToRead {
		var n int32
		if v := r.values[node.NodeID.StringID()]; v != nil {
			results[i] = v
		} else if _, err := fmt.Sscan(node.NodeID.StringID(), &n); err == nil {
			results[i] = &ua.DataValue{EncodingMask: ua.DataValueValue, Value: ua.MustVariant(n)}
		} else {
			results[i] = &ua.DataValue{EncodingMask: ua.DataValueStatusCode, Status: ua.StatusBadNodeIDUnknown}
		}
	}
	return &ua.ReadResponse{ResponseHeader: ok(), Results: results}
}

// taken returns the sizes of the requests since the last time.
func (r *reader) taken() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.requests
	r.requests = nil
	return all
}

// Req: P-13, P-15
func TestChannelsAreReadByAsFewRequestsAsTheServerAllows(t *testing.T) {
	for _, c := range []struct {
		name     string
		n, limit int
		told     bool
		// first is what the first Read asks, most how many requests each later one may take.
		first []int
		most  int
	}{
		{"one", 1, 0, false, []int{1}, 1},
		{"a hundred", 100, 0, false, []int{100}, 1},
		{"many of a server that names no limit", 250, 0, false, []int{100, 150}, 2},
		{"many of a server that names its limit", 100, 30, true, []int{30, 30, 30, 10}, 4},
		{"many of a server that keeps its limit to itself", 100, 30, false, []int{100, 50, 25, 25, 25, 25}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, r := newFixture(t), &reader{limit: c.limit, told: c.told}
			f.answer = r.answer
			f.serve()
			dev := opened(t, testDriver(Options{}), f.plain())
			var channels []driver.Channel
			for i := range c.n {
				channels = append(channels, driver.Channel{Name: "c", Address: fmt.Sprintf("nsu=urn:plant;s=%d", i)})
			}
			for round := range 3 {
				samples, err := dev.Read(t.Context(), channels)
				if err != nil || len(samples) != c.n {
					t.Fatalf("%d samples, %v", len(samples), err)
				}
				for i, s := range samples {
					if s.Value != int32(i) || s.Err != nil || !s.Status.Good() {
						t.Errorf("sample %d: %+v", i, s)
					}
				}
				got := r.taken()
				if round == 0 && !slices.Equal(got, c.first) || round > 0 && len(got) > c.most {
					t.Errorf("round %d: requests of %v, want %v and later at most %d", round, got, c.first, c.most)
				}
			}
			if n := f.sessions.Load(); n != 1 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}

// Req: P-15 (the severity decides; code, value and time are the server's)
func TestTheServersOwnQualityIsKept(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	value := func(status ua.StatusCode, v any) *ua.DataValue {
		d := &ua.DataValue{EncodingMask: ua.DataValueStatusCode | ua.DataValueSourceTimestamp, Status: status, SourceTimestamp: at}
		if v != nil {
			d.EncodingMask |= ua.DataValueValue
			d.Value = ua.MustVariant(v)
		}
		return d
	}
	r := &reader{values: map[string]*ua.DataValue{
		"good": value(0, 1.5), "clamped": value(0x00300000, 1.5), "uncertain": value(0x40930000, 1.5), "sensor": value(0x808C0000, 1.5),
		"waiting": value(0x80320000, nil), "reserved": value(0xC0000000, nil), "text": value(0, "x"), "array": value(0, []int32{1, 2}),
	}}
	f := newFixture(t)
	f.answer = r.answer
	f.serve()
	dev := opened(t, testDriver(Options{}), f.plain())
	cases := []struct {
		channel driver.Channel
		value   any
		status  driver.StatusCode
		reason  driver.Reason
	}{
		{driver.Channel{Name: "good"}, 1.5, 0, ""},
		{driver.Channel{Name: "clamped"}, 1.5, 0x00300000, ""},
		{driver.Channel{Name: "uncertain"}, 1.5, 0x40930000, ""},
		{driver.Channel{Name: "sensor"}, 1.5, 0x808C0000, driver.ReasonDeviceFailure},
		{driver.Channel{Name: "waiting"}, nil, 0x80320000, driver.ReasonDeviceFailure},
		{driver.Channel{Name: "reserved"}, nil, 0xC0000000, driver.ReasonDeviceFailure},
		{driver.Channel{Name: "absent"}, nil, 0x80340000, driver.ReasonConfigurationError},
		{driver.Channel{Name: "text", DataType: driver.Float64}, nil, driver.StatusBadConfigurationError, driver.ReasonConfigurationError},
		{driver.Channel{Name: "array"}, nil, driver.StatusBadConfigurationError, driver.ReasonNotSupported},
		{driver.Channel{Name: "good", DataType: driver.Float32}, float32(1.5), 0, ""},
		{driver.Channel{Name: "counted", Count: 2}, nil, driver.StatusBadConfigurationError, driver.ReasonNotSupported},
	}
	var channels []driver.Channel
	for i := range cases {
		cases[i].channel.Address = "ns=2;s=" + cases[i].channel.Name
		channels = append(channels, cases[i].channel)
	}
	samples, err := dev.Read(t.Context(), channels)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		s := samples[i]
		reason := driver.Reason("")
		if s.Err != nil {
			reason = s.Err.Reason
		}
		if s.Value != c.value || s.Status != c.status || reason != c.reason {
			t.Errorf("%s as %q: %+v", c.channel.Name, c.channel.DataType, s)
		}
		if s.Value != nil && !s.SourceTime.Equal(at) {
			t.Errorf("%s: source time %s, want %s", c.channel.Name, s.SourceTime, at)
		}
	}
}

// Req: P-15
func TestAddressesOfNoNamespaceStillAskTheServer(t *testing.T) {
	f := newFixture(t)
	f.serve()
	dev := opened(t, testDriver(Options{}), f.plain())
	channels := []driver.Channel{{Name: "a", Address: "nsu=urn:other;s=v"}, {Name: "b", Address: "nonsense"}}
	for range 2 {
		before := f.requests.Load()
		samples, err := dev.Read(t.Context(), channels)
		if err != nil || samples[0].Err == nil || !samples[0].Err.Answered || samples[1].Err == nil || samples[1].Err.Answered {
			t.Errorf("%+v, %v", samples, err)
		}
		if f.requests.Load() == before {
			t.Error("nothing was asked, and the device was said to have answered")
		}
	}
	f.hangUp()
	_ = f.listener.Close()
	if samples, err := dev.Read(t.Context(), channels); err == nil {
		t.Errorf("a server that is gone gave %+v", samples)
	} else if failure, ok := errors.AsType[*driver.Error](err); !ok || failure.Answered {
		t.Errorf("a server that is gone: %v", err)
	}
}

// Req: P-15
func TestAServerThatRefusesToReadAtAllIsThere(t *testing.T) {
	f := newFixture(t)
	var refuse atomic.Bool
	f.answer = func(request any) any {
		if _, ok2 := request.(*ua.ReadRequest); ok2 && refuse.Load() {
			return &ua.ServiceFault{ResponseHeader: &ua.ResponseHeader{ServiceResult: ua.StatusBadUserAccessDenied, ServiceDiagnostics: &ua.DiagnosticInfo{}, AdditionalHeader: ua.NewExtensionObject(nil)}}
		}
		return nil
	}
	f.serve()
	dev := opened(t, testDriver(Options{}), f.plain())
	if _, err := dev.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	refuse.Store(true)
	samples, err := dev.Read(t.Context(), []driver.Channel{{Address: "ns=2;s=v"}, {Address: "ns=2;s=w"}})
	if err != nil || samples[1].Err == nil || samples[1].Err.Reason != driver.ReasonAccessDenied || !samples[1].Err.Answered {
		t.Errorf("%+v, %v", samples, err)
	}
}
