package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	talosv1alpha1 "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/generated/informers"
)

// program runs the server's program to its end, and returns what it printed.
func program(t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(env.BinDir, "fieldplane-apiserver"), args...)
	output, err := command.CombinedOutput()
	return string(output), err
}

// ofTheServer is a client in the server's own name.
func ofTheServer(t *testing.T) versioned.Interface {
	t.Helper()
	client, err := versioned.NewForConfig(env.ServerConfig())
	must(t, err)
	return client
}

// Req: A-02
func TestAStoreIsRestoredFromASnapshotAndNothingGoesOnByItself(t *testing.T) {
	running(t)
	namespace, client, dataDir := env.Namespace(t), env.Admin(t), env.Installation.DataDir()
	modules, units := client.PhysicalV1alpha1().ControlModules(namespace), client.PhysicalV1alpha1().Units(namespace)
	machines := client.TalosV1alpha1().TalosMachines(namespace)
	ctx, create := t.Context(), metav1.CreateOptions{}

	// An informer lives through all of it, as that of a user's controller would.
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Physical().V1alpha1().ControlModules().Informer()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}

	kept, err := modules.Create(ctx, controlModule(metav1.ObjectMeta{Name: "kept"}), create)
	must(t, err)
	_, err = modules.Create(ctx, controlModule(metav1.ObjectMeta{Name: "deleted-later"}), create)
	must(t, err)
	// The cluster is paused, so that the approval is not acted on.
	_, err = client.TalosV1alpha1().TalosClusters(namespace).Create(ctx, &talosv1alpha1.TalosCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Spec: talosv1alpha1.TalosClusterSpec{
			ControlPlaneEndpoint: "https://127.0.0.1:6443", SecretsRef: talosv1alpha1.SecretReference{Name: "bundle"},
			TalosVersion: "v1.13", KubernetesVersion: "v1.36.0", Paused: true,
		},
	}, create)
	must(t, err)
	_, err = machines.Create(ctx, &talosv1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: machine},
		Spec: talosv1alpha1.TalosMachineSpec{
			ClusterRef: talosv1alpha1.ClusterReference{Name: "cluster"}, Identity: talosv1alpha1.MachineIdentity{UUID: machine},
			Role: talosv1alpha1.RoleWorker, Approved: ptr.To(true), Install: &talosv1alpha1.MachineInstall{Disk: "/dev/sda"},
		},
	}, create)
	must(t, err)
	for _, name := range []string{"running", "held", "idle"} {
		_, err := units.Create(ctx, &physicalv1alpha1.Unit{ObjectMeta: metav1.ObjectMeta{Name: name}}, create)
		must(t, err)
	}
	inState(t, namespace, "running", physicalv1alpha1.UnitRunning, nil)
	inState(t, namespace, "held", physicalv1alpha1.UnitHeld, &physicalv1alpha1.UnitHold{
		Cause: physicalv1alpha1.HoldCauseOperator, PreviousState: physicalv1alpha1.UnitRunning, Episode: "former",
		Causes: []physicalv1alpha1.UnitHoldCause{{Cause: physicalv1alpha1.HoldCauseOperator, Actor: "ada"}},
	})

	snapshot := filepath.Join(t.TempDir(), "snapshot.db")
	output, err := program(t, "snapshot", "save", snapshot, "--data-dir="+dataDir)
	if err != nil || !strings.Contains(output, "Saved "+snapshot) {
		t.Fatalf("%v: %s", err, output)
	}

	// What follows is lost.
	_, err = modules.Create(ctx, controlModule(metav1.ObjectMeta{Name: "made-later"}), create)
	must(t, err)
	must(t, modules.Delete(ctx, "deleted-later", metav1.DeleteOptions{}))
	lost, err := modules.Patch(ctx, "kept", types.MergePatchType, []byte(`{"metadata":{"annotations":{"changed":"after the snapshot"}}}`), metav1.PatchOptions{})
	must(t, err)
	inState(t, namespace, "held", physicalv1alpha1.UnitStopped, nil)
	last := newestVersion(t, client)

	if output, err := program(t, "snapshot", "restore", snapshot, "--data-dir="+dataDir, "--set-aside"); err == nil || !strings.Contains(output, "is in use by pid") {
		t.Errorf("while the server runs: %v: %s", err, output)
	}
	must(t, isOK(probeClient(t).get(ctx, env.Installation.Address(), "/readyz")))
	env.Installation.Kill()

	t.Run("what is damaged, or not free, is refused and nothing is touched", func(t *testing.T) {
		whole, err := os.ReadFile(snapshot)
		must(t, err)
		damaged, cut := filepath.Join(t.TempDir(), "damaged.db"), filepath.Join(t.TempDir(), "cut.db")
		flipped := bytes.Clone(whole)
		flipped[len(flipped)/2] ^= 1
		must(t, os.WriteFile(damaged, flipped, 0o600))
		must(t, os.WriteFile(cut, whole[:len(whole)/2], 0o600))
		occupied := t.TempDir()
		must(t, os.WriteFile(filepath.Join(occupied, "thesis.txt"), []byte("my only copy"), 0o600))
		before := filesIn(t, dataDir)
		for _, tc := range []struct{ file, dataDir, flag, says string }{
			{damaged, dataDir, "--set-aside=true", "is damaged"},
			{cut, dataDir, "--set-aside=true", "not the whole of one"},
			{snapshot, dataDir, "--set-aside=false", "holds a store already"},
			{snapshot, occupied, "--set-aside=true", "is not empty"},
		} {
			output, err := program(t, "snapshot", "restore", tc.file, "--data-dir="+tc.dataDir, tc.flag)
			if err == nil || !strings.Contains(output, tc.says) {
				t.Errorf("%s into %s: %v: %s", tc.file, tc.dataDir, err, output)
			}
		}
		if after := filesIn(t, dataDir); !slices.Equal(after, before) {
			t.Errorf("the directory held %q, and holds %q", before, after)
		}
		if left := filesIn(t, occupied); !slices.Equal(left, []string{"thesis.txt 12"}) {
			t.Errorf("the other directory holds %q", left)
		}
	})

	output, err = program(t, "snapshot", "restore", snapshot, "--data-dir="+dataDir, "--set-aside")
	if err != nil || !strings.Contains(output, "is marked as restored") || !strings.Contains(output, "The former store is kept in "+dataDir+"/member.") {
		t.Fatalf("%v: %s", err, output)
	}
	running(t)

	t.Run("objects are those of the snapshot", func(t *testing.T) {
		list, err := modules.List(ctx, metav1.ListOptions{})
		must(t, err)
		var have []string
		for _, module := range list.Items {
			have = append(have, fmt.Sprintf("%s %s %v", module.Name, module.UID, module.Annotations))
		}
		if len(have) != 2 || !strings.HasPrefix(have[0], "deleted-later ") || have[1] != fmt.Sprintf("kept %s map[]", kept.UID) {
			t.Errorf("there are %q", have)
		}
	})
	t.Run("and time never goes back", func(t *testing.T) {
		if now := newestVersion(t, client); now <= last {
			t.Errorf("the store is at %d, and was at %d", now, last)
		}
		created, err := modules.Create(ctx, controlModule(metav1.ObjectMeta{Name: "made-anew"}), create)
		must(t, err)
		if version, err := strconv.ParseInt(created.ResourceVersion, 10, 64); err != nil || version <= last {
			t.Errorf("a new object has the version %s, and %d was given out before", created.ResourceVersion, last)
		}
		// An update that was made of what is lost does not pass for one of what is there.
		lost.Annotations["changed"] = "again"
		if _, err := modules.Update(ctx, lost, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("an update of what is lost: %v", err)
		}
		for _, from := range []string{kept.ResourceVersion, lost.ResourceVersion, strconv.FormatInt(last, 10), strconv.FormatInt(last+1, 10)} {
			watching, err := modules.Watch(ctx, metav1.ListOptions{ResourceVersion: from})
			if err == nil {
				event := <-watching.ResultChan()
				watching.Stop()
				if event.Type != watch.Error {
					t.Errorf("a watch from %s begins with %s of %v", from, event.Type, event.Object)
					continue
				}
				err = apierrors.FromObject(event.Object)
			}
			if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				t.Errorf("a watch from %s: %v, want 410", from, err)
			}
		}
		eventually(t, 45*time.Second, func() error { return sameObjects(t, client, informer.GetStore(), namespace) })
	})
	var episode string
	t.Run("Units that were active are held", func(t *testing.T) {
		eventually(t, 20*time.Second, func() error {
			unit, err := units.Get(ctx, "running", metav1.GetOptions{})
			if err != nil {
				return err
			}
			hold := unit.Status.Hold
			if state := unit.Status.State; state != physicalv1alpha1.UnitHolding && state != physicalv1alpha1.UnitHeld || hold == nil ||
				hold.Cause != physicalv1alpha1.HoldCauseRestored || hold.PreviousState != physicalv1alpha1.UnitRunning || hold.Episode == "" {
				return fmt.Errorf("the Unit is %s, hold %+v", state, hold)
			}
			episode = hold.Episode
			return nil
		})
		unit, err := units.Get(ctx, "held", metav1.GetOptions{})
		must(t, err)
		if hold := unit.Status.Hold; unit.Status.State != physicalv1alpha1.UnitHeld || hold == nil || len(hold.Causes) != 2 ||
			hold.Causes[1].Cause != physicalv1alpha1.HoldCauseRestored || hold.Episode == "former" {
			t.Errorf("the held Unit is %s, hold %+v", unit.Status.State, hold)
		}
		unit, err = units.Get(ctx, "idle", metav1.GetOptions{})
		must(t, err)
		if unit.Status.State != physicalv1alpha1.UnitIdle || unit.Status.Hold != nil || !meta.IsStatusConditionTrue(unit.Status.Conditions, "Restored") {
			t.Errorf("the idle Unit is %+v", unit.Status)
		}
		// A runtime takes no order that is older than its last one, which may be of what is lost.
		list, err := units.List(ctx, metav1.ListOptions{})
		must(t, err)
		for _, unit := range list.Items {
			if version, err := strconv.ParseInt(unit.ResourceVersion, 10, 64); err != nil || version <= last {
				t.Errorf("Unit %s is of version %s, and %d was given out before", unit.Name, unit.ResourceVersion, last)
			}
		}
	})
	t.Run("an approval that was not acted on has to be given again", func(t *testing.T) {
		eventually(t, 20*time.Second, func() error {
			stored, err := machines.Get(ctx, machine, metav1.GetOptions{})
			if err != nil {
				return err
			}
			condition := meta.FindStatusCondition(stored.Status.Conditions, "ApprovalLapsed")
			if ptr.Deref(stored.Spec.Approved, true) || stored.Status.Approval != nil || stored.Status.Phase != talosv1alpha1.MachinePending ||
				condition == nil || condition.Status != metav1.ConditionTrue || !strings.Contains(condition.Message, "approve it again") {
				return fmt.Errorf("the machine is %+v, condition %+v", stored.Spec.Approved, condition)
			}
			return nil
		})
		if table := env.MustKubectl(t, "", "-n", namespace, "get", "talosmachines"); !strings.Contains(table, "ApprovalLapsed") {
			t.Errorf("kubectl shows\n%s", table)
		}
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"approved": true}})
		must(t, err)
		_, err = machines.Patch(ctx, machine, types.MergePatchType, patch, metav1.PatchOptions{})
		must(t, err)
		stored, err := machines.Get(ctx, machine, metav1.GetOptions{})
		must(t, err)
		if stored.Status.Approval == nil || meta.FindStatusCondition(stored.Status.Conditions, "ApprovalLapsed") != nil {
			t.Errorf("approved again it is %+v", stored.Status)
		}
	})
	t.Run("and whoever is concerned is told", func(t *testing.T) {
		eventually(t, 20*time.Second, func() error {
			events, err := env.Host().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Restored"})
			if err != nil {
				return err
			}
			var told []string
			for _, event := range events.Items {
				told = append(told, event.InvolvedObject.Kind+"/"+event.InvolvedObject.Name)
			}
			slices.Sort(told)
			if want := []string{"TalosMachine/" + machine, "Unit/held", "Unit/running"}; !slices.Equal(told, want) {
				return fmt.Errorf("Events on %q, want %q", told, want)
			}
			return nil
		})
	})
	t.Run("once", func(t *testing.T) {
		if stored := storedValues(t, dataDir, "/fieldplane.restored"); len(stored) > 0 {
			t.Errorf("the mark is still there: %q", stored)
		}
		env.Installation.Kill()
		running(t)
		unit, err := units.Get(ctx, "running", metav1.GetOptions{})
		must(t, err)
		if hold := unit.Status.Hold; hold == nil || len(hold.Causes) != 1 || hold.Episode != episode {
			t.Errorf("after another start the hold is %+v", hold)
		}
		stored, err := machines.Get(ctx, machine, metav1.GetOptions{})
		must(t, err)
		if !ptr.Deref(stored.Spec.Approved, false) {
			t.Error("the new approval was taken back")
		}
	})
}

