// Package bench measures what the project has budgets for, each row beside what it is compared with, in one run.
//
// A benchmark is one experiment: run it with -benchtime=1x. A figure that has a budget carries it in its unit, as in
// "0.97 x-twin(≥0.95)"; no budget fails a run, for a figure depends on the machine as well.
package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fieldplane/fieldplane/test/harness"
)

// env is the one cluster of this package; without -bench there is none.
var env *harness.Env

func TestMain(m *testing.M) {
	flag.Parse()
	if wanted := flag.Lookup("test.bench"); wanted == nil || wanted.Value.String() == "" {
		os.Exit(m.Run())
	}
	os.Exit(harness.Run(m, harness.Options{}, func(started *harness.Env) { env = started }))
}

// report adds a figure to a benchmark's line. The budget, if there is one, reads like "≥0.95".
func report(b *testing.B, value float64, unit, budget string) {
	if budget != "" {
		unit += "(" + budget + ")"
	}
	b.ReportMetric(value, unit)
}

// experiment takes the time of the whole off a benchmark's line: it has no meaning where several things are measured.
func experiment(b *testing.B) { b.ReportMetric(0, "ns/op") }

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// namespace makes a namespace, and leaves nothing of it behind that would disturb the next benchmark.
func namespace(b *testing.B) string {
	b.Helper()
	var name string
	b.Cleanup(func() {
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			if _, err := env.Host().CoreV1().Namespaces().Get(context.Background(), name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
				return
			}
		}
	})
	name = env.Namespace(b)
	return name
}

// loopback is the n-th address of a net that begins at 127.0.<third>.0. Every benchmark has nets of its own.
func loopback(third, n int) string { return fmt.Sprintf("127.0.%d.%d", third+n>>8, n&0xff) }
