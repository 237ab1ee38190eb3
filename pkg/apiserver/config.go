package apiserver

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/compatibility"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/generated/informers"
	generatedopenapi "github.com/fieldplane/fieldplane/generated/openapi"
	"github.com/fieldplane/fieldplane/pkg/admission/initializer"
	"github.com/fieldplane/fieldplane/pkg/admission/spared"
	"github.com/fieldplane/fieldplane/pkg/probe/channels"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/configuration"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/tags"
	"github.com/fieldplane/fieldplane/pkg/version"
)

// LoopbackUser is the name under which the server speaks to itself.
const LoopbackUser = "system:apiserver"

// connectionsPatience is how long a stop waits for connections to close, beside what requests and watches are given. An HTTP/2
// connection that is made in the very moment of the stop is told nothing and never closes by itself, and one that has sent no
// request counts as busy for 5 s. Others need one second.
const connectionsPatience = 3 * time.Second

// Settings are what a server is made from.
type Settings struct {
	Recommended *genericoptions.RecommendedOptions
	ServerRun   *genericoptions.ServerRunOptions
	Components  compatibility.ComponentGlobalsRegistry
	Flags       cliflag.NamedFlagSets
	// Host is how the host cluster is reached, with the QPS already set.
	Host *rest.Config
	// Serving is the certificate shown to the aggregator.
	Serving dynamiccertificates.CertKeyContentProvider
	// ServiceAccountUser is the server's own user name in the host cluster.
	ServiceAccountUser string
	// Namespace is the server's own: the secrets bundles are there.
	Namespace string
	// Probes asks a probe for the channels of a module.
	Probes channels.Ask
	// Runtimes reaches the runtime of a Unit.
	Runtimes tags.Dial
	// DialMachine reaches configured machines.
	DialMachine machine.Factory
	// StoreHealth, when set, is a further check of readiness.
	StoreHealth func() error
	Clock       clock.WithTicker
}

// Server is a server that is ready to run, and the clients of its own kinds.
type Server struct {
	Generic *genericapiserver.GenericAPIServer
	// Loopback reaches the server itself, with all rights and through its admission.
	Loopback *rest.Config
	// Client and Informers serve our own kinds over the loopback.
	Client    versioned.Interface
	Informers informers.SharedInformerFactory
	// HostClient and HostInformers serve the host cluster's kinds.
	HostClient    kubernetes.Interface
	HostInformers kubeinformers.SharedInformerFactory

	// authorities is nil if no client is told by its certificate.
	authorities *authorities
}

