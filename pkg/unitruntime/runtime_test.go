package unitruntime

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/probe/podserver"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// Req: P-14, P-15 (grouped per device, at each tag's period)
func TestTagsOfOnePeriodAreReadTogether(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		d := s.device("uid-io")
		var tags []string
		for i := range 100 {
			name := fmt.Sprint("t", i)
			d.values[name] = int16(i)
			period := "1s"
			if i%10 == 0 {
				period = "5s"
			}
			tags = append(tags, tagEntry("m/"+name, "io", fmt.Sprintf(`"period":%q`, period)))
		}
		s.apply(configFile([]string{moduleEntry("io", 1)}, tags...))
		after(2 * time.Second)
		d.with(func(d *fakeDevice) { d.reads, d.checks = 0, 0 })
		after(100 * time.Second)
		d.with(func(d *fakeDevice) {
			if d.reads != 120 || d.checks != 0 {
				t.Errorf("%d reads and %d checks, want 100 and 20 of tags, and no check", d.reads, d.checks)
			}
		})
		for i := range 100 {
			if got := s.show(fmt.Sprint("m/t", i)); got != fmt.Sprint(i, " Good") {
				t.Errorf("t%d is %s", i, got)
			}
		}
	})
}

// Req: P-16b (a device of which nothing is read is watched all the same, as its probe does)
func TestADeviceWithoutTagsToReadIsChecked(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		d, slow := s.device("uid-io"), s.device("uid-slow")
		slow.values["a"] = true
		s.apply(configFile([]string{moduleEntry("io", 1), moduleEntry("slow", 1)},
			tagEntry("m/out", "io", `"access":"Write"`), tagEntry("m/a", "slow", `"period":"1h"`)))
		after(5 * time.Second)
		for _, m := range s.Report().Modules {
			if !m.Known || !m.Connected {
				t.Errorf("%+v", m)
			}
		}
		if got := s.show("m/out"); got != "- Bad_NotReadable" {
			t.Error(got)
		}
		d.cut()
		slow.cut()
		after(5 * time.Second)
		for _, m := range s.Report().Modules {
			if m.Connected || m.Reason != "Refused" {
				t.Errorf("%+v", m)
			}
		}
		if got := s.show("m/a"); got != "true Bad_NoCommunication" {
			t.Error(got)
		}
		d.restore()
		after(4 * time.Second)
		if m := s.Report().Modules[0]; m.Connected {
			t.Errorf("back before it is stable: %+v", m)
		}
		after(5 * time.Second)
		if m := s.Report().Modules[0]; !m.Connected || m.Reason != "" {
			t.Errorf("%+v", m)
		}
	})
}

// Req: P-16b (the verdict is the probe's, however often tags are read)
func TestFastTagsMakeNoFasterVerdict(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		d := s.device("uid-io")
		d.values["a"] = true
		s.apply(configFile([]string{moduleEntry("io", 1)}, tagEntry("m/a", "io", `"period":"100ms"`)))
		after(5 * time.Second)
		d.cut()
		after(1900 * time.Millisecond)
		if m := s.Report().Modules[0]; !m.Connected {
			t.Errorf("lost too soon: %+v", m)
		}
		if got := s.show("m/a"); got != "true Bad_NoCommunication" {
			t.Error(got)
		}
		after(1200 * time.Millisecond)
		if m := s.Report().Modules[0]; m.Connected {
			t.Errorf("not lost: %+v", m)
		}
	})
}

