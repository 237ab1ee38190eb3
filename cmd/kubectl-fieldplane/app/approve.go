package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/installdisk"
)

const approveLong = `Show a machine's hardware and, once confirmed, approve it: from then on it may be sent its configuration.

The role and the install disk are never guessed. A disk that the machine has not reported is refused.

A control plane also needs the fingerprint that the machine shows on its own console after it has started in
maintenance mode, in the line "--cert-fingerprint '...'": whatever is read over the network could come from another
machine. Its configuration is then sent to no other.

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
    --fingerprint 'xA9a1t2dMxB0NJ0qH1pDzilWbA3+DK/DjVbFaJBYheE='`

// approve is one run of the command.
type approve struct {
	plugin
	target

	machine string
	wish    wish
	dryRun  bool
	yes     bool
}

// approveFlags are the flags as they are written.
type approveFlags struct {
	role, hostname, disk, diskSelector, fingerprint, dryRun string
	labels, taints                                          []string
	acceptUnverified, yes                                   bool
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
		ValidArgsFunction:     p.completeMachines,
		RunE: func(cmd *cobra.Command, args []string) error {
			command := approve{plugin: p, yes: flags.yes}
			var err error
			if command.machine, err = parseMachine(args); err != nil {
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
	set.StringVar(&flags.hostname, "hostname", "", "Host name of the machine")
	set.StringArrayVar(&flags.labels, "label", nil, "Label of the Node, KEY=VALUE; may be repeated")
	set.StringArrayVar(&flags.taints, "taint", nil, "Taint of the Node, KEY[=VALUE]:EFFECT; may be repeated")
	set.StringVar(&flags.dryRun, "dry-run", "none", "none, or server: the server decides as it would and stores nothing; alone it means server")
	set.Lookup("dry-run").NoOptDefVal = "server"
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

// parseMachine reads "machine UUID" and "machine/UUID".
func parseMachine(args []string) (string, error) {
	const form = "Write: kubectl fieldplane approve machine UUID. See what waits: kubectl fieldplane pending"
	kind, name := "", ""
	switch len(args) {
	case 1:
		kind, name, _ = strings.Cut(args[0], "/")
	case 2:
		kind, name = args[0], args[1]
	case 0:
		return "", told("which machine is not said", form)
	default:
		return "", told(fmt.Sprintf("one machine is approved at a time, and there are %d arguments", len(args)), form)
	}
	switch resource, group, _ := strings.Cut(strings.ToLower(kind), "."); {
	case group != "" && group != v1alpha1.GroupName:
		return "", told(fmt.Sprintf("%q is not approved", kind), form)
	case resource != "machine" && resource != "machines" && resource != "talosmachine" && resource != "talosmachines" && resource != "tm":
		return "", told(fmt.Sprintf("%q is not approved", kind), form)
	case name == "":
		return "", told("which machine is not said", form)
	}
	// Machines are named by the lower-case form; firmware screens show the other.
	name = strings.ToLower(name)
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", told(fmt.Sprintf("%q is not the name of a machine", name), form)
	}
	return name, nil
}

func parseDryRun(value string) (bool, error) {
	switch value {
	case "none":
		return false, nil
	case "server":
		return true, nil
	default:
		return false, told(fmt.Sprintf("--dry-run=%s is not possible", value),
			"Use --dry-run=server: whether an approval is accepted only the server can tell.")
	}
}

// parse finds what is wrong with the flags alone, before anything is asked of the server.
func (f approveFlags) parse() (wish, error) {
	w := wish{hostname: f.hostname, acceptUnverified: f.acceptUnverified}
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
	machines := a.client.TalosV1alpha1().TalosMachines(a.namespace)
	shown, err := machines.Get(ctx, a.machine, metav1.GetOptions{})
	if err != nil {
		return attempt{to: "read the machine", namespace: a.namespace, machine: a.machine}.explain(err)
	}
	wanted := a.wish.on(shown)

	r := review{machine: shown, wanted: wanted, now: a.clock.Now()}
	if shown.Spec.ClusterRef.Name != "" {
		r.cluster, r.clusterErr = a.client.TalosV1alpha1().TalosClusters(a.namespace).Get(ctx, shown.Spec.ClusterRef.Name, metav1.GetOptions{})
	}
	r.print(a.Out)

	changes, err := differences(shown, wanted)
	if err != nil {
		return fmt.Errorf("cannot compare the machine with what it is to become: %w", err)
	}
	if err := a.refuse(shown, wanted, len(changes) == 0); err != nil {
		return err
	}
	if len(changes) == 0 {
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
		return a.tryOut(ctx, shown, wanted)
	}
	fmt.Fprint(a.Out, "\nThis would be stored:\n")
	printChanges(a.Out, changes)
	if err := a.confirm(wanted); err != nil {
		return err
	}
	// wanted carries the resourceVersion of what was shown (T-13).
	if _, err := machines.UpdateApproval(ctx, a.machine, wanted, metav1.UpdateOptions{}); err != nil {
		return a.explainWrite(err)
	}
	fmt.Fprintf(a.Out, "%s approved as %s\n", resourceName(a.machine), wanted.Spec.Role)
	fmt.Fprintf(a.Out, "See how it goes on: kubectl -n %s get talosmachine %s --watch\n", a.namespace, a.machine)
	return nil
}

// tryOut asks the server what it would store.
func (a approve) tryOut(ctx context.Context, shown, wanted *v1alpha1.TalosMachine) error {
	stored, err := a.client.TalosV1alpha1().TalosMachines(a.namespace).
		UpdateApproval(ctx, a.machine, wanted, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return a.explainWrite(err)
	}
	changes, err := differences(shown, stored)
	if err != nil {
		return fmt.Errorf("cannot compare the machine with what would be stored: %w", err)
	}
	fmt.Fprint(a.Out, "\nThe server would store:\n")
	printChanges(a.Out, changes)
	fmt.Fprintf(a.Out, "%s approved as %s (server dry run: nothing was stored)\n", resourceName(a.machine), stored.Spec.Role)
	return nil
}

func (a approve) explainWrite(err error) error {
	return attempt{to: "approve the machine", namespace: a.namespace, machine: a.machine, writes: true}.explain(err)
}

// refuse says what the server could not know, or what it would refuse without saying what to do about it.
func (a approve) refuse(shown, wanted *v1alpha1.TalosMachine, unchanged bool) error {
	spec := &wanted.Spec
	if a.wish.role == "" {
		return told("the role is not said, and it is never guessed",
			"Add --role worker, or --role controlplane for a machine that is to run etcd and the Kubernetes control plane.")
	}
	if unchanged {
		return nil
	}
	switch {
	case shown.DeletionTimestamp != nil:
		return told("the machine is being deleted", "Once it is gone, discovery finds it anew: kubectl fieldplane pending")
	case shown.Spec.Rejected != nil:
		return told("the machine was rejected: "+clean(shown.Spec.Rejected.Reason),
			fmt.Sprintf("If that is settled, clear it and run this again: kubectl -n %s patch talosmachine %s --subresource=approval --type=merge -p '{\"spec\":{\"rejected\":null}}'", a.namespace, a.machine))
	}
	if err := refuseDisk(spec.Install, shown.Status.Hardware); err != nil {
		return err
	}
	return a.refuseFingerprint(shown, wanted)
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
	lines := make([]string, 0, len(disks))
	for _, disk := range disks {
		line := "  " + clean(disk.Path) + "  " + size(disk.SizeBytes) + "  " + diskType(disk)
		for _, part := range []string{disk.Model, disk.Serial} {
			if part != "" {
				line += "  " + clean(part)
			}
		}
		lines = append(lines, line)
	}
	return " The machine reports:\n" + strings.Join(lines, "\n")
}

func (a approve) refuseFingerprint(shown, wanted *v1alpha1.TalosMachine) error {
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
	source := "--fingerprint"
	if a.wish.fingerprint == "" {
		source = "the stored spec.acceptedFingerprint"
	}
	return told(fmt.Sprintf("DO NOT APPROVE: the fingerprints differ. %s is %s, but what answers at the machine's address has %s",
		source, clean(spec.AcceptedFingerprint), clean(seen)),
		"Another machine may be answering in its place. The fingerprint also changes when the machine restarts, gets another address, and every 12 hours: "+
			"read the console again, wait for the next sweep (a minute), and if they still differ find out what answers there.")
}

// confirm asks whoever sits at the terminal. Silence, end of input and anything but yes mean no.
func (a approve) confirm(wanted *v1alpha1.TalosMachine) error {
	if a.yes {
		return nil
	}
	if !a.interactive() {
		return told("nothing was approved: there is no terminal to ask for confirmation on",
			"Read what is above, then run it again with --yes; --dry-run shows what the server would store.")
	}
	var disks []v1alpha1.MachineDisk
	if wanted.Status.Hardware != nil {
		disks = wanted.Status.Hardware.Disks
	}
	fmt.Fprintf(a.Out, "\nApprove it as %s? What is on %s is lost. [y/N]: ", wanted.Spec.Role, describeInstall(wanted.Spec.Install, disks))
	answer, err := bufio.NewReader(a.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return told("nothing was approved: the answer cannot be read: "+err.Error(), "Run it again, or with --yes.")
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return told("nothing was approved: the answer was not yes", "The machine is as it was; nothing was written.")
	}
}

func resourceName(machine string) string {
	return "talosmachine." + v1alpha1.GroupName + "/" + machine
}
