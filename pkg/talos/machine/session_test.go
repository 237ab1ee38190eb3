package machine

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	cosiv1alpha1 "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configpb "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// Req: T-18, T-18a
func TestANodeTellsWhoAndHowItIs(t *testing.T) {
	bundle := theCluster()
	n := newNode(t, bundle)
	client := n.session(t, Access{Bundle: bundle, Role: RoleReader})

	// Early in the boot there is nothing yet.
	hw, err := client.Identity(t.Context())
	if ClassOf(err) != ClassIdentityAbsent {
		t.Errorf("no SMBIOS: have %v, %v", hw, err)
	}

	if have, err := client.Status(t.Context()); err != nil || !reflect.DeepEqual(have, Status{}) {
		t.Errorf("no status: have %+v, %v", have, err)
	}

	system := hardware.NewSystemInformation(hardware.SystemInformationID)
	system.TypedSpec().UUID, system.TypedSpec().SerialNumber = "4c4c4544-0042-3510-8054-b4c04f564433", "B5TV\x1bD3"

	link := network.NewLinkStatus(network.NamespaceName, "eno1")
	link.TypedSpec().Type = nethelpers.LinkEther
	link.TypedSpec().PermanentAddr = nethelpers.HardwareAddr{0xb4, 0x45, 0x06, 0xaa, 0, 2}

	disk := block.NewDisk(block.NamespaceName, "sda")
	disk.TypedSpec().DevPath, disk.TypedSpec().Serial = "/dev/sda", "S1"

	machineStatus := runtime.NewMachineStatus()
	machineStatus.TypedSpec().Stage = runtime.MachineStageBooting
	machineStatus.TypedSpec().Status.UnmetConditions = slices.Repeat([]runtime.UnmetCondition{{Name: "services", Reason: "etcd not\u202e running"}}, 20)

	version := runtime.NewVersion()
	version.TypedSpec().Version = "v1.13.9"

	hostname := network.NewHostnameStatus(network.NamespaceName, network.HostnameID)
	hostname.TypedSpec().Hostname = "cp-1"

	n.put(t, system, link, disk, machineStatus, version, hostname)

	hw, err = client.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	want := maintenance.Hardware{
		UUID: "4c4c4544-0042-3510-8054-b4c04f564433", Serial: "B5TVD3",
		Links: []maintenance.Link{{Name: "eno1", Physical: true, PermanentAddr: "b4:45:06:aa:00:02"}},
		Disks: []maintenance.Disk{{DevPath: "/dev/sda", Serial: "S1"}},
		Stage: "booting", TalosVersion: "v1.13.9",
	}
	if !reflect.DeepEqual(hw, want) {
		t.Errorf("have %+v, want %+v", hw, want)
	}

	have, err := client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if want := (Status{Stage: "booting", Unmet: slices.Repeat([]string{"services: etcd not running"}, 16), TalosVersion: "v1.13.9", Hostname: "cp-1"}); !reflect.DeepEqual(have, want) {
		t.Errorf("have %+v, want %+v", have, want)
	}
}