// Req: P-14 (hot reload touches only what changed)
func TestAReloadKeepsWhatIsTheSame(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		d, other := s.device("uid-io"), s.device("uid-other")
		d.values["a"], d.values["b"], d.values["c"], other.values["x"] = int16(1), int16(2), int16(3), int16(4)
		modules := []string{moduleEntry("io", 1), moduleEntry("other", 1)}
		slow := `"period":"1h"`
		s.apply(configFile(modules, tagEntry("m/a", "io", slow), tagEntry("m/b", "io", slow), tagEntry("m/x", "other", slow)))
		after(5 * time.Second)
		readAt := s.tag("m/a").SourceTime
		d.with(func(d *fakeDevice) { d.values["a"], d.values["b"] = int16(10), int16(20) })
		other.with(func(d *fakeDevice) { d.values["x"] = int16(40) })

		unchanged := func(what string, keys ...string) {
			t.Helper()
			for _, key := range keys {
				want := map[string]string{"m/a": "1 Good", "m/b": "2 Good", "m/x": "4 Good"}[key]
				if got := s.show(key); got != want {
					t.Errorf("%s: %s is %s, want %s", what, key, got, want)
				}
			}
			if got := s.tag("m/a").SourceTime; !got.Equal(readAt) {
				t.Errorf("%s: read at %s, want %s", what, got, readAt)
			}
		}
		reads := func() (n int) {
			d.with(func(d *fakeDevice) { n, d.reads = d.reads, 0 })
			return n
		}
		_ = reads()
		s.apply(configFile(modules, tagEntry("m/a", "io", slow), tagEntry("m/b", "io", slow), tagEntry("m/x", "other", slow)))
		after(time.Minute)
		unchanged("the same file", "m/a", "m/b", "m/x")
		s.apply(configFile([]string{moduleEntry("io", 2), moduleEntry("other", 1)}, tagEntry("m/a", "io", slow), tagEntry("m/b", "io", slow+`,"unit":"bar"`), tagEntry("m/x", "other", slow)))
		after(time.Minute)
		unchanged("another generation, and a unit", "m/a", "m/b", "m/x")
		if got := s.tag("m/b").Unit; got != "bar" {
			t.Errorf("unit %q", got)
		}
		if n := reads(); n > 0 || s.opened["uid-io"] != 1 {
			t.Errorf("%d reads, opened %d times", n, s.opened["uid-io"])
		}
		s.apply(configFile(modules, tagEntry("m/a", "io", slow), tagEntry("m/c", "io", `"period":"2h"`), tagEntry("m/x", "other", slow)))
		after(5 * time.Second)
		unchanged("a tag that goes, and one that comes", "m/a", "m/x")
		if got := s.show("m/c"); got != "3 Good" {
			t.Errorf("the new one is %s", got)
		}
		s.apply(configFile(modules, tagEntry("m/a", "io", slow), tagEntry("m/c", "io", `"period":"2h","scaling":{"factor":2}`), tagEntry("m/x", "other", slow)))
		if got := s.show("m/c"); got != "- Bad_WaitingForInitialData" {
			t.Errorf("another scaling, at once: %s", got)
		}
		unchanged("another scaling", "m/a", "m/x")

		// The module of some of them.
		s.apply(configFile([]string{moduleEntry("io", 2, `{"protocol":"modbus","modbus":{"endpoint":"tcp://127.0.0.1:502"},"probe":{"period":"2s"}}`), moduleEntry("other", 1)},
			tagEntry("m/a", "io", slow), tagEntry("m/x", "other", slow)))
		if got := s.show("m/a"); got != "1 Good" {
			t.Errorf("the same device, watched otherwise: %s", got)
		}
		if s.opened["uid-io"] != 2 || s.opened["uid-other"] != 1 {
			t.Errorf("opened %v", s.opened)
		}
		if m := s.Report().Modules[0]; !m.Known || !m.Connected {
			t.Errorf("its verdict is lost: %+v", m)
		}
		s.apply(configFile([]string{moduleEntry("io", 3, `{"protocol":"modbus","modbus":{"endpoint":"tcp://127.0.0.2:502"}}`), moduleEntry("other", 1)},
			tagEntry("m/a", "io", slow), tagEntry("m/x", "other", slow)))
		if got := s.show("m/a"); got != "- Bad_WaitingForInitialData" {
			t.Errorf("another device: %s", got)
		}
		s.apply(configFile([]string{moduleEntry("other", 1)}, tagEntry("m/a", "io", slow), tagEntry("m/x", "other", slow)))
		if got := s.show("m/a"); got != "- Bad_ConfigurationError" {
			t.Errorf("no such module: %s", got)
		}
		unchangedOther := s.show("m/x")
		if unchangedOther != "4 Good" {
			t.Errorf("its neighbour: %s", unchangedOther)
		}
		s.Refuse(errors.New("half a file"))
		if info := s.Info(); info.ConfigError != "half a file" || info.ConfigHash == "" {
			t.Errorf("%+v", info)
		}
	})
}

