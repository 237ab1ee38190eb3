package provider

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// eagerPeriod is how often readiness and startup are asked until they first
// succeed; a kubelet waits the whole period, which would only slow every start.
const eagerPeriod = 250 * time.Millisecond

// probe runs a started container's probes until ctx ends: startup first, then
// liveness and readiness. A failed startup or liveness probe is sent to unhealthy.
func (c *container) probe(ctx context.Context, r *podRunner, pod *corev1.Pod, spec *corev1.Container, unhealthy chan<- string) {
	fail := func(kind, message string) {
		r.p.config.Recorder.Eventf(pod, corev1.EventTypeWarning, "Unhealthy", "%s probe of container %s failed: %s", kind, c.name, message)
		select {
		case unhealthy <- message:
		default:
		}
	}
	if spec.StartupProbe != nil {
		started, end := context.WithCancel(ctx)
		r.runProbe(started, spec, spec.StartupProbe, true, func(ok bool, message string) {
			if !ok {
				fail("Startup", message)
				return
			}
			c.set(r, func(s *containerState) { s.started, s.ready = true, spec.ReadinessProbe == nil })
			end()
		})
		end()
		if ctx.Err() != nil {
			return
		}
	}
	var group sync.WaitGroup
	if spec.LivenessProbe != nil {
		group.Go(func() {
			r.runProbe(ctx, spec, spec.LivenessProbe, false, func(ok bool, message string) {
				if !ok {
					fail("Liveness", message)
				}
			})
		})
	}
	if spec.ReadinessProbe != nil {
		group.Go(func() {
			r.runProbe(ctx, spec, spec.ReadinessProbe, true, func(ok bool, message string) {
				if !ok {
					r.p.config.Recorder.Eventf(pod, corev1.EventTypeWarning, "Unhealthy", "Readiness probe of container %s failed: %s", c.name, message)
				}
				c.set(r, func(s *containerState) { s.ready = ok })
			})
		})
	}
	group.Wait()
}

// runProbe asks periodically and reports when a threshold is reached and the
// verdict differs from the one before. It returns when ctx ends.
func (r *podRunner) runProbe(ctx context.Context, container *corev1.Container, probe *corev1.Probe, eager bool, report func(ok bool, message string)) {
	seconds := func(n int32) time.Duration { return time.Duration(max(n, 1)) * time.Second }
	wait := func(d time.Duration) bool {
		select {
		case <-ctx.Done():
			return false
		case <-r.p.config.Clock.After(d):
			return true
		}
	}
	delay := time.Duration(probe.InitialDelaySeconds) * time.Second
	if !eager {
		// A kubelet asks some time after the start as well; a program that is not
		// listening yet is not dead.
		delay = max(delay, seconds(probe.PeriodSeconds))
	}
	if !wait(delay) {
		return
	}
	var verdict thresholds
	for {
		asked, cancel := context.WithTimeout(ctx, seconds(probe.TimeoutSeconds))
		err := r.ask(asked, container, probe)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if changed := verdict.count(err == nil, max(probe.SuccessThreshold, 1), max(probe.FailureThreshold, 1)); changed {
			message := ""
			if err != nil {
				message = err.Error()
			}
			report(err == nil, message)
		}
		period := seconds(probe.PeriodSeconds)
		if eager && !verdict.everGood {
			period = min(period, eagerPeriod)
		}
		if !wait(period) {
			return
		}
	}
}

// thresholds counts a probe's answers in a row.
type thresholds struct {
	good, bad int32
	decided   bool
	healthy   bool
	everGood  bool
}

// count adds one answer and reports whether the verdict has changed.
func (t *thresholds) count(ok bool, successThreshold, failureThreshold int32) bool {
	if ok {
		t.good, t.bad, t.everGood = t.good+1, 0, true
	} else {
		t.good, t.bad = 0, t.bad+1
	}
	switch {
	case ok && t.good >= successThreshold && (!t.decided || !t.healthy):
		t.decided, t.healthy = true, true
	case !ok && t.bad >= failureThreshold && (!t.decided || t.healthy):
		t.decided, t.healthy = true, false
	default:
		return false
	}
	return true
}

func (r *podRunner) ask(ctx context.Context, container *corev1.Container, probe *corev1.Probe) error {
	switch {
	case probe.HTTPGet != nil:
		return r.askHTTP(ctx, container, probe.HTTPGet)
	case probe.TCPSocket != nil:
		address, err := r.probeAddress(container, probe.TCPSocket.Host, probe.TCPSocket.Port)
		if err != nil {
			return err
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	default:
		return fmt.Errorf("only httpGet and tcpSocket probes are supported on a local node")
	}
}

func (r *podRunner) askHTTP(ctx context.Context, container *corev1.Container, action *corev1.HTTPGetAction) error {
	address, err := r.probeAddress(container, action.Host, action.Port)
	if err != nil {
		return err
	}
	scheme := "http"
	if action.Scheme != "" {
		scheme = strings.ToLower(string(action.Scheme))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+address+"/"+strings.TrimPrefix(action.Path, "/"), nil)
	if err != nil {
		return err
	}
	for _, header := range action.HTTPHeaders {
		if strings.EqualFold(header.Name, "Host") {
			request.Host = header.Value
		} else {
			request.Header.Add(header.Name, header.Value)
		}
	}
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			// A kubelet does not verify the certificate of a probed port either.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode >= 400 {
		return fmt.Errorf("HTTP probe failed with statuscode: %d", response.StatusCode)
	}
	return nil
}

func (r *podRunner) probeAddress(container *corev1.Container, host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = r.ip
	}
	number := port.IntValue()
	if port.Type == intstr.String {
		for _, p := range container.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	if number <= 0 {
		return "", fmt.Errorf("container %s has no port %q", container.Name, port.String())
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}
