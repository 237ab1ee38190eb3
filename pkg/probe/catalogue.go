package probe

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

const (
	// maxCatalogue bounds what all lists of a probe take together, and maxList what one does; what does not fit is cut off,
	// and told. The texts are the devices', and the pod's memory is 512 MiB.
	maxCatalogue = 96 << 20
	maxList      = 8 << 20
	// maxPageSize bounds one page; clients read no more than 16 MiB.
	maxPageSize = 4 << 20
	// maxText and maxAddress bound one text: 4,096 characters is what OPC UA allows a NodeId.
	maxText    = 512
	maxAddress = 4 * 4096
)

// catalogue holds the channels that were found, by module.
type catalogue struct {
	bootID string

	mu       sync.Mutex
	lists    map[string]*listing
	size     int
	revision uint64
}

// listing is what one discovery found.
type listing struct {
	uid        string
	generation int64
	revision   string
	at         time.Time
	list       driver.ChannelList
	refused    int
	size       int
}

func newCatalogue(bootID string) *catalogue {
	return &catalogue{bootID: bootID, lists: map[string]*listing{}}
}

// put keeps what was found of a module and returns what to tell of it. The same list as before keeps its revision, so
// that whoever is reading it in pages can go on.
func (c *catalogue) put(m Module, generation int64, list driver.ChannelList, now time.Time) api.ChannelSummary {
	complete(&list, m.Spec.Channels)
	c.mu.Lock()
	defer c.mu.Unlock()
	former := c.lists[m.Name]
	if former != nil {
		c.size -= former.size
	}
	l := &listing{uid: m.UID, generation: generation, at: now}
	left := min(maxList, maxCatalogue-c.size)
	for i := range list.Items {
		size := sizeOf(&list.Items[i])
		if i == driver.MaxChannels || l.size+size > left {
			list.Items, list.Truncated = list.Items[:i:i], true
			break
		}
		l.size += size
		if list.Items[i].Problem != "" {
			l.refused++
		}
	}
	l.list = list
	if former != nil && former.uid == l.uid && reflect.DeepEqual(former.list, list) {
		l.revision = former.revision
	} else {
		c.revision++
		l.revision = fmt.Sprintf("%s-%d", c.bootID, c.revision)
	}
	c.lists[m.Name] = l
	c.size += l.size
	return api.ChannelSummary{Revision: l.revision, Count: len(list.Items), Refused: l.refused, Truncated: list.Truncated}
}

// remove forgets what was found of a module.
func (c *catalogue) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lists[name]; l != nil {
		c.size -= l.size
		delete(c.lists, name)
	}
}

// page is the part of a module's list that begins where token says; "" is the beginning.
func (c *catalogue) page(name string, limit int, token string) (*api.ChannelPage, *api.Error) {
	c.mu.Lock()
	l := c.lists[name]
	c.mu.Unlock()
	if l == nil {
		if token != "" {
			return nil, expiredToken
		}
		return nil, &api.Error{Code: http.StatusConflict, Reason: api.ErrorNotDiscovered, Message: "the channels were not discovered yet"}
	}
	from := 0
	if token != "" {
		revision, offset, ok := parseToken(token)
		switch {
		case !ok:
			return nil, invalid("continue is not what an earlier page has given")
		case revision != l.revision || offset > len(l.list.Items):
			return nil, expiredToken
		}
		from = offset
	}
	to, size := from, 0
	for to < len(l.list.Items) && to-from < limit {
		size += sizeOf(&l.list.Items[to])
		if size > maxPageSize && to > from {
			break
		}
		to++
	}
	page := &api.ChannelPage{
		Module: name, UID: l.uid, Generation: l.generation, Revision: l.revision, DiscoveredAt: l.at,
		Total: len(l.list.Items), Truncated: l.list.Truncated,
		// Never null: a device without channels has a list of none.
		Items: append([]driver.ChannelInfo{}, l.list.Items[from:to]...),
	}
	if to < len(l.list.Items) {
		page.Continue, page.Remaining = tokenOf(l.revision, to), len(l.list.Items)-to
	}
	return page, nil
}

// expiredToken is the answer to a continue whose discovery is no longer the newest.
var expiredToken = &api.Error{
	Code: http.StatusGone, Reason: api.ErrorExpired,
	Message: "the channels were discovered anew since the first page; start again without continue",
}

func invalid(message string) *api.Error {
	return &api.Error{Code: http.StatusBadRequest, Reason: api.ErrorInvalid, Message: message}
}

// tokenOf names a place in one discovery; it is opaque to clients.
func tokenOf(revision string, offset int) string {
	return base64.RawURLEncoding.EncodeToString([]byte(revision + ":" + strconv.Itoa(offset)))
}

func parseToken(token string) (revision string, offset int, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", 0, false
	}
	revision, number, ok := strings.Cut(string(raw), ":")
	offset, err = strconv.Atoi(number)
	return revision, offset, ok && err == nil && offset >= 0
}

// complete adds what the specification says of declared channels, and makes everything that a device said of itself
// safe to store, to send and to show.
func complete(list *driver.ChannelList, declared []v1alpha1.Channel) {
	byName := make(map[string]*v1alpha1.Channel, len(declared))
	for i := range declared {
		byName[declared[i].Name] = &declared[i]
	}
	kept := list.Items[:0:0]
	for _, item := range list.Items {
		if len(item.Address) > maxAddress || !utf8.ValidString(item.Address) {
			// It could not be read by what is left of it.
			list.Truncated = true
			continue
		}
		if d := byName[item.Name]; item.Declared && d != nil {
			if d.Unit != "" {
				item.Unit = d.Unit
			}
			if d.Access != "" {
				item.Access = driver.Access(d.Access)
			}
			if d.Count != nil {
				item.Count = int(*d.Count)
			}
		}
		if r := item.Range; r != nil && !(finite(r.Low) && finite(r.High)) {
			// JSON has no such numbers, and one of them would spoil the page.
			item.Range = nil
		}
		item.Name, item.DeviceType, item.Unit, item.Message = printable(item.Name), printable(item.DeviceType), printable(item.Unit), printable(item.Message)
		kept = append(kept, item)
	}
	list.Items = kept
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// printable is a text that can be shown on a terminal, cut to what a channel needs.
func printable(text string) string {
	ok := len(text) <= maxText
	for _, r := range text {
		ok = ok && r != utf8.RuneError && unicode.IsGraphic(r)
	}
	if ok {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if b.Len()+utf8.RuneLen(r) > maxText {
			break
		}
		if unicode.IsGraphic(r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// sizeOf is about how much memory a channel takes.
func sizeOf(c *driver.ChannelInfo) int {
	const fixed = 160
	return fixed + len(c.Name) + len(c.Address) + len(c.DeviceType) + len(c.Unit) + len(c.Message)
}
