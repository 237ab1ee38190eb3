package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fieldplane/fieldplane/test/localcluster/child"
)

// clusterPidFile names the process that called Start.
const clusterPidFile = "localcluster.pid"

// Down stops the cluster that another process runs on dir and returns when its
// processes have ended. Without such a process it ends what was left behind.
func Down(ctx context.Context, dir string) error {
	run := filepath.Join(dir, "run")
	if pid := child.Alive(filepath.Join(run, clusterPidFile)); pid != 0 && pid != os.Getpid() {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stopping the local cluster: %w", err)
		}
		if err := waitGone(ctx, filepath.Join(run, clusterPidFile)); err != nil {
			return fmt.Errorf("the local cluster (pid %d) does not stop: %w", pid, err)
		}
	}
	return endLeftovers(ctx, run)
}

// endLeftovers kills the processes of an earlier cluster whose own process is
// gone. On Linux the kernel has killed them already, and this only waits.
func endLeftovers(ctx context.Context, run string) error {
	entries, err := os.ReadDir(run)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("localcluster: %w", err)
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".pid") || entry.Name() == clusterPidFile {
			continue
		}
		path := filepath.Join(run, entry.Name())
		if pid := child.Alive(path); pid != 0 {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
			if err := waitGone(ctx, path); err != nil {
				return fmt.Errorf("%s of an earlier cluster (pid %d) does not end: %w", strings.TrimSuffix(entry.Name(), ".pid"), pid, err)
			}
		}
		_ = os.Remove(path)
	}
	return nil
}

func waitGone(ctx context.Context, pidFile string) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for child.Alive(pidFile) != 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}
