package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/installdisk"
)

const approveLong = `Show a machine's hardware and, once confirmed, approve it: from then on it may be sent its configuration.

The role and the install disk are never guessed. A disk that the machine has not reported is refused.

A control plane also needs the fingerprint that the machine shows on its own console after it has started in
maintenance mode, in the line "--cert-fingerprint '...'": whatever is read over the network could come from another
machine. Its configuration is then sent to no other.

A machine that shares its serial or a MAC with another is approved with --accept-shared-hardware alone. One that was
configured and is back in maintenance mode, or whose disk is no longer the approved one, is approved anew: the approval
is taken back and given again, after a question of its own, since the install disk is wiped again; --renew answers it.

The approval is written against the machine as it was shown. If it changes meanwhile, nothing is written.
What no flag speaks of stays as it is stored; labels and taints are added by key.`

const approveExample = `  # Look at a machine, and approve it as a worker
  kubectl fieldplane approve machine ` + exampleUUID + ` --role worker --install-disk /dev/sda

  # What would be stored, and whether the server would accept it
  kubectl fieldplane approve machine ` + exampleUUID + ` --role worker --install-disk /dev/sda --dry-run

  # The only NVMe disk, with a host name, a label and a taint
  kubectl fieldplane approve machine/` + exampleUUID + ` --role worker --install-disk-selector type=nvme \
    --hostname mixer-1 --label line=mixing --taint plant=mixing:NoSchedule

  # A control plane, with the fingerprint read off its console
  kubectl fieldplane approve machine ` + exampleUUID + ` --role controlplane --install-disk /dev/sda \
    --fingerprint 'xA9a1t2dMxB0NJ0qH1pDzilWbA3+DK/DjVbFaJBYheE='

  # A worker that was wiped and waits in maintenance mode again
  kubectl fieldplane approve machine ` + exampleUUID + ` --role worker --install-disk /dev/sda --renew`

// approve is one run of the command.
type approve struct {
	plugin
	target

	machine string
	wish    wish
	dryRun  bool
	yes     bool
	renew   bool
}

// approveFlags are the flags as they are written.
type approveFlags struct {
	role, hostname, disk, diskSelector, fingerprint, dryRun string
	labels, taints                                          []string
	acceptUnverified, acceptShared, yes, renew              bool
}

func newApproveCommand(p plugin) *cobra.Command {
	flags := approveFlags{}
	cmd := &cobra.Command{
		Use:     "approve machine UUID --role ROLE (--install-disk DISK | --install-disk-selector KEY=VALUE,...)",
		Short:   "Look at a machine and approve it",
		Long:    approveLong,
		Example: approveExample,
		// The flags are listed below in full; a second hint would only lengthen the usage line.
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     p.completeMachines(waits),
		RunE: func(cmd *cobra.Command, args []string) error {
			command := approve{plugin: p, yes: flags.yes, renew: flags.renew}
			var err error
			if command.machine, err = parseMachine("approve", args); err != nil {
				return err
			}
			if command.wish, err = flags.parse(); err != nil {
				return err
			}
			if command.dryRun, err = parseDryRun(flags.dryRun); err != nil {
				return err
			}
			if command.target, err = p.connect(); err != nil {
				return err
			}
			return command.run(cmd.Context())
		},
	}
	set := cmd.Flags()
	set.SortFlags = false
	set.StringVar(&flags.role, "role", "", "What the machine becomes: worker or controlplane")
	set.StringVar(&flags.disk, "install-disk", "", "Disk that Talos is installed on, for example /dev/sda; what is on it is lost")
	set.StringVar(&flags.diskSelector, "install-disk-selector", "", "Properties that exactly one disk has, for example type=ssd,serial=S3Z9; of "+selectorKeys)
	set.StringVar(&flags.fingerprint, "fingerprint", "", "Fingerprint that the machine's console shows; configuration is sent to no other")
	set.BoolVar(&flags.acceptUnverified, "accept-unverified-fingerprint", false, "Approve a control plane without a fingerprint from its console; this is recorded")
	set.BoolVar(&flags.acceptShared, "accept-shared-hardware", false, "Approve a machine that shares its serial or a MAC with another; this is recorded")
	set.StringVar(&flags.hostname, "hostname", "", "Host name of the machine")
	set.StringArrayVar(&flags.labels, "label", nil, "Label of the Node, KEY=VALUE; may be repeated")
	set.StringArrayVar(&flags.taints, "taint", nil, "Taint of the Node, KEY[=VALUE]:EFFECT; may be repeated")
	set.StringVar(&flags.dryRun, "dry-run", "none", "none, or server: the server decides as it would and stores nothing; alone it means server")
	set.Lookup("dry-run").NoOptDefVal = "server"
	set.BoolVar(&flags.renew, "renew", false, "Approve anew a machine that is back in maintenance mode or has another disk: its install disk is wiped again")
	set.BoolVarP(&flags.yes, "yes", "y", false, "Do not ask for confirmation")

	words := func(words ...cobra.Completion) cobra.CompletionFunc {
		return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	}
	for flag, complete := range map[string]cobra.CompletionFunc{
		"role":    words(string(v1alpha1.RoleWorker), string(v1alpha1.RoleControlPlane)),
		"dry-run": words("none", "server"),
	} {
		// Fails only for a flag that does not exist, which a test would show at once.
		_ = cmd.RegisterFlagCompletionFunc(flag, complete)
	}
	return cmd
}

