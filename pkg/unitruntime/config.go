// Package unitruntime is the runtime of one Unit: it reads the Unit's tags from their devices, tells them with their
// quality, writes to them while the Unit runs, and holds (P-14, P-15, P-16b). Data goes config → reading → tags →
// order and hold → API. It asks no API server: what it reads stands in its config file, what it may write says the order
// that the controllers send.
package unitruntime

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	encodingjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/json"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// The period of a tag that names none, and the shortest and longest that are read.
const (
	defaultPeriod = time.Second
	minPeriod     = 10 * time.Millisecond
	maxPeriod     = 24 * time.Hour
)

// Config is one version of the config file.
type Config struct {
	// Hash is the SHA-256 of the file, in hex.
	Hash string
	Unit UnitEntry
	// Modules are the devices, by name.
	Modules map[string]Module
	// Tags are sorted by ControlModule and name.
	Tags []*Tag
	// Unnamed counts the entries without a name: nothing can be told of them.
	Unnamed int
}

// UnitEntry names the Unit.
type UnitEntry struct {
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
}

// Module is a device.
type Module struct {
	probe.Module
	// Via is the host:port of the probe that reads and writes for the runtime; empty where the runtime has a connection of its own.
	Via string
}

// same tells whether two entries need the same device.
func (m Module) same(o Module) bool { return m.Via == o.Via && m.Same(o.Module) }

// Tag is a tag of one of the Unit's ControlModules (P-14). It does not change.
type Tag struct {
	api.TagKey
	IOModule string
	Address  string
	Unit     string
	Access   driver.Access
	Period   time.Duration
	// HoldValue is in engineering units; nil where nothing is written.
	HoldValue *string
	// Channel is what the driver is asked for.
	Channel driver.Channel
	// Problem says what is wrong with the entry; such a tag is neither read nor written.
	Problem string

	scaling scaling
}

// readable tells whether the tag is to be read.
func (t *Tag) readable() bool { return t.Problem == "" && t.Access != driver.AccessWrite }

// writable tells whether the tag may be written.
func (t *Tag) writable() bool { return t.Problem == "" && t.Access != driver.AccessRead }

// sameValue tells whether a value read for one is a value of the other.
func (t *Tag) sameValue(o *Tag) bool {
	return t.IOModule == o.IOModule && t.Channel == o.Channel && t.scaling == o.scaling
}

// sameHold tells whether a hold value that a device took for one is that of the other.
func (t *Tag) sameHold(o *Tag) bool {
	return t.sameValue(o) && ptr.Equal(t.HoldValue, o.HoldValue) && t.writable() == o.writable()
}

// maxUnpacked bounds what a compressed config file may grow to, in bytes.
const maxUnpacked = 16 << 20

// unpack returns the text of a config file, which is compressed with gzip where a ConfigMap could not hold it otherwise.
func unpack(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(unpacked, maxUnpacked+1))
	if err == nil && len(text) > maxUnpacked {
		err = fmt.Errorf("unpacked it is larger than %d MiB", maxUnpacked>>20)
	}
	return text, err
}

// ParseConfig reads a config file, as it is or compressed with gzip: {"unit":{"name","uid","generation"},"modules":[{"name","uid","generation","spec","via"}],
// "tags":[{"controlModule","name","ioModule","address","dataType","access","period","scaling","unit","holdValue"}]}. The error is of
// the file as a whole; what is wrong with one entry stands in its Module or Tag, and stops no other.
func ParseConfig(data []byte) (*Config, error) {
	var file struct {
		Unit    *UnitEntry                `json:"unit"`
		Modules []encodingjson.RawMessage `json:"modules"`
		Tags    []encodingjson.RawMessage `json:"tags"`
	}
	text, err := unpack(data)
	if err == nil {
		err = decode(text, &file)
	}
	if err != nil {
		return nil, fmt.Errorf("config file: %w", err)
	}
	switch {
	case file.Unit == nil || file.Unit.Name == "" || file.Unit.UID == "":
		return nil, errors.New(`config file: "unit" must have a name and a uid`)
	case file.Modules == nil || file.Tags == nil:
		return nil, errors.New(`config file: "modules" or "tags" is missing; a Unit without any needs []`)
	}
	sum := sha256.Sum256(data)
	c := &Config{Hash: hex.EncodeToString(sum[:]), Unit: *file.Unit, Modules: map[string]Module{}}
	for _, raw := range file.Modules {
		m := parseModule(raw)
		switch former, twice := c.Modules[m.Name]; {
		case m.Name == "":
			c.Unnamed++
		case twice:
			former.Err = driver.ConfigurationError("the config file names the module twice")
			c.Modules[m.Name] = former
		default:
			c.Modules[m.Name] = m
		}
	}
	byKey := make(map[api.TagKey]*Tag, len(file.Tags))
	for _, raw := range file.Tags {
		t := parseTag(raw, c.Modules)
		switch former := byKey[t.TagKey]; {
		case t.Name == "" || t.ControlModule == "":
			c.Unnamed++
		case former != nil:
			former.Problem = "the config file names the tag twice"
		default:
			byKey[t.TagKey] = t
			c.Tags = append(c.Tags, t)
		}
	}
	slices.SortFunc(c.Tags, func(a, b *Tag) int { return compareKeys(a.TagKey, b.TagKey) })
	return c, nil
}

