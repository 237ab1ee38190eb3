package talosnode_test

import (
	"context"
	"testing"
	"time"

	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
	"github.com/fieldplane/fieldplane/test/plant/talosnode"
)

// BenchmarkProbe is the cost of one candidate that answers, both ends of it, 32 at once (T-08).
func BenchmarkProbe(b *testing.B) {
	node, err := talosnode.Start(talosnode.Options{Address: "127.0.60.99:0", Hardware: server})
	if err != nil {
		b.Fatal(err)
	}
	defer node.Close()

	b.SetParallelism(16) // times the processors
	b.ReportAllocs()

	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)

			session, err := maintenance.Dial(ctx, node.Address())
			if err == nil {
				_, err = session.Identity(ctx)
				session.Close() //nolint:errcheck
			}

			cancel()

			if err != nil {
				b.Error(err)
			}
		}
	})
}