func parseDryRun(value string) (bool, error) {
	switch value {
	case "none":
		return false, nil
	case "server":
		return true, nil
	default:
		return false, told(fmt.Sprintf("--dry-run=%s is not possible", value),
			"Use --dry-run=server: what is accepted only the server can tell.")
	}
}

// parse finds what is wrong with the flags alone, before anything is asked of the server.
func (f approveFlags) parse() (wish, error) {
	w := wish{hostname: f.hostname, acceptUnverified: f.acceptUnverified, acceptShared: f.acceptShared}
	var err error
	switch w.role = v1alpha1.MachineRole(f.role); w.role {
	case "", v1alpha1.RoleWorker, v1alpha1.RoleControlPlane:
	default:
		return wish{}, told(fmt.Sprintf("--role %q is not a role", f.role), "Use --role worker or --role controlplane.")
	}
	if w.labels, err = parseLabels(f.labels); err != nil {
		return wish{}, told("--label "+err.Error(), "Write it as KEY=VALUE, for example --label line=mixing")
	}
	if w.taints, err = parseTaints(f.taints); err != nil {
		return wish{}, told("--taint "+err.Error(), "Write it as KEY=VALUE:EFFECT, for example --taint plant=mixing:NoSchedule")
	}
	if f.hostname != "" {
		if problems := validation.IsDNS1123Subdomain(f.hostname); len(problems) > 0 {
			return wish{}, told(fmt.Sprintf("--hostname %q is not a host name", f.hostname), "Use lower-case letters, digits, - and . alone.")
		}
	}
	switch {
	case f.disk != "" && f.diskSelector != "":
		return wish{}, told("--install-disk and --install-disk-selector exclude each other", "Give one of the two.")
	case f.disk != "":
		if !strings.HasPrefix(f.disk, "/dev/") {
			return wish{}, told(fmt.Sprintf("--install-disk %q is not the path of a disk", f.disk), "Use a path such as /dev/sda.")
		}
		w.install = &v1alpha1.MachineInstall{Disk: f.disk}
	case f.diskSelector != "":
		selector, err := parseSelector(f.diskSelector)
		if err != nil {
			return wish{}, told("--install-disk-selector: "+err.Error(), "Write it as KEY=VALUE,..., for example type=ssd,serial=S3Z9; the keys are "+selectorKeys)
		}
		w.install = &v1alpha1.MachineInstall{DiskSelector: selector}
	}
	if f.fingerprint != "" {
		if f.acceptUnverified {
			return wish{}, told("--fingerprint and --accept-unverified-fingerprint exclude each other", "Give the fingerprint alone: it is then verified.")
		}
		if _, err := decodeFingerprint(f.fingerprint); err != nil {
			return wish{}, told("--fingerprint "+err.Error(), "Copy it from the machine's console, from the line \"--cert-fingerprint '...'\", without the quotes.")
		}
		w.fingerprint = strings.TrimSpace(f.fingerprint)
	}
	return w, nil
}

