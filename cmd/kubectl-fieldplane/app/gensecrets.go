package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

const genSecretsLong = `Make the secrets of a cluster: the Secret that spec.secretsRef of its TalosCluster names, in the namespace of the fieldplane
server, with the label that makes it this cluster's. It is created with your own rights there.

A Secret that exists is never replaced: whoever has other keys than the machines has locked himself out of them. For the
same reason nothing new is made for a cluster that has configured machines; --from-file brings back what they have.

The secrets are printed only with --dry-run -o yaml. Whoever has them controls the cluster.`

const genSecretsExample = `  # New secrets for a new cluster
  kubectl fieldplane gen-secrets plant

  # The secrets of a cluster that exists, as talosctl gen secrets wrote them
  kubectl fieldplane gen-secrets plant --from-file secrets.yaml

  # A manifest for whoever may create it
  kubectl fieldplane gen-secrets plant --dry-run -o yaml`

const (
	serverNamespace = "fieldplane-system"
	// maxBundle is what a Secret can hold.
	maxBundle = 1 << 20
)

// genSecrets is one run of the command.
type genSecrets struct {
	plugin
	target

	cluster, secretNamespace, file string
	dryRun, manifest               bool
}

func newGenSecretsCommand(p plugin) *cobra.Command {
	command := genSecrets{plugin: p}
	dryRun, output := "", ""
	cmd := &cobra.Command{
		Use:                   "gen-secrets CLUSTER",
		Short:                 "Make the secrets of a new cluster, or bring in those of an existing one",
		Long:                  genSecretsLong,
		Example:               genSecretsExample,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     p.completeClusters,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if command.cluster, err = parseCluster("gen-secrets", args); err != nil {
				return err
			}
			if command.dryRun, err = parseDryRun(dryRun); err != nil {
				return err
			}
			command.manifest = output == "yaml"
			switch {
			case output != "" && output != "yaml":
				return told(fmt.Sprintf("-o %s is not possible", output), "Use --dry-run -o yaml.")
			case command.manifest && !command.dryRun:
				return told("-o yaml prints the secrets, and is possible only instead of creating them", "Use --dry-run -o yaml.")
			case len(validation.IsDNS1123Label(command.secretNamespace)) > 0:
				return told(fmt.Sprintf("--secret-namespace %q is not the name of a namespace", command.secretNamespace), "Use the namespace in which the fieldplane server runs.")
			}
			if command.target, err = p.connect(); err != nil {
				return err
			}
			return command.run(cmd.Context())
		},
	}
	set := cmd.Flags()
	set.SortFlags = false
	set.StringVar(&command.file, "from-file", "", "Bring in the secrets of this file, as talosctl gen secrets writes it, instead of making new ones; - is standard input")
	set.StringVar(&command.secretNamespace, "secret-namespace", serverNamespace, "Namespace in which the fieldplane server runs")
	set.StringVar(&dryRun, "dry-run", "none", "none, or server: ask the server whether the Secret could be created, and create none; alone it means server")
	set.Lookup("dry-run").NoOptDefVal = "server"
	set.StringVarP(&output, "output", "o", "", "yaml, with --dry-run: print the Secret, secrets and all")
	_ = cmd.RegisterFlagCompletionFunc("dry-run", cobra.FixedCompletions([]cobra.Completion{"none", "server"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{"yaml"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("secret-namespace", cobra.NoFileCompletions)
	return cmd
}

func (g genSecrets) run(ctx context.Context) error {
	cluster, err := g.getCluster(ctx, g.cluster)
	if err != nil {
		return err
	}
	if cluster.DeletionTimestamp != nil {
		return told(fmt.Sprintf("TalosCluster %s/%s is being deleted", g.namespace, g.cluster), "It needs no secrets any more.")
	}
	label := bundle.LabelOf(cluster)
	if problems := validation.IsValidLabelValue(label); len(problems) > 0 {
		return told(fmt.Sprintf("no Secret can carry the label %s: %s: %s", bundle.ClusterLabel, label, problems[0]), "Use a shorter name for the TalosCluster.")
	}
	machines, err := listMachines(ctx, g.target)
	if err != nil {
		return attempt{to: "list machines", namespace: g.namespace}.explain(err)
	}
	content, err := g.content(cluster, machines)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: g.secretNamespace, Name: cluster.Spec.SecretsRef.Name, Labels: map[string]string{bundle.ClusterLabel: label}},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{bundle.Key: content},
	}
	if g.dryRun {
		return g.tryOut(ctx, secret)
	}
	if _, err := g.secrets.Secrets(g.secretNamespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return g.explain(secret.Name, err)
	}
	fmt.Fprintf(g.Out, "secret/%s created in namespace %s\n", secret.Name, g.secretNamespace)
	fmt.Fprintf(g.Out, "Keep a copy of it, as safe as the cluster itself: without it no machine of TalosCluster %s/%s can be reached again.\n", g.namespace, g.cluster)
	fmt.Fprintf(g.Out, "See that the server takes it, condition BundleReady: kubectl -n %s describe taloscluster %s\n", g.namespace, g.cluster)
	return nil
}

// content is the bundle: that of the file, or a new one. Nothing of it is ever part of an error (T-15).
func (g genSecrets) content(cluster *v1alpha1.TalosCluster, machines []v1alpha1.TalosMachine) ([]byte, error) {
	if g.file == "" {
		if name := lockedOut(cluster, machines, ""); name != "" {
			return nil, told(fmt.Sprintf("machine %s was configured with the secrets that TalosCluster %s/%s had: new ones would lock everybody out of it", name, g.namespace, g.cluster),
				"Bring the old ones back from your copy with --from-file. If the machine is no longer needed, unapprove it and delete its TalosMachine first.")
		}
		content, err := g.generate(cluster.Spec.TalosVersion)
		if err != nil {
			return nil, told("cannot make the secrets: "+clean(err.Error()), "Nothing was written.")
		}
		return content, nil
	}
	const form = "Use a file that talosctl gen secrets wrote, whole. Nothing was written."
	content, err := g.readFile()
	if err != nil {
		return nil, told("cannot read --from-file: "+err.Error(), form)
	}
	parsed, err := render.ParseBundle(content)
	if err != nil {
		return nil, told("--from-file "+g.file+": "+clean(err.Error()), form)
	}
	hash, err := bundle.HashOf(parsed)
	if err != nil {
		return nil, told("--from-file "+g.file+": "+clean(err.Error()), form)
	}
	if name := lockedOut(cluster, machines, hash); name != "" {
		return nil, told(fmt.Sprintf("--from-file %s: machine %s was configured with other secrets: with these nobody could reach it", g.file, name),
			"Use the file that belongs to this cluster. If the machine is no longer needed, unapprove it and delete its TalosMachine first.")
	}
	return content, nil
}

func (g genSecrets) readFile() ([]byte, error) {
	in := g.In
	if g.file != "-" {
		file, err := os.Open(g.file)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	content, err := io.ReadAll(io.LimitReader(in, maxBundle+1))
	switch {
	case err != nil:
		return nil, err
	case len(content) > maxBundle:
		return nil, errors.New("it is larger than a Secret can be")
	case len(bytes.TrimSpace(content)) == 0:
		return nil, errors.New("it is empty")
	default:
		return content, nil
	}
}

// lockedOut names a machine of the cluster that has, or may have, other secrets than those with this hash; "" if none has.
func lockedOut(cluster *v1alpha1.TalosCluster, machines []v1alpha1.TalosMachine, hash string) string {
	for i := range machines {
		machine := &machines[i]
		sent := machine.Status.Configuration
		if machine.Spec.ClusterRef.Name != cluster.Name || sent == nil || sent.IntendedAt == nil && sent.AppliedAt == nil {
			continue
		}
		// A machine that was configured before hashes were kept may have any: a file is the operator's word then.
		if hash == "" || sent.BundleHash != "" && sent.BundleHash != hash {
			return machine.Name
		}
	}
	return ""
}

// tryOut asks the server whether the Secret could be created, and prints it if asked to. The server is not told the secrets.
func (g genSecrets) tryOut(ctx context.Context, secret *corev1.Secret) error {
	probe := secret.DeepCopy()
	probe.Data = map[string][]byte{bundle.Key: []byte("dry run")}
	_, err := g.secrets.Secrets(g.secretNamespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
	case g.manifest && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)):
		// Printed for somebody else, or for another time.
		fmt.Fprintf(g.ErrOut, "Warning: you could not create it now: %s\n", clean(err.Error()))
	default:
		return g.explain(secret.Name, err)
	}
	if !g.manifest {
		fmt.Fprintf(g.Out, "secret/%s would be created in namespace %s (server dry run: nothing was stored, nothing was kept of the secrets)\n", secret.Name, g.secretNamespace)
		return nil
	}
	fmt.Fprintln(g.ErrOut, "Warning: what is printed holds the secrets of the cluster. Whoever has it controls every machine.")
	return (&printers.YAMLPrinter{}).PrintObj(secret, g.Out)
}

