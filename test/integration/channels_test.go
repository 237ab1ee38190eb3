package integration

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// Req: P-06, A-10
func TestChannelsNeedGetOnTheirSubresourceAndReadingTheModuleDoesNotGiveIt(t *testing.T) {
	t.Parallel()
	namespace := env.Namespace(t)
	if _, err := env.Admin(t).PhysicalV1alpha1().IOModules(namespace).Create(t.Context(), &physicalv1alpha1.IOModule{
		ObjectMeta: metav1.ObjectMeta{Name: "press"},
		Spec: physicalv1alpha1.IOModuleSpec{
			Protocol: physicalv1alpha1.ProtocolModbus, Modbus: &physicalv1alpha1.ModbusConnection{Endpoint: "tcp://127.0.0.1:1"},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for user, test := range map[string]struct {
		verbs, resources string
		names            []string
		may              bool
	}{
		"reads modules, and their status":    {"get,list,watch", "iomodules,iomodules/status", nil, false},
		"lists channels, which is no verb":   {"list,watch", "iomodules/channels", nil, false},
		"reads the channels of another":      {"get", "iomodules/channels", []string{"packer"}, false},
		"reads the channels of this module":  {"get", "iomodules/channels", []string{"press"}, true},
		"reads channels, and not the module": {"get", "iomodules/channels", nil, true},
	} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			grant(t, namespace, user, rule(test.verbs, test.resources, test.names...))
			err := env.As(t, user).PhysicalV1alpha1().RESTClient().Get().Namespace(namespace).Resource("iomodules").Name("press").
				SubResource("channels").Do(t.Context()).Error()
			// Nobody has looked through a device that is not there: who may ask is told that.
			if refused := apierrors.IsForbidden(err); refused == test.may {
				t.Errorf("refused is %v: %v", refused, err)
			}
		})
	}
}

// Req: A-08
func TestKubectlShowsChannelsAsATable(t *testing.T) {
	t.Parallel()
	e := newEquipment(t, false)
	output := env.MustKubectl(t, "", "get", "iomodules.physical.fieldplane.dev", "tank", "-n", e.namespace, "--subresource=channels")
	if header, rows, _ := strings.Cut(output, "\n"); strings.Join(strings.Fields(header), " ") != "NAME ADDRESS TYPE ACCESS UNIT PROBLEM" || !strings.Contains(rows, "holding:4") {
		t.Errorf("kubectl shows\n%s", output)
	}
}
