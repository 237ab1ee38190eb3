package apiserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	kubeinformers "k8s.io/client-go/informers"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/pkg/controllers/bootstrap"
	"github.com/fieldplane/fieldplane/pkg/controllers/clusterstatus"
	"github.com/fieldplane/fieldplane/pkg/controllers/controlmodule"
	"github.com/fieldplane/fieldplane/pkg/controllers/discovery"
	"github.com/fieldplane/fieldplane/pkg/controllers/heartbeat"
	"github.com/fieldplane/fieldplane/pkg/controllers/iomodule"
	"github.com/fieldplane/fieldplane/pkg/controllers/machineconfiguration"
	"github.com/fieldplane/fieldplane/pkg/controllers/machinestate"
	"github.com/fieldplane/fieldplane/pkg/controllers/networkprobe"
	"github.com/fieldplane/fieldplane/pkg/controllers/nodebinding"
	"github.com/fieldplane/fieldplane/pkg/controllers/probepod"
	"github.com/fieldplane/fieldplane/pkg/controllers/restored"
	"github.com/fieldplane/fieldplane/pkg/controllers/runtimelink"
	"github.com/fieldplane/fieldplane/pkg/controllers/unit"
	"github.com/fieldplane/fieldplane/pkg/controllers/unitruntime"
	"github.com/fieldplane/fieldplane/pkg/pki"
	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	"github.com/fieldplane/fieldplane/pkg/talos/bundle"
	"github.com/fieldplane/fieldplane/pkg/talos/machine"
	"github.com/fieldplane/fieldplane/pkg/talos/maintenance"
)

// EventSource is the component that our Events name.
const EventSource = "fieldplane"

// restartPause is how long a set of controllers of which one failed rests.
const restartPause = time.Second

// ControllerSettings are what the controllers are made from, beside the server.
type ControllerSettings struct {
	// Authority signs the probes' certificates and the controllers' own.
	Authority *authority.Authority
	// Namespace is the server's own: bundles and the Lease are there.
	Namespace string
	// ProbeImage is io-probe's, RuntimeImage unit-runtime's.
	ProbeImage, RuntimeImage string
	// Elect has replicas agree by a Lease on which of them runs the controllers.
	// The embedded store's lock makes that needless.
	Elect bool
	// Identity is this replica's name in the Lease.
	Identity string
	// Restored is where it stands that the store was restored from a snapshot.
	Restored RestoreMarks
	Clock    clock.WithTicker
}

// DialProbe opens a connection to a probe or a runtime, which is in this cluster or lost.
func DialProbe(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, address)
}

// duty is one controller. Run returns once all it started has stopped.
type duty interface{ Run(context.Context) error }

