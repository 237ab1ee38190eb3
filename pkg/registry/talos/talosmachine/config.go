package talosmachine

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fieldplane/fieldplane/apis/talos"
)

// configPatience bounds the making of an answer, a machine that does not answer included.
const configPatience = 10 * time.Second

// Configurations tells what a machine's configuration is. Nothing that it returns holds a secret (T-15), and its errors are
// fit to be shown to whoever may read the configuration.
type Configurations interface {
	// Rendered is the configuration that the machine would be sent now, redacted YAML.
	Rendered(ctx context.Context, namespace, name string) ([]byte, error)
	// Difference is what would change of the configuration that the machine runs; empty when nothing would.
	Difference(ctx context.Context, namespace, name string) (string, error)
}

// Config serves talosmachines/config: a GET shows the machine's configuration, redacted, and with ?diff=running how it
// differs from what the machine runs. Its RBAC verb is get.
type Config struct {
	machines       rest.Getter
	configurations Configurations
}

var (
	_ rest.Storage         = &Config{}
	_ rest.Connecter       = &Config{}
	_ rest.StorageMetadata = &Config{}
)

// New returns an empty machine.
func (*Config) New() runtime.Object { return &talos.TalosMachine{} }

// Destroy does nothing: the store belongs to the main resource.
func (*Config) Destroy() {}

// ConnectMethods are the HTTP methods that are served.
func (*Config) ConnectMethods() []string { return []string{http.MethodGet} }

// NewConnectOptions returns nothing: the one parameter is read off the request.
func (*Config) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }

// ProducesMIMETypes returns the content type.
func (*Config) ProducesMIMETypes(string) []string { return []string{"text/yaml"} }

// ProducesObject says that the answer is text.
func (*Config) ProducesObject(string) any { return "" }

// Connect returns what answers one request. A machine that does not exist is refused here.
func (c *Config) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	if _, err := c.machines.Get(ctx, name, &metav1.GetOptions{}); err != nil {
		return nil, err
	}
	namespace := genericapirequest.NamespaceValue(ctx)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), configPatience)
		defer cancel()
		text, err := c.text(ctx, namespace, name, req.URL.Query()["diff"])
		if err != nil {
			responder.Error(err)
			return
		}
		w.Header().Set("Content-Type", "text/yaml; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(text) // the client is gone if it fails
	}), nil
}

func (c *Config) text(ctx context.Context, namespace, name string, diff []string) ([]byte, error) {
	switch {
	case len(diff) == 0:
		return c.configurations.Rendered(ctx, namespace, name)
	case len(diff) == 1 && diff[0] == "running":
		text, err := c.configurations.Difference(ctx, namespace, name)
		return []byte(text), err
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("diff=%q: the only difference that is told is that to what the machine runs, diff=running", diff[0]))
}
