package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	talosv1alpha1 "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
)

// machine is the name of the only kind of object that may not be called as one likes.
const machine = "4c4c4544-0051-3610-8052-b4c04f595831"

// oneOfEachKind creates an object of every kind, each carrying the marker of its group, and returns their keys in etcd. None of
// them gives a controller much to do.
func oneOfEachKind(t *testing.T, client versioned.Interface, namespace string, marker map[string]string) []string {
	t.Helper()
	ctx, create := t.Context(), metav1.CreateOptions{}
	meta := metav1.ObjectMeta{Name: "stored", Annotations: map[string]string{"marker": marker["physical"]}}
	physical, talos := client.PhysicalV1alpha1(), client.TalosV1alpha1()

	_, err := physical.Controllers(namespace).Create(ctx, &physicalv1alpha1.Controller{ObjectMeta: meta, Spec: physicalv1alpha1.ControllerSpec{Simulation: true}}, create)
	must(t, err)
	_, err = physical.IOModules(namespace).Create(ctx, &physicalv1alpha1.IOModule{ObjectMeta: meta, Spec: physicalv1alpha1.IOModuleSpec{
		Protocol: physicalv1alpha1.ProtocolSimulation, ControllerRef: &physicalv1alpha1.ControllerReference{Name: "stored"},
	}}, create)
	must(t, err)
	_, err = physical.Units(namespace).Create(ctx, &physicalv1alpha1.Unit{ObjectMeta: meta}, create)
	must(t, err)
	_, err = physical.ControlModules(namespace).Create(ctx, controlModule(meta), create)
	must(t, err)
	meta.Annotations = map[string]string{"marker": marker["talos"]}
	_, err = talos.TalosClusters(namespace).Create(ctx, &talosv1alpha1.TalosCluster{ObjectMeta: meta, Spec: talosv1alpha1.TalosClusterSpec{
		ControlPlaneEndpoint: "https://127.0.0.1:6443", SecretsRef: talosv1alpha1.SecretReference{Name: "bundle"},
		TalosVersion: "v1.13", KubernetesVersion: "v1.36.0", Paused: true,
	}}, create)
	must(t, err)
	meta.Name = machine
	_, err = talos.TalosMachines(namespace).Create(ctx, &talosv1alpha1.TalosMachine{ObjectMeta: meta, Spec: talosv1alpha1.TalosMachineSpec{
		ClusterRef: talosv1alpha1.ClusterReference{Name: "stored"}, Identity: talosv1alpha1.MachineIdentity{UUID: machine},
	}}, create)
	must(t, err)

	return []string{
		"/fieldplane/physical.fieldplane.dev/controllers/" + namespace + "/stored",
		"/fieldplane/physical.fieldplane.dev/controlmodules/" + namespace + "/stored",
		"/fieldplane/physical.fieldplane.dev/iomodules/" + namespace + "/stored",
		"/fieldplane/physical.fieldplane.dev/units/" + namespace + "/stored",
		"/fieldplane/talos.fieldplane.dev/talosclusters/" + namespace + "/stored",
		"/fieldplane/talos.fieldplane.dev/talosmachines/" + namespace + "/" + machine,
	}
}

// controlModule is an object of which a controller writes the status, and nothing else.
func controlModule(meta metav1.ObjectMeta) *physicalv1alpha1.ControlModule {
	return &physicalv1alpha1.ControlModule{ObjectMeta: meta, Spec: physicalv1alpha1.ControlModuleSpec{UnitRef: physicalv1alpha1.UnitReference{Name: "unit"}}}
}

// store is a client of the etcd in a data directory, past the server.
func store(t *testing.T, dataDir string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"unix://" + filepath.Join(dataDir, "client.sock")}, DialTimeout: 5 * time.Second, Context: t.Context(),
	})
	must(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func storedValues(t *testing.T, dataDir, prefix string) map[string][]byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	response, err := store(t, dataDir).Get(ctx, prefix, clientv3.WithPrefix())
	must(t, err)
	values := map[string][]byte{}
	for _, kv := range response.Kvs {
		values[string(kv.Key)] = kv.Value
	}
	return values
}

