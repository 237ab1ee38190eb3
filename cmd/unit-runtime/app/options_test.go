package app

import (
	"strings"
	"testing"

	"github.com/fieldplane/fieldplane/pkg/probe/podserver"
)

func TestWhatIsWrongWithTheFlagsIsNamed(t *testing.T) {
	good := Options{Flags: podserver.Flags{Config: "c", TLSDir: "t", Namespace: "site-a", Listen: ":9443", HealthListen: "127.0.0.1:9080"}, StateFile: "/var/lib/fieldplane/state.json"}
	for _, c := range []struct {
		name   string
		change func(*Options)
		says   string
	}{
		{"nothing", func(*Options) {}, ""},
		{"no config", func(o *Options) { o.Config = "" }, "--config is missing"},
		{"no certificates", func(o *Options) { o.TLSDir = "" }, "--tls-dir is missing"},
		{"no namespace", func(o *Options) { o.Namespace = "" }, "--namespace is missing"},
		{"a namespace that is none", func(o *Options) { o.Namespace = "Site A" }, "is no namespace"},
		{"no state file", func(o *Options) { o.StateFile = "" }, "--state-file is missing"},
		{"a state file beside whatever the program was started in", func(o *Options) { o.StateFile = "state.json" }, "no absolute path"},
		{"no port", func(o *Options) { o.Listen = "127.0.0.1" }, "--listen"},
		{"a port that is none", func(o *Options) { o.HealthListen = ":99999" }, "--health-listen"},
	} {
		o := good
		c.change(&o)
		err := o.Validate()
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}
