package apiserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/etcd"
)

// Req
func TestNoControllerStartsBeforeARestoreIsDealtWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		if !first(t.Context(), func(context.Context) error {
			if tries++; tries < 5 {
				return errors.New("no answer")
			}
			return nil
		}, clock.RealClock{}) || tries != 5 {
			t.Errorf("tried %d times", tries)
		}

		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if first(ctx, func(context.Context) error { return errors.New("no answer") }, clock.RealClock{}) {
			t.Error("it counts as done although it never was")
		}
	})
}

type oneMark struct{ mark *etcd.Mark }

func (m *oneMark) Read(context.Context) (*etcd.Mark, error) { return m.mark, nil }

func (m *oneMark) Remove(_ context.Context, mark etcd.Mark) error {
	if *m.mark != mark {
		return errors.New("another one")
	}
	m.mark = nil
	return nil
}

// Req: A-02
func TestTheControllersSeeTheMarkOfTheStore(t *testing.T) {
	stored := &oneMark{mark: &etcd.Mark{ID: "a", RestoredAt: time.Unix(1, 0), Revision: 7}}
	marks := restoreMarks{stored}
	mark, err := marks.Read(t.Context())
	if err != nil || mark.ID != "a" || mark.Revision != 7 || !mark.RestoredAt.Equal(time.Unix(1, 0)) {
		t.Fatalf("the mark is %+v (%v)", mark, err)
	}
	if err := marks.Remove(t.Context(), *mark); err != nil || stored.mark != nil {
		t.Errorf("%v, %+v is left", err, stored.mark)
	}
	if mark, err := marks.Read(t.Context()); err != nil || mark != nil {
		t.Errorf("there is %+v (%v)", mark, err)
	}
}
