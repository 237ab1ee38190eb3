// Package remark makes texts from Talos nodes fit to be shown.
package remark

import (
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v4"
)

const redacted = "***"

// keyMaterial matches what keys, certificates and tokens look like, also where a message holds only a part of one.
var keyMaterial = regexp.MustCompile(`-----BEGIN[\s\S]*?(-----END[^-]*-----|$)|[a-z0-9]{6}\.[a-z0-9]{8,}|[A-Za-z0-9+/_-]{24,}={0,2}`)

// MaxRemarks is how many of a node's remarks on one configuration are kept: they are its own to make, and each is looked
// through for every secret.
const MaxRemarks = 16

// ScrubAll scrubs the first MaxRemarks of a node's remarks, and leaves out those of which nothing is left.
func ScrubAll(messages []string, configs ...[]byte) []string {
	var kept []string

	for _, message := range messages[:min(len(messages), MaxRemarks)] {
		if text := Scrub(message, configs...); text != "" {
			kept = append(kept, text)
		}
	}

	return kept
}

// Scrub makes a node's remark on configurations fit to be shown: no secret of theirs is left in it, nor anything that
// looks like one. A remark on a configuration that cannot be read is withheld, since then nobody can say what of it is
// secret (T-15).
func Scrub(message string, configs ...[]byte) string {
	var secrets []string

	for _, config := range configs {
		values, ok := secretValues(config)
		if !ok {
			return ""
		}

		secrets = append(secrets, values...)
	}

	// The longest first, so that one that contains another goes whole.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })

	for _, secret := range secrets {
		message = strings.ReplaceAll(message, secret, redacted)
	}

	return Clean(keyMaterial.ReplaceAllString(message, redacted))
}

// secretValues are the values that Talos itself redacts in a configuration.
func secretValues(config []byte) ([]string, bool) {
	provider, err := configloader.NewFromBytes(config)
	if err != nil {
		return nil, false
	}

	// An empty replacement would be indistinguishable from no secret at all; a line break cannot occur in a token.
	public, err := provider.RedactSecrets("\n").EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, false
	}

	before, okBefore := scalars(config)
	after, okAfter := scalars(public)

	if !okBefore || !okAfter {
		return nil, false
	}

	var secrets []string

	for value := range before {
		// Shorter ones would blot out ordinary words, and no key is that short.
		if _, kept := after[value]; !kept && len(value) >= 6 {
			secrets = append(secrets, value)
		}
	}

	return secrets, true
}

func scalars(documents []byte) (map[string]struct{}, bool) {
	values := make(map[string]struct{})

	decoder := yaml.NewDecoder(strings.NewReader(string(documents)))

	for {
		var node yaml.Node

		if err := decoder.Decode(&node); err != nil {
			return values, errors.Is(err, io.EOF)
		}

		collect(&node, values)
	}
}

func collect(node *yaml.Node, values map[string]struct{}) {
	if node.Kind == yaml.ScalarNode {
		values[node.Value] = struct{}{}
	}

	for _, child := range node.Content {
		collect(child, values)
	}
}
