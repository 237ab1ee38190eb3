// Command localcluster runs the local cluster in the foreground, or stops one.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/test/localcluster"
)

const usage = `usage:
  localcluster up   --dir DIR --bin-dir BIN [--nodes N] [--log-dir DIR] [--kubeconfig FILE]
  localcluster down --dir DIR
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "localcluster:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	// client-go and virtual-kubelet log what is of no use to anyone here.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch args[0] {
	case "up":
		return up(ctx, args[1:])
	case "down":
		flags := flag.NewFlagSet("down", flag.ExitOnError)
		dir := flags.String("dir", "", "the cluster's directory")
		_ = flags.Parse(args[1:])
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return localcluster.Down(ctx, *dir)
	}
	fmt.Fprint(os.Stderr, usage)
	os.Exit(2)
	return nil
}

func up(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("up", flag.ExitOnError)
	var options localcluster.Options
	flags.StringVar(&options.Dir, "dir", "", "where the cluster keeps its state")
	flags.StringVar(&options.BinDir, "bin-dir", "", "where build.sh has put the programs")
	flags.StringVar(&options.LogDir, "log-dir", "", "where the logs go (default DIR/log)")
	kubeconfig := flags.String("kubeconfig", "", "also write the admin kubeconfig here")
	nodes := flags.Int("nodes", 2, "number of nodes")
	_ = flags.Parse(args)
	for i := range *nodes {
		options.Nodes = append(options.Nodes, localcluster.Node{Name: fmt.Sprintf("node-%d", i+1)})
	}
	options.Progress = func(step string, took time.Duration) {
		if took > 0 {
			fmt.Printf("%s ready (%s)\n", step, took.Round(time.Millisecond))
		}
	}
	ready := filepath.Join(options.Dir, "ready")
	if err := os.Remove(ready); err != nil && !os.IsNotExist(err) {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cluster, err := localcluster.Start(starting, options)
	if err != nil {
		return err
	}
	defer cluster.Stop()
	path := cluster.Kubeconfig()
	if *kubeconfig != "" {
		path = *kubeconfig
		if err := localcluster.WriteKubeconfig(path, cluster.AdminConfig()); err != nil {
			return err
		}
	}
	if err := os.WriteFile(ready, []byte(path+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(ready)
	fmt.Println(strings.TrimSpace("ready: export KUBECONFIG=" + path))
	select {
	case <-ctx.Done():
		fmt.Println("stopping")
		return nil
	case <-cluster.Failed():
		return cluster.Err()
	}
}