// AddControllers makes the server run the controllers: after it serves, and
// until just before it drains.
func (s *Server) AddControllers(settings ControllerSettings) error {
	// Informers that nobody asked for before the start would never start.
	probes := kubeinformers.NewSharedInformerFactoryWithOptions(s.HostClient, 0,
		kubeinformers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = probepod.KindLabel }))
	pods, configMaps := probes.Core().V1().Pods(), probes.Core().V1().ConfigMaps()
	runtimes := kubeinformers.NewSharedInformerFactoryWithOptions(s.HostClient, 0,
		kubeinformers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = probepod.RuntimeLabel }))
	runtimePods, runtimeConfigMaps := runtimes.Core().V1().Pods(), runtimes.Core().V1().ConfigMaps()
	nodes, namespaces := s.HostInformers.Core().V1().Nodes(), s.HostInformers.Core().V1().Namespaces()
	modules, controllers := s.Informers.Physical().V1alpha1().IOModules(), s.Informers.Physical().V1alpha1().Controllers()
	units, controlModules := s.Informers.Physical().V1alpha1().Units(), s.Informers.Physical().V1alpha1().ControlModules()
	clusters, machines := s.Informers.Talos().V1alpha1().TalosClusters(), s.Informers.Talos().V1alpha1().TalosMachines()

	pods.Informer()
	configMaps.Informer()
	runtimePods.Informer()
	runtimeConfigMaps.Informer()
	nodes.Informer()
	namespaces.Informer()
	modules.Informer()
	controllers.Informer()
	units.Informer()
	controlModules.Informer()
	clusters.Informer()
	machines.Informer()

	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{
		// One sweep may find as many weak machines as its status lists, and each is
		// worth an Event of its own (T-09).
		BurstSize: 100, MaxEvents: 100,
	}))
	recorder := broadcaster.NewRecorder(NewScheme(), corev1.EventSource{Component: EventSource})

	bundles, err := bundle.NewStore(s.HostClient.CoreV1(), settings.Namespace)
	if err != nil {
		return err
	}

	ensureCertificate := func(ctx context.Context, namespace string) error {
		return pki.EnsureNamespaceCertificate(ctx, s.HostClient.CoreV1(), settings.Authority, settings.Clock, namespace)
	}
	ours := authority.NewControllerClient(settings.Authority, settings.Clock)

	duties := func() map[string]duty {
		probing := networkprobe.New(networkprobe.Options{
			Image: settings.ProbeImage, Host: s.HostClient,
			Pods: pods, ConfigMaps: configMaps, Nodes: nodes, Namespaces: namespaces,
			Modules: modules, Controllers: controllers,
			EnsureCertificate: ensureCertificate, Recorder: recorder, Clock: settings.Clock,
		})
		states := iomodule.New(iomodule.Options{
			Client: s.Client.PhysicalV1alpha1(), Modules: modules, Controllers: controllers,
			Pods: pods, ConfigMaps: configMaps, Nodes: nodes, Distrusted: probing.Reconsider,
			Follow: iomodule.FollowProbes(ours, DialProbe, settings.Clock),
			Clock:  settings.Clock,
		})
		running := unitruntime.New(unitruntime.Options{
			Image: settings.RuntimeImage, Host: s.HostClient, Client: s.Client.PhysicalV1alpha1(),
			Pods: runtimePods, ConfigMaps: runtimeConfigMaps, ProbePods: pods, Nodes: nodes, Namespaces: namespaces,
			Units: units, ControlModules: controlModules, Modules: modules,
			EnsureCertificate: ensureCertificate, Recorder: recorder, Clock: settings.Clock,
		})
		links := runtimelink.New(runtimelink.Options{
			Pods: runtimePods, Connect: runtimelink.ConnectRuntimes(ours, DialProbe, settings.Clock),
			Distrusted: running.Reconsider, Clock: settings.Clock,
		})
		return map[string]duty{
			"machineconfiguration": machineconfiguration.New(machineconfiguration.Config{
				Client: s.Client, Clusters: clusters, Machines: machines, Bundles: bundles,
				Recorder: recorder, Clock: settings.Clock, Dial: maintenance.Dial,
			}),
			"machinestate": machinestate.New(machinestate.Config{
				Client: s.Client, Clusters: clusters, Machines: machines, Bundles: bundles,
				Recorder: recorder, Clock: settings.Clock, Dial: machine.Dial,
			}),
			"bootstrap": bootstrap.New(bootstrap.Config{
				Client: s.Client, Clusters: clusters, Machines: machines, Bundles: bundles,
				Recorder: recorder, Clock: settings.Clock, Dial: machine.Dial,
			}),
			"clusterstatus": clusterstatus.New(clusterstatus.Config{
				Client: s.Client, Clusters: clusters, Machines: machines, Bundles: bundles,
				Recorder: recorder, Clock: settings.Clock,
			}),
			"discovery": discovery.New(discovery.Config{
				Client: s.Client, Clusters: clusters, Machines: machines, Recorder: recorder,
				Clock: settings.Clock, Dial: maintenance.Dial, Predial: maintenance.Predial,
			}),
			"nodebinding": nodebinding.New(nodebinding.Config{
				Client: s.Client, Machines: machines, Controllers: controllers, Nodes: nodes,
				Recorder: recorder, Clock: settings.Clock,
			}),
			"heartbeat": heartbeat.New(heartbeat.Config{
				Client: s.Client.PhysicalV1alpha1(), Controllers: controllers,
				Clock: settings.Clock, Random: rand.Float64,
			}),
			"networkprobe": probing,
			"iomodule":     states,
			"controlmodule": controlmodule.New(controlmodule.Options{
				Client: s.Client.PhysicalV1alpha1(), ControlModules: controlModules, Units: units, Modules: modules, Clock: settings.Clock,
			}),
			"unitruntime": running,
			"runtimelink": links,
			"unit": unit.New(unit.Options{
				Client: s.Client.PhysicalV1alpha1(), Units: units, ControlModules: controlModules, Modules: modules,
				Runtimes: links, Evidence: states, Recorder: recorder, Clock: settings.Clock, Wall: settings.Clock.Now,
				NewEpisode: func() string { return string(uuid.NewUUID()) },
			}),
		}
	}
	afterRestore := restored.New(restored.Config{
		Client: s.Client, Marks: restoreMarks{settings.Restored}, Recorder: recorder, Clock: settings.Clock,
		NewID: func() string { return string(uuid.NewUUID()) },
	})
	lead := func(ctx context.Context) {
		if first(ctx, afterRestore.Process, settings.Clock) {
			runDuties(ctx, duties)
		}
	}
	if settings.Elect {
		election, err := newElection(s.HostClient, settings.Namespace, settings.Identity)
		if err != nil {
			return err
		}
		term := lead
		lead = func(ctx context.Context) { election.run(ctx, term) }
	}

	// The hooks' own context ends too late: controllers stop before requests drain.
	running := controllerRun{stop: make(chan struct{})}
	if err := s.Generic.AddPostStartHook("start-fieldplane-controllers", func(hook genericapiserver.PostStartHookContext) error {
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: s.HostClient.CoreV1().Events("")})
		probes.Start(hook.Done())
		runtimes.Start(hook.Done())
		running.start(hook.Context, lead)
		return nil
	}); err != nil {
		return err
	}
	return s.Generic.AddPreShutdownHook("stop-fieldplane-controllers", func() error {
		running.stopAndWait()
		broadcaster.Shutdown()
		klog.InfoS("Controllers stopped")
		return nil
	})
}

// controllerRun is the run of the controllers, which has an end of its own.
type controllerRun struct {
	stop    chan struct{}
	stopped sync.WaitGroup
	// mu keeps a start that comes after the stop, or during it, from starting anything.
	mu sync.Mutex
}

func (r *controllerRun) start(ctx context.Context, lead func(context.Context)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.stop:
		return
	default:
	}
	r.stopped.Go(func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-r.stop:
				cancel()
			case <-ctx.Done():
			}
		}()
		lead(ctx)
	})
}

func (r *controllerRun) stopAndWait() {
	r.mu.Lock()
	close(r.stop)
	r.mu.Unlock()
	r.stopped.Wait()
}

// runDuties runs a set of controllers until the context ends. When one fails,
// all are stopped and made anew: what they keep in memory may depend on it.
func runDuties(ctx context.Context, duties func() map[string]duty) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		set := duties()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		var stopped sync.WaitGroup
		for name, controller := range set {
			stopped.Go(func() {
				defer stop()
				if err := controller.Run(ctx); err != nil && ctx.Err() == nil {
					klog.ErrorS(fmt.Errorf("controller %s: %w", name, err), "A controller failed; all are started again")
				}
			})
		}
		klog.InfoS("Controllers started", "count", len(set))
		stopped.Wait()
	}, restartPause)
}
