package unit

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// Runtimes are the Units' runtimes as the controller reaches them (P-16b). None of its methods waits for the network.
type Runtimes interface {
	// Tell has the runtime follow an order from now on: it is sent at once and every api.KeepAlive, until another is told. An order
	// of a lower revision than one told before is dropped.
	Tell(unit types.NamespacedName, order api.Order)
	// Forget stops telling: the Unit is gone, or what is stored of it can no longer be trusted to be all there is to tell. The runtime
	// takes the server for gone then, after api.Contact (P-16b).
	Forget(unit types.NamespacedName)
	// Report is the last one of the Unit's runtime, and the pod that it came from, "" if there is none. While the runtime is not in
	// contact, the report is the last one that was heard, or the zero Report.
	Report(unit types.NamespacedName) (report api.Report, pod string, inContact bool)
	// OnChange has a function called whenever what Report says of a Unit has changed otherwise than by its time. It is called before
	// Run, once; the function does not block.
	OnChange(changed func(unit types.NamespacedName))
}
