package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// up runs everything in a process of its own, shows what it tells, and returns
// when it is ready.
func up(ctx context.Context, here place) error {
	if err := os.MkdirAll(here.logs, 0o700); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	path := filepath.Join(here.logs, "fieldplane-local.log")
	output, err := os.Create(path)
	if err != nil {
		return err
	}
	defer output.Close()
	command := exec.Command(self, "run", "--repo", here.repo)
	command.Stdout, command.Stderr = output, output
	// A session of its own, so that it outlives the terminal.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()

	shown, err := os.Open(path)
	if err != nil {
		return err
	}
	defer shown.Close()
	reader := bufio.NewReader(shown)
	show := func() {
		for {
			line, err := reader.ReadString('\n')
			fmt.Print(line)
			if err != nil {
				return
			}
		}
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		show()
		if _, err := os.Stat(here.ready); err == nil {
			show()
			fmt.Println("\nmake down stops it.")
			return nil
		}
		select {
		case err := <-ended:
			show()
			if err == nil {
				err = errors.New("it stopped")
			}
			return fmt.Errorf("not started: %w (see %s)", err, path)
		case <-ctx.Done():
			_ = command.Process.Signal(syscall.SIGTERM)
			<-ended
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
