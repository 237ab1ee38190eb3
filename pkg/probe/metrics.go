package probe

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
)

// metrics are the probe's own; they carry no module names, for they are served to anybody.
type metrics struct {
	checks       *prometheus.CounterVec
	discoveries  *prometheus.CounterVec
	requests     *prometheus.CounterVec
	duration     prometheus.Histogram
	configErrors prometheus.Counter
	watches      prometheus.Gauge
}

func newMetrics(registry *prometheus.Registry, p *Probe) *metrics {
	m := &metrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fieldplane_probe_checks_total",
			Help: "Checks of devices by how they ended: Connected or the reason.",
		}, []string{"reason"}),
		discoveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fieldplane_probe_discoveries_total",
			Help: "Discoveries of channels by how they ended: Discovered or the reason.",
		}, []string{"reason"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fieldplane_probe_device_requests_total",
			Help: "Requests of others to devices, by what was asked (check, read, write) and how they ended: Done or the reason.",
		}, []string{"request", "reason"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fieldplane_probe_check_duration_seconds",
			Help:    "How long a check took, waiting for its turn included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 13),
		}),
		configErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fieldplane_probe_config_errors_total",
			Help: "Config files that were refused; the former config stayed in force.",
		}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fieldplane_probe_watches",
			Help: "Followers of the modules' states.",
		}),
	}
	registry.MustRegister(m.checks, m.discoveries, m.requests, m.duration, m.configErrors, m.watches, &modulesCollector{probe: p, desc: prometheus.NewDesc(
		"fieldplane_probe_modules", "Modules by state.", []string{"state"}, nil)},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fieldplane_probe_config_valid",
			Help: "1 while the newest config file is in force whole.",
		}, func() float64 {
			if i := p.Info(); i.ConfigHash == "" || i.ConfigError != "" {
				return 0
			}
			return 1
		}))
	return m
}

func (m *metrics) observe(o outcome, err error, took time.Duration) {
	reason := "Connected"
	if o != success {
		reason = string(driver.ReasonOf(err))
	}
	m.checks.WithLabelValues(reason).Inc()
	m.duration.Observe(took.Seconds())
}

func (m *metrics) discovered(err error) {
	reason := "Discovered"
	if err != nil {
		reason = string(driver.ReasonOf(err))
	}
	m.discoveries.WithLabelValues(reason).Inc()
}

// requested counts a request to a device.
func (m *metrics) requested(request string, err error) {
	reason := "Done"
	if failure, ok := errors.AsType[*api.Error](err); ok {
		reason = string(failure.Reason)
	} else if err != nil {
		reason = string(driver.ReasonOf(err))
	}
	m.requests.WithLabelValues(request, reason).Inc()
}

// modulesCollector counts the modules when it is asked.
type modulesCollector struct {
	probe *Probe
	desc  *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *modulesCollector) Describe(descs chan<- *prometheus.Desc) { descs <- c.desc }

// Collect implements prometheus.Collector.
func (c *modulesCollector) Collect(out chan<- prometheus.Metric) {
	count := map[string]int{"Online": 0, "Fault": 0, "Unknown": 0}
	for _, m := range c.probe.states.list() {
		switch {
		case !m.Found:
			count["Unknown"]++
		case m.Connected:
			count["Online"]++
		default:
			count["Fault"]++
		}
	}
	for state, n := range count {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), state)
	}
}

// maxModuleSeries is how many modules have series of their own, the first by name: a config file may name any number, and
// whoever collects the series pays for each.
const maxModuleSeries = 2000

// moduleMetrics count what happens to one module, from when the probe first supervised its device.
type moduleMetrics struct {
	mu       sync.Mutex
	checks   uint64
	seconds  float64
	connects uint64
	// failures by reason, which are as many as package driver has.
	failures map[driver.Reason]uint64
}

func (m *moduleMetrics) observe(o outcome, err error, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.checks++
	m.seconds += took.Seconds()
	if o == success {
		return
	}
	if m.failures == nil {
		m.failures = map[driver.Reason]uint64{}
	}
	m.failures[driver.ReasonOf(err)]++
}

func (m *moduleMetrics) connected() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.connects++
}

// modulesMetrics are the series of modules, which name them: they are served over mutual TLS alone (P-12).
type modulesMetrics struct {
	duration, failures, connects *prometheus.Desc

	mu      sync.Mutex
	modules map[string]*moduleMetrics
}

func newModulesMetrics() *modulesMetrics {
	return &modulesMetrics{
		duration: prometheus.NewDesc("fieldplane_probe_module_check_duration_seconds",
			"Checks of a module's device, and how long they took together.", []string{"module"}, nil),
		failures: prometheus.NewDesc("fieldplane_probe_module_check_failures_total",
			"Checks of a module's device that failed, or could not be made (NotMeasured).", []string{"module", "reason"}, nil),
		connects: prometheus.NewDesc("fieldplane_probe_module_connects_total",
			"How often a module's device became connected.", []string{"module"}, nil),
		modules: map[string]*moduleMetrics{},
	}
}

func (c *modulesMetrics) put(name string, m *moduleMetrics) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.modules[name] = m
}

func (c *modulesMetrics) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.modules, name)
}

// Describe implements prometheus.Collector.
func (c *modulesMetrics) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.duration, c.failures, c.connects} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *modulesMetrics) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	modules := maps.Clone(c.modules)
	c.mu.Unlock()
	names := slices.Sorted(maps.Keys(modules))
	for _, name := range names[:min(len(names), maxModuleSeries)] {
		m := modules[name]
		m.mu.Lock()
		checks, seconds, connects, failures := m.checks, m.seconds, m.connects, maps.Clone(m.failures)
		m.mu.Unlock()
		out <- prometheus.MustNewConstSummary(c.duration, checks, seconds, nil, name)
		out <- prometheus.MustNewConstMetric(c.connects, prometheus.CounterValue, float64(connects), name)
		for reason, n := range failures {
			out <- prometheus.MustNewConstMetric(c.failures, prometheus.CounterValue, float64(n), name, string(reason))
		}
	}
}
