// Package api is what a Unit's runtime and those who speak with it say to each other: JSON over HTTP/1.1 over the same
// mutual TLS 1.3 as a probe's (package pkg/probe/api), with the certificate of the namespace.
package api

import (
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/isa88"
)

// Port is where a runtime's pod serves all of this.
const Port = 9443

const (
	// UnitPath: a GET answers a Report, with ?watch=true a stream of Reports, one JSON document a line: the first at once, then
	// one at every change and every Heartbeat. A PUT of an Order, by the controllers alone, answers a Report.
	UnitPath = "/v1/unit"
	// TagsPath: a GET answers a TagList, with ?watch=true a stream of TagEvents. A PUT of a WriteRequest answers a WriteResponse.
	TagsPath = "/v1/tags"
)

const (
	// Heartbeat is the time between two Reports, or TagEvents, of a stream on which nothing else happens.
	Heartbeat = time.Second
	// KeepAlive is how often the controllers repeat an Order that has not changed.
	KeepAlive = 3 * time.Second
	// Contact is how long after an Order the runtime takes the server for reachable (P-16b).
	Contact = 10 * time.Second
)

// Order tells the runtime where its Unit stands. It is repeated every KeepAlive.
type Order struct {
	// UID of the Unit; an order for another one is refused with 409.
	UID string `json:"uid"`
	// Revision grows with every change of the Unit. An order of a lower revision than the one in force is refused with 409:
	// it is a former leader's.
	Revision int64 `json:"revision"`
	// State of the Unit. In Running writes are accepted; entering Holding, Held, Stopping or Aborting writes every holdValue, and from
	// then on nothing else is sent to a device.
	State isa88.State `json:"state"`
	// Episode is that of the hold, if the Unit is held: an episode's hold values are written once, and again by whatever device
	// comes back while it lasts.
	Episode string `json:"episode,omitempty"`
	// LatchAcknowledged is the ID of the runtime's own Latch that the server has stored as a hold. Only then, and when the state is no
	// longer one that the latch held, is the latch released.
	LatchAcknowledged string `json:"latchAcknowledged,omitempty"`
}

// Report is what the runtime says of itself and its Unit.
type Report struct {
	Runtime RuntimeInfo `json:"runtime"`
	// Order in force; nil before the first one.
	Order *Order `json:"order,omitempty"`
	// Applied tells that all of the order is done. For Holding, Stopping and Aborting: every holdValue was taken by its device, save those
	// that Outstanding lists as Unreachable, which follow when the device is back.
	Applied bool `json:"applied"`
	// Outstanding are the hold values that no device has taken yet.
	Outstanding []HoldWrite `json:"outstanding,omitempty"`
	// Latch is the runtime's own hold, if it has held (P-16b). It survives a restart of the program.
	Latch *Latch `json:"latch,omitempty"`
	// Modules are the devices as the runtime reaches them, sorted by name.
	Modules []ModuleLink `json:"modules,omitempty"`
}

// RuntimeInfo is what the runtime says of itself with every answer.
type RuntimeInfo struct {
	// BootID is new with every start of the program.
	BootID string `json:"bootID"`
	// Unit and UID are those of the config file in force.
	Unit string `json:"unit,omitempty"`
	UID  string `json:"uid,omitempty"`
	// ConfigHash is the SHA-256, in hex, of the config file that is in force; empty before the first good one.
	ConfigHash string `json:"configHash,omitempty"`
	// ConfigError says what is wrong with a newer file that was refused.
	ConfigError string `json:"configError,omitempty"`
	// Time is the runtime's clock.
	Time time.Time `json:"time"`
}

