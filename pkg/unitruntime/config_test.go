package unitruntime

import (
	"strings"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Req: P-14
func TestAConfigFile(t *testing.T) {
	c, err := ParseConfig([]byte(configFile(
		[]string{
			moduleEntry("io", 3, `{"protocol":"modbus","modbus":{"endpoint":"tcp://h:1"},"channels":[{"name":"x","address":"level","dataType":"float32","wordOrder":"CDAB"}]}`),
			`{"name":"shared","uid":"u","generation":1,"spec":{"protocol":"modbus","modbus":{"endpoint":"tcp://h:1"}},"via":{"address":"127.0.0.1:9443"}}`,
		},
		tagEntry("b/level", "io", ""),
		tagEntry("a/set", "io", `"dataType":"int16","access":"ReadWrite","period":"250ms","scaling":{"factor":0.1},"unit":"bar","holdValue":"0"`),
		tagEntry("a/elsewhere", "nowhere", ""),
	)))
	if err != nil {
		t.Fatal(err)
	}
	if c.Unit.Name != "mixer" || c.Hash == "" || len(c.Modules) != 2 || len(c.Tags) != 3 {
		t.Fatalf("%+v", c)
	}
	if c.Modules["shared"].Via != "127.0.0.1:9443" || c.Modules["shared"].Err != nil || c.Modules["io"].Via != "" {
		t.Errorf("%+v", c.Modules)
	}
	elsewhere, set, level := c.Tags[0], c.Tags[1], c.Tags[2]
	if elsewhere.Name != "elsewhere" || elsewhere.Problem != "" {
		t.Errorf("%+v", elsewhere)
	}
	if set.Period != 250*time.Millisecond || set.Access != driver.AccessReadWrite || set.scaling.factor != 0.1 || *set.HoldValue != "0" || set.Unit != "bar" || set.Channel.DataType != driver.Int16 {
		t.Errorf("%+v", set)
	}
	if level.Period != time.Second || level.Access != driver.AccessRead || level.Channel.DataType != driver.Float32 || level.Channel.WordOrder != "CDAB" {
		t.Errorf("what the module declares of the address is lost: %+v", level)
	}
}

// Req: P-14 (a broken entry stops no other)
func TestWhatIsWrongWithAnEntryIsToldOfItAlone(t *testing.T) {
	for _, c := range []struct {
		name, more string
		says       string
	}{
		{"an unknown member", `"period":"1s","colour":"red"`, `unknown field "colour"`},
		{"a member twice", `"period":"1s","period":"2s"`, "duplicate"},
		{"a period that is none", `"period":"soon"`, "invalid duration"},
		{"a period of nothing", `"period":"0s"`, "not between"},
		{"a negative period", `"period":"-1s"`, "not between"},
		{"a period without end", `"period":"1000000h"`, "not between"},
		{"an access that is none", `"access":"Execute"`, "not Read, Write or ReadWrite"},
		{"a factor of zero", `"scaling":{"factor":0}`, "factor other than 0"},
		{"a bool that is scaled", `"dataType":"bool","scaling":{"factor":2}`, "has no scale"},
		{"a hold value that would never be written", `"holdValue":"0"`, "needs access"},
		{"a number where a text is", `"unit":7`, "cannot unmarshal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, err := ParseConfig([]byte(configFile([]string{moduleEntry("io", 1)}, tagEntry("m/bad", "io", c.more), tagEntry("m/good", "io", ""))))
			if err != nil {
				t.Fatal(err)
			}
			bad, good := config.Tags[0], config.Tags[1]
			if !strings.Contains(bad.Problem, c.says) || bad.readable() || bad.writable() || good.Problem != "" {
				t.Errorf("%q, want one that says %q; its neighbour %q", bad.Problem, c.says, good.Problem)
			}
		})
	}
	for _, c := range []struct {
		name, module string
		says         string
	}{
		{"an unknown member", `{"name":"io","uid":"u","generation":1,"spec":{"protocol":"modbus"},"colour":1}`, "unknown field"},
		{"no spec", `{"name":"io","uid":"u","generation":1}`, "no spec"},
		{"a timeout that is too long", `{"name":"io","uid":"u","generation":1,"spec":{"protocol":"modbus","probe":{"timeout":"5s"}}}`, "at most"},
		{"a probe without an address yet", `{"name":"io","uid":"u","generation":1,"spec":{"protocol":"modbus"},"via":{"address":""}}`, "no address yet"},
		{"named twice", moduleEntry("io", 1) + "," + moduleEntry("io", 2), "twice"},
	} {
		t.Run("module: "+c.name, func(t *testing.T) {
			config, err := ParseConfig([]byte(configFile([]string{c.module, moduleEntry("other", 1)})))
			if err != nil {
				t.Fatal(err)
			}
			if e := config.Modules["io"].Err; e == nil || !strings.Contains(e.Error(), c.says) || config.Modules["other"].Err != nil {
				t.Errorf("%v, want one that says %q", e, c.says)
			}
		})
	}
	config, err := ParseConfig([]byte(configFile([]string{`{"uid":"u"}`}, `{"name":"x"}`, `7`, tagEntry("m/a", "io", ""), tagEntry("m/a", "io", ""))))
	if err != nil || config.Unnamed != 3 || len(config.Tags) != 1 || !strings.Contains(config.Tags[0].Problem, "twice") {
		t.Errorf("%+v, %v", config, err)
	}
}

// Req: P-14
func TestAFileThatIsNoneIsRefusedAsAWhole(t *testing.T) {
	for name, file := range map[string]string{
		"nothing":                   "",
		"half of it":                configFile(nil)[:20],
		"two documents":             configFile(nil) + configFile(nil),
		"an unknown member":         `{"unit":{"name":"a","uid":"b"},"modules":[],"tags":[],"x":1}`,
		"no unit":                   `{"modules":[],"tags":[]}`,
		"a unit without a uid":      `{"unit":{"name":"a"},"modules":[],"tags":[]}`,
		"no modules":                `{"unit":{"name":"a","uid":"b"},"tags":[]}`,
		"null for tags":             `{"unit":{"name":"a","uid":"b"},"modules":[],"tags":null}`,
		"a member in another case":  `{"Unit":{"name":"a","uid":"b"},"modules":[],"tags":[]}`,
		"something else altogether": `[]`,
	} {
		if _, err := ParseConfig([]byte(file)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func FuzzConfigFilesNeverPanic(f *testing.F) {
	f.Add([]byte(configFile([]string{moduleEntry("io", 1)}, tagEntry("m/a", "io", `"scaling":{"factor":0.1},"holdValue":"0","access":"Write"`))))
	f.Add([]byte(`{"unit":{"name":"a","uid":"b"},"modules":[{"name":"x","via":{}},null,7],"tags":[null,{"name":"x","controlModule":"y","period":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data)
		if err != nil {
			return
		}
		for _, tag := range c.Tags {
			if tag.Period <= 0 {
				t.Fatalf("%+v has the period %s", tag, tag.Period)
			}
			if tag.Name == "" || tag.ControlModule == "" {
				t.Fatalf("%+v has no name", tag)
			}
		}
		for _, m := range c.Modules {
			if m.Err == nil && m.Spec.Probe.Period.Duration <= 0 {
				t.Fatalf("%+v has no period", m)
			}
		}
	})
}