func (g genSecrets) explain(name string, err error) error {
	failed := &failure{cause: err, what: "cannot create the Secret: " + clean(err.Error())}
	switch {
	case apierrors.IsAlreadyExists(err):
		failed.what = fmt.Sprintf("Secret %s/%s exists already, and is never replaced: machines that have its secrets could not be reached any more", g.secretNamespace, name)
		failed.todo = fmt.Sprintf("Whether it is the right one, condition BundleReady says: kubectl -n %s describe taloscluster %s", g.namespace, g.cluster)
	case apierrors.IsForbidden(err):
		failed.what = "the server refuses: " + clean(err.Error())
		failed.todo = fmt.Sprintf("Creating it needs create on secrets in namespace %s; check with: kubectl auth can-i create secrets -n %s. "+
			"Whoever has the right can apply what --dry-run -o yaml prints.", g.secretNamespace, g.secretNamespace)
	case apierrors.IsNotFound(err):
		failed.todo = "Name the namespace in which the fieldplane server runs with --secret-namespace."
	case !g.dryRun && outcomeUnknown(err):
		failed.todo = fmt.Sprintf("Whether it was created is not known. Look before trying again, and keep it if it is there: kubectl -n %s get secret %s", g.secretNamespace, name)
	default:
		failed.todo = "Nothing was written. Settle what the server names, and run the command again."
	}
	return failed
}
