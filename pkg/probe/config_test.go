package probe

import (
	"strings"
	"testing"
	"time"
)

const goodEntry = `{"name":"pump","uid":"u1","generation":3,"spec":{"protocol":"modbus","modbus":{"endpoint":"tcp://10.0.0.5"}}}`

// Req: P-11
func TestParseConfigRefusesAFileAsAWhole(t *testing.T) {
	for _, c := range []struct{ name, file, says string }{
		{"empty", ``, "unexpected end"},
		{"no JSON", `modules: []`, "invalid character"},
		{"cut off", `{"modules":[`, "unexpected end"},
		{"an unknown member", `{"modules":[],"more":1}`, `unknown field "more"`},
		{"no modules", `{}`, `"modules": []`},
		{"modules of another type", `{"modules":{}}`, "cannot unmarshal"},
		{"something after it", `{"modules":[]} {}`, "after top-level value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ParseConfig([]byte(c.file)); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
		})
	}
}

// Req: P-11 (one bad entry stops no other)
func TestParseConfigReportsABadEntryAndKeepsTheOthers(t *testing.T) {
	for _, c := range []struct{ name, entry, says string }{
		{"no spec", `{"name":"bad"}`, "no spec"},
		{"an unknown member of the entry", `{"name":"bad","spec":{"protocol":"modbus"},"x":1}`, `unknown field "x"`},
		{"an unknown member of the spec", `{"name":"bad","spec":{"protocol":"modbus","modbus":{"endpoint":"tcp://x","unitId":1}}}`, `unknown field "spec.modbus.unitId"`},
		{"a member twice", `{"name":"bad","spec":{"protocol":"modbus","protocol":"opcua"}}`, `duplicate field`},
		{"a wrong type", `{"name":"bad","generation":"1","spec":{}}`, "cannot unmarshal"},
		{"a period of zero", `{"name":"bad","spec":{"protocol":"modbus","probe":{"period":"0s"}}}`, "spec.probe.period"},
		{"a timeout beyond 1 s", `{"name":"bad","spec":{"protocol":"modbus","probe":{"timeout":"2s"}}}`, "spec.probe.timeout"},
		{"a period that leaves no time for anything else", `{"name":"bad","spec":{"protocol":"modbus","probe":{"period":"1ns"}}}`, "spec.probe.period"},
		{"a period that never ends", `{"name":"bad","spec":{"protocol":"modbus","probe":{"period":"2562047h"}}}`, "spec.probe.period"},
		{"a threshold of zero", `{"name":"bad","spec":{"protocol":"modbus","probe":{"failureThreshold":0}}}`, "spec.probe.failureThreshold"},
		{"a success threshold of zero", `{"name":"bad","spec":{"protocol":"modbus","probe":{"successThreshold":0}}}`, "spec.probe.successThreshold"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, err := ParseConfig([]byte(`{"modules":[` + c.entry + `,` + goodEntry + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			if len(config.Modules) != 2 || config.Modules[0].Name != "bad" || config.Modules[1].Err != nil {
				t.Fatalf("modules %+v, want the bad one and the good one", config.Modules)
			}
			if err := config.Modules[0].Err; err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
		})
	}
}

func TestParseConfigNamesAModuleTwiceAndLeavesOutTheNameless(t *testing.T) {
	config, err := ParseConfig([]byte(`{"modules":[` + goodEntry + `,` + goodEntry + `,{"uid":"x"},17]}`))
	if err != nil {
		t.Fatal(err)
	}
	if config.Unnamed != 2 || len(config.Modules) != 1 || config.Modules[0].Err == nil {
		t.Errorf("config %+v, want one module with an error and two nameless entries", config)
	}
}

// Req: P-16 (defaults)
func TestParseConfigFillsInDefaults(t *testing.T) {
	config, err := ParseConfig([]byte(`{"modules":[` + goodEntry + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	m := config.Modules[0]
	if m.Name != "pump" || m.UID != "u1" || m.Generation != 3 || m.Err != nil {
		t.Errorf("module %+v", m)
	}
	p := m.Spec.Probe
	if p.Period.Duration != time.Second || p.Timeout.Duration != time.Second || *p.FailureThreshold != 3 || *p.SuccessThreshold != 2 {
		t.Errorf("probe settings %+v, want 1 s, 1 s, 3, 2", p)
	}
	if *m.Spec.Modbus.UnitID != 1 {
		t.Errorf("unit id %d, want 1", *m.Spec.Modbus.UnitID)
	}
	if len(config.Hash) != 64 {
		t.Errorf("hash %q is no SHA-256", config.Hash)
	}
}
