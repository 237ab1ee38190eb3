// Package api is what a probe and those who follow it say to each other: JSON over HTTP/1.1 over mutual TLS 1.3.
package api

import (
	"net/url"
	"time"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Port is where a probe's pod serves all of this.
const Port = 9443

// ModulesPath serves a List; with ?watch=true a stream of Events, one JSON document a line.
const ModulesPath = "/v1/modules"

// DefaultHeartbeat is the time between two Heartbeat events; a follower that hears nothing for three of them must
// take the probe for gone.
const DefaultHeartbeat = time.Second

// The reasons of a state that has no error of the driver behind it.
const (
	// ReasonConnected: the device answers.
	ReasonConnected = "Connected"
	// ReasonMeasuring: no full threshold has given a verdict yet (P-06).
	ReasonMeasuring = "Measuring"
)

// ModuleState is what the probe knows of one module (P-06): not Found is Unknown, Found and Connected is Online,
// Found and not Connected is Fault.
type ModuleState struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
	// Generation of the IOModule that was measured.
	Generation int64 `json:"generation"`
	// Found is true once the module is loaded and a full threshold has given a verdict.
	Found     bool `json:"found"`
	Connected bool `json:"connected"`
	// Reason and Message say why; they do not change while the cause stays.
	Reason   string           `json:"reason"`
	Message  string           `json:"message,omitempty"`
	Health   driver.Health    `json:"health,omitempty"`
	Identity *driver.Identity `json:"identity,omitempty"`
	// Channels is what is known of the device's channels; they themselves are at ChannelsPath.
	Channels ChannelSummary `json:"channels,omitzero"`
	// Since is when Found or Connected last changed, by the probe's clock.
	Since time.Time `json:"since"`
	// MeasuredAt is when the device was last measured, by the probe's clock; zero before the first time.
	MeasuredAt time.Time `json:"measuredAt,omitzero"`
	// Episode names the fault that lasts now and no other, through all of its time; it is empty without one.
	Episode string `json:"episode,omitempty"`
	// Stale: not measured for more than three periods, by the probe's own clock, so that no clock needs to agree with it.
	Stale bool `json:"stale,omitempty"`
}

// Equal compares everything; the same moment in two zones is equal.
func (s ModuleState) Equal(o ModuleState) bool {
	identities := s.Identity == o.Identity || s.Identity != nil && o.Identity != nil && *s.Identity == *o.Identity
	times := s.Since.Equal(o.Since) && s.MeasuredAt.Equal(o.MeasuredAt)
	s.Identity, s.Since, s.MeasuredAt = o.Identity, o.Since, o.MeasuredAt
	return identities && times && s == o
}

// ChannelSummary is what a module's state tells of its channels (P-06: discovered once it is Online, and whenever the
// device comes back or its specification changes).
type ChannelSummary struct {
	// Revision names the discovery that Count is of; empty before the first. One that found the same keeps its name.
	Revision string `json:"revision,omitempty"`
	Count    int    `json:"count"`
	// Refused is how many of them the device refuses.
	Refused int `json:"refused,omitempty"`
	// Truncated tells that the device has more.
	Truncated bool `json:"truncated,omitempty"`
	// Reason and Message say why the newest discovery failed; Count is then that of an older one.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// ProbeInfo is what the probe says of itself with every answer.
type ProbeInfo struct {
	// BootID is new with every start of the program.
	BootID string `json:"bootID"`
	// ConfigHash is the SHA-256, in hex, of the config file that is in force; empty before the first good one.
	ConfigHash string `json:"configHash,omitempty"`
	// ConfigError says what is wrong with a newer file that was refused.
	ConfigError string `json:"configError,omitempty"`
	// Time is the probe's clock.
	Time time.Time `json:"time"`
}

// List is the answer to a GET of ModulesPath, sorted by name.
type List struct {
	Probe   ProbeInfo     `json:"probe"`
	Modules []ModuleState `json:"modules"`
}

// EventType is the kind of an Event.
type EventType string

// The events of a watch.
const (
	// Snapshot comes first and carries every module.
	Snapshot EventType = "Snapshot"
	// Change carries the modules that changed otherwise than in MeasuredAt, and those that were removed, at once.
	Change EventType = "Change"
	// Heartbeat comes every period and names the modules that are stale; all others were measured recently enough.
	Heartbeat EventType = "Heartbeat"
)

// Event is one line of a watch.
type Event struct {
	Type    EventType     `json:"type"`
	Probe   ProbeInfo     `json:"probe"`
	Modules []ModuleState `json:"modules,omitempty"`
	Removed []string      `json:"removed,omitempty"`
	// Stale names the stale modules of a Heartbeat.
	Stale []string `json:"stale,omitempty"`
}

// ChannelsPath is where the channels of a module, by uid or name, are listed in pages (P-06): ?limit= and ?continue=. Its answer is a
// ChannelPage, or an Error.
func ChannelsPath(module string) string {
	return ModulesPath + "/" + url.PathEscape(module) + "/channels"
}

const (
	// DefaultPage is how many channels a page has where the request names no limit, MaxPage how many it has at most.
	DefaultPage = 500
	MaxPage     = 1000
)

// ChannelPage is a part of what one discovery found.
type ChannelPage struct {
	Module string `json:"module"`
	UID    string `json:"uid"`
	// Generation of the IOModule that was in force.
	Generation int64 `json:"generation"`
	// Revision names the discovery, and DiscoveredAt is when it ended, by the probe's clock.
	Revision     string    `json:"revision"`
	DiscoveredAt time.Time `json:"discoveredAt"`
	// Total is the number of channels on all pages; Truncated tells that the device has more.
	Total     int  `json:"total"`
	Truncated bool `json:"truncated,omitempty"`

	Items []driver.ChannelInfo `json:"items"`
	// Continue asks for the page after this one; empty on the last.
	Continue string `json:"continue,omitempty"`
	// Remaining is the number of channels on the pages after this one.
	Remaining int `json:"remaining,omitempty"`
}

// ErrorReason says in one word why a request failed.
type ErrorReason string

// The reasons of an Error, with the HTTP status that each comes with.
const (
	// ErrorNotFound: the probe has no such module (404).
	ErrorNotFound ErrorReason = "NotFound"
	// ErrorNotDiscovered: the module's channels are not known yet; the message says why (409).
	ErrorNotDiscovered ErrorReason = "NotDiscovered"
	// ErrorExpired: a newer discovery has replaced the one that continue is of; start again (410).
	ErrorExpired ErrorReason = "Expired"
	// ErrorInvalid: the request cannot be understood (400, or 413 where it is too long).
	ErrorInvalid ErrorReason = "Invalid"
	// ErrorBusy: too many requests at once (503).
	ErrorBusy ErrorReason = "Busy"
	// ErrorUnauthorized: the certificate has ended since the connection was made (401).
	ErrorUnauthorized ErrorReason = "Unauthorized"
)

// Error is an answer that is not 200.
type Error struct {
	Code    int         `json:"code"`
	Reason  ErrorReason `json:"reason"`
	Message string      `json:"message"`
}

// Error tells the reason and the message.
func (e *Error) Error() string { return string(e.Reason) + ": " + e.Message }
