package maintenance

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"

	"github.com/fieldplane/fieldplane/pkg/talos/internal/remark"
)

func (s *session) ApplyConfiguration(ctx context.Context, config []byte, options ApplyOptions) (ApplyResult, error) {
	resp, err := client.FilterMessages(s.machine.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
		Data: config,
		// AUTO is the one mode that every Talos from 1.9 on takes in maintenance mode.
		Mode:   machineapi.ApplyConfigurationRequest_AUTO,
		DryRun: options.DryRun,
	}))
	if err != nil {
		return ApplyResult{}, s.applyError(err, config, options)
	}

	// ModeDetails is left out: a dry run puts a diff of the configuration there.
	var result ApplyResult

	for _, message := range resp.GetMessages() {
		result.Mode = message.GetMode().String()

		result.Warnings = append(result.Warnings, message.GetWarnings()...)
	}

	result.Warnings = remark.ScrubAll(result.Warnings, config)

	return result, nil
}

// applyError classifies a failed apply. The cause is not kept: a node's message may quote the configuration.
func (s *session) applyError(err error, config []byte, options ApplyOptions) error {
	code := client.StatusCode(err)
	failure := &Error{Class: applyClass(code, options), Address: s.address, Op: "apply configuration", Detail: code.String()}

	if status := client.Status(err); status != nil {
		if text := remark.Scrub(status.Message(), config); text != "" {
			failure.Detail += ": " + text
		}
	}

	if code == codes.Unavailable {
		// The text is of this end's making, but gRPC may have put the peer's into it.
		failure.Detail = code.String()

		if s.pin.certificateRequested.Load() {
			failure.Class = ClassNotInMaintenance
		}
	}

	return failure
}

func applyClass(code codes.Code, options ApplyOptions) Class {
	switch code {
	case codes.InvalidArgument, codes.Unimplemented, codes.OutOfRange:
		return ClassRejected
	case codes.PermissionDenied, codes.Unauthenticated:
		// Somebody else has configured the node in the meantime.
		return ClassNotInMaintenance
	case codes.FailedPrecondition, codes.Aborted, codes.ResourceExhausted:
		return ClassBusy
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		if options.DryRun {
			return ClassUnreachable
		}

		return ClassOutcomeUnknown
	default:
		return ClassNodeError
	}
}
