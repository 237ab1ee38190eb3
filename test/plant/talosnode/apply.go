package talosnode

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The modes of an apply, as short as in talk.
const (
	modeAuto     = machineapi.ApplyConfigurationRequest_AUTO
	modeNoReboot = machineapi.ApplyConfigurationRequest_NO_REBOOT
	modeReboot   = machineapi.ApplyConfigurationRequest_REBOOT
	modeStaged   = machineapi.ApplyConfigurationRequest_STAGED
	modeTry      = machineapi.ApplyConfigurationRequest_TRY
)

// metal is the runtime mode of a machine that installs itself on a disk.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }

// Configuration is the configuration that the node runs with, nil before it has one. It holds secrets: for tests that
// look for them elsewhere.
func (n *Node) Configuration() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()

	return append([]byte(nil), n.active.data...)
}

// PersistentConfiguration is the configuration that the node boots with: a staged one is only here, a tried one only in
// Configuration.
func (n *Node) PersistentConfiguration() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()

	return append([]byte(nil), n.persistent.data...)
}

// PatchConfiguration changes what a configured node runs with behind everybody's back, by a strategic merge patch, as
// somebody with talosctl does. The node keeps no record of it.
func (n *Node) PatchConfiguration(patch []byte) error {
	loaded, err := configpatcher.LoadPatch(patch)
	if err != nil {
		return err
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	if n.stage != StageRunning {
		return fmt.Errorf("node %s is %s, there is no configuration to change", n.options.Name, n.stage)
	}

	out, err := configpatcher.Apply(configpatcher.WithConfig(n.active.Provider), []configpatcher.Patch{loaded})
	if err != nil {
		return err
	}

	changed, err := out.Config()
	if err != nil {
		return err
	}

	data, err := changed.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return err
	}

	n.active = configuration{Provider: changed, data: data}
	n.persistent = n.active

	n.logf("configuration patched from outside")

	return n.rebuildStateLocked()
}

func (n *Node) apply(ctx context.Context, req *machineapi.ApplyConfigurationRequest, authenticated bool) (*machineapi.ApplyConfigurationResponse, error) {
	entry := Received{
		At:            time.Now(),
		Bytes:         len(req.GetData()),
		Mode:          req.GetMode().String(),
		DryRun:        req.GetDryRun(),
		Authenticated: authenticated,
	}

	answer, err := n.tryApply(ctx, req, authenticated, &entry)

	entry.Code = status.Code(err).String()
	entry.Accepted = err == nil && !req.GetDryRun()

	if answer != nil {
		entry.Answer = answer.GetMode().String()
	}

	n.record.addReceived(entry)

	n.logf("configuration received: %d bytes, role %q, mode %s, dry run %v: %s %s", entry.Bytes, entry.Role, entry.Mode, entry.DryRun, entry.Code, entry.Answer)

	if err != nil {
		return nil, err
	}

	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{answer}}, nil
}

func (n *Node) tryApply(ctx context.Context, req *machineapi.ApplyConfigurationRequest, authenticated bool, entry *Received) (*machineapi.ApplyConfiguration, error) {
	mode := req.GetMode()

	if !authenticated && n.options.Variant == Until112 && (mode == modeStaged || mode == modeNoReboot) {
		return nil, status.Errorf(codes.Unimplemented, "apply configuration mode %s is not supported in maintenance mode", mode)
	}

	if authenticated && n.since114 && mode == modeReboot {
		return nil, status.Errorf(codes.Unimplemented, "apply configuration mode %s is not supported", mode)
	}

	switch n.Fault() {
	case FaultRefuse:
		return nil, status.Errorf(codes.InvalidArgument, "1 error occurred:\n\t* unknown keys found during decoding:\n%s", req.GetData())
	case FaultBusy:
		return nil, status.Error(codes.FailedPrecondition, "another apply configuration request is in progress")
	}

	// A real node's messages quote the configuration too: the client has to deal with that.
	provider, err := configloader.NewFromBytes(req.GetData())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}

	raw := provider.RawV1Alpha1()
	complete := raw != nil && raw.MachineConfig != nil && raw.ClusterConfig != nil

	if complete {
		entry.Role = provider.Machine().Type().String()
	}

	var warnings []string

	switch {
	case complete:
		warnings, err = provider.Validate(metal{})
		if err == nil {
			_, err = provider.RuntimeValidate(ctx, *n.states.inner.Load(), metal{})
		}

		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "configuration validation failed: %s", err)
		}
	case authenticated:
		return nil, status.Error(codes.InvalidArgument, "the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config instead?")
	case n.options.Variant == Until112:
		return nil, status.Error(codes.InvalidArgument, "configuration validation failed: v1alpha1 config is required")
	}

	cfg := configuration{Provider: provider, data: append([]byte(nil), req.GetData()...)}

	if authenticated {
		return n.applyRunning(req, cfg, warnings)
	}

	return n.applyMaintenance(req, cfg, complete, warnings)
}