// run shows, refuses, asks and writes, in this order: nobody approves what he was not shown.
func (a approve) run(ctx context.Context) error {
	shown, err := a.getMachine(ctx, a.machine)
	if err != nil {
		return err
	}
	renewal := a.renewalOf(shown)
	// An approval given anew is a first one: nothing is taken over that somebody accepted for the last.
	base := shown
	if renewal != "" {
		base = unapproved(shown)
	}
	wanted := a.wish.on(base)

	r := review{machine: shown, wanted: wanted, now: a.clock.Now()}
	if shown.Spec.ClusterRef.Name != "" {
		r.cluster, r.clusterErr = a.client.TalosV1alpha1().TalosClusters(a.namespace).Get(ctx, shown.Spec.ClusterRef.Name, metav1.GetOptions{})
	}
	r.print(a.Out)

	changes, err := differences(shown, wanted)
	if err != nil {
		return fmt.Errorf("cannot compare the machine with what it is to become: %w", err)
	}
	unchanged := len(changes) == 0 && renewal == ""
	if err := a.refuse(base, wanted, unchanged, renewal); err != nil {
		return err
	}
	if unchanged {
		fmt.Fprintf(a.Out, "\n%s is already approved with exactly this; nothing to do.\n", resourceName(a.machine))
		return nil
	}
	kept, err := standing(shown, wanted)
	if err != nil {
		return fmt.Errorf("cannot tell what the approval would keep: %w", err)
	}
	if len(kept) > 0 {
		fmt.Fprint(a.Out, "\nStored before, and approved with it:\n")
		printStanding(a.Out, kept)
	}
	if a.dryRun {
		return a.tryOut(ctx, shown, wanted, renewal)
	}
	if len(changes) > 0 {
		fmt.Fprint(a.Out, "\nThis would be stored:\n")
		printChanges(a.Out, changes)
	}
	if err := a.confirm(wanted, renewal); err != nil {
		return err
	}
	if err := a.sameCluster(ctx, r.cluster); err != nil {
		return err
	}
	if err := a.write(ctx, shown, wanted, renewal != "" && approved(shown)); err != nil {
		return err
	}
	fmt.Fprintf(a.Out, "%s approved as %s\n", resourceName(a.machine), wanted.Spec.Role)
	fmt.Fprintf(a.Out, "See how it goes on: kubectl -n %s get talosmachine %s --watch\n", a.namespace, a.machine)
	return nil
}

// sameCluster refuses when the cluster is no longer as it was shown: its patches and its installer are part of what is
// approved, and whoever approves may have looked at them for a while. The server takes it from there.
func (a approve) sameCluster(ctx context.Context, shown *v1alpha1.TalosCluster) error {
	if shown == nil || shown.Name == "" {
		return nil // nothing was shown of it, and a warning told so
	}
	now, err := a.client.TalosV1alpha1().TalosClusters(a.namespace).Get(ctx, shown.Name, metav1.GetOptions{})
	if err != nil {
		return attempt{to: "look at the cluster again", namespace: a.namespace, cluster: shown.Name}.explain(err)
	}
	if now.UID != shown.UID || !equality.Semantic.DeepEqual(now.Spec, shown.Spec) {
		return told(fmt.Sprintf("TalosCluster %s changed after it was shown; nothing was written", shown.Name),
			"Run the same command again: it shows the cluster as it is now.")
	}
	return nil
}