// New builds a server from its settings.
func New(settings Settings) (*Server, error) {
	scheme := NewScheme()
	codecs := serializer.NewCodecFactory(scheme)
	config := genericapiserver.NewRecommendedConfig(codecs)
	server := &Server{}

	if err := settings.ServerRun.ApplyTo(&config.Config); err != nil {
		return nil, err
	}
	// Gates of the libraries are registered for their own component.
	config.FeatureGate = settings.Components.FeatureGateFor(compatibility.DefaultKubeComponent)
	for _, feature := range RequiredFeatures() {
		if !config.FeatureGate.Enabled(feature) {
			return nil, fmt.Errorf("feature gate %s is off, and the server needs it: remove it from --feature-gates", feature)
		}
	}

	namer := openapi.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(generatedopenapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIConfig.Info.Title = "fieldplane"
	config.OpenAPIConfig.Info.Version = version.Version
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(generatedopenapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config.Info.Title = "fieldplane"
	config.OpenAPIV3Config.Info.Version = version.Version
	config.Flagz = flagz.NamedFlagSetsReader{FlagSets: settings.Flags}

	if err := server.connectHost(settings, config); err != nil {
		return nil, err
	}
	if err := applyRecommended(settings, config, scheme, codecs, server); err != nil {
		return nil, err
	}
	if settings.StoreHealth != nil {
		config.AddReadyzChecks(healthz.NamedCheck("embedded-etcd", func(*http.Request) error { return settings.StoreHealth() }))
	}

	generic, err := config.Complete().New(ComponentName, genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	generic.ShutdownTimeout = connectionsPatience
	server.Generic = generic
	bundles, err := bundle.NewStore(server.HostClient.CoreV1(), settings.Namespace)
	if err != nil {
		return nil, err
	}
	configurations := configuration.NewReader(server.Client.TalosV1alpha1(), bundles, settings.DialMachine)
	catalogue := channels.NewReader(server.HostClient.CoreV1(), settings.Probes)
	runtimes := tags.NewRuntimes(server.HostClient.CoreV1(), settings.Runtimes)
	if err := InstallGroups(generic, scheme, codecs, config.RESTOptionsGetter, settings.Clock, catalogue, configurations, runtimes); err != nil {
		return nil, err
	}
	generic.AddPostStartHookOrDie("start-fieldplane-informers", func(hook genericapiserver.PostStartHookContext) error {
		server.Informers.Start(hook.Done())
		return nil
	})
	return server, nil
}

func (s *Server) connectHost(settings Settings, config *genericapiserver.RecommendedConfig) error {
	client, err := kubernetes.NewForConfig(settings.Host)
	if err != nil {
		return fmt.Errorf("client for the host cluster: %w", err)
	}
	config.ClientConfig = settings.Host
	config.SharedInformerFactory = kubeinformers.NewSharedInformerFactory(client, 0)
	s.HostClient, s.HostInformers = client, config.SharedInformerFactory
	return nil
}

// applyRecommended applies all recommended options. Three of them are made
// here instead, and left out of what the library applies: storage, whose simple
// factory ignores the media type; authorization, whose client is throttled; and
// the host's client, which would be throttled to 5 requests a second.
func applyRecommended(settings Settings, config *genericapiserver.RecommendedConfig,
	scheme *runtime.Scheme, codecs serializer.CodecFactory, server *Server,
) error {
	etcd := settings.Recommended.Etcd
	storage := etcd.StorageConfig
	storage.StorageObjectCountTracker = config.StorageObjectCountTracker
	factory := NewStorageFactory(storage, etcd.DefaultStorageMediaType, scheme, codecs)
	if err := etcd.ApplyWithStorageFactoryTo(factory, &config.Config); err != nil {
		return fmt.Errorf("storage: %w", err)
	}

	reviewConfig := rest.CopyConfig(settings.Host)
	reviewConfig.QPS = -1
	reviewConfig.Timeout = settings.Recommended.Authorization.ClientTimeout
	reviews, err := kubernetes.NewForConfig(reviewConfig)
	if err != nil {
		return fmt.Errorf("client for access reviews: %w", err)
	}
	authorizer, err := NewAuthorizer(settings.Recommended.Authorization, reviews.AuthorizationV1())
	if err != nil {
		return err
	}
	uncached, err := NewUncachedAuthorizer(settings.Recommended.Authorization, reviews.AuthorizationV1())
	if err != nil {
		return err
	}

	others := *settings.Recommended
	others.Etcd, others.Authorization, others.CoreAPI = nil, nil, nil
	others.FeatureGate = config.FeatureGate
	identity := initializer.NewServerIdentity(settings.ServiceAccountUser, LoopbackUser)
	plugins := *others.Admission
	plugins.Decorators = append(slices.Clone(plugins.Decorators), spared.From(identity))
	others.Admission = &plugins
	others.SecureServing.ServerCert.GeneratedCert = settings.Serving
	// Without options for it, authorization allows everything; this is called
	// after it was applied and before anything uses it.
	authorized := false
	others.ExtraAdmissionInitializers = func(config *genericapiserver.RecommendedConfig) ([]admission.PluginInitializer, error) {
		config.Authorization.Authorizer, authorized = authorizer, true
		if err := server.connectLoopback(config.LoopbackClientConfig); err != nil {
			return nil, err
		}
		return []admission.PluginInitializer{initializer.New(server.Informers, server.Client, uncached, identity)}, nil
	}
	if err := others.ApplyTo(config); err != nil {
		return err
	}
	if !authorized {
		return errors.New("the server would run without its authorizer")
	}
	if source := config.SecureServing.ClientCA; source != nil {
		server.authorities = newAuthorities(source, lookedUp(settings.Recommended.Authentication))
		config.SecureServing.ClientCA = server.authorities
	}
	return nil
}

func (s *Server) connectLoopback(loopback *rest.Config) error {
	config := rest.CopyConfig(loopback)
	config.ContentType = runtime.ContentTypeProtobuf
	// The server bounds itself by priority and fairness, not by its client.
	config.QPS = -1
	// What does not leave the machine is only made slower by that.
	config.DisableCompression = true
	s.Loopback = rest.CopyConfig(config)
	config.WrapTransport = func(connection http.RoundTripper) http.RoundTripper {
		return &inProcess{connection: connection, handler: func() http.Handler {
			if s.Generic == nil {
				return nil
			}
			return s.Generic.Handler
		}}
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client for our own kinds: %w", err)
	}
	s.Client = client
	s.Informers = informers.NewSharedInformerFactory(client, 0)
	return nil
}
