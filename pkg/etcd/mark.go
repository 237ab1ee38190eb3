package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Mark says that a store was restored, and has not been dealt with as such yet.
type Mark struct {
	// ID names this restore and no other.
	ID string `json:"id"`
	// RestoredAt is when, by the clock of the host that restored.
	RestoredAt time.Time `json:"restoredAt"`
	// Revision is that of the mark: what the store holds of a lower one is from before the restore.
	Revision int64 `json:"-"`
}

// Marks keeps the mark in the store itself, so that it is there exactly if what was restored is.
type Marks struct {
	client *clientv3.Client
	key    string
}

// NewMarks keeps the mark beside the prefix below which the objects are, and not among them.
func NewMarks(client *clientv3.Client, prefix string) *Marks {
	return &Marks{client: client, key: "/" + strings.Trim(prefix, "/") + ".restored"}
}

// Set writes the mark, over one that is there, and returns it with its revision.
func (m *Marks) Set(ctx context.Context, mark Mark) (Mark, error) {
	text, err := json.Marshal(mark)
	if err != nil {
		return Mark{}, err
	}
	response, err := m.client.Put(ctx, m.key, string(text))
	if err != nil {
		return Mark{}, fmt.Errorf("write the mark %s: %w", m.key, err)
	}
	mark.Revision = response.Header.Revision
	return mark, nil
}

// Read returns the mark, or nil if there is none.
func (m *Marks) Read(ctx context.Context) (*Mark, error) {
	response, err := m.client.Get(ctx, m.key)
	if err != nil {
		return nil, fmt.Errorf("read the mark %s: %w", m.key, err)
	}
	if len(response.Kvs) == 0 {
		return nil, nil
	}
	var mark Mark
	if err := json.Unmarshal(response.Kvs[0].Value, &mark); err != nil || mark.ID == "" {
		// Whoever wrote it meant that the store was restored.
		mark = Mark{ID: fmt.Sprintf("revision-%d", response.Kvs[0].ModRevision)}
	}
	mark.Revision = response.Kvs[0].ModRevision
	return &mark, nil
}

// Remove removes this mark: one that was written since stays, and is an error.
func (m *Marks) Remove(ctx context.Context, mark Mark) error {
	response, err := m.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(m.key), "=", mark.Revision)).
		Then(clientv3.OpDelete(m.key)).Commit()
	if err != nil {
		return fmt.Errorf("remove the mark %s: %w", m.key, err)
	}
	if !response.Succeeded {
		return errors.New("another mark was written meanwhile")
	}
	return nil
}
