package unitruntime

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

func packed(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Req: P-15
func TestACompressedConfigFileSaysTheSame(t *testing.T) {
	const text = `{"unit":{"name":"mixer","uid":"u1"},"modules":[],"tags":[{"controlModule":"drive","name":"speed","ioModule":"m","address":"holding:0"}]}`
	data := packed(t, text)
	c, err := ParseConfig(data)
	if err != nil || c.Unit.Name != "mixer" || len(c.Tags) != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	// The hash is that of the file as it stands, which is what the server knows.
	if sum := sha256.Sum256(data); c.Hash != hex.EncodeToString(sum[:]) {
		t.Errorf("hash %s", c.Hash)
	}
	for name, broken := range map[string][]byte{
		"cut short":              data[:len(data)-4],
		"no gzip but its number": {0x1f, 0x8b, 'x'},
		"a bomb":                 packed(t, text+strings.Repeat(" ", maxUnpacked)),
	} {
		if _, err := ParseConfig(broken); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}
