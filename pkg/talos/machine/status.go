package machine

import (
	"context"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/fieldplane/fieldplane/pkg/talos/internal/apid"
	"github.com/fieldplane/fieldplane/pkg/talos/internal/remark"
)

// maxUnmet bounds the conditions that are kept; Talos has five.
const maxUnmet = 16

func (s *session) Status(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	var status Status

	machineStatus, err := safe.StateGetByID[*runtime.MachineStatus](ctx, s.cosi, runtime.MachineStatusID)
	if err == nil {
		spec := machineStatus.TypedSpec()
		status.Stage, status.Ready = spec.Stage.String(), spec.Status.Ready

		for _, unmet := range spec.Status.UnmetConditions[:min(maxUnmet, len(spec.Status.UnmetConditions))] {
			status.Unmet = append(status.Unmet, remark.Clean(unmet.Name+": "+unmet.Reason))
		}
	} else if !apid.Withheld(err) {
		return Status{}, s.readError(ctx, OpStatus, err)
	}

	version, err := safe.StateGetByID[*runtime.Version](ctx, s.cosi, "version")
	if err == nil {
		status.TalosVersion = remark.Clean(version.TypedSpec().Version)
	} else if !apid.Withheld(err) {
		return Status{}, s.readError(ctx, OpStatus, err)
	}

	hostname, err := safe.StateGetByID[*network.HostnameStatus](ctx, s.cosi, network.HostnameID)
	if err == nil {
		status.Hostname = remark.Clean(hostname.TypedSpec().Hostname)
	} else if !apid.Withheld(err) {
		return Status{}, s.readError(ctx, OpStatus, err)
	}

	return status, nil
}
