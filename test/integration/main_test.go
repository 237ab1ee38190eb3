// Package integration proves requirements through the real API: kubectl and
// typed clients against a real kube-apiserver that proxies to the real server.
package integration

import (
	"flag"
	"os"
	"testing"

	"github.com/fieldplane/fieldplane/test/harness"
)

// env is the one cluster of this package; tests keep apart by namespace.
var env *harness.Env

func TestMain(m *testing.M) {
	flag.Parse()
	// Most of these tests wait most of the time: for kubectl, for the garbage collector.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(harness.Run(m, harness.Options{}, func(started *harness.Env) { env = started }))
}
