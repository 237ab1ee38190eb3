package pki

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedapiregistrationv1 "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
)

// ReadyAtAnnotation on an APIService says when the server behind it last became
// ready. Its change makes the aggregator look at once, where its own back-off
// would let up to 30 s pass.
const ReadyAtAnnotation = "fieldplane.dev/ready-at"

// PublishCABundle makes the aggregator trust this CA, and nothing else, for
// these APIServices; one that already does is not written.
func PublishCABundle(ctx context.Context, apiServices typedapiregistrationv1.APIServiceInterface, names []string, caPEM []byte) error {
	var errs []error
	for _, name := range names {
		current, err := apiServices.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			errs = append(errs, fmt.Errorf("publish the CA into APIService %s: %w", name, err))
			continue
		}
		if bytes.Equal(current.Spec.CABundle, caPEM) && !current.Spec.InsecureSkipTLSVerify {
			continue
		}
		errs = append(errs, patchAPIService(ctx, apiServices, name, map[string]any{
			"spec": map[string]any{"caBundle": caPEM, "insecureSkipTLSVerify": nil},
		}))
	}
	return errors.Join(errs...)
}

// AnnounceReady tells the aggregator that the server answers, so that it routes
// to it at once. Call it when readiness turns ok, with the time of that.
func AnnounceReady(ctx context.Context, apiServices typedapiregistrationv1.APIServiceInterface, names []string, at time.Time) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, patchAPIService(ctx, apiServices, name, map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{ReadyAtAnnotation: at.UTC().Format(time.RFC3339Nano)}},
		}))
	}
	return errors.Join(errs...)
}

func patchAPIService(ctx context.Context, apiServices typedapiregistrationv1.APIServiceInterface, name string, patch map[string]any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("patch APIService %s: %w", name, err)
	}
	if _, err := apiServices.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch APIService %s: %w", name, err)
	}
	return nil
}
