package remark

import (
	"strings"
	"unicode"
)

// MaxText is how many bytes of a text are kept.
const MaxText = 256

// Clean makes a text from the network fit for an object, an event and a terminal. What cannot be seen goes, not control
// characters alone: one that turns the direction of text rearranges what stands beside it.
func Clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) || r == unicode.ReplacementChar {
			return -1
		}

		return r
	}, strings.ToValidUTF8(text, ""))

	if len(text) > MaxText {
		text = strings.ToValidUTF8(text[:MaxText], "")
	}

	return strings.TrimSpace(text)
}
