package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/apiserver"
	"github.com/fieldplane/fieldplane/pkg/etcd"
)

const defaultDataDir = "/var/lib/fieldplane"

// newSnapshotCommand is the part of the command line that saves and restores the store, and serves nothing.
func newSnapshotCommand(clock clock.PassiveClock) *cobra.Command {
	command := &cobra.Command{
		Use:   "snapshot",
		Short: "Save, check and restore the store",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newSaveCommand(clock), newCheckCommand(), newRestoreCommand(clock), newMarkCommand(clock))
	return command
}

// storeFlags say which store is meant. Their names are those of the server.
type storeFlags struct {
	dataDir   string
	endpoints etcd.Endpoints
	prefix    string
	timeout   time.Duration
}

func (f *storeFlags) addDataDir(flags *pflag.FlagSet) {
	flags.StringVar(&f.dataDir, "data-dir", defaultDataDir, "Directory of the embedded etcd.")
}

func (f *storeFlags) addEndpoints(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.endpoints.Servers, "etcd-servers", nil, "Addresses of an etcd cluster of your own.")
	flags.StringVar(&f.endpoints.TrustedCAFile, "etcd-cafile", "", "CA of its certificates.")
	flags.StringVar(&f.endpoints.CertFile, "etcd-certfile", "", "Client certificate for it.")
	flags.StringVar(&f.endpoints.KeyFile, "etcd-keyfile", "", "Key of the client certificate.")
}

func (f *storeFlags) addPrefix(flags *pflag.FlagSet) {
	flags.StringVar(&f.prefix, "etcd-prefix", apiserver.EtcdPrefix, "Prefix of the server's keys, as the server is told it.")
}

func (f *storeFlags) addTimeout(flags *pflag.FlagSet) {
	flags.DurationVar(&f.timeout, "timeout", 10*time.Minute, "How long it may take.")
}

func newSaveCommand(clock clock.PassiveClock) *cobra.Command {
	var (
		flags   storeFlags
		offline bool
		keep    int
	)
	command := &cobra.Command{
		Use:   "save FILE",
		Short: "Save a snapshot of the store, of a server that runs or of one that is stopped",
		Long: "Saves a snapshot into FILE, which must not exist. If FILE is a directory, a new file in it is named by the time, and --keep\n" +
			"bounds how many there are. If FILE is -, the snapshot goes to the standard output.",
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(command *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), flags.timeout)
			defer cancel()
			file, inDirectory := args[0], false
			if info, err := os.Stat(file); err == nil && info.IsDir() {
				file, inDirectory = filepath.Join(file, savedAt(clock.Now())), true
			}
			switch {
			case keep < 0:
				return errors.New("--keep must not be negative")
			case keep > 0 && !inDirectory:
				return fmt.Errorf("--keep needs a directory, and %s is none", args[0])
			}
			stream, closeStream, err := flags.stream(ctx, offline)
			if err != nil {
				return err
			}
			err = save(ctx, stream, file, command.OutOrStdout(), command.ErrOrStderr())
			if err := errors.Join(err, closeStream()); err != nil {
				return err
			}
			if keep > 0 {
				return forget(filepath.Dir(file), keep, command.OutOrStdout())
			}
			return nil
		},
	}
	flags.addDataDir(command.Flags())
	flags.addEndpoints(command.Flags())
	flags.addTimeout(command.Flags())
	command.Flags().BoolVar(&offline, "offline", false, "Read the data directory of a server that is stopped. While that lasts the server cannot start.")
	command.Flags().IntVar(&keep, "keep", 0, "How many snapshots to keep in the directory; older ones are deleted once the new one is saved. 0 keeps all.")
	return command
}

// stream finds the store, and a way to close whatever it was opened by.
func (f *storeFlags) stream(ctx context.Context, offline bool) (etcd.Stream, func() error, error) {
	dial := func(endpoints etcd.Endpoints, also func()) (etcd.Stream, func() error, error) {
		client, err := endpoints.Dial()
		if err != nil {
			return nil, nil, err
		}
		return etcd.StreamFrom(client), func() error { defer also(); return client.Close() }, nil
	}
	if len(f.endpoints.Servers) > 0 {
		if offline {
			return nil, nil, errors.New("--offline is for the embedded etcd: with --etcd-servers that one has to run")
		}
		return dial(f.endpoints, func() {})
	}
	if !offline {
		endpoint, running, closed := etcd.RunningStore(f.dataDir)
		if !running {
			return nil, nil, fmt.Errorf("no server runs with --data-dir %q: name its directory, or add --offline if it is stopped", f.dataDir)
		}
		return dial(etcd.Endpoints{Servers: []string{endpoint}}, closed)
	}
	// A start would make a store where there is none.
	if _, err := os.Stat(filepath.Join(f.dataDir, "member")); err != nil {
		return nil, nil, fmt.Errorf("--data-dir %q holds no store: %w", f.dataDir, err)
	}
	store, err := etcd.Start(ctx, etcd.Options{DataDir: f.dataDir})
	if err != nil {
		return nil, nil, err
	}
	return store.Snapshot, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storePatience)
		defer cancel()
		return store.Close(ctx)
	}, nil
}

func save(ctx context.Context, stream etcd.Stream, file string, out, notes io.Writer) error {
	if file == "-" {
		tail := &checksummed{to: out, hash: sha256.New()}
		if err := stream(ctx, tail); err != nil {
			return err
		}
		if err := tail.check(); err != nil {
			return err
		}
		fmt.Fprintf(notes, "Saved %d bytes with the SHA-256 %x\n", tail.size, tail.last)
		return nil
	}
	info, err := etcd.SaveSnapshot(ctx, stream, file)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Saved %s\n", described(file, info))
	return nil
}

