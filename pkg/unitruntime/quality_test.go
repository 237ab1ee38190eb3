package unitruntime

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-15
func TestTheQualityOfEverySituation(t *testing.T) {
	const sensor = driver.StatusBadSensorFailure
	good := situation{sampled: true, hasValue: true, period: time.Second}
	with := func(change func(*situation)) situation {
		s := good
		change(&s)
		return s
	}
	for _, c := range []struct {
		name string
		is   situation
		want driver.StatusCode
	}{
		{"a value that was just read", good, driver.StatusGood},
		{"OPC UA: good with bits that say more", with(func(s *situation) { s.status = 0x00300480 }), 0x00300480},
		{"OPC UA: uncertain", with(func(s *situation) { s.status = 0x40940000 }), 0x40940000},
		{"OPC UA: bad", with(func(s *situation) { s.status = 0x80340000 }), 0x80340000},
		{"OPC UA: what nobody should send", with(func(s *situation) { s.status = 0xC0000000 }), 0xC0000000},
		{"link down", with(func(s *situation) { s.down = true }), driver.StatusBadNoCommunication},
		{"link down, whatever the device said before", with(func(s *situation) { s.down, s.status = true, sensor }), driver.StatusBadNoCommunication},
		{"link down before the first value", situation{down: true, period: time.Second}, driver.StatusBadNoCommunication},
		{"not yet read", situation{period: time.Second}, driver.StatusBadWaitingForInitialData},
		{"three periods old", with(func(s *situation) { s.valueAge, s.answerAge = 3*time.Second, 3*time.Second }), driver.StatusGood},
		{"older than three periods", with(func(s *situation) { s.valueAge, s.answerAge = 3*time.Second+1, 3*time.Second+1 }), driver.StatusUncertainLastUsableValue},
		{"ten periods old", with(func(s *situation) { s.valueAge, s.answerAge = 10*time.Second, 10*time.Second }), driver.StatusUncertainLastUsableValue},
		{"older than ten periods", with(func(s *situation) { s.valueAge, s.answerAge = 10*time.Second+1, 10*time.Second+1 }), driver.StatusBadNoCommunication},
		{"uncertain and older than three periods", with(func(s *situation) { s.status, s.valueAge = 0x40940000, 4*time.Second }), driver.StatusUncertainLastUsableValue},
		{"a sensor's failure and not asked again", with(func(s *situation) { s.status, s.answerAge = sensor, 11*time.Second }), driver.StatusBadNoCommunication},
		{"a sensor's failure, asked again for longer than ten periods", with(func(s *situation) { s.status, s.valueAge = sensor, time.Hour }), sensor},
		{"a configuration error of the tag", with(func(s *situation) { s.problem = "x" }), driver.StatusBadConfigurationError},
		{"a configuration error goes before a lost link", with(func(s *situation) { s.problem, s.down = "x", true }), driver.StatusBadConfigurationError},
		{"a tag that is written only", situation{writeOnly: true, period: time.Second}, driver.StatusBadNotReadable},
		{"busy, with a value of before", with(func(s *situation) { s.status = driver.StatusUncertainLastUsableValue }), driver.StatusUncertainLastUsableValue},
		{"busy for more than ten periods", with(func(s *situation) { s.status, s.valueAge = driver.StatusUncertainLastUsableValue, 11*time.Second }), driver.StatusBadNoCommunication},
		{"busy before the first value", situation{sampled: true, status: driver.StatusUncertainLastUsableValue, period: time.Second}, driver.StatusBadWaitingForInitialData},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, message := judge(c.is)
			if status != c.want {
				t.Errorf("%v, want %v", status, c.want)
			}
			if !status.Good() && message == "" && c.is.status == 0 && !c.is.down {
				t.Error("it is not said why")
			}
		})
	}
}

