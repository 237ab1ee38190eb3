// There are devices whose certificates have a negative serial number, which Go refuses to read unless it is told. They are
// pinned by their thumbprint like any other.
//
//go:debug x509negativeserial=1

// io-probe supervises the connectivity of the field devices that its config file names (P-11).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fieldplane/fieldplane/cmd/io-probe/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := app.NewCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "io-probe:", err)
		os.Exit(1)
	}
}
