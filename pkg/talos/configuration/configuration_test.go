package configuration

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned/fake"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/machine/machinetest"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

const (
	uuid     = "4c4c4544-0042-3510-8051-b4c04f4b4c32"
	other    = "4c4c4544-0042-3510-8051-b4c04f4b4c33"
	endpoint = "192.0.2.10"
	static   = "198.51.100.7"
)

// made are two clusters' bundles; making one takes seconds.
var made = sync.OnceValues(func() (both [2][]byte, err error) {
	for i := range both {
		if both[i], err = render.GenerateBundle("v1.13"); err != nil {
			return both, err
		}
	}
	return both, nil
})

func bundleData(t *testing.T, i int) ([]byte, *secrets.Bundle) {
	t.Helper()
	both, err := made()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := render.ParseBundle(both[i])
	if err != nil {
		t.Fatal(err)
	}
	return both[i], parsed
}

// plant is a cluster with one machine, which runs what it was sent.
type plant struct {
	cluster *v1alpha1.TalosCluster
	machine *v1alpha1.TalosMachine
	secret  *corev1.Secret
	bundle  *secrets.Bundle
	network *machinetest.Network
	node    *machinetest.Node
	// fails are resources that cannot be read.
	fails map[string]error
	dial  machine.Factory
}

func newPlant(t *testing.T) *plant {
	t.Helper()
	data, parsed := bundleData(t, 0)
	now := metav1.Now()
	p := &plant{
		cluster: &v1alpha1.TalosCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "line2"}, Spec: v1alpha1.TalosClusterSpec{
			ControlPlaneEndpoint: "https://192.0.2.1:6443", SecretsRef: v1alpha1.SecretReference{Name: "line2-secrets"},
			TalosVersion: "v1.13", KubernetesVersion: "v1.36.2",
		}},
		machine: &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: uuid}, Spec: v1alpha1.TalosMachineSpec{
			ClusterRef: v1alpha1.ClusterReference{Name: "line2"}, Identity: v1alpha1.MachineIdentity{UUID: uuid},
			Role: v1alpha1.RoleControlPlane, Endpoint: endpoint, Install: &v1alpha1.MachineInstall{Disk: "/dev/sda"},
			Network: &v1alpha1.MachineNetwork{Hostname: "control-1", Links: []v1alpha1.MachineLinkConfig{{PermanentMAC: "b4:45:06:aa:00:02", Addresses: []string{static + "/24", "2001:db8::1/64"}}}},
		}, Status: v1alpha1.TalosMachineStatus{Configuration: &v1alpha1.MachineConfiguration{AppliedAt: &now}}},
		secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "own", Name: "line2-secrets", Labels: map[string]string{bundle.ClusterLabel: "site-a.line2"}},
			Data: map[string][]byte{bundle.Key: data}},
		bundle: parsed, network: machinetest.NewNetwork(), node: machinetest.NewNode(), fails: map[string]error{},
	}
	p.dial = p.network.Dial
	running, err := render.Render(render.Input{Cluster: p.cluster, Machine: p.machine, Bundle: parsed})
	if err != nil {
		t.Fatal(err)
	}
	p.node.OfCluster(parsed).SetConfiguration(running).SetHardware(maintenance.Hardware{UUID: uuid})
	p.network.Put(endpoint, p.node)
	return p
}

func (p *plant) reader(t *testing.T) *Reader {
	t.Helper()
	client := fake.NewClientset(p.cluster, p.machine)
	host := kubefake.NewClientset(p.secret)
	for resource, err := range p.fails {
		react := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err }
		client.PrependReactor("get", resource, react)
		host.PrependReactor("get", resource, react)
	}
	store, err := bundle.NewStore(host.CoreV1(), "own")
	if err != nil {
		t.Fatal(err)
	}
	return NewReader(client.TalosV1alpha1(), store, p.dial)
}

