package unitruntime

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

const (
	// MaxConfigBytes is how large a runtime's config file gets. A ConfigMap holds at most 1 MiB; what is left is for metadata. A
	// file that would be larger is compressed, to about a twentieth of its size.
	MaxConfigBytes = 900 << 10
	// MaxUnpackedBytes is how large its text gets; the runtime unpacks no more.
	MaxUnpackedBytes = 16 << 20
)

// What follows is the config file; package unitruntime of the program reads it.
type (
	unitEntry struct {
		Name       string    `json:"name"`
		UID        types.UID `json:"uid"`
		Generation int64     `json:"generation"`
	}
	moduleEntry struct {
		Name       string                `json:"name"`
		UID        types.UID             `json:"uid"`
		Generation int64                 `json:"generation"`
		Spec       v1alpha1.IOModuleSpec `json:"spec"`
		// Via is the probe that reads for the runtime; nil where the runtime reads the device itself.
		Via *viaEntry `json:"via,omitempty"`
	}
	viaEntry struct {
		// Address as host:port; empty while the probe has none, and then nobody reads the device.
		Address string `json:"address"`
	}
	tagEntry struct {
		ControlModule string            `json:"controlModule"`
		Name          string            `json:"name"`
		IOModule      string            `json:"ioModule"`
		Address       string            `json:"address"`
		DataType      v1alpha1.DataType `json:"dataType,omitempty"`
		Access        v1alpha1.Access   `json:"access,omitempty"`
		Period        *metav1.Duration  `json:"period,omitempty"`
		Scaling       *v1alpha1.Scaling `json:"scaling,omitempty"`
		Unit          string            `json:"unit,omitempty"`
		HoldValue     *string           `json:"holdValue,omitempty"`
	}
)

// config is a config file and what is in it.
type config struct {
	file []byte
	// text is how large it is when it is not compressed.
	text          int
	modules, tags int
}

// tooLarge tells whether no ConfigMap holds it, or no runtime unpacks it.
func (c config) tooLarge() bool { return len(c.file) > MaxConfigBytes || c.text > MaxUnpackedBytes }

// configOf is the config of a Unit: its tags by ControlModule and name, and the modules that these name, as far as they exist (P-14).
// The same objects give the same bytes. former is the config in force, nil if there is none.
func (c *Controller) configOf(unit *v1alpha1.Unit, former *corev1.ConfigMap) (config, error) {
	key := keyOf(unit)
	// It may be megabytes, and is seldom asked for.
	formerly := sync.OnceValue(func() map[types.UID]string { return formerVias(former) })
	var tags, modules [][]byte
	named := map[string]bool{}
	for _, name := range c.facts.controlModulesOf(key) {
		controlModule, err := c.controlModules.ControlModules(unit.Namespace).Get(name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return config{}, err
		}
		if controlModule.Spec.UnitRef.Name != unit.Name {
			continue
		}
		for _, tag := range sortedTags(controlModule) {
			named[tag.IOModuleRef.Name] = true
			line, err := json.Marshal(tagEntry{
				ControlModule: controlModule.Name, Name: tag.Name, IOModule: tag.IOModuleRef.Name, Address: tag.Address,
				DataType: tag.DataType, Access: tag.Access, Period: tag.Period, Scaling: tag.Scaling, Unit: tag.Unit, HoldValue: tag.HoldValue,
			})
			if err != nil {
				return config{}, fmt.Errorf("ControlModule %s/%s: encode tag %s for the runtime: %w", unit.Namespace, name, tag.Name, err)
			}
			tags = append(tags, line)
		}
	}
	for _, name := range sortedKeys(named) {
		module, err := c.modules.IOModules(unit.Namespace).Get(name)
		if apierrors.IsNotFound(err) {
			// Its tags stay in the config, and are Bad for as long as it is missing.
			continue
		}
		if err != nil {
			return config{}, err
		}
		entry := moduleEntry{Name: module.Name, UID: module.UID, Generation: module.Generation, Spec: module.Spec}
		if c.facts.shared(keyOf(module)) {
			if entry.Via, err = c.via(module, formerly); err != nil {
				return config{}, err
			}
		}
		line, err := json.Marshal(entry)
		if err != nil {
			return config{}, fmt.Errorf("IOModule %s/%s: encode for the runtime: %w", unit.Namespace, name, err)
		}
		modules = append(modules, line)
	}
	head, err := json.Marshal(unitEntry{unit.Name, unit.UID, unit.Generation})
	if err != nil {
		return config{}, err
	}
	var file bytes.Buffer
	file.WriteString(`{"unit":`)
	file.Write(head)
	writeLines(&file, "modules", modules)
	writeLines(&file, "tags", tags)
	file.WriteString("}\n")
	is := config{file: file.Bytes(), text: file.Len(), modules: len(modules), tags: len(tags)}
	if len(is.file) > MaxConfigBytes {
		is.file, err = pack(is.file)
	}
	return is, err
}

// pack compresses a file. The same text gives the same bytes.
func pack(text []byte) ([]byte, error) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(text)
	err = errors.Join(err, w.Close())
	return packed.Bytes(), err
}

// fileIn is the config file in a ConfigMap, nil if there is none.
func fileIn(configMap *corev1.ConfigMap) []byte {
	if packed, ok := configMap.BinaryData[probepod.ConfigKey]; ok {
		return packed
	}
	return []byte(configMap.Data[probepod.ConfigKey])
}

// textIn is the text of the config file in a ConfigMap, nil if it is not one.
func textIn(configMap *corev1.ConfigMap) []byte {
	packed, ok := configMap.BinaryData[probepod.ConfigKey]
	if !ok {
		return fileIn(configMap)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r, MaxUnpackedBytes))
	if err != nil {
		return nil
	}
	return text
}

// writeLines writes one member of the file, an entry a line.
func writeLines(file *bytes.Buffer, member string, lines [][]byte) {
	fmt.Fprintf(file, ",\n%q:[\n", member)
	file.Write(bytes.Join(lines, []byte(",\n")))
	file.WriteString("\n]")
}

// via is where the probe of a module answers. While it does not run, where it was: a runtime that read the device itself instead
// would take the connection that the next probe needs, and make a fault of it.
func (c *Controller) via(module *v1alpha1.IOModule, formerly func() map[types.UID]string) (*viaEntry, error) {
	if name := module.Status.ProbePodName; name != "" {
		pod, err := c.probePods.Pods(module.Namespace).Get(name)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err == nil && probepod.IsProbe(pod) {
			if address := addressOf(pod); address != "" {
				return &viaEntry{address}, nil
			}
		}
	}
	return &viaEntry{formerly()[module.UID]}, nil
}

// addressOf is where a probe serves its API, "" while it does not run.
func addressOf(pod *corev1.Pod) string {
	if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" {
		return ""
	}
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(probepod.APIPort))
}

// formerVias are the addresses that a config has for its modules.
func formerVias(former *corev1.ConfigMap) map[types.UID]string {
	if former == nil {
		return nil
	}
	var file struct {
		Modules []moduleEntry `json:"modules"`
	}
	if json.Unmarshal(textIn(former), &file) != nil {
		return nil
	}
	vias := map[types.UID]string{}
	for _, m := range file.Modules {
		if m.Via != nil {
			vias[m.UID] = m.Via.Address
		}
	}
	return vias
}

// configHash is what the runtime reports when the file is in force.
func configHash(file []byte) string {
	sum := sha256.Sum256(file)
	return hex.EncodeToString(sum[:])
}
