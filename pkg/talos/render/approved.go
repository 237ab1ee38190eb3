package render

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v4"
)

// approved is what the approval's own patch made of a configuration, by document: the patches of the cluster and of the
// machine come after it, and whoever may write the cluster's may not approve (T-13).
type approved map[string]document

// approvedIn takes the approval's choices out of the configuration that they were merged into, in the form in which the
// machinery encodes them.
func approvedIn(provider config.Provider, own []byte) (approved, error) {
	chosen, err := documents(own)
	if err != nil {
		return nil, err
	}

	rendered, err := documentsOf(provider)
	if err != nil {
		return nil, err
	}

	out := approved{}

	for name, doc := range chosen {
		if part, ok := chosenOf(rendered[name], doc).(document); ok {
			out[name] = part
		}
	}

	return out, nil
}

// changed returns the first choice that is no longer what it was, and the member of the machine's spec that it comes from.
func (a approved) changed(provider config.Provider) (path, decidedBy string, err error) {
	now, err := documentsOf(provider)
	if err != nil {
		return "", "", err
	}

	for _, name := range slices.Sorted(maps.Keys(a)) {
		if path := firstChange(name, a[name], now[name]); path != "" {
			return path, memberOf(path), nil
		}
	}

	return "", "", nil
}

// chosenOf is the part of a rendered value that has a counterpart in what was chosen; lists are wholes.
func chosenOf(rendered, chosen any) any {
	from, ok := rendered.(document)
	keys, isMap := chosen.(document)

	if !ok || !isMap {
		return rendered
	}

	out := document{}

	for key, value := range keys {
		if have, ok := from[key]; ok {
			out[key] = chosenOf(have, value)
		}
	}

	return out
}

func firstChange(path string, was, is any) string {
	from, ok := was.(document)
	if !ok {
		if reflect.DeepEqual(was, is) {
			return ""
		}

		return path
	}

	to, ok := is.(document)
	if !ok || to == nil { // another value, or taken away
		return path
	}

	for _, key := range slices.Sorted(maps.Keys(from)) {
		if changed := firstChange(path+"."+key, from[key], to[key]); changed != "" {
			return changed
		}
	}

	return ""
}

// memberOf names the member of a machine's spec that a part of a configuration was rendered from.
func memberOf(path string) string {
	for _, from := range []struct{ prefix, member string }{
		{"machine.install", "spec.install"},
		{"machine.nodeLabels", "spec.nodeLabels"},
		{"machine.nodeTaints", "spec.nodeTaints"},
		{"UserVolumeConfig", "spec.diskRoles"},
	} {
		if strings.HasPrefix(path, from.prefix) {
			return from.member
		}
	}

	return "spec.network"
}

func documentsOf(provider config.Provider) (map[string]document, error) {
	text, err := provider.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, err
	}

	return documents(text)
}

// documents reads a configuration's documents by their names; the main one stands under "machine", its only section that
// an approval decides.
func documents(text []byte) (map[string]document, error) {
	out := map[string]document{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))

	for {
		var doc document

		switch err := decoder.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, errors.New("a rendered configuration cannot be read") // the cause may quote it
		}

		kind, _ := doc["kind"].(string)
		if kind == "" {
			out["machine"], _ = doc["machine"].(document)

			continue
		}

		if name, _ := doc["name"].(string); name != "" {
			kind += "/" + name
		}

		out[kind] = doc
	}
}