// Req: P-14 (a probe that moves)
func TestAModuleIsReadThroughAnotherProbe(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		s.device("uid-io").values["a"] = true
		via := func(address string) string {
			return configFile([]string{strings.TrimSuffix(moduleEntry("io", 1), "}") + fmt.Sprintf(`,"via":{"address":%q}}`, address)}, tagEntry("m/a", "io", ""))
		}
		s.apply(via("127.0.0.1:9443"))
		after(3 * time.Second)
		if got := s.show("m/a"); got != "true Good" || s.Report().Modules[0].Via != "probe" {
			t.Errorf("%s, %+v", got, s.Report().Modules)
		}
		s.apply(via(""))
		after(time.Second)
		if got := s.show("m/a"); got != "true Bad_NoCommunication" || s.Report().Modules[0].Reason != "ProbeUnavailable" {
			t.Errorf("without a probe: %s, %+v", got, s.Report().Modules)
		}
		s.apply(via("127.0.0.2:9443"))
		after(2 * time.Second)
		if got := s.show("m/a"); got != "true Good" || s.opened["uid-io"] != 2 {
			t.Errorf("%s, opened %d times", got, s.opened["uid-io"])
		}
	})
}

// Req: P-14, P-15 (a device that hangs blocks no other, no reload and no request)
func TestADeviceThatHangsBlocksNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	bubble(t, func(t *testing.T, s *site) {
		d, other := s.device("uid-io"), s.device("uid-other")
		d.values["a"], other.values["b"] = int16(1), int16(2)
		tags := []string{tagEntry("m/a", "io", `"access":"ReadWrite","holdValue":"0"`), tagEntry("m/b", "other", `"access":"ReadWrite","holdValue":"0"`)}
		s.apply(configFile([]string{moduleEntry("io", 1), moduleEntry("other", 1)}, tags...))
		after(3 * time.Second)
		hangs := make(chan struct{})
		d.with(func(d *fakeDevice) { d.hangs = hangs })
		after(3 * time.Second)
		quick := func(what string, within time.Duration, f func()) {
			t.Helper()
			began := time.Now()
			f()
			if took := time.Since(began); took > within {
				t.Errorf("%s took %s", what, took)
			}
		}
		quick("an order", 100*time.Millisecond, func() { s.order(1, isa88.Running, "") })
		quick("the tags", time.Millisecond, func() { _ = s.values.list() })
		quick("a write to another device", time.Millisecond, func() {
			if result, failure := s.write("m/b", "5"); failure != nil || !result.Done {
				t.Errorf("%+v, %v", result, failure)
			}
		})
		quick("a reload without it", endWait+100*time.Millisecond, func() { s.apply(configFile([]string{moduleEntry("other", 1)}, tags...)) })
		quick("a hold", 100*time.Millisecond, func() { s.order(2, isa88.Holding, "e") })
		after(time.Second)
		if got := other.writes(); got != "b=5 b=0" {
			t.Errorf("%q", got)
		}
		quick("the end", 2*endWait, s.Stop)
		d.with(func(d *fakeDevice) { d.hangs = nil })
		close(hangs)
		after(time.Second)
		d.with(func(d *fakeDevice) {
			if d.closed != 1 || d.inCall != 0 {
				t.Errorf("closed %d times, %d calls are in it", d.closed, d.inCall)
			}
		})
	})
	if now := runtime.NumGoroutine(); now > before+2 {
		t.Errorf("%d goroutines, %d before", now, before)
	}
}

