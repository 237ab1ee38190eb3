// Package plainyaml refuses YAML on which Talos's machinery works for minutes, or takes gigabytes of memory for: it comes
// from whoever may write a TalosCluster, and from nodes.
package plainyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v4"
)

// maxKeys bounds one mapping: the machinery compares each of its keys with each. A few kilobytes could otherwise hold a
// core of the server for minutes, or take all its memory.
const maxKeys = 1024

// Check refuses mappings with very many keys, and with the same key twice: for each such pair the machinery remembers an
// error, which are millions for a few thousand keys. Aliases are not followed: what they name is looked at where it
// stands. Its error quotes nothing.
func Check(node *yaml.Node) error {
	if node.Kind == yaml.MappingNode {
		if keys := len(node.Content) / 2; keys > maxKeys {
			return fmt.Errorf("must have at most %d keys in one mapping, and has %d in the one at line %d", maxKeys, keys, node.Line)
		}

		seen := make(map[string]struct{}, len(node.Content)/2)

		for i := 0; i < len(node.Content); i += 2 {
			key := node.Content[i]
			if key.Kind != yaml.ScalarNode {
				return fmt.Errorf("must have text for keys, and has something else at line %d", key.Line)
			}

			if _, dup := seen[key.Value]; dup {
				return fmt.Errorf("must have each key once in a mapping, and has one twice at line %d", key.Line)
			}

			seen[key.Value] = struct{}{}
		}
	}

	for _, child := range node.Content {
		if err := Check(child); err != nil {
			return err
		}
	}

	return nil
}

// CheckDocuments checks every document of a text. What is no YAML is refused too.
func CheckDocuments(text []byte) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))

	for {
		var document yaml.Node

		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errors.New("must be YAML") // the cause may quote it
		}

		if err := Check(&document); err != nil {
			return err
		}
	}
}