// inState writes where a Unit stands, in the server's name.
func inState(t *testing.T, namespace, name string, state physicalv1alpha1.UnitState, hold *physicalv1alpha1.UnitHold) {
	t.Helper()
	units := ofTheServer(t).PhysicalV1alpha1().Units(namespace)
	eventually(t, 10*time.Second, func() error {
		unit, err := units.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		unit.Status.State, unit.Status.Hold, unit.Status.LastTransitionTime = state, hold, ptr.To(metav1.Now())
		_, err = units.UpdateStatus(t.Context(), unit, metav1.UpdateOptions{})
		return err
	})
}

// newestVersion is the version at which the store is.
func newestVersion(t *testing.T, client versioned.Interface) int64 {
	t.Helper()
	list, err := client.PhysicalV1alpha1().ControlModules(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	version, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	must(t, err)
	return version
}

// filesIn are the files in a directory, with their sizes.
func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	must(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			name, _ := filepath.Rel(dir, path)
			files = append(files, fmt.Sprintf("%s %d", name, info.Size()))
		}
		return err
	}))
	return files
}

// Req: A-02
func TestSnapshotsOfAStoppedServerAndIntoADirectory(t *testing.T) {
	stopped(t)
	dataDir, backups := env.Installation.DataDir(), t.TempDir()
	if output, err := program(t, "snapshot", "save", backups, "--data-dir="+dataDir); err == nil || !strings.Contains(output, "--offline") {
		t.Errorf("no server runs: %v: %s", err, output)
	}
	if output, err := program(t, "snapshot", "save", backups, "--offline", "--data-dir="+filepath.Join(backups, "absent")); err == nil || !strings.Contains(output, "holds no store") {
		t.Errorf("there is no store: %v: %s", err, output)
	}
	for _, former := range []string{"fieldplane-20250101T000000Z.db", "fieldplane-20250102T000000Z.db", "of-mine.db"} {
		must(t, os.WriteFile(filepath.Join(backups, former), nil, 0o600))
	}
	output, err := program(t, "snapshot", "save", backups, "--offline", "--keep=2", "--data-dir="+dataDir)
	must(t, err)
	left := filesIn(t, backups)
	if len(left) != 3 || !strings.HasPrefix(left[0], "fieldplane-20250102") || left[2] != "of-mine.db 0" {
		t.Errorf("%s\nin the directory: %q", output, left)
	}
	name, _, _ := strings.Cut(left[1], " ")
	if output, err := program(t, "snapshot", "check", filepath.Join(backups, name)); err != nil || !strings.HasPrefix(output, "Whole: ") {
		t.Errorf("%v: %s", err, output)
	}

	// The standard output carries the snapshot and nothing else.
	running(t)
	piped := filepath.Join(t.TempDir(), "piped.db")
	file, err := os.Create(piped)
	must(t, err)
	command := exec.CommandContext(t.Context(), filepath.Join(env.BinDir, "fieldplane-apiserver"), "snapshot", "save", "-", "--data-dir="+dataDir)
	command.Stdout = file
	must(t, command.Run())
	must(t, file.Close())
	if output, err := program(t, "snapshot", "check", piped); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}