// applyMaintenance takes the node's first configuration.
func (n *Node) applyMaintenance(req *machineapi.ApplyConfigurationRequest, cfg configuration, complete bool, warnings []string) (*machineapi.ApplyConfiguration, error) {
	mode := req.GetMode()
	answer := &machineapi.ApplyConfiguration{Warnings: warnings, Mode: mode}

	if n.options.Variant == Since113 && (mode == modeAuto || mode == modeReboot) {
		answer.Mode = modeNoReboot
	}

	if req.GetDryRun() {
		answer.ModeDetails = "Dry run summary:\nNode has no configuration yet."
		if n.options.Variant == Since113 {
			answer.ModeDetails = "Dry run summary:\nConfig diff:\n\n" + string(req.GetData())
		}

		return answer, nil
	}

	if !complete {
		return answer, nil // stays in maintenance
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	if n.stage != StageMaintenance {
		return nil, status.Error(codes.FailedPrecondition, "config was already applied and the node is rebooting")
	}

	n.persistent = cfg
	n.goDownLocked(StageInstalling, n.options.Install, n.runLocked)

	return answer, nil
}

// applyRunning changes the configuration of a node that has one, as Talos 1.9 to 1.13 does; 1.14 never reboots for it.
func (n *Node) applyRunning(req *machineapi.ApplyConfigurationRequest, cfg configuration, warnings []string) (*machineapi.ApplyConfiguration, error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.stage != StageRunning {
		return nil, status.Error(codes.FailedPrecondition, "config was already applied and the node is rebooting")
	}

	const (
		without = "Applied configuration without a reboot"
		with    = "Applied configuration with a reboot"
	)

	mode := req.GetMode()
	answer := &machineapi.ApplyConfiguration{Warnings: warnings, Mode: mode}

	why, err := needsReboot(n.active, cfg)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}

	var because string

	switch mode {
	case modeTry, modeNoReboot:
		if why != "" && !n.since114 {
			return nil, status.Error(codes.InvalidArgument, why)
		}

		answer.ModeDetails = without
	case modeStaged:
		answer.ModeDetails = "Staged configuration to be applied after the next reboot"
	case modeReboot:
		answer.ModeDetails = with
	case modeAuto:
		answer.Mode, answer.ModeDetails = modeNoReboot, without

		if why != "" && !n.since114 {
			answer.Mode, answer.ModeDetails, because = modeReboot, with, ": "+why
		}
	default:
		return nil, status.Errorf(codes.Unknown, "incorrect mode '%s' specified for the apply config call", mode)
	}

	if req.GetDryRun() {
		diff, err := difference(n.active.Provider, cfg.Provider)
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}

		if diff == "" {
			diff = "No changes."
		}

		return &machineapi.ApplyConfiguration{
			Mode:        answer.Mode,
			ModeDetails: "Dry run summary:\n" + answer.ModeDetails + " (skipped in dry-run).\nConfig diff:\n\n" + diff,
		}, nil
	}

	answer.ModeDetails += because

	n.keepTriedLocked()

	switch answer.Mode {
	case modeTry:
		timeout := time.Minute
		if req.GetTryModeTimeout() != nil {
			timeout = req.GetTryModeTimeout().AsDuration()
		}

		n.revertLaterLocked(timeout)
		n.active = cfg
	case modeNoReboot:
		n.active, n.persistent = cfg, cfg
	case modeStaged:
		n.persistent = cfg
	case modeReboot:
		n.persistent = cfg
		n.rebootLocked()
	}

	if err := n.rebuildStateLocked(); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}

	return answer, nil
}

