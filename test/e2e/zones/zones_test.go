// Package zones proves that a module is measured from where its device can be reached: on nodes in two network namespaces,
// as a plant's nodes are in two zones that no route joins. Root alone can make them; elsewhere the test is skipped.
package zones

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/test/harness"
	"github.com/fieldplane/fieldplane/test/localcluster"
	"github.com/fieldplane/fieldplane/test/localcluster/child"
	"github.com/fieldplane/fieldplane/test/plant"
)

// device is an address in the loopback network of zone b, which has nothing to do with that of any other.
const device = "127.0.74.1:5020"

// The limits of P-16, and the one for a first verdict, which a pod has to be started for.
const (
	onlineLimit = 15 * time.Second
	firstLimit  = 45 * time.Second
)

var (
	// env is the one cluster of this package, nil for whoever is not root.
	env *harness.Env
	// zones are its nodes' networks, by the label zone.
	zones = map[string]*localcluster.Network{}
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Geteuid() != 0 || testing.Short() {
		os.Exit(m.Run())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var nodes []localcluster.Node
	for i, zone := range []string{"a", "b"} {
		network, remove, err := newNetwork(zone, i)
		defer remove()
		if err != nil {
			fmt.Fprintf(os.Stderr, "zone %s: %v\n", zone, err)
			return 1
		}
		zones[zone] = network
		nodes = append(nodes, localcluster.Node{Name: "node-" + zone, Labels: map[string]string{"zone": zone}, Network: network})
	}
	return harness.Run(m, harness.Options{Nodes: nodes}, func(started *harness.Env) { env = started })
}

// newNetwork makes a network namespace that is joined to this one by a wire, and to nothing else. Of the network on the
// wire, this side has the first address; all others are the namespace's.
func newNetwork(zone string, number int) (network *localcluster.Network, remove func(), err error) {
	pid := os.Getpid()
	name := fmt.Sprintf("fieldplane-%d-%s", pid, zone)
	wire, end := fmt.Sprintf("fp%d%s0", pid, zone), fmt.Sprintf("fp%d%s1", pid, zone)
	// 198.18.0.0/15 is for networks in tests (RFC 2544).
	prefix := fmt.Sprintf("198.18.%d.", (2*pid+number)%256)
	remove = func() {
		_ = exec.Command("ip", "link", "del", wire).Run()
		_ = exec.Command("ip", "netns", "del", name).Run()
	}
	for _, command := range []string{
		"netns add " + name,
		"link add " + wire + " type veth peer name " + end + " netns " + name,
		"addr add " + prefix + "1/24 dev " + wire,
		"link set " + wire + " up",
		"-n " + name + " link set lo up",
		"-n " + name + " addr add " + prefix + "2/24 dev " + end,
		"-n " + name + " link set " + end + " up",
		// Pods may listen on every other address, as if each had been given to the namespace.
		"-n " + name + " route add local " + prefix + "8/29 dev lo",
		"-n " + name + " route add local " + prefix + "16/28 dev lo",
		"-n " + name + " route add local " + prefix + "32/27 dev lo",
		"-n " + name + " route add local " + prefix + "64/26 dev lo",
		"-n " + name + " route add local " + prefix + "128/25 dev lo",
	} {
		if output, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			return nil, remove, fmt.Errorf("ip %s: %w: %s", command, err, output)
		}
	}
	return &localcluster.Network{Namespace: name, Pods: netip.MustParsePrefix(prefix + "0/24")}, remove, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startDevice runs a plant with one Modbus device in a zone.
func startDevice(t *testing.T, zone string) {
	t.Helper()
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "plant.yaml"), filepath.Join(dir, "plant.sock")
	must(t, os.WriteFile(file, fmt.Appendf(nil, "modbus: [{name: tank, address: %q, units: [{id: 1, registers: [{table: holding, address: 0, values: [7]}]}]}]\n", device), 0o600))
	log, err := os.Create(filepath.Join(dir, "plant.log"))
	must(t, err)
	defer log.Close()
	process, err := child.Start(child.Spec{
		Name: "plant", Path: "ip", Output: log, PidFile: filepath.Join(dir, "plant.pid"),
		Args: []string{"netns", "exec", zones[zone].Namespace, filepath.Join(env.BinDir, "plant"), "--control", socket, "--file", file, "run"},
	})
	must(t, err)
	t.Cleanup(func() { process.Stop(context.Background(), 5*time.Second) })
	harness.Eventually(t, onlineLimit, func() string {
		if list, err := plant.Connect(socket).List(t.Context()); err != nil || len(list) != 1 {
			return fmt.Sprintf("the plant has %v, %v", list, err)
		}
		return ""
	})
}

