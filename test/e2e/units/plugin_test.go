package units

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
)

// plugin is kubectl fieldplane as the administrator, as somebody has it who has a kubeconfig and our plugin on his path.
func (s site) plugin(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(env.BinDir, "kubectl"), append(append([]string{"fieldplane"}, args...), "-n", s.name)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+env.Cluster.Kubeconfig(), "PATH="+env.BinDir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return command
}

// types types a command, and fails the test unless it ends with the code and says the words.
func (s site) types(t *testing.T, code int, args []string, words ...string) {
	t.Helper()
	command := s.plugin(t, args...)
	output, _ := command.CombinedOutput()
	if have := command.ProcessState.ExitCode(); have != code {
		t.Errorf("kubectl fieldplane %s ended with code %d, not %d\n%s", strings.Join(args, " "), have, code, output)
	}
	for _, word := range words {
		if !strings.Contains(string(output), word) {
			t.Errorf("kubectl fieldplane %s does not say %q\n%s", strings.Join(args, " "), word, output)
		}
	}
}

// output collects what a program that runs writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(data)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Req: A-08, P-16, P-16c
func TestAnOperatorRunsHoldsAndMendsAUnitFromATerminal(t *testing.T) {
	t.Parallel()
	s, d := newSite(t), newDevice(t, 1)
	s.addModule(t, "pump", d, 1)
	s.addUnit(t, "mixing", v1alpha1.UnitSpec{}, reads("temperature", "pump", temperature), drives("speed", "pump", speed, "5"))
	s.ready(t, "mixing")

	s.types(t, 0, []string{"start", "mixing"}, "Running")
	s.types(t, 0, []string{"status"}, "mixing", "Running")
	s.types(t, 0, []string{"tags", "mixing"}, "temperature", "215", "Good")
	harness.Eventually(t, settleLimit, func() string {
		// The runtime hears of a new state a moment after it is stored.
		if output, err := s.plugin(t, "write", "mixing", "mixing/speed=1200", "--reason", "trial run").CombinedOutput(); err != nil {
			return string(output)
		}
		return ""
	})
	if value := d.Unit(1).Holding(speedRegister); value != 1200 {
		t.Errorf("the device has %d", value)
	}

	var lines output
	follower := s.plugin(t, "tags", "mixing", "-w")
	follower.Stdout, follower.Stderr = &lines, &lines
	must(t, follower.Start())
	harness.Eventually(t, settleLimit, func() string {
		if !strings.Contains(lines.String(), "215") {
			return "told is " + lines.String()
		}
		return ""
	})
	d.Unit(1).SetHolding(0, 333)
	harness.Eventually(t, settleLimit, func() string {
		if !strings.Contains(lines.String(), "333") {
			return "told is " + lines.String()
		}
		return ""
	})

	d.cut(t, "silent")
	s.is(t, faultLimit+settleLimit, "mixing", v1alpha1.UnitHeld)
	s.types(t, 0, []string{"status"}, "mixing", "Held", "pump", "Fault")
	s.types(t, 0, []string{"tags", "mixing"}, "333", "Bad")
	s.types(t, 1, []string{"restart", "mixing", "--reason", "let us see"}, "pump", "Fault")
	s.types(t, 1, []string{"write", "mixing", "mixing/speed=900"}, "Running")
	d.heal(t)
	s.has(t, onlineLimit+settleLimit, "mixing", "EquipmentHealthy True ModulesOnline")
	s.has(t, settleLimit, "mixing", "RuntimeDevicesConnected True DevicesConnected")
	s.types(t, 0, []string{"status"}, "mixing", "Held")
	s.types(t, 0, []string{"restart", "mixing", "--reason", "the pump is back"}, "Running")
	if last := s.unit(t, "mixing").Status.LastCommand; last.Command != v1alpha1.CommandRestart || last.Reason != "the pump is back" || last.Outcome != v1alpha1.CommandDone || last.Actor == "" {
		t.Errorf("the last command is %+v", last)
	}
	s.types(t, 0, []string{"hold", "mixing", "--reason", "leak at the pump"}, "Held")
	s.types(t, 0, []string{"status", "-o", "wide"}, "mixing", "Held", "Operator")
	if value := d.Unit(1).Holding(speedRegister); value != 5 {
		t.Errorf("the device has %d", value)
	}
	s.types(t, 0, []string{"stop", "mixing"}, "Stopped")
	s.types(t, 0, []string{"reset", "mixing"}, "Idle")

	must(t, follower.Process.Signal(syscall.SIGINT))
	if err := follower.Wait(); err != nil {
		t.Errorf("tags -w ended with %v\n%s", err, lines.String())
	}
	if !strings.Contains(lines.String(), "Bad") {
		t.Errorf("told is\n%s", lines.String())
	}
}