// write stores the approval. One that is given anew is taken back first: the server records it, and lets the machine be
// configured again, when it is given to a machine that has none.
func (a approve) write(ctx context.Context, shown, wanted *v1alpha1.TalosMachine, anew bool) error {
	const to = "approve the machine"
	// wanted carries the resourceVersion of what was shown (T-13).
	if !anew {
		_, err := a.updateApproval(ctx, to, wanted, metav1.UpdateOptions{})
		return err
	}
	taken, err := a.updateApproval(ctx, "take the last approval back", unapproved(shown), metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	const attempts = 5
	for range attempts {
		wanted.ResourceVersion = taken.ResourceVersion
		if _, err = a.updateApproval(ctx, to, wanted, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			break
		}
		// Controllers write the status of a machine whose approval is gone. Only what the approver was shown counts.
		var now *v1alpha1.TalosMachine
		if now, err = a.getMachine(ctx, a.machine); err != nil {
			break
		}
		if !equality.Semantic.DeepEqual(now.Spec, taken.Spec) || !equality.Semantic.DeepEqual(now.Status.Hardware, shown.Status.Hardware) {
			err = told("the machine changed after it was shown", "")
			break
		}
		taken = now
	}
	if err == nil {
		return nil
	}
	what, _, _ := strings.Cut(err.Error(), "\n")
	return &failure{
		what:  "the last approval was taken back, and the new one was not given: " + what,
		todo:  "The machine is approved no more and nothing is sent to it. Run the same command again: it shows it as it is now.",
		cause: err,
	}
}

// unapproved is a machine as it would be without its approval.
func unapproved(machine *v1alpha1.TalosMachine) *v1alpha1.TalosMachine {
	out := machine.DeepCopy()
	out.Spec.Approved = ptr.To(false)
	return out
}

// renewalOf says why the machine's approval has to be given anew; "" if it need not be.
func (a approve) renewalOf(shown *v1alpha1.TalosMachine) string {
	if condition(shown, conditionBackInMaintenance) != nil {
		return "The machine was configured before, and is back in maintenance mode: an approval installs it again."
	}
	given := shown.Status.Approval
	if !approved(shown) || configured(shown) || given == nil || given.InstallDisk == nil {
		return ""
	}
	install := a.wish.on(shown).Spec.Install
	// Another disk that is asked for is a change like any other.
	if !equality.Semantic.DeepEqual(install, shown.Spec.Install) {
		return ""
	}
	meant := installdisk.Only(install, hardwareOf(shown).Disks)
	if meant == nil || installdisk.Same(*given.InstallDisk, *meant) {
		return ""
	}
	return fmt.Sprintf("The disk that was approved is %s; now it would be %s.", describeDisk(given.InstallDisk), describeDisk(meant))
}

// tryOut asks the server what it would store.
func (a approve) tryOut(ctx context.Context, shown, wanted *v1alpha1.TalosMachine, renewal string) error {
	stored, err := a.updateApproval(ctx, "approve the machine", wanted, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	changes, err := differences(shown, stored)
	if err != nil {
		return fmt.Errorf("cannot compare the machine with what would be stored: %w", err)
	}
	if renewal != "" {
		fmt.Fprintf(a.Out, "\n%s\n", renewal)
		if approved(shown) {
			fmt.Fprint(a.Out, "The approval would be taken back, and given again.\n")
		}
	}
	if len(changes) > 0 {
		fmt.Fprint(a.Out, "\nThe server would store:\n")
		printChanges(a.Out, changes)
	}
	disk := describeInstall(stored.Spec.Install, hardwareOf(stored).Disks)
	switch given := stored.Status.Approval; {
	case renewal != "":
		// What the server records is of the approval that would be taken back.
	case configured(shown):
		disk = "nothing, it is installed already"
	case given != nil && given.InstallDisk != nil:
		disk = describeDisk(given.InstallDisk)
	}
	fmt.Fprintf(a.Out, "\nWhat would be wiped: %s\n", disk)
	fmt.Fprintf(a.Out, "%s approved as %s (server dry run: nothing was stored)\n", resourceName(a.machine), stored.Spec.Role)
	return nil
}

// refuse says what the server could not know, or what it would refuse without saying what to do about it.
func (a approve) refuse(shown, wanted *v1alpha1.TalosMachine, unchanged bool, renewal string) error {
	spec := &wanted.Spec
	if a.wish.role == "" {
		return told("the role is not said, and it is never guessed",
			"Add --role worker, or --role controlplane for a machine that is to run etcd and the Kubernetes control plane.")
	}
	if found := condition(shown, conditionSharesHardware); found != nil && !spec.AcceptSharedHardware {
		return told("the machine shares hardware with another, and one of the two may be a machine that you do not mean: "+clean(found.Message),
			"Compare both. If they may both join, add --accept-shared-hardware, which is recorded; else: "+
				fmt.Sprintf("kubectl fieldplane -n %s reject machine %s --reason TEXT", a.namespace, a.machine))
	}
	if unchanged && !a.renew {
		return nil
	}
	switch {
	case a.renew && renewal == "":
		return told("there is no approval to renew: the machine is not back in maintenance mode, and its disk is the approved one", "Leave --renew out.")
	case shown.DeletionTimestamp != nil:
		return told("the machine is being deleted", "Once it is gone, discovery finds it anew: kubectl fieldplane pending")
	case shown.Spec.Rejected != nil:
		return told("the machine was rejected: "+clean(shown.Spec.Rejected.Reason),
			fmt.Sprintf("If that is settled, take it back and run this again: kubectl fieldplane -n %s unreject machine %s", a.namespace, a.machine))
	}
	if err := refuseDisk(spec.Install, shown.Status.Hardware); err != nil {
		return err
	}
	return a.refuseFingerprint(shown, wanted, renewal)
}

func refuseDisk(install *v1alpha1.MachineInstall, hardware *v1alpha1.MachineHardware) error {
	var disks []v1alpha1.MachineDisk
	if hardware != nil {
		disks = hardware.Disks
	}
	if install == nil || install.Disk == "" && install.DiskSelector == nil {
		return told("the install disk is not said, and it is never guessed; what is on it is lost", "Add --install-disk or --install-disk-selector."+listDisks(disks))
	}
	if len(disks) == 0 {
		return nil
	}
	picked := installdisk.Choose(install, disks)
	switch {
	case install.Disk != "" && picked.Count == 0:
		return told("the machine has not reported a disk "+clean(install.Disk), "Choose one that it has."+listDisks(disks))
	case install.Disk == "" && picked.Count == 0:
		return told("the machine has not reported a disk with "+describeSelector(install.DiskSelector), "Choose one that it has."+listDisks(disks))
	case install.Disk == "" && picked.Count > 1:
		return told(fmt.Sprintf("%d of the machine's disks have %s, and exactly one must", picked.Count, describeSelector(install.DiskSelector)),
			"Add a property that tells them apart, for example the serial."+listDisks(disks))
	}
	return nil
}

func listDisks(disks []v1alpha1.MachineDisk) string {
	if len(disks) == 0 {
		return " The machine's disks are not known."
	}
	var lines strings.Builder
	table := printers.GetNewTabWriter(&lines)
	for _, disk := range disks {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%s\n", clean(disk.Path), size(disk.SizeBytes), diskType(disk), orNone(disk.Model), orNone(disk.Serial))
	}
	_ = table.Flush()
	return " The machine reports:\n" + strings.TrimRight(lines.String(), "\n")
}

func (a approve) refuseFingerprint(shown, wanted *v1alpha1.TalosMachine, renewal string) error {
	spec := &wanted.Spec
	acceptedBefore := approved(shown) && (spec.AcceptedFingerprint != "" || spec.AcceptUnverifiedFingerprint)
	if spec.Role == v1alpha1.RoleControlPlane && a.wish.fingerprint == "" && !a.wish.acceptUnverified && !acceptedBefore {
		return told("a control plane holds the cluster's keys, and no fingerprint says that this is the machine you mean",
			"Read the fingerprint off the machine's own console, in the line \"--cert-fingerprint '...'\", and add --fingerprint; "+
				"or take the risk, which is recorded, with --accept-unverified-fingerprint")
	}
	seen := ""
	if shown.Status.Hardware != nil {
		seen = shown.Status.Hardware.Fingerprint
	}
	if spec.AcceptedFingerprint == "" || seen == "" || sameFingerprint(spec.AcceptedFingerprint, seen) {
		return nil
	}
	if renewal != "" && a.wish.fingerprint == "" {
		return told("the fingerprint that was accepted for the last approval is no longer the machine's: it changes with every start",
			"Read the fingerprint off the machine's own console, in the line \"--cert-fingerprint '...'\", and add --fingerprint; "+
				"or take the risk, which is recorded, with --accept-unverified-fingerprint")
	}
	source := "--fingerprint"
	if a.wish.fingerprint == "" {
		source = "the stored spec.acceptedFingerprint"
	}
	return told(fmt.Sprintf("DO NOT APPROVE: the fingerprints differ. %s is %s, but what answers at the machine's address has %s",
		source, clean(spec.AcceptedFingerprint), clean(seen)),
		"Another machine may be answering in its place. The fingerprint also changes when the machine restarts, gets another address, and every 12 hours: "+
			"read the console again, wait for the next sweep (a minute), and if they still differ find out what answers there.")
}

// confirm asks before anything is written. That a disk is wiped a second time is a question of its own, which --yes, a
// habit of scripts, does not answer.
func (a approve) confirm(wanted *v1alpha1.TalosMachine, renewal string) error {
	disk := describeInstall(wanted.Spec.Install, hardwareOf(wanted).Disks)
	switch {
	case renewal != "" && !a.renew:
		return a.ask(question{
			text: fmt.Sprintf("%s What is on %s is wiped AGAIN. Renew the approval as %s?", renewal, disk, wanted.Spec.Role),
			done: "approved", flag: "--renew --yes; --dry-run shows what the server would store",
		})
	case a.yes:
		return nil
	case configured(wanted) && renewal == "":
		return a.ask(question{
			text: fmt.Sprintf("It is installed already, and what changes is sent to it; no disk is wiped. Approve it as %s?", wanted.Spec.Role),
			done: "approved", flag: "--yes; --dry-run shows what the server would store",
		})
	default:
		return a.ask(question{
			text: fmt.Sprintf("Approve it as %s? What is on %s is lost.", wanted.Spec.Role, disk),
			done: "approved", flag: "--yes; --dry-run shows what the server would store",
		})
	}
}
