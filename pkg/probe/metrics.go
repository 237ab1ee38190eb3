package probe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// metrics are the probe's own; they carry no module names, whose number has no bound.
type metrics struct {
	checks       *prometheus.CounterVec
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
	registry.MustRegister(m.checks, m.duration, m.configErrors, m.watches, &modulesCollector{probe: p, desc: prometheus.NewDesc(
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