// Req: T-15, T-18a
func TestTheConfigurationIsReadAsItIsRendered(t *testing.T) {
	bundle := theCluster()
	n := newNode(t, bundle)
	client := n.session(t, Access{Bundle: bundle, Role: RoleAdmin})

	if _, err := client.Configuration(t.Context()); ClassOf(err) != ClassNodeError {
		t.Errorf("a node without one: %v", err)
	}

	config := rendered(t, bundle)
	n.runs(t, append([]byte("# a comment that the node keeps\n"), config...))

	have, err := client.Configuration(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if !bytes.Equal(have, config) {
		t.Error("the configuration that was read is not the one rendered")
	}

	for _, tc := range []struct{ name, text, want string }{
		// The decoder's error quotes a part of what it could not read.
		{"one that cannot be read", "machine: " + bundle.TrustdInfo.Token + "\n", "the configuration cannot be read"},
		{"one that is no YAML", "{" + bundle.TrustdInfo.Token, "the configuration must be YAML"},
		// Reading one of 4000 would take the machinery 20 s, and some gigabytes.
		{"one with a key very often", "machine:\n  sysctls:\n" + strings.Repeat("    k: v\n", 1000),
			"the configuration must have each key once in a mapping, and has one twice at line 4"},
	} {
		n.tamper = func(answer any) {
			if got, ok := answer.(*cosiv1alpha1.GetResponse); ok {
				spec, err := proto.Marshal(&configpb.MachineConfigSpec{YamlMarshalled: []byte(tc.text)})
				if err != nil {
					panic(err)
				}

				got.Resource.Spec.ProtoSpec = spec
			}
		}

		_, err = client.Configuration(t.Context())
		if want := "read configuration 192.0.2.1: NodeError: " + tc.want; err == nil || err.Error() != want || errors.Unwrap(err) != nil {
			t.Errorf("%s: have %v, want %s", tc.name, err, want)
		}
	}
}

// Req: T-18a
func TestAConfigurationIsAppliedInTheModeAskedFor(t *testing.T) {
	bundle := theCluster()
	n := newNode(t, bundle)
	client := n.session(t, Access{Bundle: bundle, Role: RoleAdmin})
	config := rendered(t, bundle)

	for _, tc := range []struct {
		mode   Mode
		dryRun bool
		asked  machineapi.ApplyConfigurationRequest_Mode
		answer machineapi.ApplyConfigurationRequest_Mode
		want   Mode
	}{
		{ModeAuto, true, machineapi.ApplyConfigurationRequest_AUTO, machineapi.ApplyConfigurationRequest_REBOOT, ModeReboot},
		{ModeAuto, true, machineapi.ApplyConfigurationRequest_AUTO, machineapi.ApplyConfigurationRequest_NO_REBOOT, ModeNoReboot},
		{ModeNoReboot, false, machineapi.ApplyConfigurationRequest_NO_REBOOT, machineapi.ApplyConfigurationRequest_NO_REBOOT, ModeNoReboot},
		{ModeStaged, false, machineapi.ApplyConfigurationRequest_STAGED, machineapi.ApplyConfigurationRequest_STAGED, ModeStaged},
	} {
		n.apply = func(req *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
			if req.GetMode() != tc.asked || req.GetDryRun() != tc.dryRun || !bytes.Equal(req.GetData(), config) {
				t.Errorf("%s: the node was asked for %s, dry run %v", tc.mode, req.GetMode(), req.GetDryRun())
			}

			return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{{
				Mode:        tc.answer,
				Warnings:    []string{"the token " + bundle.TrustdInfo.Token + " is old\ndiff: - password: hall-four"},
				ModeDetails: "Config diff:\n\n+ token: " + bundle.TrustdInfo.Token,
			}}}, nil
		}

		have, err := client.Apply(t.Context(), config, tc.mode, tc.dryRun)
		if want := (maintenance.ApplyResult{Mode: string(tc.want), Warnings: []string{"the token *** is old"}}); err != nil || !reflect.DeepEqual(have, want) {
			t.Errorf("%s: have %+v, %v, want %+v", tc.mode, have, err, want)
		}
	}

	n.apply = func(*machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
		t.Error("the node was asked for a reboot")

		return &machineapi.ApplyConfigurationResponse{}, nil
	}

	if _, err := client.Apply(t.Context(), config, ModeReboot, false); ClassOf(err) != ClassRejected {
		t.Errorf("mode REBOOT: %v", err)
	}
}

