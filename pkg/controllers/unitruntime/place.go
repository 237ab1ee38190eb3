package unitruntime

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver/ethernetip"
	"github.com/fieldplane/fieldplane/pkg/driver/modbus"
	"github.com/fieldplane/fieldplane/pkg/driver/opcua"
)

// placeOf reads a module. Simulations have no device, and an endpoint that is none has no connections to share.
func placeOf(module *v1alpha1.IOModule) place {
	spec := &module.Spec
	var (
		hostPort string
		err      error
		limit    *int32
	)
	switch {
	case spec.Protocol == v1alpha1.ProtocolModbus && spec.Modbus != nil:
		hostPort, err = modbus.ParseEndpoint(spec.Modbus.Endpoint)
		limit = spec.Modbus.MaxConnections
	case spec.Protocol == v1alpha1.ProtocolOPCUA && spec.OPCUA != nil:
		hostPort, err = opcua.ParseEndpoint(spec.OPCUA.Endpoint)
		limit = spec.OPCUA.MaxConnections
	case spec.Protocol == v1alpha1.ProtocolEtherNetIP && spec.Ethernetip != nil:
		hostPort, err = ethernetip.ParseEndpoint(spec.Ethernetip.Endpoint)
		limit = spec.Ethernetip.MaxConnections
	}
	if err != nil {
		hostPort = ""
	}
	p := place{
		device:   device{module.Namespace, hostPort},
		limit:    int(ptr.Deref(limit, 0)),
		probePod: module.Status.ProbePodName,
	}
	switch {
	case spec.ControllerRef != nil:
		p.prober = "controller " + spec.ControllerRef.Name
	case spec.ProbePlacement != nil:
		p.prober = "nodes " + labels.Set(spec.ProbePlacement.NodeSelector).String()
	default:
		p.prober = "nodes "
	}
	return p
}
