package unitruntime

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fieldplane/fieldplane/pkg/driver"
)

// metrics are the runtime's own; they carry no names of modules or tags, for they are served to anybody.
type metrics struct {
	exchanges    *prometheus.CounterVec
	duration     prometheus.Histogram
	writes       *prometheus.CounterVec
	orders       *prometheus.CounterVec
	latches      prometheus.Counter
	configErrors prometheus.Counter
	stateErrors  prometheus.Counter
	watches      prometheus.Gauge
}

func newMetrics(registry *prometheus.Registry, r *Runtime) *metrics {
	m := &metrics{
		exchanges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fieldplane_runtime_reads_total",
			Help: "Reads and checks of devices by how they ended: Answered or the reason.",
		}, []string{"reason"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "fieldplane_runtime_read_duration_seconds",
			Help:    "How long a read or check of a device took, waiting for its turn included.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 13),
		}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fieldplane_runtime_writes_total",
			Help: "Writes to devices by kind (user, hold) and how they ended: Done, Uncertain or the reason.",
		}, []string{"kind", "outcome"}),
		orders: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fieldplane_runtime_orders_total",
			Help: "Orders of the controllers: Accepted or Refused.",
		}, []string{"outcome"}),
		latches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fieldplane_runtime_latches_total",
			Help: "How often the runtime held the Unit by itself.",
		}),
		configErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fieldplane_runtime_config_errors_total",
			Help: "Config files that were refused; the former config stayed in force.",
		}),
		stateErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fieldplane_runtime_state_file_errors_total",
			Help: "Times that the state file could not be read or written.",
		}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fieldplane_runtime_watches",
			Help: "Followers of the report and of the tags.",
		}),
	}
	registry.MustRegister(m.exchanges, m.duration, m.writes, m.orders, m.latches, m.configErrors, m.stateErrors, m.watches,
		&siteCollector{
			runtime: r,
			tags:    prometheus.NewDesc("fieldplane_runtime_tags", "Tags by quality.", []string{"quality"}, nil),
			modules: prometheus.NewDesc("fieldplane_runtime_modules", "Devices by verdict.", []string{"state"}, nil),
		},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fieldplane_runtime_config_valid",
			Help: "1 while the newest config file is in force whole.",
		}, func() float64 {
			if i := r.Info(); i.ConfigHash == "" || i.ConfigError != "" {
				return 0
			}
			return 1
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fieldplane_runtime_since_order_seconds",
			Help: "How long ago the controllers were last heard of, or the program was started.",
		}, func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.clock.Now().Sub(r.contact).Seconds()
		}))
	return m
}

func (m *metrics) exchanged(err error, took time.Duration) {
	reason := "Answered"
	if err != nil {
		reason = string(driver.ReasonOf(err))
	}
	m.exchanges.WithLabelValues(reason).Inc()
	m.duration.Observe(took.Seconds())
}

// siteCollector counts tags and devices when it is asked.
type siteCollector struct {
	runtime       *Runtime
	tags, modules *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *siteCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.tags
	descs <- c.modules
}

// Collect implements prometheus.Collector.
func (c *siteCollector) Collect(out chan<- prometheus.Metric) {
	good, uncertain, bad := c.runtime.values.count()
	for quality, n := range map[string]int{"Good": good, "Uncertain": uncertain, "Bad": bad} {
		out <- prometheus.MustNewConstMetric(c.tags, prometheus.GaugeValue, float64(n), quality)
	}
	count := map[string]int{"Connected": 0, "Lost": 0, "Unknown": 0}
	for _, m := range c.runtime.Report().Modules {
		switch {
		case !m.Known:
			count["Unknown"]++
		case m.Connected:
			count["Connected"]++
		default:
			count["Lost"]++
		}
	}
	for state, n := range count {
		out <- prometheus.MustNewConstMetric(c.modules, prometheus.GaugeValue, float64(n), state)
	}
}
