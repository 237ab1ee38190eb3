package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fieldplane/fieldplane/apis/physical"
)

// CheckTagReference tells whether a tag can be what it says on the module that it names: whether its address is one of the module's
// protocol, and its data type and access are possible there (P-14). A ControlModule may be stored before its modules are, so that this
// refuses nothing; it is what its status tells.
func CheckTagReference(tag *physical.Tag, spec *physical.IOModuleSpec, path *field.Path) field.ErrorList {
	channel := physical.Channel{Name: tag.Name, Address: tag.Address, DataType: tag.DataType, Access: tag.Access}
	for i := range spec.Channels {
		declared := &spec.Channels[i]
		if declared.Address != tag.Address {
			continue
		}
		channel.Count = declared.Count
		if channel.DataType == "" {
			channel.DataType = declared.DataType
		}
		if declared.Access == physical.AccessRead && (tag.Access == physical.AccessWrite || tag.Access == physical.AccessReadWrite) {
			return field.ErrorList{field.Invalid(path.Child("access"), tag.Access, "must be Read, as the module declares channel "+declared.Name)}
		}
		return validateChannel(&channel, spec, path)
	}
	if spec.Protocol == physical.ProtocolSimulation {
		return field.ErrorList{field.Invalid(path.Child("address"), tag.Address, "must be the address of a channel that the module declares: a simulation has no other")}
	}
	return validateChannel(&channel, spec, path)
}