// revertLaterLocked goes back to the present configuration after a while.
func (n *Node) revertLaterLocked(after time.Duration) {
	before, epoch := n.active, n.epoch

	var timer *time.Timer

	timer = time.AfterFunc(after, func() {
		n.mu.Lock()
		defer n.mu.Unlock()

		if n.revert != timer || n.epoch != epoch || n.ctx.Err() != nil {
			return
		}

		n.active, n.revert = before, nil

		if err := n.rebuildStateLocked(); err != nil {
			n.logf("%v", err)
		}
	})

	n.revert = timer
}

func (n *Node) keepTriedLocked() {
	if n.revert != nil {
		n.revert.Stop()
		n.revert = nil
	}
}

// needsReboot tells why a configuration cannot be applied at once; "" when it can. The text quotes the configuration,
// as a real node's does. Other documents than v1alpha1 never need a reboot; of v1alpha1 the whole of cluster and debug
// do not, and of machine what is taken out here.
func needsReboot(before, after configuration) (string, error) {
	rest := func(cfg configuration) *v1alpha1.Config {
		c := cfg.RawV1Alpha1().DeepCopy()
		c.ConfigDebug, c.ClusterConfig = nil, nil

		m := c.MachineConfig
		m.MachineCA, m.MachineAcceptedCAs, m.MachineCertSANs = nil, nil, nil
		m.MachineInstall = nil
		//lint:ignore SA1019 deprecated, and in use
		m.MachineTime, m.MachineNetwork = nil, nil
		m.MachineSysfs, m.MachineSysctls, m.MachineKernel = nil, nil, nil
		m.MachineLogging, m.MachineControlPlane, m.MachineKubelet = nil, nil, nil
		//lint:ignore SA1019 deprecated, and in use
		m.MachineRegistries = v1alpha1.RegistriesConfig{}
		m.MachinePods, m.MachineSeccompProfiles = nil, nil
		m.MachineNodeAnnotations, m.MachineNodeLabels, m.MachineNodeTaints = nil, nil, nil

		if f := m.MachineFeatures; f != nil {
			f.KubernetesTalosAPIAccessConfig, f.KubePrismSupport, f.HostDNSSupport, f.ImageCacheSupport = nil, nil, nil, nil
			f.FeatureNodeAddressSortAlgorithm = ""

			if reflect.ValueOf(*f).IsZero() {
				m.MachineFeatures = nil
			}
		}

		return c
	}

	diff, err := difference(container.NewV1Alpha1(rest(before)), container.NewV1Alpha1(rest(after)))
	if err != nil || diff == "" {
		return "", err
	}

	return "this config change can't be applied in immediate mode\ndiff:\n" + diff, nil
}

// difference is what differs of two configurations, secrets included: the lines that are gone, then the new ones. "" is
// no difference.
func difference(before, after config.Encoder) (string, error) {
	lines := func(cfg config.Encoder) ([]string, error) {
		data, err := cfg.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))

		return strings.Split(string(data), "\n"), err
	}

	old, err := lines(before)
	if err != nil {
		return "", err
	}

	now, err := lines(after)
	if err != nil {
		return "", err
	}

	if strings.Join(old, "\n") == strings.Join(now, "\n") {
		return "", nil
	}

	var out strings.Builder

	out.WriteString("--- a\n+++ b\n")

	only := func(sign string, these, others []string) {
		count := make(map[string]int)
		for _, line := range others {
			count[line]++
		}

		for _, line := range these {
			if count[line]--; count[line] < 0 {
				fmt.Fprintf(&out, "%s%s\n", sign, line)
			}
		}
	}

	only("-", old, now)
	only("+", now, old)

	return out.String(), nil
}