// withoutSecrets fails when a text holds anything of the bundle but what any client of the cluster is shown: certificates,
// and the cluster's id.
func (p *plant) withoutSecrets(t *testing.T, text string) {
	t.Helper()
	public := map[string]bool{}
	certs := p.bundle.Certs
	for _, certificate := range [][]byte{certs.Etcd.Crt, certs.K8s.Crt, certs.K8sAggregator.Crt, certs.OS.Crt, []byte(p.bundle.Cluster.ID)} {
		public[string(certificate)] = true
		public[base64.StdEncoding.EncodeToString(certificate)] = true
	}
	for _, secret := range render.BundleMaterial(p.bundle) {
		if public[secret] {
			continue
		}
		if strings.Contains(text, secret) {
			t.Errorf("it holds a secret of %d characters", len(secret))
		}
	}
}

// Req: T-11, T-15, T-16
func TestTheRenderedConfigurationIsShownWithoutSecretsOrItIsSaidWhyNot(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*plant)
		fits   func(error) bool
		says   []string
	}{
		{"whole", func(*plant) {}, nil, []string{"type: controlplane", "hostname: control-1", "***"}},
		{"before anybody approves", func(p *plant) { p.machine.Status = v1alpha1.TalosMachineStatus{} }, nil, []string{"type: controlplane"}},
		{"no role", func(p *plant) { p.machine.Spec.Role = "" }, apierrors.IsConflict, []string{"render: machine role is not set"}},
		{"no role and no bundle either", func(p *plant) { p.machine.Spec.Role, p.secret.Name = "", "x" }, apierrors.IsConflict, []string{"render: machine role is not set"}},
		{"no cluster", func(p *plant) { p.machine.Spec.ClusterRef.Name = "gone" }, apierrors.IsConflict, []string{`TalosCluster "gone" does not exist`}},
		{"no bundle", func(p *plant) { p.secret.Name = "x" }, apierrors.IsConflict, []string{"BundleNotFound", "own/line2-secrets"}},
		{"another cluster's bundle", func(p *plant) { p.secret.Labels = nil }, apierrors.IsConflict, []string{"BundleNotForThisCluster"}},
		{"half a bundle", func(p *plant) { p.secret.Data[bundle.Key] = []byte("cluster: {}\n") }, apierrors.IsConflict, []string{"BundleInvalid"}},
		{"a patch against the approval", func(p *plant) { p.cluster.Spec.ConfigPatches = []string{"machine:\n  install:\n    wipe: true\n"} }, apierrors.IsConflict, []string{"render: ", "spec.configPatches[0]"}},
		{"the machine is gone", func(p *plant) { p.machine.Name = other }, apierrors.IsNotFound, nil},
		{"the store is away", func(p *plant) { p.fails["talosmachines"] = errors.New("away") }, apierrors.IsServiceUnavailable, []string{"could not be read"}},
		{"the server may not read the Secret", func(p *plant) {
			p.fails["secrets"] = apierrors.NewForbidden(corev1.Resource("secrets"), "x", errors.New("no"))
		}, apierrors.IsServiceUnavailable, []string{"could not be read"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlant(t)
			tc.change(p)
			text, err := p.reader(t).Rendered(t.Context(), "site-a", uuid)
			told := string(text)
			if err != nil {
				told = err.Error()
			}
			if (err != nil) != (tc.fits != nil) || err != nil && !tc.fits(err) {
				t.Fatalf("have %v", err)
			}
			for _, want := range tc.says {
				if !strings.Contains(told, want) {
					t.Errorf("it does not say %q:\n%s", want, told)
				}
			}
			p.withoutSecrets(t, told)
			if len(p.network.Dials()) > 0 {
				t.Error("a machine was asked")
			}
		})
	}
}