// protobufMagic is what every protobuf-encoded object of a Kubernetes API begins with at rest.
var protobufMagic = []byte("k8s\x00")

// Req: A-02
func TestEveryKindIsStoredAsProtobufUnderItsGroupAndResource(t *testing.T) {
	running(t)
	namespace := env.Namespace(t)
	marker := map[string]string{"physical": "seen in the store", "talos": "seen in the store"}
	keys := oneOfEachKind(t, env.Admin(t), namespace, marker)

	stored := storedValues(t, env.Installation.DataDir(), "/fieldplane/")
	for _, key := range keys {
		value, ok := stored[key]
		if !ok {
			t.Errorf("nothing is stored at %s", key)
			continue
		}
		if !bytes.HasPrefix(value, protobufMagic) {
			t.Errorf("%s is not protobuf: it begins with %q", key, value[:min(len(value), 16)])
		}
		if !bytes.Contains(value, []byte("seen in the store")) {
			t.Errorf("%s is not the object that was created", key)
		}
	}
	// Whatever else the package's tests have left is stored no other way.
	for key, value := range stored {
		if parts := strings.Split(key, "/"); len(parts) != 6 || !strings.HasSuffix(parts[2], ".fieldplane.dev") {
			t.Errorf("%s is not /fieldplane/<group>/<resource>/<namespace>/<name>", key)
		}
		if !bytes.HasPrefix(value, protobufMagic) {
			t.Errorf("%s is not protobuf: it begins with %q", key, value[:min(len(value), 16)])
		}
	}
	for key := range storedValues(t, env.Installation.DataDir(), "") {
		if !strings.HasPrefix(key, "/fieldplane/") && key != "compact_rev_key" {
			t.Errorf("%s stands outside /fieldplane", key)
		}
	}

	t.Run("as JSON only where a flag asks for it", func(t *testing.T) {
		stopped(t)
		dataDir := filepath.Join(t.TempDir(), "store")
		server := startServer(t, freePort(t), "--data-dir="+dataDir, "--storage-media-type=application/json")
		server.waitReady(t)
		for _, key := range oneOfEachKind(t, direct(t, server.address), namespace, marker) {
			if value := storedValues(t, dataDir, key)[key]; !bytes.HasPrefix(value, []byte(`{"`)) {
				t.Errorf("%s is not JSON: it begins with %q", key, value[:min(len(value), 16)])
			}
		}
	})
}

// Req: A-02. That a write reaches the disk before it is acknowledged is proved in pkg/etcd (durability_test.go).
func TestTheEmbeddedStoreIsReachedByUnixSocketsInADirectoryOfMode0700Alone(t *testing.T) {
	running(t)
	dataDir := env.Installation.DataDir()
	info, err := os.Stat(dataDir)
	must(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the data directory has mode %#o", info.Mode().Perm())
	}

	pid := env.Installation.Server().Pid()
	sockets := socketsOf(t, pid)
	var ports []string
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		// Column 1 is the local address, 3 the state, 9 the inode. 0A is LISTEN; a UDP socket has no such state, and we have none.
		for _, fields := range netTable(t, pid, table) {
			listens := fields[3] == "0A" || strings.HasPrefix(table, "udp")
			if listens && sockets[fields[9]] {
				_, port, _ := strings.Cut(fields[1], ":")
				number, err := strconv.ParseUint(port, 16, 16)
				must(t, err)
				ports = append(ports, fmt.Sprintf("%s 127.0.0.1:%d", table, number))
			}
		}
	}
	if want := []string{"tcp " + env.Installation.Address()}; !slices.Equal(ports, want) {
		t.Errorf("the server listens on %q, want %q", ports, want)
	}

	var paths []string
	// Column 3 holds the flags (00010000 accepts connections), 6 the inode, 7 the path.
	for _, fields := range netTable(t, pid, "unix") {
		if len(fields) > 7 && fields[3] == "00010000" && sockets[fields[6]] {
			paths = append(paths, fields[7])
		}
	}
	slices.Sort(paths)
	if want := []string{filepath.Join(dataDir, "client.sock"), filepath.Join(dataDir, "http.sock")}; !slices.Equal(paths, want) {
		t.Errorf("the server listens on the unix sockets %q, want %q", paths, want)
	}
}