// Req: P-15 (each row of the table of quality codes, from the driver to the API)
func TestWhatADeviceAnswersIsToldWithItsQuality(t *testing.T) {
	answered := func(reason driver.Reason) *driver.Error {
		return &driver.Error{Reason: reason, Answered: true, Err: errors.New("the device says so")}
	}
	for _, c := range []struct {
		name string
		fail *driver.Error
		want string
	}{
		{"Modbus 2, 3", answered(driver.ReasonConfigurationError), "7 Bad_ConfigurationError"},
		{"Modbus 4", answered(driver.ReasonDeviceFailure), "7 Bad_DeviceFailure"},
		{"Modbus 6", answered(driver.ReasonDeviceBusy), "7 Uncertain_LastUsableValue"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *site) {
				d := s.device("uid-io")
				d.values["a"], d.values["b"] = int16(7), int16(8)
				s.apply(configFile([]string{moduleEntry("io", 1)}, tagEntry("m/a", "io", ""), tagEntry("m/b", "io", "")))
				after(2 * time.Second)
				if got := s.show("m/a"); got != "7 Good" {
					t.Fatal(got)
				}
				read := s.tag("m/a").SourceTime
				d.with(func(d *fakeDevice) { d.refused["a"] = c.fail })
				after(2 * time.Second)
				if got := s.show("m/a"); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
				if got := s.show("m/b"); got != "8 Good" {
					t.Errorf("its neighbour is %s", got)
				}
				if v := s.tag("m/a"); v.SourceTime.Sub(read) > time.Second || v.Message == "" {
					t.Errorf("%+v, read at %s", v, read)
				}
			})
		})
	}
	t.Run("Modbus 0x0A, 0x0B, and every other loss of the link, at once and with the value and its time", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *site) {
			d := s.device("uid-io")
			d.values["a"], d.values["slow"] = 25.5, true
			s.apply(configFile([]string{moduleEntry("io", 1)}, tagEntry("m/a", "io", ""), tagEntry("m/slow", "io", `"period":"1h"`)))
			if got := s.show("m/a"); got != "- Bad_WaitingForInitialData" {
				t.Error(got)
			}
			after(3 * time.Second)
			d.with(func(d *fakeDevice) { d.link = &driver.Error{Reason: driver.ReasonUnitNotResponding} })
			before := s.tag("m/a").SourceTime
			after(1100 * time.Millisecond)
			for key, want := range map[string]string{"m/a": "25.5 Bad_NoCommunication", "m/slow": "true Bad_NoCommunication"} {
				if got := s.show(key); got != want {
					t.Errorf("%s is %s, want %s", key, got, want)
				}
			}
			if v := s.tag("m/a"); v.SourceTime.Before(before) || time.Since(v.SourceTime) < 0 || !strings.Contains(v.Message, "UnitNotResponding") {
				t.Errorf("%+v", v)
			}
			d.restore()
			after(2 * time.Second)
			for key, want := range map[string]string{"m/a": "25.5 Good", "m/slow": "true Good"} {
				if got := s.show(key); got != want {
					t.Errorf("back: %s is %s, want %s", key, got, want)
				}
			}
		})
	})
}

// Req: P-15 (never a stale Good)
func TestAValueAgesThoughItsReaderHangs(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		d, other := s.device("uid-io"), s.device("uid-other")
		d.values["a"], other.values["b"] = int16(7), int16(8)
		s.apply(configFile([]string{moduleEntry("io", 1), moduleEntry("other", 1)}, tagEntry("m/a", "io", ""), tagEntry("m/b", "other", `"period":"100ms"`)))
		after(2 * time.Second)
		hangs := make(chan struct{})
		d.with(func(d *fakeDevice) { d.hangs = hangs })
		read := s.tag("m/a").SourceTime
		for time.Since(read) < 20*time.Second {
			after(50 * time.Millisecond)
			if s.tag("m/a").SourceTime != read {
				read = s.tag("m/a").SourceTime
			}
			age, status := time.Since(read), s.tag("m/a").Status
			if status.Good() && age > 3*time.Second || !status.Bad() && age > 10*time.Second || status.Bad() && age < 10*time.Second {
				t.Fatalf("%v at the age of %s", status, age)
			}
			if got := s.show("m/b"); got != "8 Good" {
				t.Fatalf("its neighbour is %s", got)
			}
		}
		if m := s.Report().Modules[0]; m.Connected || m.Reason != "Timeout" {
			t.Errorf("%+v", m)
		}
		close(hangs)
		d.with(func(d *fakeDevice) { d.hangs = nil })
		after(2 * time.Second)
		if got := s.show("m/a"); got != "7 Good" {
			t.Errorf("back: %s", got)
		}
	})
}

// Req: P-15
func TestAReadThatTookLongIsAsOldAsItsQuestion(t *testing.T) {
	bubble(t, func(t *testing.T, s *site) {
		d := s.device("uid-io")
		d.values["a"], d.delay = int16(7), 900*time.Millisecond
		s.apply(configFile([]string{moduleEntry("io", 1)}, tagEntry("m/a", "io", `"period":"200ms"`)))
		after(5 * time.Second)
		for range 50 {
			after(37 * time.Millisecond)
			if v := s.tag("m/a"); v.Status.Good() {
				t.Fatalf("a value that is never younger than 4 periods is %v", v.Status)
			}
		}
	})
}
