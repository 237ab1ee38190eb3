// There are devices whose certificates have a negative serial number, which Go refuses to read unless it is told. They are
// pinned by their thumbprint like any other.
//
//go:debug x509negativeserial=1

// unit-runtime reads, writes and holds the tags of one Unit (P-15, P-16b).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fieldplane/fieldplane/cmd/unit-runtime/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := app.NewCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "unit-runtime:", err)
		os.Exit(1)
	}
}
