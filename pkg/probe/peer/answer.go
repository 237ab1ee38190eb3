package peer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// maxValues bounds how many values one document has, by the commas in it: "{}," is three bytes, and what it becomes takes
// hundreds. A probe of 1000 modules needs some 20,000, a runtime of 20,000 tags that are all lost some 240,000.
const maxValues = 400_000

// ReadAnswer reads a whole answer of at most limit bytes. The pod is in the hands of whoever may edit its namespace, and this
// process serves all of them: neither the text nor what it becomes may take its memory (P-12).
func ReadAnswer(body io.Reader, limit int, into any) error {
	var text bytes.Buffer
	n, err := text.ReadFrom(io.LimitReader(body, int64(limit)+1))
	switch {
	case err != nil:
		return err
	case n > int64(limit):
		return fmt.Errorf("is longer than %d MiB", limit>>20)
	}
	return decode(text.Bytes(), into)
}

// decode reads one document.
func decode(text []byte, into any) error {
	if n := bytes.Count(text, []byte{','}); n > maxValues {
		return fmt.Errorf("has %d values, more than any answer has", n)
	}
	return json.Unmarshal(text, into)
}
