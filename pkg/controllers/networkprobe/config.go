package networkprobe

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
)

// entry is one module in a probe's config file. Package probe reads it.
type entry struct {
	Name       string                `json:"name"`
	UID        types.UID             `json:"uid"`
	Generation int64                 `json:"generation"`
	Spec       v1alpha1.IOModuleSpec `json:"spec"`
}

func encodeEntry(module *v1alpha1.IOModule) ([]byte, error) {
	encoded, err := json.Marshal(entry{module.Name, module.UID, module.Generation, module.Spec})
	if err != nil {
		return nil, fmt.Errorf("IOModule %s/%s: encode for the probe: %w", module.Namespace, module.Name, err)
	}
	return encoded, nil
}

// Fits tells how many bytes a module takes of a probe's configuration, and whether it fits into one.
func Fits(module *v1alpha1.IOModule) (size int, fits bool) {
	encoded, err := encodeEntry(module)
	size = len(encoded) + entryOverhead
	return size, err == nil && size <= MaxConfigBytes-len(configBegin)-len(configEnd)
}

const (
	configBegin = "{\"modules\":[\n"
	configEnd   = "\n]}\n"
	// entryOverhead is what stands around each entry.
	entryOverhead = len(",\n")
)

// encodeConfig puts entries, one a line, into a config file. The same entries give the same bytes.
func encodeConfig(entries [][]byte) []byte {
	var file bytes.Buffer
	file.WriteString(configBegin)
	for i, e := range entries {
		if i > 0 {
			file.WriteString(",\n")
		}
		file.Write(e)
	}
	file.WriteString(configEnd)
	return file.Bytes()
}

func configHash(config []byte) string {
	sum := sha256.Sum256(config)
	return hex.EncodeToString(sum[:])
}

// ListedModules are the names of the modules that a probe's ConfigMap lists; none if it cannot be read, in which case
// the next reconcile writes it anew.
func ListedModules(configMap *corev1.ConfigMap) []string {
	var file struct {
		Modules []struct {
			Name string `json:"name"`
		} `json:"modules"`
	}
	if json.Unmarshal([]byte(configMap.Data[probepod.ConfigKey]), &file) != nil {
		return nil
	}
	names := make([]string, len(file.Modules))
	for i, m := range file.Modules {
		names[i] = m.Name
	}
	return names
}

// ControllerOf is the name of the Controller whose probe a ConfigMap belongs to, "" for a shared probe's.
func ControllerOf(configMap *corev1.ConfigMap) string {
	if !probepod.IsOurs(configMap, probepod.Controller) {
		return ""
	}
	return configMap.Annotations[ControllerAnnotation]
}
