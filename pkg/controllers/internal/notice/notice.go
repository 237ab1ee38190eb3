// Package notice makes texts fit for conditions and Events.
package notice

import (
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"

	"github.com/fieldplane/fieldplane/pkg/talos/render"
)

// Max is how long a text may be, in bytes: the API takes no more of an Event.
const Max = 1000

const more = "…"

// Bounded cuts a text that is too long.
func Bounded(text string) string {
	if len(text) <= Max {
		return text
	}

	return strings.ToValidUTF8(text[:Max-len(more)], "") + more
}

// Redacted is a text without any value of a bundle, and bounded. What renders and what talks to machines keeps secrets out
// of its errors already; this is the last door (T-15).
func Redacted(text string, bundle *secrets.Bundle) string {
	return Bounded(render.Redact(text, bundle))
}
