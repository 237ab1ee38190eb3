package app

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/component-base/compatibility"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/fieldplane/fieldplane/pkg/apiserver"
)

// parse reads a command line as the server does.
func parse(t *testing.T, components compatibility.ComponentGlobalsRegistry, args ...string) *Options {
	t.Helper()
	// Only a process that runs once may set up logging once.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
	options := NewOptions(components)
	flags := pflag.NewFlagSet("fieldplane-apiserver", pflag.ContinueOnError)
	for _, set := range options.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	options.Complete()
	return options
}

// Req. A wrong flag is told by its name, before anything is started.
func TestEveryWrongFlagIsNamed(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "fieldplane-system")
	t.Setenv("POD_NAME", "replica-0")
	components, err := apiserver.NewComponentGlobals()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		// wrong are the flags that the error names; none when the options are right.
		wrong []string
	}{
		{name: "the defaults are right"},
		{name: "an external etcd", args: []string{"--etcd-servers=https://192.0.2.1:2379"}},
		{name: "an external etcd needs no data directory", args: []string{"--etcd-servers=https://192.0.2.1:2379", "--data-dir=", "--embedded-etcd-quota-bytes=0"}},
		{name: "JSON", args: []string{"--storage-media-type=application/json"}},
		{name: "no data directory", args: []string{"--data-dir="}, wrong: []string{"--data-dir"}},
		{name: "a quota too small for a database", args: []string{"--embedded-etcd-quota-bytes=1000"}, wrong: []string{"--embedded-etcd-quota-bytes"}},
		{name: "no namespace", args: []string{"--namespace="}, wrong: []string{"--namespace", "POD_NAMESPACE"}},
		{name: "a namespace that cannot be one", args: []string{"--namespace=Field Plane"}, wrong: []string{"--namespace", "Field Plane"}},
		{name: "no Service", args: []string{"--service-name="}, wrong: []string{"--service-name"}},
		{name: "a ServiceAccount that cannot be one", args: []string{"--service-account=a:b"}, wrong: []string{"--service-account", "a:b"}},
		{name: "no image", args: []string{"--io-probe-image="}, wrong: []string{"--io-probe-image"}},
		{name: "no name among replicas", args: []string{"--etcd-servers=https://192.0.2.1:2379", "--leader-election-identity="}, wrong: []string{"--leader-election-identity"}},
		{name: "a single server needs no name", args: []string{"--leader-election-identity="}},
		{name: "a media type that cannot be stored", args: []string{"--storage-media-type=application/yaml"}, wrong: []string{"--storage-media-type", "application/yaml"}},
		{name: "a port that is none", args: []string{"--secure-port=70000"}, wrong: []string{"--secure-port"}},
		{name: "a time that runs backwards", args: []string{"--shutdown-delay-duration=-1s"}, wrong: []string{"--shutdown-delay-duration"}},
		{name: "one of our own admission plugins disabled", args: []string{"--disable-admission-plugins=MutatingAdmissionWebhook,MachineApproval"}, wrong: []string{"--disable-admission-plugins", "MachineApproval"}},
		{name: "one of Kubernetes' admission plugins disabled", args: []string{"--disable-admission-plugins=MutatingAdmissionWebhook"}},
		{name: "more than one at once", args: []string{"--data-dir=", "--namespace=", "--io-probe-image="}, wrong: []string{"--data-dir", "--namespace", "--io-probe-image"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := parse(t, components, tc.args...).Validate()
			if err != nil && len(tc.wrong) == 0 {
				t.Fatal(err)
			}
			for _, flag := range tc.wrong {
				if err == nil || !strings.Contains(err.Error(), flag) {
					t.Errorf("the error does not name %s: %v", flag, err)
				}
			}
		})
	}
}

// Req
func TestTheDefaultsOfTheServer(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "fieldplane-system")
	t.Setenv("POD_NAME", "replica-0")
	components, err := apiserver.NewComponentGlobals()
	if err != nil {
		t.Fatal(err)
	}
	options := parse(t, components, "--kubeconfig=/kube/config")
	if !options.EmbeddedEtcd() {
		t.Error("the embedded etcd is not the default")
	}
	if got := options.Recommended.Etcd.StorageConfig.Prefix; got != "/fieldplane" {
		t.Errorf("stored under %s", got)
	}
	if got := options.Recommended.Etcd.DefaultStorageMediaType; got != "application/vnd.kubernetes.protobuf" {
		t.Errorf("stored as %s", got)
	}
	if options.Namespace != "fieldplane-system" || options.Identity != "replica-0" {
		t.Errorf("namespace %q, identity %q, want those of the pod", options.Namespace, options.Identity)
	}
	// Pods are given 60 s; informers of the host cluster never end their watches by themselves.
	if got := options.ServerRun.ShutdownWatchTerminationGracePeriod; got != 10*time.Second {
		t.Errorf("watches are given %v to end", got)
	}
	if a, z := options.Recommended.Authentication.RemoteKubeConfigFile, options.Recommended.Authorization.RemoteKubeConfigFile; a != "/kube/config" || z != "/kube/config" {
		t.Errorf("--kubeconfig does not serve for authentication (%q) and authorization (%q)", a, z)
	}
	options = parse(t, components, "--kubeconfig=/kube/config", "--authentication-kubeconfig=/other")
	if got := options.Recommended.Authentication.RemoteKubeConfigFile; got != "/other" {
		t.Errorf("--authentication-kubeconfig is overwritten with %q", got)
	}
	if parse(t, components, "--etcd-servers=https://192.0.2.1:2379").EmbeddedEtcd() {
		t.Error("--etcd-servers does not replace the embedded etcd")
	}
}
