package app

import (
	"strings"
	"testing"

	"github.com/fieldplane/fieldplane/pkg/probe/podserver"
)

func TestValidateNamesTheFlag(t *testing.T) {
	good := Options{Flags: podserver.Flags{Config: "c", TLSDir: "t", Namespace: "site-a", Listen: "127.0.0.1:9443", HealthListen: ":9080"}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		spoil func(*Options)
		says  string
	}{
		{"no config", func(o *Options) { o.Config = "" }, "--config is missing"},
		{"no certificates", func(o *Options) { o.TLSDir = "" }, "--tls-dir is missing"},
		{"no namespace", func(o *Options) { o.Namespace = "" }, "--namespace is missing"},
		{"a namespace that is none", func(o *Options) { o.Namespace = "Site/A" }, "--namespace"},
		{"an address without port", func(o *Options) { o.Listen = "10.0.0.1" }, "--listen"},
		{"an empty pod address", func(o *Options) { o.Listen = "" }, "--listen"},
		{"a port that is no number", func(o *Options) { o.HealthListen = ":http" }, "--health-listen"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := good
			c.spoil(&o)
			if err := o.Validate(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
		})
	}
}

func TestCommandRefusesBeforeItListens(t *testing.T) {
	cmd := NewCommand()
	cmd.SetArgs([]string{"--listen=127.0.0.1:0"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("error %v, want one that names --config", err)
	}
}
