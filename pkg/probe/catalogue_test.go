package probe

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

func found(n int) driver.ChannelList {
	var list driver.ChannelList
	for i := range n {
		list.Items = append(list.Items, driver.ChannelInfo{Name: fmt.Sprint("c", i), Address: fmt.Sprint("a", i)})
	}
	return list
}

// Req: P-06
func TestPagesOfOneDiscoveryAreTheWholeOfIt(t *testing.T) {
	c := newCatalogue("boot")
	m := Module{Name: "a", UID: "uid-a"}
	summary := c.put(m, 4, found(1003), time.Unix(9, 0))
	if summary.Count != 1003 || summary.Truncated || summary.Revision == "" {
		t.Fatalf("%+v", summary)
	}
	for _, limit := range []int{1, 7, 500, 1002, 1003, 5000} {
		var items []driver.ChannelInfo
		token, pages := "", 0
		for {
			page, err := c.page("a", limit, token)
			if err != nil {
				t.Fatal(err)
			}
			if page.Revision != summary.Revision || page.Total != 1003 || page.UID != "uid-a" || page.Generation != 4 || !page.DiscoveredAt.Equal(time.Unix(9, 0)) {
				t.Fatalf("%+v", page)
			}
			items = append(items, page.Items...)
			if page.Remaining != 1003-len(items) {
				t.Errorf("%d remain after %d of 1003", page.Remaining, len(items))
			}
			pages++
			if token = page.Continue; token == "" {
				break
			}
		}
		if !slices.Equal(items, found(1003).Items) || pages != (1003+limit-1)/limit {
			t.Errorf("limit %d: %d channels on %d pages", limit, len(items), pages)
		}
	}
}

// Req: P-06
func TestAContinueIsOfOneDiscovery(t *testing.T) {
	c := newCatalogue("boot")
	m := Module{Name: "a", UID: "uid-a"}
	first := c.put(m, 1, found(10), time.Unix(1, 0))
	page, err := c.page("a", 5, "")
	if err != nil {
		t.Fatal(err)
	}
	token := page.Continue

	if again := c.put(m, 2, found(10), time.Unix(2, 0)); again != first {
		t.Errorf("the same channels have another revision: %+v", again)
	}
	if page, err := c.page("a", 5, token); err != nil || len(page.Items) != 5 || page.Items[0].Name != "c5" {
		t.Errorf("%+v, %v", page, err)
	}
	for name, change := range map[string]func(){
		"other channels":            func() { c.put(m, 2, found(11), time.Unix(3, 0)) },
		"another module's channels": func() { c.put(Module{Name: "a", UID: "uid-b"}, 1, found(10), time.Unix(4, 0)) },
		"none any more":             func() { c.remove("a") },
	} {
		c.put(m, 1, found(10), time.Unix(1, 0))
		page, err := c.page("a", 5, "")
		if err != nil {
			t.Fatal(err)
		}
		change()
		if page, err := c.page("a", 5, page.Continue); err == nil || err.Code != 410 || err.Reason != api.ErrorExpired {
			t.Errorf("%s: %+v, %v, want Expired", name, page, err)
		}
	}
	c.put(m, 1, found(10), time.Unix(1, 0))
	for _, bad := range []string{"?", "YQ", tokenOf(first.Revision, -1), tokenOf(first.Revision, 0) + "=", "MTIzOmFiYw"} {
		if page, err := c.page("a", 5, bad); err == nil || err.Code != 400 {
			t.Errorf("token %q: %+v, %v, want 400", bad, page, err)
		}
	}
	if page, err := c.page("b", 5, ""); err == nil || err.Reason != api.ErrorNotDiscovered || err.Code != 409 {
		t.Errorf("%+v, %v, want NotDiscovered", page, err)
	}
}

