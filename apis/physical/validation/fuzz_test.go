package validation

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/randfill"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// Whatever arrives, validation neither panics nor makes an error that cannot be sent: NaN has no JSON.
//
// Req: A-04
func TestNoObjectBreaksValidation(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.2).NumElements(0, 3).Funcs(
		func(f *float64, c randfill.Continue) {
			*f = []float64{0, 1, -0.5, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64}[c.Intn(8)]
		},
		func(s *string, c randfill.Continue) {
			seeds := []string{"", "tcp://", "opc.tcp://[", "holding:1", "40001", "ns=1;i=2", "1,0", "true", "1e400", "\xff\x00", "a..b", "%zz", "tcp://[::%25]:99999"}
			*s = seeds[c.Intn(len(seeds))]
			if c.Intn(3) == 0 {
				*s += c.String(20)
			}
		},
		func(p *physical.Protocol, c randfill.Continue) {
			*p = []physical.Protocol{"", "modbus", "opcua", "ethernetip", "simulation", "other"}[c.Intn(6)]
		},
		func(d *physical.DataType, c randfill.Continue) {
			*d = []physical.DataType{"", "bool", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64", "string", "other"}[c.Intn(12)]
		},
	)

	send := func(kind string, errs field.ErrorList) {
		if len(errs) == 0 {
			return
		}
		status := apierrors.NewInvalid(physical.Kind(kind), "x", errs).Status()
		if _, err := json.Marshal(status); err != nil {
			t.Fatalf("%v cannot be sent: %v", errs, err)
		}
	}
	for range 1000 {
		var (
			module     physical.IOModule
			controller physical.Controller
			control    physical.ControlModule
			unit       physical.Unit
			command    physical.UnitCommand
			tags       physical.UnitTags
		)
		fill.Fill(&module)
		fill.Fill(&controller)
		fill.Fill(&control)
		fill.Fill(&unit)
		fill.Fill(&command)
		fill.Fill(&tags)
		send("UnitCommand", ValidateUnitCommand(&command))
		send("UnitTags", ValidateUnitTags(&tags))
		for i := range control.Spec.Tags {
			for _, write := range tags.Writes {
				tag := &control.Spec.Tags[i]
				errs := ValidateTagValue(field.NewPath("value"), write.Value, tag)
				send("UnitTags", errs)
				switch tag.DataType {
				case "", physical.DataTypeString, physical.DataTypeBool:
				default:
					if value, err := strconv.ParseFloat(write.Value, 64); len(errs) == 0 && (err != nil || !finite(value)) {
						t.Fatalf("%q is taken for a %s", write.Value, tag.DataType)
					}
				}
			}
		}
		send("IOModule", append(ValidateIOModule(&module), ValidateIOModuleUpdate(&module, &module)...))
		send("IOModule", ValidateIOModuleStatusUpdate(&module, &module))
		send("Controller", append(ValidateController(&controller), ValidateControllerUpdate(&controller, &controller)...))
		send("Controller", ValidateControllerStatusUpdate(&controller, &controller))
		send("ControlModule", append(ValidateControlModule(&control), ValidateControlModuleUpdate(&control, &control)...))
		send("ControlModule", ValidateControlModuleStatusUpdate(&control, &control))
		send("Unit", append(ValidateUnit(&unit), ValidateUnitUpdate(&unit, &unit)...))
		send("Unit", ValidateUnitStatusUpdate(&unit, &unit))
	}
}
