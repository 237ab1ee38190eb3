package probeclient

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"k8s.io/utils/clock"
)

// Req: P-12 (who edits one namespace's probe takes no memory from the others: not by what little text becomes either)
func TestShortTextsDoNotBecomeLargeAnswers(t *testing.T) {
	const size = maxMessage - 64
	watch := func(c *Client) error { return c.Watch(t.Context(), func(Update) {}) }
	list := func(c *Client) error { _, err := c.List(t.Context()); return err }
	channels := func(c *Client) error { _, err := c.Channels(context.Background(), "a", 1000, ""); return err }
	for _, c := range []struct {
		name, begin, each, end string
		ask                    func(*Client) error
	}{
		{"modules of a snapshot", `{"type":"Snapshot","modules":[{}`, ",{}", "]}\n", watch},
		{"nulls of a snapshot", `{"type":"Snapshot","modules":[{}`, ",null", "]}\n", watch},
		{"numbers of a snapshot", `{"type":"Snapshot","modules":[{}`, ",1", "]}\n", watch},
		{"names that went", `{"type":"Change","removed":[""`, `,""`, "]}\n", watch},
		{"modules of a list", `{"modules":[{}`, ",{}", "]}", list},
		{"channels of a page", `{"items":[{}`, ",{}", "]}", channels},
		{"samples of a device", `{"samples":[{}`, ",{}", "]}", func(c *Client) error { _, err := c.Read(context.Background(), "u", nil); return err }},
		{"ranges of a page", `{"items":[{"range":{}}`, `,{"range":{}}`, "]}", channels},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := c.begin + strings.Repeat(c.each, (size-len(c.begin)-len(c.end))/len(c.each)) + c.end
			client := serve(t, clock.RealClock{}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := c.ask(client)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Error("it is taken")
			}
			// The text itself is held twice, and grows to that by doubling.
			if taken := (after.TotalAlloc - before.TotalAlloc) >> 20; taken > 8*maxMessage>>20 {
				t.Errorf("%d MiB for %d MiB of text: %v", taken, len(body)>>20, err)
			}
		})
	}
}
