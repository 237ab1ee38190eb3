package podserver

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// MetricsPath serves metrics in the Prometheus format.
const MetricsPath = "/metrics"

// HealthHandler serves /livez, /readyz and /metrics, which tell nothing of the site and need no certificate. Requests should come
// here once a config is loaded, and ready says nothing that is missing besides.
func HealthHandler(registry *prometheus.Registry, loaded func() bool, ready func() error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !loaded() {
			http.Error(w, "no config file was good yet", http.StatusServiceUnavailable)
			return
		}
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok"))
	})
	mux.Handle("GET "+MetricsPath, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}
