package probe

import (
	"encoding/json"
	"time"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/driver"
)

// Connectivity is a probe's verdict on a device, for others who exchange something with it: the same thresholds, the same
// stable time (P-06). It is not safe for concurrent use.
type Connectivity struct{ debounce debounce }

// NewConnectivity begins without a verdict. The settings have all defaults filled in.
func NewConnectivity(s *v1alpha1.ProbeSettings) *Connectivity {
	return &Connectivity{debounce{failureThreshold: int(*s.FailureThreshold), successThreshold: int(*s.SuccessThreshold)}}
}

// Inherit takes over what another knew of the same device.
func (c *Connectivity) Inherit(old *Connectivity) {
	thresholds := c.debounce
	c.debounce = old.debounce
	c.debounce.failureThreshold, c.debounce.successThreshold = thresholds.failureThreshold, thresholds.successThreshold
}

// Observe takes how an exchange with the device ended: nil is a success, NotMeasured is no news, all else is a failure. It tells
// whether the verdict changed.
func (c *Connectivity) Observe(now time.Time, err error) bool {
	o := success
	switch {
	case err == nil:
	case driver.ReasonOf(err) == driver.ReasonNotMeasured:
		o = notMeasured
	default:
		o = failure
	}
	before := c.debounce.verdict
	return c.debounce.observe(now, o) != before
}

// Known tells that a full threshold has given a verdict.
func (c *Connectivity) Known() bool { return c.debounce.verdict != undetermined }

// Connected tells that the verdict is that the device answers.
func (c *Connectivity) Connected() bool { return c.debounce.verdict == connected }

// ParseModule reads one entry of a config file: {"name","uid","generation","spec"}. What is wrong with it stands in the Module.
func ParseModule(raw json.RawMessage) Module { return parseModule(raw) }

// Same tells whether two entries supervise the same device in the same way.
func (m Module) Same(o Module) bool { return m.digest == o.digest }

// SameDevice tells whether two entries of a module name the same device, so that what is known of it stays true.
func (m Module) SameDevice(o Module) bool { return sameDevice(m, o) }

// DeclaredChannels are the channels of a module's specification.
func DeclaredChannels(spec v1alpha1.IOModuleSpec) []driver.Channel { return declaredChannels(spec) }