// Req: P-06 (bounded)
func TestWhatADeviceSaysIsBoundedAndSafeToShow(t *testing.T) {
	c := newCatalogue("boot")
	hostile := driver.ChannelList{Items: []driver.ChannelInfo{
		{Name: "a\x1b[2Jb\nc\u202e", Address: "s=1", Unit: "bar\x00", DeviceType: string([]byte{'x', 0xff}), Message: strings.Repeat("ü", 1000), Problem: driver.ReasonAccessDenied},
		{Name: "long address", Address: strings.Repeat("x", maxAddress+1)},
		{Name: "no text", Address: string([]byte{0xff})},
		{Name: "range", Address: "s=2", Range: &driver.Range{Low: math.NaN(), High: math.Inf(1)}},
		{Name: "good range", Address: "s=3", Range: &driver.Range{Low: -1, High: 1}},
	}}
	summary := c.put(Module{Name: "a"}, 1, hostile, time.Unix(1, 0))
	if summary.Count != 3 || summary.Refused != 1 || !summary.Truncated {
		t.Errorf("%+v", summary)
	}
	page, failure := c.page("a", 10, "")
	if failure != nil {
		t.Fatal(failure)
	}
	if _, err := json.Marshal(page); err != nil {
		t.Errorf("the page cannot be sent: %v", err)
	}
	if got := page.Items[0]; got.Name != "a[2Jbc" || got.Unit != "bar" || len(got.Message) > maxText || got.Message == "" || page.Items[1].Range != nil || *page.Items[2].Range != (driver.Range{Low: -1, High: 1}) {
		t.Errorf("%+v", page.Items)
	}

	if summary := c.put(Module{Name: "b"}, 1, found(driver.MaxChannels+1), time.Unix(1, 0)); summary.Count != driver.MaxChannels || !summary.Truncated {
		t.Errorf("%+v", summary)
	}
	large := found(3000)
	for i := range large.Items {
		large.Items[i].Address += strings.Repeat("x", maxAddress-10)
	}
	if summary := c.put(Module{Name: "c"}, 1, large, time.Unix(1, 0)); summary.Count == 0 || summary.Count >= 3000 || !summary.Truncated {
		t.Errorf("a list of 48 MiB: %+v", summary)
	}
	// A page is bounded too, and never empty.
	page, failure = c.page("c", api.MaxPage, "")
	if failure != nil || len(page.Items) == 0 || len(page.Items) > maxPageSize/(maxAddress-10) || page.Continue == "" {
		t.Errorf("%d channels on a page, %v", len(page.Items), failure)
	}
	for i := range 50 {
		c.put(Module{Name: fmt.Sprint("d", i)}, 1, found(0), time.Unix(1, 0))
		c.put(Module{Name: fmt.Sprint("d", i)}, 1, driver.ChannelList{Items: slices.Clone(large.Items)}, time.Unix(1, 0))
	}
	if c.size > maxCatalogue {
		t.Errorf("%d bytes are kept", c.size)
	}
	for name := range c.lists {
		c.remove(name)
	}
	if c.size != 0 {
		t.Errorf("%d bytes of nothing", c.size)
	}
}

// Req: P-06
func TestDeclaredChannelsSayWhatTheirSpecificationSays(t *testing.T) {
	c := newCatalogue("boot")
	m := Module{Name: "a"}
	m.Spec.Channels = []v1alpha1.Channel{
		{Name: "flow", Unit: "m³/h", Access: v1alpha1.AccessRead, Count: ptr.To[int32](3)},
		{Name: "other", Unit: "bar"},
	}
	c.put(m, 1, driver.ChannelList{Items: []driver.ChannelInfo{
		{Name: "flow", Address: "1", Declared: true},
		{Name: "other", Address: "2", Unit: "Pa", Access: driver.AccessRead},
	}}, time.Unix(1, 0))
	page, _ := c.page("a", 10, "")
	if got := page.Items[0]; got.Unit != "m³/h" || got.Access != driver.AccessRead || got.Count != 3 {
		t.Errorf("declared: %+v", got)
	}
	if got := page.Items[1]; got.Unit != "Pa" {
		t.Errorf("found, and of the same name as a declared one: %+v", got)
	}
}
