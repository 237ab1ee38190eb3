// Package server proves what only shows when the server is stopped, killed or crippled: that nothing acknowledged is lost, that a
// stop is orderly, and that a server which lacks something says what. Its tests run one after the other on one cluster.
package server

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/test/harness"
)

// env is the one cluster of this package. Each test finds the installation's server running, and may leave it in any state.
var env *harness.Env

func TestMain(m *testing.M) {
	os.Exit(harness.Run(m, harness.Options{
		// The steps of a stop are told at this verbosity.
		ServerArgs: []string{"--v=1"},
	}, func(started *harness.Env) { env = started }))
}

// running makes sure that the installation's own server runs and that the aggregator routes to it.
func running(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	server := env.Installation.Server()
	select {
	case <-server.Done():
		if err := env.Installation.StartServer(ctx); err != nil {
			t.Fatal(err)
		}
	default:
	}
	if err := env.Installation.WaitAvailable(ctx); err != nil {
		t.Fatal(err)
	}
}

// stopped makes sure that the installation's own server does not run.
func stopped(t *testing.T) {
	t.Helper()
	env.Installation.Stop(t.Context())
}

// within fails the test unless done is closed within limit.
func within(t *testing.T, limit time.Duration, done <-chan struct{}, what string) {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		t.Fatalf("%s: not within %s", what, limit)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually is harness.Eventually for questions that fail with an error.
func eventually(t *testing.T, limit time.Duration, ask func() error) {
	t.Helper()
	harness.Eventually(t, limit, func() string {
		if err := ask(); err != nil {
			return fmt.Sprint(err)
		}
		return ""
	})
}
