package apiserver

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/utils/clock"

	"github.com/fieldplane/fieldplane/apis/physical"
	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	"github.com/fieldplane/fieldplane/apis/talos"
	talosv1alpha1 "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/registry/physical/controller"
	"github.com/fieldplane/fieldplane/pkg/registry/physical/controlmodule"
	"github.com/fieldplane/fieldplane/pkg/registry/physical/iomodule"
	"github.com/fieldplane/fieldplane/pkg/registry/physical/unit"
	"github.com/fieldplane/fieldplane/pkg/registry/talos/taloscluster"
	"github.com/fieldplane/fieldplane/pkg/registry/talos/talosmachine"
)

type newStorage func(*runtime.Scheme, generic.RESTOptionsGetter, clock.PassiveClock) (map[string]rest.Storage, error)

// InstallGroups opens the stores and serves both groups. The catalogue is what iomodules/channels shows,
// configurations what talosmachines/config does; runtimes are asked for what units/tags does.
func InstallGroups(server *genericapiserver.GenericAPIServer, scheme *runtime.Scheme, codecs serializer.CodecFactory,
	options generic.RESTOptionsGetter, clock clock.WithTicker, catalogue iomodule.Catalogue, configurations talosmachine.Configurations,
	runtimes unit.Runtimes,
) error {
	parameters := runtime.NewParameterCodec(scheme)
	groups := []struct {
		name, version string
		kinds         []newStorage
	}{
		{physical.GroupName, physicalv1alpha1.SchemeGroupVersion.Version, []newStorage{
			newIOModules(catalogue), controller.NewStorage, newUnits(clock, runtimes),
		}},
		{talos.GroupName, talosv1alpha1.SchemeGroupVersion.Version, []newStorage{
			taloscluster.NewStorage, newTalosMachines(configurations),
		}},
	}
	for _, group := range groups {
		served := map[string]rest.Storage{}
		for _, open := range group.kinds {
			kind, err := open(scheme, options, clock)
			if err != nil {
				return err
			}
			maps.Copy(served, kind)
		}
		info := genericapiserver.NewDefaultAPIGroupInfo(group.name, scheme, parameters, codecs)
		info.VersionedResourcesStorageMap[group.version] = served
		if err := server.InstallAPIGroup(&info); err != nil {
			return fmt.Errorf("install API group %s: %w", group.name, err)
		}
	}
	return nil
}

func newIOModules(catalogue iomodule.Catalogue) newStorage {
	return func(scheme *runtime.Scheme, options generic.RESTOptionsGetter, clock clock.PassiveClock) (map[string]rest.Storage, error) {
		return iomodule.NewStorage(scheme, options, clock, catalogue)
	}
}

func newTalosMachines(configurations talosmachine.Configurations) newStorage {
	return func(scheme *runtime.Scheme, options generic.RESTOptionsGetter, clock clock.PassiveClock) (map[string]rest.Storage, error) {
		return talosmachine.NewStorage(scheme, options, clock, configurations)
	}
}

// newUnits opens Units and their ControlModules, in which units/tags looks up what may be written. Whoever sends a command
// waits for what comes of it, so that the clock ticks.
func newUnits(ticking clock.WithTicker, runtimes unit.Runtimes) newStorage {
	return func(scheme *runtime.Scheme, options generic.RESTOptionsGetter, clock clock.PassiveClock) (map[string]rest.Storage, error) {
		served, err := controlmodule.NewStorage(scheme, options, clock)
		if err != nil {
			return nil, err
		}
		units, err := unit.NewStorage(scheme, options, ticking, served["controlmodules"].(rest.Getter), runtimes)
		if err != nil {
			return nil, err
		}
		maps.Copy(served, units)
		return served, nil
	}
}