// Req: A-02. With an etcd of one's own, what is restored is marked by hand.
func TestAnExternalEtcdIsSavedAndMarked(t *testing.T) {
	running(t)
	namespace := env.Namespace(t)
	stopped(t)
	endpoint := externalEtcd(t)
	server := startServer(t, freePort(t), "--etcd-servers="+endpoint)
	server.waitReady(t)
	client := direct(t, server.address)
	_, err := client.PhysicalV1alpha1().Units(namespace).Create(t.Context(), &physicalv1alpha1.Unit{ObjectMeta: metav1.ObjectMeta{Name: "held"}}, metav1.CreateOptions{})
	must(t, err)
	config := directConfig(t, server.address)
	config.Impersonate = env.ServerConfig().Impersonate
	own, err := versioned.NewForConfig(config)
	must(t, err)
	eventually(t, 10*time.Second, func() error {
		unit, err := own.PhysicalV1alpha1().Units(namespace).Get(t.Context(), "held", metav1.GetOptions{})
		if err != nil {
			return err
		}
		unit.Status.State = physicalv1alpha1.UnitRunning
		_, err = own.PhysicalV1alpha1().Units(namespace).UpdateStatus(t.Context(), unit, metav1.UpdateOptions{})
		return err
	})
	snapshot := filepath.Join(t.TempDir(), "snapshot.db")
	if output, err := program(t, "snapshot", "save", snapshot, "--etcd-servers="+endpoint); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	server.Stop(t.Context(), 30*time.Second)

	if output, err := program(t, "snapshot", "mark", "--etcd-servers="+endpoint); err != nil || !strings.Contains(output, "Marked as restored") {
		t.Fatalf("%v: %s", err, output)
	}
	server = startServer(t, freePort(t), "--etcd-servers="+endpoint)
	server.waitReady(t)
	client = direct(t, server.address)
	eventually(t, 40*time.Second, func() error {
		unit, err := client.PhysicalV1alpha1().Units(namespace).Get(t.Context(), "held", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if hold := unit.Status.Hold; hold == nil || hold.Cause != physicalv1alpha1.HoldCauseRestored {
			return fmt.Errorf("the Unit is %s, hold %+v", unit.Status.State, hold)
		}
		return nil
	})
}
