// Package child runs the local cluster's processes: each in a process group of
// its own, dying with its parent, found again by its pid file.
package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Spec says what to run.
type Spec struct {
	// Name is used in messages and as the name of the pid file.
	Name string
	Path string
	Args []string
	// Env is the whole environment; nil inherits the parent's.
	Env []string
	Dir string
	// Output receives standard output and standard error.
	Output *os.File
	// PidFile is written after the start and removed after the exit; empty for none.
	PidFile string
}

// Process is a started child. It is safe for concurrent use.
type Process struct {
	name    string
	cmd     *exec.Cmd
	pidFile string
	done    chan struct{}
	err     error
}

// Start starts the process that spec describes.
func Start(spec Spec) (*Process, error) {
	cmd := exec.Command(spec.Path)
	// The name by which a multi-call binary was started decides what it is.
	cmd.Args = append([]string{spec.Path}, spec.Args...)
	cmd.Env = spec.Env
	cmd.Dir = spec.Dir
	cmd.Stdout = spec.Output
	cmd.Stderr = spec.Output
	cmd.SysProcAttr = sysProcAttr()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	p := &Process{name: spec.Name, cmd: cmd, pidFile: spec.PidFile, done: make(chan struct{})}
	if p.pidFile != "" {
		if err := WritePidFile(p.pidFile, cmd.Process.Pid); err != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
			return nil, err
		}
	}
	go func() {
		p.err = cmd.Wait()
		// What the child left in its process group goes with it.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if p.pidFile != "" {
			_ = os.Remove(p.pidFile)
		}
		close(p.done)
	}()
	return p, nil
}

// Name returns the name given in the Spec.
func (p *Process) Name() string { return p.name }

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode returns the exit code once Done is closed, 128 + signal for a
// process that a signal ended.
func (p *Process) ExitCode() int {
	<-p.done
	state := p.cmd.ProcessState
	if state == nil {
		return -1
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

// Err says how the process ended, nil for exit code 0; it waits for the end.
func (p *Process) Err() error {
	<-p.done
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", p.name, p.err)
}

// Signal sends sig to the process (not to its group).
func (p *Process) Signal(sig syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = p.cmd.Process.Signal(sig)
	}
}

// Kill ends the whole process group at once.
func (p *Process) Kill() {
	select {
	case <-p.done:
	default:
		_ = syscall.Kill(-p.Pid(), syscall.SIGKILL)
	}
}

// Stop asks the process to end and kills its group after grace, or as soon as
// hurry is done. It returns when the process has ended.
func (p *Process) Stop(hurry context.Context, grace time.Duration) {
	if grace > 0 {
		p.Signal(syscall.SIGTERM)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-p.done:
			return
		case <-timer.C:
		case <-hurry.Done():
		}
	}
	p.Kill()
	<-p.done
}

// WritePidFile records pid and its start time, so that a pid that was given to
// another process since is never mistaken for ours.
func WritePidFile(path string, pid int) error {
	start, err := startTime(pid)
	if err != nil {
		// A child that is already gone needs no pid file.
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("pid file: %w", err)
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, "%d %s\n", pid, start), 0o600); err != nil {
		return fmt.Errorf("pid file: %w", err)
	}
	return nil
}

// Alive reads a pid file and returns the pid if that very process still runs, else 0.
func Alive(path string) int {
	content, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pidText, start, _ := strings.Cut(strings.TrimSpace(string(content)), " ")
	pid, err := strconv.Atoi(pidText)
	if err != nil || pid <= 1 {
		return 0
	}
	if now, err := startTime(pid); err != nil || now != start {
		return 0
	}
	return pid
}

// startTime returns field 22 of /proc/<pid>/stat: clock ticks since boot. A
// zombie counts as gone.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The command name, in parentheses, may hold anything.
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return "", errors.New("unexpected format of /proc/<pid>/stat")
	}
	fields := strings.Fields(string(stat[end+1:]))
	const state, start = 0, 19
	if len(fields) <= start {
		return "", errors.New("unexpected format of /proc/<pid>/stat")
	}
	if fields[state] == "Z" || fields[state] == "X" {
		return "", errors.New("process has ended")
	}
	return fields[start], nil
}

// Tail returns the last lines of a log file, for an error message.
func Tail(path string, lines int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 16 << 10
	if size, err := f.Seek(0, io.SeekEnd); err == nil && size > most {
		_, _ = f.Seek(size-most, io.SeekStart)
	} else {
		_, _ = f.Seek(0, io.SeekStart)
	}
	content, _ := io.ReadAll(f)
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n")
}