// socketsOf are the inodes of the sockets that a process has open.
func socketsOf(t *testing.T, pid int) map[string]bool {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	must(t, err)
	inodes := map[string]bool{}
	for _, entry := range entries {
		// A descriptor may be closed between the two calls.
		target, _ := os.Readlink(filepath.Join(dir, entry.Name()))
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes
}

// netTable are the fields of the lines of /proc/<pid>/net/<table>.
func netTable(t *testing.T, pid int, table string) [][]string {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, table))
	must(t, err)
	defer file.Close()
	var lines [][]string
	scanner := bufio.NewScanner(file)
	scanner.Scan()
	for scanner.Scan() {
		lines = append(lines, strings.Fields(scanner.Text()))
	}
	must(t, scanner.Err())
	return lines
}

// Req: A-02
func TestEncryptionAtRestLeavesNoPlaintextInTheStoreNorInItsFiles(t *testing.T) {
	running(t)
	namespace := env.Namespace(t)
	stopped(t)
	dir := t.TempDir()
	dataDir, configuration := filepath.Join(dir, "store"), filepath.Join(dir, "encryption.yaml")
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 32))
	must(t, os.WriteFile(configuration, []byte(`
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: ["*.physical.fieldplane.dev"]
  providers:
  - secretbox: {keys: [{name: first, secret: `+key+`}]}
`), 0o600))
	args := []string{"--data-dir=" + dataDir, "--encryption-provider-config=" + configuration}
	server := startServer(t, freePort(t), args...)
	server.waitReady(t)

	marker := map[string]string{"physical": "the recipe of the house", "talos": "known to everybody"}
	for _, key := range oneOfEachKind(t, direct(t, server.address), namespace, marker) {
		value := storedValues(t, dataDir, key)[key]
		covered := strings.Contains(key, "/physical.fieldplane.dev/")
		if covered && (!bytes.HasPrefix(value, []byte("k8s:enc:secretbox:v1:first:")) || bytes.Contains(value, []byte(marker["physical"]))) {
			t.Errorf("%s is not encrypted: it begins with %q", key, value[:min(len(value), 32)])
		}
		// The other group is not covered and shows that plaintext would be found.
		if !covered && !bytes.Contains(value, []byte(marker["talos"])) {
			t.Errorf("%s is not found in plaintext: it begins with %q", key, value[:min(len(value), 32)])
		}
	}
	server.Stop(t.Context(), 30*time.Second)
	if occurrences(t, dataDir, marker["talos"]) == 0 {
		t.Error("not even the objects that are not encrypted are found in the files")
	}
	if seen := occurrences(t, dataDir, marker["physical"]); seen > 0 {
		t.Errorf("the files hold the plaintext of encrypted objects %d times", seen)
	}

	t.Run("and is read back after a restart", func(t *testing.T) {
		server := startServer(t, freePort(t), args...)
		server.waitReady(t)
		object, err := direct(t, server.address).PhysicalV1alpha1().ControlModules(namespace).Get(t.Context(), "stored", metav1.GetOptions{})
		must(t, err)
		if object.Annotations["marker"] != marker["physical"] {
			t.Errorf("the object reads %v", object.Annotations)
		}
	})
}

func occurrences(t *testing.T, dir, text string) int {
	t.Helper()
	count := 0
	must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		count += bytes.Count(content, []byte(text))
		return err
	}))
	return count
}