// Req: T-15, T-18, T-18a
func TestTheDifferenceToWhatRunsIsToldOrItIsSaidWhyNot(t *testing.T) {
	_, foreign := bundleData(t, 1)
	const patch = "machine:\n  sysctls:\n    net.ipv4.ip_forward: \"1\"\n"
	for _, tc := range []struct {
		name   string
		change func(*plant)
		fits   func(error) bool
		says   []string
	}{
		{"none", func(*plant) {}, nil, nil},
		{"a patch that it does not run yet", func(p *plant) { p.cluster.Spec.ConfigPatches = []string{patch} }, nil, []string{"+", "net.ipv4.ip_forward"}},
		{"at the address that it was given, when it is not at its endpoint", func(p *plant) {
			p.cluster.Spec.ConfigPatches = []string{patch}
			p.network.Put(endpoint, nil)
			p.network.Put(static, p.node)
		}, nil, []string{"net.ipv4.ip_forward"}},
		{"not before it was sent one", func(p *plant) { p.machine.Status.Configuration.AppliedAt = nil }, apierrors.IsConflict, []string{"not sent a configuration yet"}},
		{"without an address", func(p *plant) { p.machine.Spec.Endpoint, p.machine.Spec.Network = "", nil }, apierrors.IsConflict, []string{"spec.endpoint"}},
		{"nobody answers", func(p *plant) { p.network.Put(endpoint, nil) }, apierrors.IsServiceUnavailable, []string{endpoint, static, "Unreachable"}},
		{"another machine is there", func(p *plant) { p.node.SetHardware(maintenance.Hardware{UUID: other}) }, apierrors.IsConflict, []string{endpoint, other}},
		{"another cluster's machine is there", func(p *plant) { p.node.OfCluster(foreign) }, apierrors.IsServiceUnavailable, []string{"Untrusted"}},
		{"it is lost on the way", func(p *plant) { p.node.Fail(machine.OpConfiguration, machine.ClassUnreachable) }, apierrors.IsServiceUnavailable, []string{"Unreachable"}},
		{"what it says quotes the bundle", func(p *plant) {
			p.node.Before(machine.OpIdentity, func(context.Context, machinetest.Call) error {
				return &machine.Error{Class: machine.ClassNodeError, Op: machine.OpIdentity, Detail: p.bundle.TrustdInfo.Token + string(p.bundle.Certs.OS.Key[:100])}
			})
		}, apierrors.IsServiceUnavailable, []string{"NodeError: ***"}},
		{"it does not answer in time", func(p *plant) {
			p.node.Before(machine.OpConfiguration, func(ctx context.Context, _ machinetest.Call) error { <-ctx.Done(); return ctx.Err() })
			p.network.Put(static, p.node)
		}, apierrors.IsTimeout, []string{"in time"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlant(t)
			tc.change(p)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			if tc.fits == nil {
				ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
			}
			defer cancel()
			told, err := p.reader(t).Difference(ctx, "site-a", uuid)
			if err != nil {
				told = err.Error()
			}
			if (err != nil) != (tc.fits != nil) || err != nil && !tc.fits(err) {
				t.Fatalf("have %v", err)
			}
			if err == nil && tc.says == nil && told != "" {
				t.Errorf("have %s", told)
			}
			for _, want := range tc.says {
				if !strings.Contains(told, want) {
					t.Errorf("it does not say %q:\n%s", want, told)
				}
			}
			p.withoutSecrets(t, told)
			for _, call := range p.node.Calls(machine.OpApply, machine.OpTry, machine.OpReboot, machine.OpBootstrap) {
				t.Errorf("the machine was told to %s", call.Op)
			}
		})
	}
}

// Req: T-18. Another machine at the address is not asked for its configuration.
func TestAnotherMachinesConfigurationIsNotRead(t *testing.T) {
	p := newPlant(t)
	p.node.SetHardware(maintenance.Hardware{UUID: other})
	if _, err := p.reader(t).Difference(t.Context(), "site-a", uuid); err == nil {
		t.Fatal("no error")
	}
	if calls := p.node.Calls(machine.OpConfiguration); len(calls) > 0 {
		t.Errorf("it was read: %+v", calls)
	}
}
