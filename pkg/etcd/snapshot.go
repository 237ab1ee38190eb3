package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// diskSector is what the size of a database is a multiple of; its checksum comes behind that.
const diskSector = 512

// SnapshotInfo is what a snapshot file says of itself.
type SnapshotInfo struct {
	// Revision of the store when it was taken.
	Revision int64
	// Keys that were in the store then.
	Keys int
	// Size in bytes, and SHA256 of the database, in hex, as it stands at the file's end.
	Size   int64
	SHA256 string
}

// Stream writes a snapshot, followed by its SHA-256.
type Stream func(ctx context.Context, w io.Writer) error

// StreamFrom takes the snapshot from an etcd that runs in another process, the first of the client's endpoints that answers.
func StreamFrom(client *clientv3.Client) Stream {
	return func(ctx context.Context, w io.Writer) error {
		response, err := client.SnapshotWithVersion(ctx)
		if err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
		defer response.Snapshot.Close()
		if _, err := io.Copy(w, response.Snapshot); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
		return nil
	}
}

// SaveSnapshot writes a snapshot into a file that does not exist yet. The file is there only once it is whole, on the disk,
// and has passed CheckSnapshot.
func SaveSnapshot(ctx context.Context, stream Stream, path string) (info SnapshotInfo, err error) {
	partial, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.partial")
	if err != nil {
		return SnapshotInfo{}, err
	}
	defer os.Remove(partial.Name())
	if err := errors.Join(stream(ctx, partial), partial.Sync(), partial.Close()); err != nil {
		return SnapshotInfo{}, err
	}
	if info, err = CheckSnapshot(partial.Name()); err != nil {
		return SnapshotInfo{}, err
	}
	// A link, unlike a renaming, never replaces another backup.
	switch err := os.Link(partial.Name(), path); {
	case errors.Is(err, fs.ErrExist):
		return SnapshotInfo{}, fmt.Errorf("%s exists already, and stays as it is: name another file", path)
	case err != nil:
		// Some file systems have no links.
		if _, statErr := os.Lstat(path); !errors.Is(statErr, fs.ErrNotExist) {
			return SnapshotInfo{}, errors.Join(err, statErr)
		}
		if err := os.Rename(partial.Name(), path); err != nil {
			return SnapshotInfo{}, err
		}
	}
	return info, syncDir(filepath.Dir(path))
}

// CheckSnapshot reads a snapshot file whole: that it is one, that its checksum fits, and that its database is consistent.
func CheckSnapshot(path string) (SnapshotInfo, error) {
	file, err := os.Open(path)
	if err != nil {
		return SnapshotInfo{}, err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return SnapshotInfo{}, err
	}
	database := stat.Size() - sha256.Size
	if !stat.Mode().IsRegular() || database <= 0 || database%diskSector != 0 {
		return SnapshotInfo{}, fmt.Errorf("%s is no snapshot, or not the whole of one: a snapshot ends with its checksum", path)
	}
	hash := sha256.New()
	if _, err := io.CopyN(hash, file, database); err != nil {
		return SnapshotInfo{}, err
	}
	want, err := io.ReadAll(file)
	if err != nil {
		return SnapshotInfo{}, err
	}
	if have := hash.Sum(nil); !bytes.Equal(have, want) {
		return SnapshotInfo{}, fmt.Errorf("%s is damaged: its SHA-256 is %x, and it says that it should be %x", path, have, want)
	}
	status, err := snapshot.NewV3(zap.NewNop()).Status(path)
	if err != nil {
		return SnapshotInfo{}, fmt.Errorf("%s is no snapshot of an etcd: %w", path, err)
	}
	return SnapshotInfo{Revision: status.Revision, Keys: status.TotalKey, Size: stat.Size(), SHA256: hex.EncodeToString(want)}, nil
}

// syncDir makes what was renamed or linked in a directory outlive a power cut.
func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
