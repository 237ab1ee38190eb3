package validation

import (
	"fmt"
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// validateChannel checks a declared channel in the notation of its module's protocol (P-13).
func validateChannel(channel *physical.Channel, spec *physical.IOModuleSpec, path *field.Path) field.ErrorList {
	errs := validateScaling(channel.Scaling, channel.DataType, path.Child("scaling"))

	if channel.WordOrder != "" && spec.Protocol != physical.ProtocolModbus {
		errs = append(errs, field.Invalid(path.Child("wordOrder"), channel.WordOrder, "must be absent: only Modbus leaves the order open"))
	}
	if channel.Address == "" {
		return errs
	}

	address := path.Child("address")
	switch spec.Protocol {
	case physical.ProtocolModbus:
		errs = append(errs, validateModbusChannel(channel, spec.Modbus, path)...)
	case physical.ProtocolOPCUA:
		if !nodeID.MatchString(channel.Address) {
			errs = append(errs, field.Invalid(address, channel.Address, `must be an OPC UA NodeId, such as "ns=2;s=Boiler.Pressure" or "i=2258"`))
		}
	case physical.ProtocolEtherNetIP:
		if !cipTag.MatchString(channel.Address) {
			errs = append(errs, field.Invalid(address, channel.Address, `must be a tag name, such as "Program:Main.Tag[2].Member"`))
		}
	}
	return errs
}

func validateModbusChannel(channel *physical.Channel, modbus *physical.ModbusConnection, path *field.Path) field.ErrorList {
	addressing := physical.ModbusAddressingZeroBased
	if modbus != nil && modbus.Addressing != "" {
		addressing = modbus.Addressing
	}
	table, offset, rule := parseModbusAddress(channel.Address, addressing)
	if rule != "" {
		return field.ErrorList{field.Invalid(path.Child("address"), channel.Address, rule)}
	}

	var errs field.ErrorList
	if table.bits && channel.DataType != "" && channel.DataType != physical.DataTypeBool {
		errs = append(errs, field.Invalid(path.Child("dataType"), channel.DataType, fmt.Sprintf("must be bool: a %s is one bit", table.name)))
	}
	if table.readOnly && channel.Access != "" && channel.Access != physical.AccessRead {
		errs = append(errs, field.Invalid(path.Child("access"), channel.Access, fmt.Sprintf("must be Read: the %s table cannot be written", table.name)))
	}
	each := words(channel.DataType)
	if table.bits {
		each = 1
	}
	if last := offset + each*int(ptr.Deref(channel.Count, 1)); last > tableSize {
		errs = append(errs, field.Invalid(path.Child("address"), channel.Address, "goes beyond the end of the table, which has 65536 elements"))
	}
	return errs
}

// words is how many registers a value takes.
func words(dataType physical.DataType) int {
	switch dataType {
	case physical.DataTypeInt32, physical.DataTypeUint32, physical.DataTypeFloat32:
		return 2
	case physical.DataTypeInt64, physical.DataTypeUint64, physical.DataTypeFloat64:
		return 4
	default:
		return 1
	}
}

// validateScaling checks that scaling can be applied and undone. Protobuf carries what JSON cannot: NaN and infinities.
func validateScaling(scaling *physical.Scaling, dataType physical.DataType, path *field.Path) field.ErrorList {
	if scaling == nil {
		return nil
	}
	if dataType == physical.DataTypeBool || dataType == physical.DataTypeString {
		return field.ErrorList{field.Forbidden(path, "must be absent: a "+string(dataType)+" has no scale")}
	}
	var errs field.ErrorList
	// Errors carry the number as text, since a NaN cannot be written as JSON.
	if factor := scaling.Factor; factor != nil && (*factor == 0 || !finite(*factor)) {
		errs = append(errs, field.Invalid(path.Child("factor"), number(*factor), "must be a finite number other than 0"))
	}
	if offset := scaling.Offset; offset != nil && !finite(*offset) {
		errs = append(errs, field.Invalid(path.Child("offset"), number(*offset), "must be a finite number"))
	}
	return errs
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
