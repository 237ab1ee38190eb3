package etcd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// DataDirInUseError says that another process holds the data directory, and
// which.
type DataDirInUseError struct {
	DataDir string
	// Holder is what the holder wrote about itself, such as "pid 4711 on host
	// plant-1".
	Holder string
}

func (e *DataDirInUseError) Error() string {
	return fmt.Sprintf("--data-dir %q is in use by %s: stop that server first, or name another directory", e.DataDir, e.Holder)
}

// lockDataDir takes the directory for this process, without waiting.
//
// It has to happen before etcd is started: etcd removes and makes anew the
// socket of a running server before it comes to its own database lock, and then
// waits for that lock for ever.
func lockDataDir(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := flockNonBlocking(file); err != nil {
		defer file.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		return nil, &DataDirInUseError{DataDir: dir, Holder: holderOf(file)}
	}
	if err := nameHolder(file); err != nil {
		file.Close()
		return nil, fmt.Errorf("write %s: %w", file.Name(), err)
	}
	return file, nil
}

func flockNonBlocking(file *os.File) error {
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// holderOf reads what nameHolder wrote.
func holderOf(file *os.File) string {
	text, err := io.ReadAll(io.LimitReader(file, 512))
	if err != nil || len(text) == 0 {
		return "another process"
	}
	return strings.TrimSpace(string(text))
}

// nameHolder names the host too: in two pods on one volume both servers are pid
// 1.
func nameHolder(file *os.File) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.WriteAt(fmt.Appendf(nil, "pid %d on host %s\n", os.Getpid(), host), 0)
	return err
}

// unlockDataDir leaves the file in place: removing it would let two processes
// lock two different files of one name.
func unlockDataDir(file *os.File) error {
	return errors.Join(file.Truncate(0), file.Close())
}
