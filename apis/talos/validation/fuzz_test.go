package validation

import (
	"encoding/json"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/randfill"

	"github.com/fieldplane/fieldplane/apis/talos"
)

// Whatever arrives, validation neither panics nor makes an error that cannot be sent.
//
// Req: A-04
func TestNoObjectBreaksValidation(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.2).NumElements(0, 3).Funcs(
		func(s *string, c randfill.Continue) {
			seeds := []string{"", "https://", "https://[::%25]:99999", "192.0.2.1", "10.0.0.1/24", "::/0", machineUUID, firstMAC, "/dev/sda", ">= 1GB", "9999999999999999999999GB", "v1.13", "\xff\x00", "%zz", "YQ=="}
			*s = seeds[c.Intn(len(seeds))]
			if c.Intn(3) == 0 {
				*s += c.String(20)
			}
		},
		func(r *talos.MachineRole, c randfill.Continue) {
			*r = []talos.MachineRole{"", "controlplane", "worker", "other"}[c.Intn(4)]
		},
	)
	send := func(kind string, errs field.ErrorList) {
		if len(errs) == 0 {
			return
		}
		if _, err := json.Marshal(apierrors.NewInvalid(talos.Kind(kind), "x", errs).Status()); err != nil {
			t.Fatalf("%v cannot be sent: %v", errs, err)
		}
	}
	for range 1000 {
		var (
			cluster talos.TalosCluster
			machine talos.TalosMachine
		)
		fill.Fill(&cluster)
		fill.Fill(&machine)
		send("TalosCluster", append(ValidateTalosCluster(&cluster), ValidateTalosClusterUpdate(&cluster, &cluster)...))
		send("TalosCluster", ValidateTalosClusterStatusUpdate(&cluster, &cluster))
		send("TalosMachine", append(ValidateTalosMachine(&machine), ValidateTalosMachineUpdate(&machine, &machine)...))
		send("TalosMachine", ValidateTalosMachineStatusUpdate(&machine, &machine))
	}
}