func compareKeys(a, b api.TagKey) int {
	return cmp.Or(strings.Compare(a.ControlModule, b.ControlModule), strings.Compare(a.Name, b.Name))
}

func parseModule(raw encodingjson.RawMessage) Module {
	var entry struct {
		Name       string                  `json:"name"`
		UID        string                  `json:"uid"`
		Generation int64                   `json:"generation"`
		Spec       encodingjson.RawMessage `json:"spec,omitempty"`
		Via        *struct {
			Address string `json:"address"`
		} `json:"via,omitempty"`
	}
	if err := decode(raw, &entry); err != nil {
		// The probe's parser says what, and finds the name where there is one.
		m := Module{Module: probe.ParseModule(raw)}
		if m.Err == nil {
			m.Err = driver.ConfigurationError("the config file's entry: %w", err)
		}
		return m
	}
	via := entry.Via
	entry.Via = nil
	plain, err := encodingjson.Marshal(entry)
	if err != nil {
		plain = raw
	}
	m := Module{Module: probe.ParseModule(plain)}
	if via != nil {
		m.Via = via.Address
		if m.Via == "" && m.Err == nil {
			m.Err = &driver.Error{Reason: driver.ReasonProbeUnavailable, Err: errors.New("it is read through its probe, which has no address yet")}
		}
	}
	return m
}

func parseTag(raw encodingjson.RawMessage, modules map[string]Module) *Tag {
	// The name first and leniently, so that what is wrong with the rest has a name.
	t := &Tag{Access: driver.AccessRead, Period: defaultPeriod}
	_ = json.UnmarshalCaseSensitivePreserveInts(raw, &t.TagKey)

	var entry struct {
		api.TagKey
		IOModule  string            `json:"ioModule"`
		Address   string            `json:"address"`
		DataType  driver.DataType   `json:"dataType"`
		Access    driver.Access     `json:"access"`
		Period    *metav1.Duration  `json:"period"`
		Scaling   *v1alpha1.Scaling `json:"scaling"`
		Unit      string            `json:"unit"`
		HoldValue *string           `json:"holdValue"`
	}
	if err := decode(raw, &entry); err != nil {
		t.Problem = "the config file's entry: " + err.Error()
		return t
	}
	t.IOModule, t.Address, t.Unit, t.HoldValue = entry.IOModule, entry.Address, entry.Unit, entry.HoldValue
	if entry.Access != "" {
		t.Access = entry.Access
	}
	if entry.Period != nil {
		t.Period = entry.Period.Duration
	}
	t.Channel = driver.Channel{Name: t.ControlModule + "/" + t.Name, Address: t.Address, DataType: entry.DataType, Access: t.Access}
	for _, declared := range modules[t.IOModule].Spec.Channels {
		// What the module's specification says of the address holds for the tag too; the tag's own data type goes before.
		if declared.Address != t.Address {
			continue
		}
		t.Channel.WordOrder, t.Channel.Count = string(declared.WordOrder), int(ptr.Deref(declared.Count, 0))
		t.Channel.DataType = cmp.Or(entry.DataType, driver.DataType(declared.DataType))
		break
	}
	t.scaling = newScaling(entry.Scaling)
	switch {
	case t.IOModule == "" || t.Address == "":
		t.Problem = "the config file's entry has no ioModule or no address"
	case t.Access != driver.AccessRead && t.Access != driver.AccessWrite && t.Access != driver.AccessReadWrite:
		t.Problem = fmt.Sprintf("access %q is not Read, Write or ReadWrite", t.Access)
	case t.Period < minPeriod || t.Period > maxPeriod:
		t.Problem = fmt.Sprintf("period %s is not between %s and %s", t.Period, minPeriod, maxPeriod)
	case t.scaling.on && (t.scaling.factor == 0 || !finite(t.scaling.factor) || !finite(t.scaling.offset)):
		t.Problem = "scaling needs a factor other than 0, and finite numbers"
	case t.scaling.on && (t.Channel.DataType == driver.Bool || t.Channel.DataType == driver.String):
		t.Problem = fmt.Sprintf("a %s has no scale", t.Channel.DataType)
	case t.HoldValue != nil && t.Access == driver.AccessRead:
		t.Problem = "a hold value needs access Write or ReadWrite"
	}
	if t.Period < minPeriod || t.Period > maxPeriod {
		t.Period = defaultPeriod
	}
	return t
}

// decode reads exactly one JSON document strictly: members are told apart by case, none is unknown, none comes twice.
func decode(data []byte, into any) error {
	strict, err := json.UnmarshalStrict(data, into)
	if err != nil {
		return err
	}
	return errors.Join(strict...)
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// equalConfigured tells whether two versions of a tag say the same.
func equalConfigured(a, b *Tag) bool { return reflect.DeepEqual(a, b) }
