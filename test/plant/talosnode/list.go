package talosnode

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// List shows one directory of the node's, etcd's: empty on a control plane that has never been bootstrapped.
func (a *apidAPI) List(req *machineapi.ListRequest, stream grpc.ServerStreamingServer[machineapi.FileInfo]) error {
	a.node.record.addCall("List")
	a.node.delay()

	if !rolesOf(stream.Context()).IncludesAny(role.MakeSet(role.Admin, role.Operator, role.Reader)) {
		return status.Error(codes.PermissionDenied, "not authorized")
	}

	root := strings.TrimSuffix(req.GetRoot(), "/")

	entries := a.node.etcdData()
	if root != constants.EtcdDataPath || len(entries) == 0 {
		return &fs.PathError{Op: "lstat", Path: root, Err: syscall.ENOENT}
	}

	var failed error

	for _, name := range entries {
		failed = errors.Join(failed, stream.Send(&machineapi.FileInfo{
			Name: strings.TrimSuffix(root+"/"+name, "/."), RelativeName: name, IsDir: true, Mode: uint32(fs.ModeDir | 0o700),
		}))
	}

	return failed
}

// etcdData is what is in etcd's data directory, itself included; none where there is no such directory, as on a worker and
// early in the boot.
func (n *Node) etcdData() []string {
	n.mu.Lock()
	defer n.mu.Unlock()

	switch {
	case !n.booted || n.controlPlaneLocked("") != nil:
		return nil
	case n.options.Trustd.isMember(n):
		return []string{".", "member"}
	default:
		return []string{"."}
	}
}