// Req: T-15, T-18a
func TestFailedChangesAreClassified(t *testing.T) {
	bundle, old := theCluster(), otherCluster()
	n := newNode(t, bundle)
	client := n.session(t, Access{Bundle: bundle, Role: RoleAdmin})
	config := rendered(t, bundle)

	// The node runs with other secrets, and quotes both configurations.
	n.runs(t, rendered(t, old))

	remark := strings.Join([]string{
		"bad value " + bundle.TrustdInfo.Token, "where " + old.TrustdInfo.Token + " was",
		base64.StdEncoding.EncodeToString(old.Certs.OS.Key), "diff:", "-    password: hunter2",
	}, "\n")

	for code, want := range map[codes.Code]struct{ try, apply, bootstrap, reboot Class }{
		codes.InvalidArgument:    {ClassRejected, ClassRejected, ClassRejected, ClassRejected},
		codes.Unimplemented:      {ClassRejected, ClassRejected, ClassRejected, ClassRejected},
		codes.PermissionDenied:   {ClassDenied, ClassDenied, ClassDenied, ClassDenied},
		codes.Unauthenticated:    {ClassDenied, ClassDenied, ClassDenied, ClassDenied},
		codes.FailedPrecondition: {ClassBusy, ClassBusy, ClassBusy, ClassBusy},
		codes.AlreadyExists:      {ClassNodeError, ClassNodeError, ClassAlreadyBootstrapped, ClassNodeError},
		// The connection stands, so the dry run was answered; what became of the rest behind apid is open.
		codes.Unavailable:      {ClassNodeError, ClassOutcomeUnknown, ClassOutcomeUnknown, ClassOutcomeUnknown},
		codes.DeadlineExceeded: {ClassUnreachable, ClassOutcomeUnknown, ClassOutcomeUnknown, ClassOutcomeUnknown},
		codes.Internal:         {ClassNodeError, ClassNodeError, ClassNodeError, ClassNodeError},
		codes.Unknown:          {ClassNodeError, ClassNodeError, ClassNodeError, ClassNodeError},
	} {
		answer := status.Error(code, remark)
		n.apply = func(*machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
			return nil, answer
		}
		n.change = func() error { return answer }

		_, tryErr := client.Apply(t.Context(), config, ModeAuto, true)
		_, applyErr := client.Apply(t.Context(), config, ModeNoReboot, false)

		for _, op := range []struct {
			op   Op
			err  error
			want Class
		}{
			{OpTry, tryErr, want.try},
			{OpApply, applyErr, want.apply},
			{OpBootstrap, client.Bootstrap(t.Context()), want.bootstrap},
			{OpReboot, client.Reboot(t.Context()), want.reboot},
		} {
			if ClassOf(op.err) != op.want {
				t.Errorf("%s, %s: have %v, want class %q", op.op, code, op.err, op.want)
			}

			if !strings.Contains(op.err.Error(), string(op.op)) || !strings.Contains(op.err.Error(), address) {
				t.Errorf("%s, %s: %v does not say what or where", op.op, code, op.err)
			}

			for err := op.err; err != nil; err = errors.Unwrap(err) {
				noSecrets(t, err.Error(), bundle)
				noSecrets(t, err.Error(), old)
			}

			if (op.op == OpTry || op.op == OpApply) && strings.Contains(op.err.Error(), "hunter2") {
				t.Errorf("%s, %s: the difference is in %v", op.op, code, op.err)
			}
		}
	}

	n.change = func() error { return nil }

	if err := errors.Join(client.Bootstrap(t.Context()), client.Reboot(t.Context())); err != nil {
		t.Errorf("a change that the node accepts: %v", err)
	}
}

