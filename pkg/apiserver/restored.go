package apiserver

import (
	"context"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/controllers/restored"
	"github.com/fieldplane/fieldplane/pkg/etcd"
)

// RestoreMarks is where it stands that the store was restored from a snapshot.
type RestoreMarks interface {
	Read(context.Context) (*etcd.Mark, error)
	Remove(context.Context, etcd.Mark) error
}

// restoreMarks are marks of the store as the controllers know them: those have nothing to do with etcd.
type restoreMarks struct{ marks RestoreMarks }

func (m restoreMarks) Read(ctx context.Context) (*restored.Mark, error) {
	mark, err := m.marks.Read(ctx)
	if err != nil || mark == nil {
		return nil, err
	}
	return (*restored.Mark)(mark), nil
}

func (m restoreMarks) Remove(ctx context.Context, mark restored.Mark) error {
	return m.marks.Remove(ctx, etcd.Mark(mark))
}

// first does something until it succeeds, and returns whether it did before the context ended.
func first(ctx context.Context, do func(context.Context) error, clock clock.Clock) bool {
	for ctx.Err() == nil {
		err := do(ctx)
		if err == nil {
			return true
		}
		klog.ErrorS(err, "The controllers wait")
		select {
		case <-clock.After(restartPause):
		case <-ctx.Done():
		}
	}
	return false
}
