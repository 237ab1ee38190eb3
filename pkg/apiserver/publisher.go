package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/utils/clock"

	physicalv1alpha1 "github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
	talosv1alpha1 "github.com/fieldplane/fieldplane/apis/talos/v1alpha1"
	"github.com/fieldplane/fieldplane/pkg/pki"
)

const (
	readyPollPeriod = 50 * time.Millisecond
	// republishPeriod is how soon an APIService that was replaced, and so lost
	// its caBundle, works again.
	republishPeriod = 10 * time.Second
)

// APIServiceNames are the names under which the groups are registered in the host cluster.
func APIServiceNames() []string {
	return []string{
		physicalv1alpha1.SchemeGroupVersion.Version + "." + physicalv1alpha1.GroupName,
		talosv1alpha1.SchemeGroupVersion.Version + "." + talosv1alpha1.GroupName,
	}
}

// AddPublisher makes the server, once it is ready, put what is to be trusted
// into the APIServices and tell the aggregator to look, and keep them so.
func (s *Server) AddPublisher(apiServices apiregistrationclient.APIServiceInterface, trust func() []byte, clock clock.PassiveClock) error {
	return s.Generic.AddPostStartHook("publish-to-aggregator", func(hook genericapiserver.PostStartHookContext) error {
		go s.publish(hook.Context, apiServices, trust, clock)
		return nil
	})
}

func (s *Server) publish(ctx context.Context, apiServices apiregistrationclient.APIServiceInterface, trust func() []byte, clock clock.PassiveClock) {
	ready, err := readyCheck(s.Loopback)
	if err != nil {
		klog.ErrorS(err, "Cannot watch our own readiness")
		return
	}
	if err := wait.PollUntilContextCancel(ctx, readyPollPeriod, true, func(ctx context.Context) (bool, error) {
		return ready(ctx), nil
	}); err != nil {
		return
	}
	announced := false
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := pki.PublishCABundle(ctx, apiServices, APIServiceNames(), trust()); err != nil {
			klog.ErrorS(err, "Cannot publish the CA; the aggregator will not route to this server")
			return
		}
		if announced {
			return
		}
		if err := pki.AnnounceReady(ctx, apiServices, APIServiceNames(), clock.Now()); err != nil {
			klog.ErrorS(err, "Cannot announce readiness; the aggregator will notice by itself")
			return
		}
		announced = true
		klog.InfoS("Ready and published to the aggregator")
	}, republishPeriod)
}

// readyCheck returns a question to our own /readyz, which is asked as anybody
// may and therefore without credentials.
func readyCheck(loopback *rest.Config) (func(context.Context) bool, error) {
	config, err := rest.TLSConfigFor(loopback)
	if err != nil {
		return nil, fmt.Errorf("loopback: %w", err)
	}
	// A connection that is kept is one more that a stop has to wait for.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: time.Second}
	return func(ctx context.Context) bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, loopback.Host+"/readyz", nil)
		if err != nil {
			return false
		}
		response, err := client.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, nil
}
