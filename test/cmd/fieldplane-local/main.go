// Command fieldplane-local runs a whole fieldplane on this machine: a real
// cluster, the server in it, a simulated plant, and the examples.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fieldplane/fieldplane/test/localcluster"
)

const usage = `usage: fieldplane-local run|up|down [--repo DIR]

  run   start everything in the foreground and stop it on Ctrl-C
  up    start everything in the background and return when it is ready
  down  stop what up has started

What the cluster holds stays in _local/data; make clean forgets it.
`

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fieldplane-local:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return errors.New("no command given")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	repo := flags.String("repo", ".", "root of the repository")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	root, err := filepath.Abs(*repo)
	if err != nil {
		return err
	}
	here := newPlace(root)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch args[0] {
	case "run":
		return run(ctx, here)
	case "up":
		return up(ctx, here)
	case "down":
		ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		if err := localcluster.Down(ctx, here.cluster); err != nil {
			return err
		}
		fmt.Println("Stopped. What the cluster holds stays in _local/data for the next start; make clean forgets it.")
		return nil
	}
	fmt.Fprint(os.Stderr, usage)
	return fmt.Errorf("no command %q", args[0])
}
