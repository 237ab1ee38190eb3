package app

import (
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

const exampleUUID = "4c4c4544-004d-4b10-8056-b4c04f4a3133"

// clean makes a text that a machine told of itself safe to print. Nobody has vouched for the machine yet: control
// characters in its product name could rewrite on the terminal what its approver reads.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		default:
			return '\uFFFD'
		}
	}, text)
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return clean(text)
}

func age(now time.Time, then metav1.Time) string {
	if then.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(then.Time))
}
