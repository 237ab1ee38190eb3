package app

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"
)

// parses tells whether the program would begin to do what these arguments say.
func parses(t *testing.T, args []string) {
	t.Helper()
	root := NewCommand(t.Context())
	command, rest, err := root.Find(args)
	if err != nil || command == root {
		t.Errorf("%q is no command: %v", args, err)
		return
	}
	if err := command.ParseFlags(rest); err != nil {
		t.Errorf("%q: %v", args, err)
		return
	}
	if err := command.ValidateArgs(command.Flags().Args()); err != nil {
		t.Errorf("%q: %v", args, err)
	}
}

// TestDocumentedSnapshotCommandsExist parses what docs/operations.md tells to type, and what its CronJob runs.
func TestDocumentedSnapshotCommandsExist(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(manual), "\n## Backup and restore\n")
	section, _, _ = strings.Cut(section, "\n## ")
	typed := regexp.MustCompile(`(?m)^fieldplane-apiserver (.+)$`).FindAllStringSubmatch(section, -1)
	if len(typed) < 4 {
		t.Fatalf("only %d commands found", len(typed))
	}
	for _, line := range typed {
		parses(t, strings.Fields(line[1]))
	}
	_, example, _ := strings.Cut(section, "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	var job batchv1.CronJob
	if err := yaml.UnmarshalStrict([]byte(example), &job); err != nil {
		t.Fatal(err)
	}
	pod := job.Spec.JobTemplate.Spec.Template.Spec
	parses(t, pod.Containers[0].Args)

	// It stands beside what the manifests have.
	deployment, err := os.ReadFile("../../../artifacts/deploy/base/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, same := range []string{
		"--data-dir=/var/lib/fieldplane/store", "mountPath: /var/lib/fieldplane\n", "claimName: fieldplane-apiserver\n",
		"runAsUser: 65532\n", "fsGroup: 65532\n", "app.kubernetes.io/name: fieldplane-apiserver\n",
	} {
		if !strings.Contains(example, same) && !slices.Contains(pod.Containers[0].Args, same) || !strings.Contains(string(deployment), same) {
			t.Errorf("%q is not in both the example and the Deployment", same)
		}
	}
}

// Req: A-02
func TestASnapshotOnTheStandardOutputIsChecked(t *testing.T) {
	content := []byte(strings.Repeat("page", 1024))
	sum := sha256.Sum256(content)
	whole := append(bytes.Clone(content), sum[:]...)
	for name, tc := range map[string]struct {
		written []byte
		wrong   bool
	}{
		"whole":           {written: whole},
		"cut short":       {written: whole[:len(whole)-1], wrong: true},
		"damaged":         {written: append([]byte{'P'}, whole[1:]...), wrong: true},
		"nothing":         {wrong: true},
		"less than a sum": {written: whole[:10], wrong: true},
	} {
		for _, chunk := range []int{1, 7, 32, 33, 5000} {
			var out bytes.Buffer
			w := &checksummed{to: &out, hash: sha256.New()}
			for part := range slices.Chunk(tc.written, chunk) {
				if _, err := w.Write(part); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.check(); (err != nil) != tc.wrong || !bytes.Equal(out.Bytes(), tc.written) || w.size != int64(len(tc.written)) {
				t.Errorf("%s, %d bytes at a time: %v", name, chunk, err)
			}
		}
	}
}

// Req: A-02
func TestOldSnapshotsAreDeletedAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.FixedZone("CET", 3600))
	names := []string{
		savedAt(now.Add(-2 * time.Hour)), savedAt(now.Add(-time.Hour)), savedAt(now),
		"fieldplane-latest.db", "fieldplane-20200101T000000Z.db.gpg", "before-the-upgrade.db",
	}
	if names[2] != "fieldplane-20260301T110000Z.db" {
		t.Errorf("named %s", names[2])
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := forget(dir, 2, &out); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	want := slices.Sorted(slices.Values(names[1:]))
	if !slices.Equal(left, want) || out.String() != "Deleted "+filepath.Join(dir, names[0])+"\n" {
		t.Errorf("left %q, want %q; said %q", left, want, out.String())
	}
}

// Req: A-02
func TestWhatASnapshotCommandCannotDoIsToldByItsFlag(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct{ args, says string }{
		{"save " + dir + "/new.db --keep=3 --data-dir=" + dir, "--keep needs a directory"},
		{"save " + dir + " --keep=-1 --data-dir=" + dir, "--keep"},
		{"save " + dir + " --data-dir=" + dir, "--offline"},
		{"save " + dir + " --offline --data-dir=" + dir, "holds no store"},
		{"save " + dir + " --offline --etcd-servers=http://192.0.2.1:2379", "--offline"},
		{"save " + dir + " --etcd-servers=https://192.0.2.1:2379 --etcd-cafile=" + dir + "/absent", "--etcd-cafile"},
		{"mark", "--etcd-servers"},
		{"restore " + dir + "/absent.db --data-dir=" + dir, "absent.db"},
	} {
		command := newSnapshotCommand(clocktesting.NewFakePassiveClock(time.Now()))
		command.SetArgs(strings.Fields(tc.args))
		command.SilenceErrors = true
		if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.args, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}
