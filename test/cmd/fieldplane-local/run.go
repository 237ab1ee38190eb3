package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/fieldplane/fieldplane/test/installation"
	"github.com/fieldplane/fieldplane/test/localcluster"
	"github.com/fieldplane/fieldplane/test/plant"
)

// startLimit bounds a start, the slowest step of which waits for the modules to be Online.
const startLimit = 3 * time.Minute

// run starts everything, tells when it is ready, and stops it when ctx ends.
func run(ctx context.Context, here place) error {
	began := time.Now()
	if err := os.Remove(here.ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	_, err := os.Stat(here.cluster)
	kept := err == nil
	for _, dir := range []string{here.logs, here.server} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	// The virtual nodes' libraries tell much that is of use only when one of them fails.
	nodeLog, err := os.Create(filepath.Join(here.logs, "nodes.log"))
	if err != nil {
		return err
	}
	defer nodeLog.Close()
	klog.LogToStderr(false)
	klog.SetOutput(nodeLog)

	starting, started := context.WithTimeout(ctx, startLimit)
	defer started()

	cluster, err := localcluster.Start(starting, localcluster.Options{
		Dir: here.cluster, BinDir: here.bin, LogDir: here.logs, Progress: progress,
		Nodes: []localcluster.Node{
			{Name: "node-1", Labels: map[string]string{"zone": "a"}},
			{Name: "node-2", Labels: map[string]string{"zone": "b"}},
		},
	})
	if err != nil {
		return err
	}
	defer cluster.Stop()
	if err := localcluster.WriteKubeconfig(here.kubeconfig, cluster.AdminConfig()); err != nil {
		return err
	}

	devices, err := startPlant(ctx, here)
	if err != nil {
		return fmt.Errorf("plant: %w", err)
	}
	defer devices.Close()

	server, err := installation.Start(starting, installation.Options{
		Cluster: cluster, BinDir: here.bin, RepoDir: here.repo, Dir: here.server, LogDir: here.logs,
		Port: installation.Port, Progress: progress,
	})
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.Background(), installation.StopLimit)
		defer cancel()
		server.Stop(stopping)
	}()

	if err := applyExamples(starting, here, cluster, server); err != nil {
		return err
	}
	fmt.Printf("\nReady after %s. The logs are in %s.\n%s", time.Since(began).Round(100*time.Millisecond), here.logs, worthTrying(here))
	if kept {
		fmt.Print(`
The cluster holds what it held before. The plant is new: machines that were configured are back in maintenance mode.
make clean forgets everything.
`)
	}
	if err := os.WriteFile(here.ready, nil, 0o600); err != nil {
		return err
	}
	defer os.Remove(here.ready)

	select {
	case <-ctx.Done():
		fmt.Println("Stopping.")
		return nil
	case <-cluster.Failed():
		return cluster.Err()
	case <-server.Server().Done():
		return fmt.Errorf("fieldplane-apiserver ended, see %s: %w", server.Log(), server.Server().Err())
	}
}

// progress tells each step when it is done, and how long it took.
func progress(step string, took time.Duration) {
	if took > 0 {
		fmt.Printf("  %-45s %6.1f s\n", step, took.Seconds())
	}
}

// startPlant runs the simulated plant, and its control socket for the plant command.
func startPlant(ctx context.Context, here place) (*plant.Plant, error) {
	began := time.Now()
	devices, err := plant.Start(plant.Example(), func(string, ...any) {})
	if err != nil {
		return nil, err
	}
	listener, err := plant.Listen(here.plantSocket)
	if err != nil {
		devices.Close()
		return nil, err
	}
	go func() {
		if err := devices.Serve(ctx, listener); err != nil && !errors.Is(err, net.ErrClosed) && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "plant control:", err)
		}
	}()
	progress("simulated plant", time.Since(began))
	return devices, nil
}

func worthTrying(here place) string {
	return fmt.Sprintf(`
  export KUBECONFIG=%s PATH=%s:$PATH

  kubectl get iomodules,units,talosmachines -A
  kubectl fieldplane channels press -n site-a -o wide
  kubectl fieldplane pending -A
  kubectl fieldplane start mixing -n site-a && kubectl fieldplane tags mixing -n site-a -w
  plant fault mixer closed && kubectl get units -n site-a -w
  kubectl fieldplane approve machine -n site-a 3f1d2c4b-5a69-4788-9c0d-1e2f3a4b5c01 --role controlplane --install-disk /dev/nvme0n1 --accept-unverified-fingerprint
  kubectl explain iomodule.spec

plant list shows the machines' consoles, with their fingerprints; plant --help what else can be done to them. The whole
way of a machine is in docs/approving.md.
`, here.kubeconfig, filepath.Clean(here.bin))
}
