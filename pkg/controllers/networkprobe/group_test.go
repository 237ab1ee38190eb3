package networkprobe

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
	"github.com/fieldplane/fieldplane/pkg/probe"
)

// Req: P-06
func TestSharedProbesWatchNetworkModulesWithoutController(t *testing.T) {
	for _, tc := range []struct {
		name       string
		protocol   v1alpha1.Protocol
		controller string
		want       bool
	}{
		{"modbus without controllerRef", v1alpha1.ProtocolModbus, "", true},
		{"opcua without controllerRef", v1alpha1.ProtocolOPCUA, "", true},
		{"ethernetip without controllerRef", v1alpha1.ProtocolEtherNetIP, "", true},
		{"modbus with controllerRef", v1alpha1.ProtocolModbus, "edge", false},
		{"simulation with controllerRef", v1alpha1.ProtocolSimulation, "sim", false},
		{"simulation without controllerRef, which admission refuses", v1alpha1.ProtocolSimulation, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			module := &v1alpha1.IOModule{Spec: v1alpha1.IOModuleSpec{Protocol: tc.protocol}}
			if tc.controller != "" {
				module.Spec.ControllerRef = &v1alpha1.ControllerReference{Name: tc.controller}
			}
			if got := Monitors(module); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

// Req: P-09
func TestNamesOfProbes(t *testing.T) {
	zoneA, zoneB := map[string]string{"zone": "a", "net": "ot"}, map[string]string{"zone": "b"}
	a, b := baseName(zoneA), baseName(zoneB)
	if baseName(nil) != "network-io-probe" || baseName(map[string]string{}) != "network-io-probe" {
		t.Error("the unpinned probe has not the plain name")
	}
	if a == b || !strings.HasPrefix(a, "network-io-probe-") {
		t.Errorf("selectors give %s and %s", a, b)
	}
	if again := baseName(map[string]string{"net": "ot", "zone": "a"}); again != a {
		t.Error("the order of a selector's keys counts")
	}
	for _, base := range []string{BaseName, a, b} {
		for _, n := range []int{1, 2, 10, 999999} {
			gotBase, gotN, ok := parseName(shardName(base, n))
			if !ok || gotBase != base || gotN != n {
				t.Errorf("%s reads as %s, %d, %t", shardName(base, n), gotBase, gotN, ok)
			}
		}
	}
	for _, foreign := range []string{"network-io-probe-1", "network-io-probe-x", "network-io-probes", "my-network-io-probe", "network-io-probe-02", ""} {
		if _, _, ok := parseName(foreign); ok {
			t.Errorf("%q reads as a probe's name", foreign)
		}
	}
}

// Req: P-08, P-09
func TestTheConfigIsDeterministicAndReadByTheProbe(t *testing.T) {
	pressure, flow := modbus("pressure", nil), modbus("flow", nil)
	var lines [][]byte
	for _, module := range groups([]*v1alpha1.IOModule{pressure, flow}, nil)[0].modules {
		line, err := encodeEntry(module)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	config := encodeConfig(lines)
	read, err := probe.ParseConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if read.Hash != configHash(config) {
		t.Error("the probe knows the config by another hash")
	}
	if len(read.Modules) != 2 || read.Modules[0].Name != "flow" || read.Modules[1].Name != "pressure" {
		t.Fatalf("the probe reads %v", read.Modules)
	}
	m := read.Modules[1]
	if m.Err != nil || m.UID != string(pressure.UID) || m.Generation != pressure.Generation || m.Spec.Modbus.Endpoint != pressure.Spec.Modbus.Endpoint {
		t.Errorf("the probe reads %+v", m)
	}
	listed := ListedModules(&corev1.ConfigMap{Data: map[string]string{probepod.ConfigKey: string(config)}})
	if strings.Join(listed, ",") != "flow,pressure" {
		t.Errorf("the ConfigMap lists %v", listed)
	}
	if got := ListedModules(&corev1.ConfigMap{Data: map[string]string{probepod.ConfigKey: "{"}}); got != nil {
		t.Errorf("a broken ConfigMap lists %v", got)
	}
	if _, err := probe.ParseConfig(encodeConfig(nil)); err != nil {
		t.Error(err)
	}
}

func modbus(name string, selector map[string]string) *v1alpha1.IOModule {
	module := &v1alpha1.IOModule{
		ObjectMeta: metav1.ObjectMeta{Namespace: "site-north", Name: name, Generation: 1},
		Spec: v1alpha1.IOModuleSpec{
			Protocol: v1alpha1.ProtocolModbus,
			Modbus:   &v1alpha1.ModbusConnection{Endpoint: "tcp://192.0.2.1:502"},
		},
	}
	module.UID = types.UID("uid-of-" + name)
	if selector != nil {
		module.Spec.ProbePlacement = &v1alpha1.ProbePlacement{NodeSelector: selector}
	}
	return module
}
