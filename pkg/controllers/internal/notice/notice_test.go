package notice

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
)

func TestATextIsCutBetweenCharacters(t *testing.T) {
	if short := strings.Repeat("a", Max); Bounded(short) != short {
		t.Error("a text that fits is cut")
	}

	for shift := range 4 {
		cut := Bounded(strings.Repeat("a", shift) + strings.Repeat("€", Max))
		if len(cut) > Max || len(cut) < Max-8 || !utf8.ValidString(cut) || !strings.HasSuffix(cut, more) {
			t.Errorf("%d bytes: …%q", len(cut), cut[len(cut)-12:])
		}
	}
}

// Req: T-15
func TestASecretIsTakenOutBeforeTheTextIsCut(t *testing.T) {
	const secret = "Zm9yLXRlc3RzLWFsb25lLW5vdC1hLXNlY3JldA=="

	bundle := &secrets.Bundle{Cluster: &secrets.Cluster{Secret: secret}}
	if have := Redacted(strings.Repeat("a", Max-20)+secret, bundle); strings.Contains(have, secret[:10]) || !strings.Contains(have, "***") {
		t.Errorf("have …%q", have[len(have)-30:])
	}
}
