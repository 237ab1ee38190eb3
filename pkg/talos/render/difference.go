package render

import (
	"errors"
	"regexp"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/textdiff"
)

// Normalise writes a configuration as Render does, without comments and in the machinery's own order: two that say the
// same have the same bytes then, whoever wrote them down. It holds secrets as before; its error does not (T-15).
func Normalise(data []byte) ([]byte, error) {
	provider, err := configloader.NewFromBytes(data)
	if err != nil {
		return nil, errors.New("render: the configuration cannot be read") // the cause may quote it
	}

	out, err := provider.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, errors.New("render: the configuration cannot be written")
	}

	return out, nil
}

// Difference is the unified difference of two configurations, for people to read: both are redacted first, so that it is
// empty when nothing but secrets differs (T-15).
func Difference(old, new []byte) (string, error) {
	before, err := RedactedConfig(old)
	if err != nil {
		return "", err
	}

	after, err := RedactedConfig(new)
	if err != nil {
		return "", err
	}

	text, err := textdiff.DiffWithCustomPaths(string(before), string(after), "old", "new")
	if err != nil {
		return "", errors.New("render: the configurations cannot be compared") // as above
	}

	return withoutKeys(text), nil
}

// opaque is what a key or a certificate looks like where Talos does not know that one stands, as in the content of a file.
var opaque = regexp.MustCompile(`[A-Za-z0-9+/_-]{40,}={0,2}`)

func withoutKeys(text string) string {
	return opaque.ReplaceAllStringFunc(text, func(run string) string {
		// Paths, names and digests of images are lower case; that much of a key never is.
		if strings.ToLower(run) == run {
			return run
		}

		return redacted
	})
}
