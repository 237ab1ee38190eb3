package unitruntime

import (
	"github.com/fieldplane/fieldplane/pkg/isa88"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// permission is what may be written to devices.
type permission uint8

const (
	// writesNothing: neither users nor hold values.
	writesNothing permission = iota
	// writesOfUsers are let through, and no hold value.
	writesOfUsers
	// writesHoldValues: those alone are sent.
	writesHoldValues
)

// regime is what may be written, and for which hold. Whatever was permitted under another regime is permitted no longer.
type regime struct {
	permission permission
	// hold names what holds: hold values are written once for each, and again by whatever device comes back.
	hold string
}

// regimeOf is the regime that follows from the order in force, the latch, and whether the order came since the program
// started. An order that was in force before a restart still holds, and permits nothing else (P-16b).
func regimeOf(order *api.Order, latch *api.Latch, fresh bool) regime {
	if order != nil {
		if class, ok := holdClass(order.State); ok {
			return regime{writesHoldValues, class + "/" + order.Episode}
		}
	}
	switch {
	case latch != nil:
		return regime{writesHoldValues, "latch/" + latch.ID}
	case order != nil && order.State == isa88.Running && fresh:
		return regime{permission: writesOfUsers}
	default:
		return regime{permission: writesNothing}
	}
}

// holdClass tells whether hold values are written in a state, and names the states in which that is one and the same hold.
func holdClass(s isa88.State) (string, bool) {
	switch s {
	case isa88.Holding, isa88.Held:
		return "hold", true
	case isa88.Stopping, isa88.Stopped:
		return "stop", true
	case isa88.Aborting, isa88.Aborted:
		return "abort", true
	default:
		return "", false
	}
}
