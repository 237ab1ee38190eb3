package machine

import (
	"context"
	"regexp"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configpb "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/protobuf/proto"

	"github.com/fieldplane/fieldplane/pkg/talos/internal/plainyaml"
	"github.com/fieldplane/fieldplane/pkg/talos/internal/remark"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

func (s *session) Configuration(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	text, err := s.activeText(ctx)
	if err != nil {
		// Also what could not be decoded ends up here, and its error may quote the configuration: the code must do.
		return nil, &Error{Class: s.class(ctx, err, table{}), Address: s.address, Op: OpConfiguration, Detail: client.StatusCode(err).String(), cause: ended(ctx, nil)}
	}

	refuse := func(why string) ([]byte, error) {
		return nil, &Error{Class: ClassNodeError, Address: s.address, Op: OpConfiguration, Detail: why}
	}

	// Any machine of the cluster may answer here, one that somebody else has taken over too.
	if err := plainyaml.CheckDocuments(text); err != nil {
		return refuse("the configuration " + err.Error())
	}

	active, err := configloader.NewFromBytes(text)
	if err != nil {
		return refuse("the configuration cannot be read")
	}

	data, err := active.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return refuse("the configuration cannot be written as YAML")
	}

	return data, nil
}

// activeText is the configuration as the node sends it.
func (s *session) activeText(ctx context.Context) ([]byte, error) {
	md := resource.NewMetadata(config.NamespaceName, config.MachineConfigType, config.ActiveID, resource.VersionUndefined)

	got, err := s.cosi.Get(ctx, md, state.WithGetUnmarshalOptions(state.WithSkipProtobufUnmarshal()))
	if err != nil {
		return nil, err
	}

	raw, err := protobuf.FromResource(got)
	if err != nil {
		return nil, err
	}

	wire, err := raw.Marshal()
	if err != nil {
		return nil, err
	}

	var spec configpb.MachineConfigSpec
	if err := proto.Unmarshal(wire.GetSpec().GetProtoSpec(), &spec); err != nil {
		return nil, err
	}

	return spec.GetYamlMarshalled(), nil
}

func (s *session) Apply(ctx context.Context, config []byte, mode Mode, dryRun bool) (maintenance.ApplyResult, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	op := OpApply
	if dryRun {
		op = OpTry
	}

	apiMode, ok := mode.api()
	if !ok {
		return maintenance.ApplyResult{}, &Error{Class: ClassRejected, Address: s.address, Op: op, Detail: "no such mode"}
	}

	resp, err := client.FilterMessages(s.machine.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: config, Mode: apiMode, DryRun: dryRun}))
	if err != nil {
		return maintenance.ApplyResult{}, s.applyError(ctx, op, config, err)
	}

	// ModeDetails is left out: a dry run puts a diff of the configurations there.
	var result maintenance.ApplyResult

	for _, message := range resp.GetMessages() {
		result.Mode = message.GetMode().String()

		result.Warnings = append(result.Warnings, message.GetWarnings()...)
	}

	result.Warnings = result.Warnings[:min(len(result.Warnings), remark.MaxRemarks)]
	for i, warning := range result.Warnings {
		result.Warnings[i] = beforeDiff(warning)
	}

	result.Warnings = remark.ScrubAll(result.Warnings, config)

	return result, nil
}

// applyError classifies a failed apply. The cause is not kept: a node's message may quote the configuration.
func (s *session) applyError(ctx context.Context, op Op, config []byte, err error) error {
	code := client.StatusCode(err)
	failure := &Error{Class: s.class(ctx, err, table{changes: op == OpApply}), Address: s.address, Op: op, Detail: code.String(), cause: ended(ctx, nil)}

	if failure.Class != ClassRejected && failure.Class != ClassBusy && failure.Class != ClassNodeError {
		return failure
	}

	// What the node says may quote the configuration that it runs with as well, which may have other secrets.
	running, runningErr := s.Configuration(ctx)
	if runningErr != nil {
		return failure
	}

	if status := client.Status(err); status != nil {
		if text := remark.Scrub(beforeDiff(status.Message()), config, running); text != "" {
			failure.Detail += ": " + text
		}
	}

	return failure
}

// diffStart is where a node's message goes over to quoting configurations line by line.
var diffStart = regexp.MustCompile(`(?i)\bdiff:|(?m)^(--- |\+\+\+ |@@ )`)

// beforeDiff leaves out what a node quotes of the configurations' differences: of no use here, where it would be cut off,
// and full of secrets.
func beforeDiff(message string) string {
	if at := diffStart.FindStringIndex(message); at != nil {
		return message[:at[0]]
	}

	return message
}

// api is the machine API's mode; ModeReboot is none, since nobody asks for a reboot that way (T-18a).
func (m Mode) api() (machineapi.ApplyConfigurationRequest_Mode, bool) {
	switch m {
	case ModeAuto:
		return machineapi.ApplyConfigurationRequest_AUTO, true
	case ModeNoReboot:
		return machineapi.ApplyConfigurationRequest_NO_REBOOT, true
	case ModeStaged:
		return machineapi.ApplyConfigurationRequest_STAGED, true
	}

	return 0, false
}