// Req: P-06, P-09
func TestAModuleIsMeasuredFromTheZoneThatItsDeviceIsIn(t *testing.T) {
	if env == nil {
		if os.Geteuid() == 0 && !testing.Short() {
			t.Fatal("root has no network namespaces")
		}
		t.Skip("root alone can make network namespaces")
	}
	namespace := env.Namespace(t)
	modules := env.Admin(t).PhysicalV1alpha1().IOModules(namespace)
	startDevice(t, "b")

	declare := func(name, zone string) {
		t.Helper()
		module := &v1alpha1.IOModule{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1alpha1.IOModuleSpec{
				Protocol: v1alpha1.ProtocolModbus, Modbus: &v1alpha1.ModbusConnection{Endpoint: "tcp://" + device},
			},
		}
		if zone != "" {
			module.Spec.ProbePlacement = &v1alpha1.ProbePlacement{NodeSelector: map[string]string{"zone": zone}}
		}
		_, err := modules.Create(t.Context(), module, metav1.CreateOptions{})
		must(t, err)
	}
	is := func(limit time.Duration, name, want, node string) {
		t.Helper()
		harness.Eventually(t, limit, func() string {
			module, err := modules.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			status := module.Status
			if have := fmt.Sprintf("%s %s", status.State, status.Reason); have != want || status.ObservedGeneration != module.Generation {
				return fmt.Sprintf("%s is %s (%s), not %s", name, have, status.Message, want)
			}
			pod, err := env.Host().CoreV1().Pods(namespace).Get(t.Context(), status.ProbePodName, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if pod.Spec.NodeName != node {
				return fmt.Sprintf("%s is measured from %s, not %s", name, pod.Spec.NodeName, node)
			}
			return ""
		})
	}

	declare("placed", "b")
	is(firstLimit, "placed", "Online Connected", "node-b")
	declare("misplaced", "a")
	is(firstLimit, "misplaced", "Fault Refused", "node-a")

	// Without a placement a probe runs anywhere; this one, where the device is not.
	cordon(t, "node-b")
	declare("unplaced", "")
	is(firstLimit, "unplaced", "Fault Refused", "node-a")
	is(onlineLimit, "placed", "Online Connected", "node-b")

	patch := func(name, text string) {
		t.Helper()
		_, err := modules.Patch(t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{})
		must(t, err)
	}
	patch("unplaced", `{"spec":{"probePlacement":{"nodeSelector":{"zone":"b"}}}}`)
	is(onlineLimit, "unplaced", "Online Connected", "node-b")
	patch("placed", `{"spec":{"probePlacement":{"nodeSelector":{"zone":"a"}}}}`)
	is(onlineLimit, "placed", "Fault Refused", "node-a")
}

// cordon keeps new pods from a node until the test ends.
func cordon(t *testing.T, node string) {
	t.Helper()
	set := func(ctx context.Context, on bool) (*corev1.Node, error) {
		return env.Host().CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on), metav1.PatchOptions{})
	}
	_, err := set(t.Context(), true)
	must(t, err)
	t.Cleanup(func() { _, _ = set(context.Background(), false) })
}