// Req: P-15
func TestADriverThatPanicsIsALostDevice(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		d := s.device("uid-io")
		d.values["a"] = int16(1)
		s.apply(configFile([]string{moduleEntry("io", 1)}, tagEntry("m/a", "io", `"dataType":"int16","access":"ReadWrite"`)))
		s.order(1, isa88.Running, "")
		after(3 * time.Second)
		d.with(func(d *fakeDevice) { d.panics = true })
		if result, failure := s.write("m/a", "5"); failure != nil || !result.Uncertain {
			t.Errorf("%+v, %v", result, failure)
		}
		after(5 * time.Second)
		if got := s.show("m/a"); got != "1 Bad_NoCommunication" {
			t.Error(got)
		}
		d.with(func(d *fakeDevice) { d.panics = false })
		after(3 * time.Second)
		if got := s.show("m/a"); got != "1 Good" {
			t.Error(got)
		}
	})
}

// Req: P-15 (our own side had no turn: no verdict, and no stale Good)
func TestNoTurnIsNoNews(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		d := s.device("uid-io")
		d.values["a"] = int16(1)
		s.apply(configFile([]string{moduleEntry("io", 1)}, tagEntry("m/a", "io", "")))
		after(3 * time.Second)
		d.with(func(d *fakeDevice) {
			d.link = &driver.Error{Reason: driver.ReasonNotMeasured}
			d.reads, d.checks = 0, 0
		})
		after(4500 * time.Millisecond)
		if got := s.show("m/a"); got != "1 Uncertain_LastUsableValue" || !s.Report().Modules[0].Connected {
			t.Errorf("%s, %+v", got, s.Report().Modules)
		}
		after(30 * time.Second)
		if got := s.show("m/a"); got != "1 Bad_NoCommunication" || !s.Report().Modules[0].Connected {
			t.Errorf("%s, %+v", got, s.Report().Modules)
		}
		d.with(func(d *fakeDevice) {
			if n := d.reads + d.checks; n > 80 {
				t.Errorf("asked %d times in 35 s", n)
			}
		})
	})
}

// Req: P-15
func TestATagOfALongPeriodThatHadNoTurnIsReadSoon(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		d := s.device("uid-io")
		d.values["a"], d.values["b"], d.link = int16(1), int16(2), &driver.Error{Reason: driver.ReasonNotMeasured}
		s.apply(configFile([]string{moduleEntry("io", 1)}, tagEntry("m/a", "io", `"period":"1h"`), tagEntry("m/b", "io", `"period":"30m"`)))
		after(10 * time.Second)
		d.restore()
		after(2 * time.Second)
		if a, b := s.show("m/a"), s.show("m/b"); a != "1 Good" || b != "2 Good" {
			t.Errorf("%s, %s", a, b)
		}
	})
}

// Req: P-14, P-15 (writes: only where access allows, and each with its own result)
func TestEachWriteHasAResultOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		d := s.device("uid-io")
		d.values["a"], d.values["b"] = int16(1), int16(2)
		d.values["learned"] = uint16(9)
		d.refused["refused"] = &driver.Error{Reason: driver.ReasonAccessDenied, Answered: true, Err: errors.New("no")}
		s.apply(configFile([]string{moduleEntry("io", 1), moduleEntry("other", 1), `{"name":"broken","uid":"u"}`},
			tagEntry("m/a", "io", `"dataType":"int16","access":"ReadWrite","scaling":{"factor":0.5}`),
			tagEntry("m/b", "io", `"dataType":"int16"`),
			tagEntry("m/refused", "io", `"access":"Write"`),
			tagEntry("m/learned", "io", `"access":"ReadWrite"`),
			tagEntry("m/x", "other", `"access":"Write"`),
			tagEntry("m/y", "other", `"access":"Write"`),
			tagEntry("m/z", "broken", `"access":"Write"`),
		))
		after(3 * time.Second)
		s.device("uid-other").with(func(d *fakeDevice) { d.link = &driver.Error{Reason: driver.ReasonTimeout} })
		s.order(1, isa88.Running, "")
		request := api.WriteRequest{UID: "unit-1"}
		wanted := []struct{ key, value, want string }{
			{"a", "21.5", "done"},
			{"a", "22", "done"},
			{"a", "40000", "InvalidValue"},
			{"b", "1", "NotWritable"},
			{"none", "1", "NotFound"},
			{"refused", "1", "AccessDenied"},
			{"learned", "7", "done"},
			{"learned", "-7", "InvalidValue"},
			{"x", "1", "uncertain Timeout"},
			{"y", "1", "uncertain Timeout"},
			{"z", "1", "NotWritable"},
		}
		for _, w := range wanted {
			request.Writes = append(request.Writes, api.TagWrite{TagKey: api.TagKey{ControlModule: "m", Name: w.key}, Value: w.value})
		}
		response, failure := s.Write(t.Context(), request)
		if failure != nil {
			t.Fatal(failure)
		}
		for i, w := range wanted {
			r := response.Results[i]
			got := r.Reason
			if r.Done {
				got = "done"
			}
			if r.Uncertain {
				got = "uncertain " + r.Reason
			}
			if got != w.want || r.Name != w.key || got != "done" && r.Message == "" && r.Reason == "" {
				t.Errorf("%s=%s: %+v, want %s", w.key, w.value, r, w.want)
			}
		}
		if got := d.writes(); got != "a=43 a=44 learned=7" {
			t.Errorf("%q", got)
		}
		request.UID = "unit-2"
		if _, failure := s.Write(t.Context(), request); failure == nil || failure.Code != 409 {
			t.Errorf("writes for another Unit: %v", failure)
		}
	})
}