// Req: T-15
func TestARefusalSaysWhyWithoutTheDifference(t *testing.T) {
	bundle := theCluster()
	n := newNode(t, bundle)
	client := n.session(t, Access{Bundle: bundle, Role: RoleAdmin})
	config := rendered(t, bundle)

	n.apply = func(*machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
		return nil, status.Error(codes.InvalidArgument, "this config change can't be applied in immediate mode\ndiff: -a: hunter2\n+a: hunter3")
	}

	// As long as nobody knows what the node runs with, nobody can say what of a remark is secret.
	_, err := client.Apply(t.Context(), config, ModeNoReboot, false)
	if have, want := err.Error(), "apply configuration 192.0.2.1: Rejected: InvalidArgument"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}

	n.runs(t, append(config, "---\napiVersion: v1alpha1\nkind: RegistryAuthConfig\nname: registry.example\nusername: plant\npassword: hall-four\n"...))

	_, err = client.Apply(t.Context(), config, ModeNoReboot, false)
	if have, want := err.Error(), "apply configuration 192.0.2.1: Rejected: InvalidArgument: this config change can't be applied in immediate mode"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}

	// A secret of the configuration that is replaced, and that does not look like one.
	n.apply = func(*machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
		return nil, status.Error(codes.InvalidArgument, "the password was hall-four")
	}

	_, err = client.Apply(t.Context(), config, ModeNoReboot, false)
	if have, want := err.Error(), "apply configuration 192.0.2.1: Rejected: InvalidArgument: the password was ***"; have != want {
		t.Errorf("have %q, want %q", have, want)
	}
}

// Req: T-18a
func TestANodeThatNeverHadAnEtcdIsToldFromOneWhoseEtcdIsDown(t *testing.T) {
	bundle := theCluster()

	type (
		send  = func(*machineapi.FileInfo)
		list  = func(send) error
		names = []string
	)

	entries := func(relative ...string) list {
		return func(send send) error {
			for _, name := range relative {
				send(&machineapi.FileInfo{Name: "/var/lib/etcd/" + name, RelativeName: name})
			}

			return nil
		}
	}

	members := func(hostnames ...string) func(context.Context, *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
		return func(_ context.Context, req *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
			if !req.GetQueryLocal() {
				return nil, errors.New("any node might answer")
			}

			answer := &machineapi.EtcdMembers{}
			for i, hostname := range hostnames {
				answer.Members = append(answer.Members, &machineapi.EtcdMember{Id: uint64(i + 1), Hostname: hostname, IsLearner: i == 1})
			}

			return &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{answer}}, nil
		}
	}

	fails := func(code codes.Code) func(context.Context, *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
		return func(context.Context, *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
			return nil, status.Error(code, "etcdserver: no leader")
		}
	}

	for _, tc := range []struct {
		name    string
		list    list
		members func(context.Context, *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error)
		want    Class
		hosts   names
	}{
		{name: "an empty data directory: never bootstrapped", list: entries("."), want: ClassNotBootstrapped},
		{name: "no data directory: not known", list: func(send) error {
			return errors.New("lstat /var/lib/etcd: no such file or directory")
		}, want: ClassNodeError},
		{name: "nothing listed at all: not known", list: entries(), want: ClassNodeError},
		{name: "an unreadable data directory: not known", list: func(send send) error {
			send(&machineapi.FileInfo{RelativeName: ".", Error: "permission denied"})

			return nil
		}, want: ClassNodeError},
		{name: "an error instead of entries: not known", list: func(send send) error {
			send(&machineapi.FileInfo{Metadata: &common.Metadata{Error: "machined is away"}})

			return nil
		}, want: ClassNodeError},
		{name: "data, and members", list: entries(".", "member"), members: members("cp-1", "cp-2\x1b"), hosts: names{"cp-1", "cp-2"}},
		{name: "data without the directory itself, and a member", list: entries("member"), members: members("cp-1"), hosts: names{"cp-1"}},
		{name: "data, but no leader", list: entries(".", "member"), members: fails(codes.Unavailable), want: ClassNodeError},
		{name: "data, but etcd is not heard of in time", list: entries(".", "member"), members: fails(codes.DeadlineExceeded), want: ClassNodeError},
		{name: "data, but no members", list: entries(".", "member"), members: members(), want: ClassNodeError},
		{name: "data, but the role does not suffice", list: entries(".", "member"), members: fails(codes.PermissionDenied), want: ClassDenied},
		{name: "a worker", list: entries(".", "member"), members: fails(codes.Unimplemented), want: ClassRejected},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, bundle)
			n.list, n.members = tc.list, tc.members

			have, err := n.session(t, Access{Bundle: bundle, Role: RoleReader}).EtcdMembers(t.Context())
			if ClassOf(err) != tc.want || (err == nil) != (tc.want == "") {
				t.Fatalf("have %v, want class %q", err, tc.want)
			}

			var hosts names
			for i, member := range have {
				hosts = append(hosts, member.Hostname)

				if member.ID != uint64(i+1) || member.Learner != (i == 1) {
					t.Errorf("member %+v", member)
				}
			}

			if !reflect.DeepEqual(hosts, tc.hosts) {
				t.Errorf("have %q, want %q", hosts, tc.hosts)
			}
		})
	}
}