func described(file string, info etcd.SnapshotInfo) string {
	return fmt.Sprintf("%s: %d keys as of revision %d, %d bytes, SHA-256 %s", file, info.Keys, info.Revision, info.Size, info.SHA256)
}

// checksummed passes on what is written, and compares its end with the hash of the rest.
type checksummed struct {
	to   io.Writer
	hash hash.Hash
	last []byte
	size int64
}

func (c *checksummed) Write(data []byte) (int, error) {
	n, err := c.to.Write(data)
	c.size += int64(n)
	c.last = append(c.last, data[:n]...)
	if more := len(c.last) - sha256.Size; more > 0 {
		c.hash.Write(c.last[:more])
		c.last = slices.Clone(c.last[more:])
	}
	return n, err
}

func (c *checksummed) check() error {
	if have := c.hash.Sum(nil); !bytes.Equal(have, c.last) {
		return fmt.Errorf("what was written is no whole snapshot: its SHA-256 is %x, and it says %x", have, c.last)
	}
	return nil
}

func savedAt(now time.Time) string { return now.UTC().Format("fieldplane-20060102T150405Z.db") }

// forget deletes all but the newest snapshots of a directory, and nothing else.
func forget(dir string, keep int, out io.Writer) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	name := regexp.MustCompile(`^fieldplane-\d{8}T\d{6}Z\.db$`)
	var saved []string
	for _, entry := range entries {
		if entry.Type().IsRegular() && name.MatchString(entry.Name()) {
			saved = append(saved, entry.Name())
		}
	}
	// Sorted by name, which is by time.
	for len(saved) > keep {
		if err := os.Remove(filepath.Join(dir, saved[0])); err != nil {
			return err
		}
		fmt.Fprintf(out, "Deleted %s\n", filepath.Join(dir, saved[0]))
		saved = saved[1:]
	}
	return nil
}

func newCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:          "check FILE",
		Short:        "Check that a snapshot is whole, and say what it holds",
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(command *cobra.Command, args []string) error {
			info, err := etcd.CheckSnapshot(args[0])
			if err == nil {
				fmt.Fprintf(command.OutOrStdout(), "Whole: %s\n", described(args[0], info))
			}
			return err
		},
	}
}

func newRestoreCommand(clock clock.PassiveClock) *cobra.Command {
	var (
		flags    storeFlags
		setAside bool
		bump     uint64
	)
	command := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make the embedded store of a stopped server from a snapshot",
		Long: "Makes the embedded store from a snapshot and marks it as restored: before any controller of the server acts on it, every active\n" +
			"Unit is held, and commands and approvals that were not acted on are void. While this fails, nothing that was there changes.",
		Args:         cobra.ExactArgs(1),
		SilenceUsage: true,
		RunE: func(command *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), flags.timeout)
			defer cancel()
			restored, err := etcd.Restore(ctx, etcd.RestoreOptions{
				Snapshot: args[0], DataDir: flags.dataDir, SetAside: setAside, RevisionBump: bump, Prefix: flags.prefix, Mark: newMark(clock),
			})
			if err != nil {
				return err
			}
			out := command.OutOrStdout()
			fmt.Fprintf(out, "Restored %s\n", described(args[0], restored.Snapshot))
			fmt.Fprintf(out, "The store in %s goes on at revision %d, and is marked as restored.\n", flags.dataDir, restored.Revision)
			if restored.SetAside != "" {
				fmt.Fprintf(out, "The former store is kept in %s: delete it when nobody needs it any more.\n", restored.SetAside)
			}
			return nil
		},
	}
	flags.addDataDir(command.Flags())
	flags.addPrefix(command.Flags())
	flags.addTimeout(command.Flags())
	command.Flags().BoolVar(&setAside, "set-aside", false, "Keep the store that is in the directory under another name there, instead of refusing.")
	command.Flags().Uint64Var(&bump, "bump-revision", etcd.DefaultRevisionBump,
		"How far beyond the snapshot's revision the store goes on. It must be more than the lost store has written since the snapshot.")
	return command
}

func newMarkCommand(clock clock.PassiveClock) *cobra.Command {
	var flags storeFlags
	command := &cobra.Command{
		Use:   "mark",
		Short: "Mark an etcd cluster of your own as restored, before the servers are started again",
		Args:  cobra.NoArgs, SilenceUsage: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if len(flags.endpoints.Servers) == 0 {
				return errors.New("--etcd-servers must name the etcd cluster: an embedded store is marked by snapshot restore")
			}
			ctx, cancel := context.WithTimeout(command.Context(), flags.timeout)
			defer cancel()
			client, err := flags.endpoints.Dial()
			if err != nil {
				return err
			}
			defer client.Close()
			mark, err := etcd.NewMarks(client, flags.prefix).Set(ctx, newMark(clock))
			if err == nil {
				fmt.Fprintf(command.OutOrStdout(), "Marked as restored at revision %d (%s)\n", mark.Revision, mark.ID)
			}
			return err
		},
	}
	flags.addEndpoints(command.Flags())
	flags.addPrefix(command.Flags())
	command.Flags().DurationVar(&flags.timeout, "timeout", 30*time.Second, "How long it may take.")
	return command
}

func newMark(clock clock.PassiveClock) etcd.Mark {
	return etcd.Mark{ID: string(uuid.NewUUID()), RestoredAt: clock.Now().UTC()}
}
