// Package channels tells what channels a module's device has, as the probe that measures it found them (P-06).
package channels

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/pki/authority"
	"github.com/fieldplane/fieldplane/pkg/probe/api"
	"github.com/fieldplane/fieldplane/pkg/probe/probeclient"
)

// retryAfter is what a client is told to wait, in seconds, before it asks for a probe again that did not answer.
const retryAfter = 5

// maxToken bounds a continue.
const maxToken = 1024

// Ask asks the probe of a namespace at an address (host:port) for a page of a module's channels.
type Ask func(ctx context.Context, namespace, address, module string, limit int, token string) (*api.ChannelPage, error)

// AskProbes asks probes over mutual TLS, with the controllers' certificate; each probe is verified as one of its namespace
// (P-11, P-12).
func AskProbes(controllers *authority.ControllerClient, dial probeclient.Dial, c clock.Clock) Ask {
	return func(ctx context.Context, namespace, address, module string, limit int, token string) (*api.ChannelPage, error) {
		client := probeclient.New(address, namespace, probeclient.CredentialsOf(controllers, namespace), dial, c)
		return client.Channels(ctx, module, limit, token)
	}
}

// Reader reads pages of channels. All its errors are of the API: they are shown to the one who asked.
type Reader struct {
	pods  corev1client.PodsGetter
	ask   Ask
	turns *turns
}

// NewReader returns a reader that finds probes by their pods.
func NewReader(pods corev1client.PodsGetter, ask Ask) *Reader {
	return &Reader{pods: pods, ask: ask, turns: newTurns()}
}

// Page returns at most limit channels of a module, after those of the page whose continue the token is.
func (r *Reader) Page(ctx context.Context, module *physical.IOModule, limit int, token string) (*physical.IOModuleChannels, error) {
	if module.Spec.Protocol == physical.ProtocolSimulation {
		return declared(module, limit, token)
	}
	address, err := r.probe(ctx, module)
	if err != nil {
		return nil, err
	}
	release, ok := r.turns.take(module.Namespace)
	if !ok {
		return nil, apierrors.NewTooManyRequests("the probes are being asked for as many pages as may be at once", retryAfter)
	}
	defer release()
	page, err := r.ask(ctx, module.Namespace, address, string(module.UID), limit, token)
	if err == nil && len(page.Continue) > maxToken {
		err = errors.New("its continue is no token of a probe")
	}
	if err != nil {
		return nil, explain(ctx, module, err)
	}
	// The pod is in the hands of whoever may edit the namespace: its words are bounded, and its numbers taken as claims.
	out := &physical.IOModuleChannels{
		DiscoveredAt: &metav1.Time{Time: page.DiscoveredAt},
		Truncated:    page.Truncated,
		Items:        make([]physical.ModuleChannel, 0, min(len(page.Items), limit)),
	}
	for _, info := range page.Items[:min(len(page.Items), limit)] {
		out.Items = append(out.Items, channel(info))
	}
	out.Continue = page.Continue
	if page.Continue != "" && page.Remaining > 0 {
		out.RemainingItemCount = ptr.To(int64(page.Remaining))
	}
	return out, nil
}

// probe is where the probe that measures a module answers.
func (r *Reader) probe(ctx context.Context, module *physical.IOModule) (string, error) {
	name := module.Status.ProbePodName
	if name == "" {
		return "", unmeasured(module, "no probe measures it yet")
	}
	pod, err := r.pods.Pods(module.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", unmeasured(module, "its probe, pod "+name+", is gone")
	case err != nil && ctx.Err() != nil:
		return "", apierrors.NewTimeoutError("the probe's pod could not be read in time", retryAfter)
	case err != nil:
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("the probe's pod could not be read: %v", err))
	case pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil:
		return "", unmeasured(module, "its probe, pod "+name+", does not run")
	}
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(api.Port)), nil
}

func unmeasured(module *physical.IOModule, why string) error {
	text := fmt.Sprintf("the channels of iomodule %s are read from its probe, and %s", module.Name, why)
	if status := module.Status; status.Reason != "" {
		text += fmt.Sprintf("; the module is %s (%s): %s", status.State, status.Reason, status.Message)
	}
	return apierrors.NewServiceUnavailable(text)
}

// explain is the error for a probe that gives no page.
func explain(ctx context.Context, module *physical.IOModule, err error) error {
	var refused *api.Error
	switch {
	case errors.As(err, &refused):
		switch refused.Reason {
		case api.ErrorExpired:
			return apierrors.NewResourceExpired("the channels were discovered anew since the first page: start again without continue")
		case api.ErrorInvalid:
			return apierrors.NewBadRequest(text(refused.Message))
		}
		return unmeasured(module, "it says: "+text(refused.Message))
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return apierrors.NewTimeoutError("the module's probe did not answer in time", retryAfter)
	}
	return unmeasured(module, "it does not answer: "+text(err.Error()))
}

// declaredToken is what a token of declared channels begins with; the number of those that came before follows.
const declaredToken = "declared-"

// declared is a page of a simulation's channels: nothing but its specification has any.
func declared(module *physical.IOModule, limit int, token string) (*physical.IOModuleChannels, error) {
	from, all := 0, module.Spec.Channels
	if token != "" {
		text, ours := strings.CutPrefix(token, declaredToken)
		var err error
		if from, err = strconv.Atoi(text); !ours || err != nil || from < 0 || from > len(all) {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("continue=%q: is not from a page of this module", token))
		}
	}
	out := &physical.IOModuleChannels{}
	to := min(from+limit, len(all))
	for _, c := range all[from:to] {
		out.Items = append(out.Items, physical.ModuleChannel{
			Name: c.Name, Address: c.Address, DataType: c.DataType, Count: ptr.Deref(c.Count, 1),
			Access: c.Access, Unit: c.Unit, Declared: true,
		})
	}
	if to < len(all) {
		out.Continue = declaredToken + strconv.Itoa(to)
		out.RemainingItemCount = ptr.To(int64(len(all) - to))
	}
	return out, nil
}

func channel(info driver.ChannelInfo) physical.ModuleChannel {
	out := physical.ModuleChannel{
		Name: text(info.Name), Address: info.Address,
		DataType: physical.DataType(text(string(info.DataType))), DeviceType: text(info.DeviceType), Count: int32(min(max(info.Count, 0), 1<<30)),
		Access: physical.Access(text(string(info.Access))), Unit: text(info.Unit),
		Declared: info.Declared, Problem: text(string(info.Problem)), Message: text(info.Message),
	}
	if info.Range != nil {
		out.Range = &physical.ValueRange{Low: info.Range.Low, High: info.Range.High}
	}
	return out
}

// text is what a probe says without what a terminal would act on, and no longer than what a probe says.
func text(raw string) string {
	const limit = 1024
	if len(raw) > limit {
		raw = raw[:limit]
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, raw)
}
