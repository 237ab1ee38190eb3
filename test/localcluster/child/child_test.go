package child

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the tests run this binary as a parent that starts a child.
func TestMain(m *testing.M) {
	if os.Getenv("CHILD_TEST_PARENT") != "" {
		process, err := Start(Spec{Name: "sleep", Path: "/bin/sleep", Args: []string{"60"}})
		if err != nil {
			panic(err)
		}
		fmt.Println(process.Pid())
		<-process.Done()
		return
	}
	os.Exit(m.Run())
}

func shell(t *testing.T, script, pidFile string) (*Process, string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	output, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	process, err := Start(Spec{Name: "shell", Path: "/bin/sh", Args: []string{"-c", script}, Output: output, PidFile: pidFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Kill(); <-process.Done() })
	return process, log
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 5 s", what)
		}
	}
}

func TestStopAsksFirstAndKillsTheGroupAfterItsGrace(t *testing.T) {
	for name, test := range map[string]struct {
		script   string
		grace    time.Duration
		hurried  bool
		exitCode int
		atLeast  time.Duration
	}{
		"a process that obeys ends with its own code":     {script: "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done", grace: time.Minute, exitCode: 7},
		"a process that does not is killed after grace":   {script: "trap '' TERM; echo up; while :; do sleep 0.01; done", grace: 300 * time.Millisecond, exitCode: 137, atLeast: 300 * time.Millisecond},
		"in a hurry it is killed within its grace period": {script: "trap '' TERM; echo up; while :; do sleep 0.01; done", grace: time.Minute, hurried: true, exitCode: 137},
		"without grace it is killed":                      {script: "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done", exitCode: 137},
	} {
		t.Run(name, func(t *testing.T) {
			process, log := shell(t, test.script, "")
			waitFor(t, "start", func() bool { return Tail(log, 1) == "up" })
			hurry, cancel := context.WithCancel(t.Context())
			defer cancel()
			if test.hurried {
				cancel()
			}
			began := time.Now()
			process.Stop(hurry, test.grace)
			if took := time.Since(began); took < test.atLeast || took > 5*time.Second {
				t.Errorf("it took %s", took)
			}
			if code := process.ExitCode(); code != test.exitCode {
				t.Errorf("exit code is %d, want %d", code, test.exitCode)
			}
		})
	}
}

func TestWhatAChildLeavesInItsGroupEndsWithIt(t *testing.T) {
	process, log := shell(t, "sleep 60 & echo $!; exit 0", "")
	<-process.Done()
	pid, err := strconv.Atoi(Tail(log, 1))
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the grandchild's end", func() bool { _, err := startTime(pid); return err != nil })
}

func TestPidFileNamesOnlyTheVeryProcess(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "run", "x.pid")
	process, _ := shell(t, "exec sleep 60", pidFile)
	if got := Alive(pidFile); got != process.Pid() {
		t.Errorf("Alive is %d, want %d", got, process.Pid())
	}
	foreign := filepath.Join(t.TempDir(), "foreign.pid")
	// The same pid with another start time: it was given to another process since.
	if err := os.WriteFile(foreign, fmt.Appendf(nil, "%d 1\n", process.Pid()), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Alive(foreign); got != 0 {
		t.Errorf("a process that started at another time passes for ours: %d", got)
	}
	process.Kill()
	<-process.Done()
	if _, err := os.Stat(pidFile); !os.IsNotExist(err) {
		t.Errorf("the pid file is still there: %v", err)
	}
}

func TestChildrenDieWithAKilledParent(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(os.Environ(), "CHILD_TEST_PARENT=1")
	output, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	_ = parent.Process.Signal(syscall.SIGKILL)
	_ = parent.Wait()
	waitFor(t, "the child's end", func() bool { _, err := startTime(pid); return err != nil })
}

func TestTailShowsTheLastLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if got := Tail(path, 3); got != "" {
		t.Errorf("the tail of no file is %q", got)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("x\n", 20000)+"a\nb\nc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Tail(path, 2); got != "b\nc" {
		t.Errorf("got %q", got)
	}
}
