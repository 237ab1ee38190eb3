package unitruntime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// maxStateSize bounds what is read of a state file.
const maxStateSize = 1 << 20

// saveTime is how long the disk may take. A disk that hangs must not keep a Unit from being held.
const saveTime = time.Second

// State is what survives a restart of the program: what a runtime that wakes up without a server must go on with (P-16b).
type State struct {
	// Order in force; it names the Unit that the state is of.
	Order *api.Order `json:"order,omitempty"`
	Latch *api.Latch `json:"latch,omitempty"`
}

// StateFile keeps a State where a kill of the program does not take it away.
type StateFile struct {
	path  string
	clock clock.Clock
	// busy holds a token while a save is under way, beyond its time too.
	busy chan struct{}
}

// NewStateFile names the file; its directory must be there.
func NewStateFile(path string, c clock.Clock) *StateFile {
	return &StateFile{path: path, clock: c, busy: make(chan struct{}, 1)}
}

// Load is what was saved last, or nothing. A file that cannot be read is an error, and nothing too.
func (f *StateFile) Load() (State, error) {
	var s State
	info, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxStateSize {
		return s, fmt.Errorf("%s is no file of at most %d bytes", f.path, maxStateSize)
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return State{}, fmt.Errorf("%s: %w", f.path, err)
	}
	if s.Order == nil || !known(s.Order.State) || s.Latch != nil && s.Latch.ID == "" {
		if s.Order == nil && s.Latch == nil {
			return State{}, nil
		}
		return State{}, fmt.Errorf("%s: no order of a known state", f.path)
	}
	return s, nil
}

func known(state isa88.State) bool {
	for _, s := range isa88.States() {
		if s == state {
			return true
		}
	}
	return false
}

// Save returns when s is on the disk, or with an error when that takes too long.
func (f *StateFile) Save(s State) error {
	select {
	case f.busy <- struct{}{}:
	default:
		return errors.New("an earlier save has not ended yet")
	}
	saved := make(chan error, 1)
	go func() {
		err := f.write(s)
		<-f.busy
		saved <- err
	}()
	timer := f.clock.NewTimer(saveTime)
	defer timer.Stop()
	select {
	case err := <-saved:
		return err
	case <-timer.C():
		return fmt.Errorf("%s was not written within %s", f.path, saveTime)
	}
}

// write replaces the file as a whole, and has it on the disk before it returns.
func (f *StateFile) write(s State) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	dir := filepath.Dir(f.path)
	next, err := os.OpenFile(f.path+".next", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = next.Write(data)
	if err == nil {
		err = next.Sync()
	}
	if err := errors.Join(err, next.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.path+".next", f.path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
