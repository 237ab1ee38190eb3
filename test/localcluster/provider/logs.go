package provider

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"k8s.io/apimachinery/pkg/types"
)

// LogOptions says which part of a container's log is wanted.
type LogOptions struct {
	Previous bool
	Follow   bool
	// TailLines is negative for all lines.
	TailLines int
	// LimitBytes is 0 for no limit.
	LimitBytes int64
}

// followPeriod is how often a followed log is looked at.
const followPeriod = 100 * time.Millisecond

// WriteLogs writes a container's log to w; with Follow until the run that it
// shows has ended or ctx does.
func (p *Provider) WriteLogs(ctx context.Context, w io.Writer, flush func(), namespace, pod, containerName string, options LogOptions) error {
	r := p.runner(types.NamespacedName{Namespace: namespace, Name: pod})
	if r == nil {
		return errdefs.NotFoundf("pod %s/%s does not run here", namespace, pod)
	}
	all := slices.Concat(r.init, r.main)
	i := slices.IndexFunc(all, func(c *container) bool { return c.name == containerName })
	if i < 0 {
		return errdefs.NotFoundf("pod %s/%s has no container %q", namespace, pod, containerName)
	}
	state := all[i].snapshot()
	run := state.restarts
	// While it waits for its next run, "current" is the run that ended last.
	if state.current.Waiting != nil && state.last.Terminated != nil {
		run--
	}
	if options.Previous {
		run--
	}
	f, err := os.Open(logPath(r.logDir, containerName, run))
	if os.IsNotExist(err) {
		return errdefs.NotFoundf("container %q of pod %s/%s has no such log", containerName, namespace, pod)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	content = lastLines(content, options.TailLines)
	if options.LimitBytes > 0 && int64(len(content)) > options.LimitBytes {
		_, err = w.Write(content[:options.LimitBytes])
		return err
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	for options.Follow {
		flush()
		// Asked before the copy: what is written up to the end is copied after it.
		ended := all[i].snapshot().restarts != state.restarts || all[i].snapshot().current.Running == nil
		n, err := io.Copy(w, f)
		if err != nil {
			return err
		}
		if n == 0 && ended {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.config.Clock.After(followPeriod):
		}
	}
	return nil
}

func lastLines(content []byte, n int) []byte {
	if n < 0 {
		return content
	}
	end := len(content)
	if end > 0 && content[end-1] == '\n' {
		end--
	}
	for i := end; n > 0; n-- {
		i = bytes.LastIndexByte(content[:i], '\n')
		if i < 0 {
			return content
		}
		if n == 1 {
			return content[i+1:]
		}
	}
	return nil
}