// HoldWrite is a hold value on its way to a device.
type HoldWrite struct {
	ControlModule string `json:"controlModule"`
	Name          string `json:"name"`
	IOModule      string `json:"ioModule"`
	// Unreachable: the device is lost, and gets the value when it comes back. Otherwise it refused it, or has yet to be asked.
	Unreachable bool `json:"unreachable,omitempty"`
	// Reason and Message say why it was not taken; empty while it is under way.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Latch is a hold by the runtime itself: it lost a required device while it could not reach the server (P-16b).
type Latch struct {
	// ID names this latch and no other.
	ID string `json:"id"`
	// At is when, by the runtime's clock.
	At time.Time `json:"at"`
	// Modules that were lost.
	Modules []string `json:"modules"`
}

// ModuleLink is a device as the runtime reaches it.
type ModuleLink struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Known tells that a full threshold has given a verdict, Connected is the verdict.
	Known     bool   `json:"known"`
	Connected bool   `json:"connected"`
	Reason    string `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
	// Via is "probe" where the module's probe reads for the runtime, because the device allows fewer connections than it has
	// clients; else empty.
	Via string `json:"via,omitempty"`
}

// TagList is the answer to a GET of TagsPath, sorted by ControlModule and name.
type TagList struct {
	Runtime RuntimeInfo `json:"runtime"`
	Tags    []TagValue  `json:"tags"`
}

// TagValue is the value of a tag (P-15).
type TagValue struct {
	ControlModule string `json:"controlModule"`
	Name          string `json:"name"`
	IOModule      string `json:"ioModule"`
	Address       string `json:"address"`
	Access        string `json:"access,omitempty"`
	Unit          string `json:"unit,omitempty"`
	// Value in engineering units as text; nil before the first. A bool is "true" or "false", a number has as many digits as
	// tell it apart.
	Value *string `json:"value,omitempty"`
	// Status is OPC UA's; its two highest bits are the quality.
	Status driver.StatusCode `json:"status"`
	// SourceTime is when the value was true; zero before the first.
	SourceTime time.Time `json:"sourceTime,omitzero"`
	// Message says why the quality is not Good.
	Message string `json:"message,omitempty"`
}

// TagEventType is the kind of a TagEvent.
type TagEventType string

// The events of a watch of tags.
const (
	// TagSnapshot comes first and carries every tag.
	TagSnapshot TagEventType = "Snapshot"
	// TagChange carries the tags of which value, quality or source time changed, and those that are no more. A slow reader is sent
	// fewer events, each with the newest values.
	TagChange TagEventType = "Change"
	// TagHeartbeat carries nothing.
	TagHeartbeat TagEventType = "Heartbeat"
)

// TagEvent is one line of a watch of tags.
type TagEvent struct {
	Type    TagEventType `json:"type"`
	Runtime RuntimeInfo  `json:"runtime"`
	Tags    []TagValue   `json:"tags,omitempty"`
	Removed []TagKey     `json:"removed,omitempty"`
}

// TagKey names a tag of the Unit.
type TagKey struct {
	ControlModule string `json:"controlModule"`
	Name          string `json:"name"`
}

// WriteRequest asks for values to be written. It is refused as a whole, with 409, unless the order in force is of the same UID, its
// state is Running, and nothing is latched.
type WriteRequest struct {
	UID string `json:"uid"`
	// Revision is that of the Unit in which the writes were recorded while it was Running. If the Unit was held or stopped since, and
	// runs again by an order of a higher one, the request is refused: it was on its way for too long. 0 is not judged.
	Revision int64 `json:"revision,omitempty"`

	Writes []TagWrite `json:"writes"`
}

// TagWrite is a value to write, in engineering units and as text.
type TagWrite struct {
	TagKey
	Value string `json:"value"`
}

// WriteResult is what became of a TagWrite, in the order of the request.
type WriteResult struct {
	TagKey
	// Done: the device took it. Uncertain: no answer came, and nobody knows. Neither: it was not sent, or was refused.
	Done      bool   `json:"done,omitempty"`
	Uncertain bool   `json:"uncertain,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
}

// WriteResponse is the answer to a WriteRequest.
type WriteResponse struct {
	Results []WriteResult `json:"results"`
}

// Error is an answer that is not 200.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Error is the message.
func (e *Error) Error() string { return e.Message }