// Req: T-18, T-18a
func TestALostConnectionIsNotMadeAgain(t *testing.T) {
	bundle := theCluster()

	for _, tc := range []struct {
		op   Op
		call func(context.Context, Client) error
		want Class
	}{
		{OpTry, func(ctx context.Context, c Client) error {
			_, err := c.Apply(ctx, []byte("machine: {}"), ModeAuto, true)

			return err
		}, ClassUnreachable},
		{OpApply, func(ctx context.Context, c Client) error {
			_, err := c.Apply(ctx, []byte("machine: {}"), ModeNoReboot, false)

			return err
		}, ClassOutcomeUnknown},
		{OpBootstrap, func(ctx context.Context, c Client) error { return c.Bootstrap(ctx) }, ClassOutcomeUnknown},
		{OpReboot, func(ctx context.Context, c Client) error { return c.Reboot(ctx) }, ClassOutcomeUnknown},
	} {
		n := newNode(t, bundle)
		n.apply = func(*machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
			n.cut()

			return &machineapi.ApplyConfigurationResponse{}, nil
		}
		n.change = func() error {
			n.cut()

			return nil
		}

		client := n.session(t, Access{Bundle: bundle, Role: RoleAdmin})

		if err := tc.call(t.Context(), client); ClassOf(err) != tc.want {
			t.Errorf("%s: have %v, want class %q", tc.op, err, tc.want)
		}

		if _, err := client.Status(t.Context()); ClassOf(err) != ClassUnreachable {
			t.Errorf("after %s: have %v, want class %q", tc.op, err, ClassUnreachable)
		}

		if len(n.connections) != 1 {
			t.Errorf("%s: %d connections were made", tc.op, len(n.connections))
		}
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	bundle := theCluster()
	n := newNode(t, bundle)
	release := make(chan struct{})
	n.change = func() error {
		<-release

		return nil
	}

	defer close(release)

	client := n.session(t, Access{Bundle: bundle, Role: RoleAdmin})

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)

	if err := client.Reboot(ctx); ClassOf(err) != ClassOutcomeUnknown || !errors.Is(err, context.Canceled) {
		t.Errorf("have %v", err)
	}

	if _, err := client.Status(ctx); ClassOf(err) != ClassUnreachable || !errors.Is(err, context.Canceled) {
		t.Errorf("have %v", err)
	}
}

func TestRetryableErrors(t *testing.T) {
	for class, want := range map[Class]bool{
		ClassUnreachable: true, ClassIdentityAbsent: true, ClassNodeError: true, ClassBusy: true, ClassNotBootstrapped: true,
		ClassNotTalos: false, ClassInMaintenance: false, ClassUntrusted: false, ClassDenied: false, ClassRejected: false,
		ClassAlreadyBootstrapped: false, ClassOutcomeUnknown: false, ClassInvalidAccess: false,
	} {
		if have := (&Error{Class: class}).Retryable(); have != want {
			t.Errorf("%s: retryable is %v", class, have)
		}
	}
}