// Req: P-15, P-16b (what was not asked proves nothing)
func TestADeviceWhoseTagsCannotBeAskedForIsCheckedAndLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		d := s.device("uid-io")
		d.refused["a"] = driver.ConfigurationError("no such table")
		s.apply(configFile([]string{moduleEntry("io", 1)}, tagEntry("m/a", "io", `"period":"100ms"`)))
		after(5 * time.Second)
		if m := s.Report().Modules[0]; !m.Known || !m.Connected {
			t.Errorf("%+v", m)
		}
		if got := s.show("m/a"); got != "- Bad_ConfigurationError" {
			t.Error(got)
		}
		d.with(func(d *fakeDevice) {
			if d.checks < 4 || d.checks > 6 {
				t.Errorf("%d checks in 5 s", d.checks)
			}
			// It is not asked for a channel that cannot be, and answers no check any more.
			d.link = linkDown
		})
		after(4 * time.Second)
		if m := s.Report().Modules[0]; m.Connected {
			t.Errorf("%+v", m)
		}
	})
}

// Req: P-12, P-15 (what anybody may read names nothing of the site)
func TestHealthAndMetricsNameNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		registry := s.options.Registry
		get := func(path string, ready error) (int, string) {
			answer := httptest.NewRecorder()
			s.HealthHandler(registry, func() error { return ready }).ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
			return answer.Code, answer.Body.String()
		}
		if code, _ := get("/readyz", nil); code != 503 {
			t.Errorf("ready without a config: %d", code)
		}
		s.device("uid-io").values["secret"] = int16(1)
		s.apply(configFile([]string{moduleEntry("io", 1)}, tagEntry("m/secret", "io", "")))
		after(3 * time.Second)
		s.order(1, isa88.Running, "")
		s.Refuse(errors.New("half a file"))
		if code, _ := get("/readyz", nil); code != 200 {
			t.Errorf("not ready: %d", code)
		}
		if code, text := get("/readyz", errors.New("no certificate")); code != 503 || !strings.Contains(text, "no certificate") {
			t.Errorf("%d %s", code, text)
		}
		if code, _ := get("/livez", errors.New("no certificate")); code != 200 {
			t.Errorf("not alive: %d", code)
		}
		_, text := get(podserver.MetricsPath, nil)
		for _, want := range []string{
			`fieldplane_runtime_tags{quality="Good"} 1`, `fieldplane_runtime_modules{state="Connected"} 1`, `fieldplane_runtime_orders_total{outcome="Accepted"} 1`,
			`fieldplane_runtime_config_errors_total 1`, `fieldplane_runtime_config_valid 0`, `fieldplane_runtime_reads_total{reason="Answered"}`,
			`fieldplane_runtime_since_order_seconds`, `fieldplane_runtime_latches_total 0`, `fieldplane_runtime_state_file_errors_total 0`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s", want)
			}
		}
		if strings.Contains(text, "secret") || strings.Contains(text, "uid-io") || strings.Contains(text, "mixer") {
			t.Error(text)
		}
	})
}
