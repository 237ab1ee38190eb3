package tags

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fieldplane/fieldplane/apis/physical"
	"github.com/fieldplane/fieldplane/pkg/driver"
	"github.com/fieldplane/fieldplane/pkg/probe/peer"
	"github.com/fieldplane/fieldplane/pkg/unitruntime/api"
)

// scripted is a runtime that says what a test has it say.
type scripted struct {
	uid     string
	err     error
	events  []api.TagEvent
	request api.WriteRequest
}

func (s *scripted) Tags(context.Context) (*api.TagList, error) {
	return &api.TagList{Runtime: api.RuntimeInfo{UID: s.uid}, Tags: []api.TagValue{{Name: "speed"}}}, s.err
}

func (s *scripted) WatchTags(_ context.Context, handle func(api.TagEvent)) error {
	for _, event := range s.events {
		handle(event)
	}
	return s.err
}

func (s *scripted) WriteTags(_ context.Context, request api.WriteRequest) (*api.WriteResponse, error) {
	s.request = request
	if s.err != nil {
		return nil, s.err
	}
	return &api.WriteResponse{Results: []api.WriteResult{{Done: true}}}, nil
}

func unit(pod string) *physical.Unit {
	return &physical.Unit{ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "mixer", UID: "u-1", ResourceVersion: "42"}, Status: physical.UnitStatus{RuntimePodName: pod}}
}

func pod(edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "unit-runtime-mixer"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "192.0.2.9"},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

// Req: P-12, P-15
func TestARuntimeIsFoundByItsPodInTheUnitsOwnNamespace(t *testing.T) {
	for _, test := range []struct {
		name  string
		named string
		pod   *corev1.Pod
		fail  error
		text  string // "": found
	}{
		{name: "it runs", named: "unit-runtime-mixer", pod: pod()},
		{name: "none is known", pod: pod(), text: "none yet"},
		{name: "it is gone", named: "other", pod: pod(), text: "is gone"},
		{name: "it is in another namespace", named: "unit-runtime-mixer", pod: pod(func(p *corev1.Pod) { p.Namespace = "site-b" }), text: "is gone"},
		{name: "it starts", named: "unit-runtime-mixer", pod: pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }), text: "does not run"},
		{name: "it has no address", named: "unit-runtime-mixer", pod: pod(func(p *corev1.Pod) { p.Status.PodIP = "" }), text: "does not run"},
		{name: "it is being deleted", named: "unit-runtime-mixer", pod: pod(func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = &metav1.Time{}, []string{"a"} }), text: "does not run"},
		{name: "the host cluster does not answer", named: "unit-runtime-mixer", pod: pod(), fail: errors.New("host is away"), text: "host is away"},
	} {
		t.Run(test.name, func(t *testing.T) {
			host := fake.NewClientset(test.pod)
			if test.fail != nil {
				host.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.fail })
			}
			dialled := ""
			runtimes := NewRuntimes(host.CoreV1(), func(namespace, address string) Client {
				dialled = namespace + " " + address
				return &scripted{uid: "u-1"}
			})
			values, err := runtimes.Tags(t.Context(), unit(test.named))
			reach := runtimes.Reach(t.Context(), unit(test.named))
			results := runtimes.WriteTags(t.Context(), unit(test.named), []api.TagWrite{{TagKey: api.TagKey{Name: "speed"}}})
			if test.text == "" {
				if err != nil || reach != nil || len(values) != 1 || dialled != "site-a 192.0.2.9:9443" || !results[0].Done {
					t.Errorf("have %v, %v, %v, dialled %q", values, err, reach, dialled)
				}
				return
			}
			for _, err := range []error{err, reach, runtimes.FollowTags(t.Context(), unit(test.named), func(api.TagEvent) {})} {
				if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), test.text) || !strings.Contains(err.Error(), "mixer") {
					t.Errorf("have %v", err)
				}
			}
			if r := results[0]; r.Done || r.Uncertain || !strings.Contains(r.Message, test.text) || r.Name != "speed" {
				t.Errorf("a write: %+v", r)
			}
			if dialled != "" {
				t.Errorf("dialled %s", dialled)
			}
		})
	}
}

// Req: P-15
func TestWhatARuntimeSaysOfAnotherUnitIsNotShown(t *testing.T) {
	for uid, text := range map[string]string{"": "no configuration yet", "u-0": "another Unit"} {
		runtimes := NewRuntimes(fake.NewClientset(pod()).CoreV1(), func(string, string) Client {
			return &scripted{uid: uid, err: context.Canceled, events: []api.TagEvent{{Type: api.TagSnapshot, Runtime: api.RuntimeInfo{UID: uid}}, {Type: api.TagChange, Runtime: api.RuntimeInfo{UID: "u-1"}}}}
		})
		handled := 0
		if err := runtimes.FollowTags(t.Context(), unit("unit-runtime-mixer"), func(api.TagEvent) { handled++ }); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), text) || handled > 0 {
			t.Errorf("followed: %v, handled %d", err, handled)
		}
		runtimes = NewRuntimes(fake.NewClientset(pod()).CoreV1(), func(string, string) Client { return &scripted{uid: uid} })
		if _, err := runtimes.Tags(t.Context(), unit("unit-runtime-mixer")); !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), text) {
			t.Errorf("read: %v", err)
		}
	}
}

// Req: A-06, P-15. Whether a value may have been written is never guessed.
func TestWhichErrorsLeaveAWriteUncertain(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, test := range map[string]struct {
		err       error
		uncertain bool
		explained func(error) bool
	}{
		"the runtime refuses":      {&api.Error{Code: 409, Message: "held"}, false, apierrors.IsServiceUnavailable},
		"no connection was made":   {&peer.ConnectError{Err: errors.New("refused")}, false, apierrors.IsServiceUnavailable},
		"the connection broke":     {io.ErrUnexpectedEOF, true, apierrors.IsServiceUnavailable},
		"no answer came in time":   {context.DeadlineExceeded, true, apierrors.IsTimeout},
		"an answer of another one": {&peer.StatusError{Who: "the runtime", Code: 502}, true, apierrors.IsServiceUnavailable},
	} {
		said := &scripted{uid: "u-1", err: test.err}
		runtimes := NewRuntimes(fake.NewClientset(pod()).CoreV1(), func(string, string) Client { return said })
		results := runtimes.WriteTags(t.Context(), unit("unit-runtime-mixer"), []api.TagWrite{{TagKey: api.TagKey{Name: "a"}}, {TagKey: api.TagKey{Name: "b"}}})
		if len(results) != 2 || results[1].Name != "b" || results[0].Uncertain != test.uncertain || results[0].Done || results[0].Message == "" {
			t.Errorf("%s: %+v", name, results)
		}
		if said.request.UID != "u-1" || said.request.Revision != 42 || len(said.request.Writes) != 2 {
			t.Errorf("%s: asked %+v", name, said.request)
		}
		if _, err := runtimes.Tags(t.Context(), unit("unit-runtime-mixer")); !test.explained(err) {
			t.Errorf("%s: %v", name, err)
		}
		if err := runtimes.FollowTags(t.Context(), unit("unit-runtime-mixer"), func(api.TagEvent) {}); !test.explained(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone := NewRuntimes(fake.NewClientset(pod()).CoreV1(), func(string, string) Client { return &scripted{err: context.Canceled} })
	if _, err := gone.Tags(ended, unit("unit-runtime-mixer")); !apierrors.IsTimeout(err) {
		t.Errorf("the reader is gone: %v", err)
	}
}

// Req: P-15. The largest Unit is read when all of its devices are lost, too: that is when somebody looks at it.
func TestAnAnswerOf20000TagsThatAreAllLostIsRead(t *testing.T) {
	var list api.TagList
	for i := range 20_000 {
		text := fmt.Sprint(i)
		list.Tags = append(list.Tags, api.TagValue{
			ControlModule: "drive-" + strconv.Itoa(i/1024), Name: "speed-" + text, IOModule: "press-1", Address: "nsu=urn:plant;s=Line1.Press.Speed" + text, Access: "ReadWrite", Unit: "1/min",
			Value: &text, Status: driver.StatusBadNoCommunication, SourceTime: time.Unix(1_770_000_000, 123456789).UTC(),
			Message: "the device does not answer: dial tcp 192.0.2.1:4840: i/o timeout, 3 times in a row, and is asked again in 250ms",
		})
	}
	encoded, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var read api.TagList
	if err := peer.ReadAnswer(bytes.NewReader(encoded), 16<<20, &read); err != nil || len(read.Tags) != len(list.Tags) {
		t.Errorf("%d of %d tags in %d bytes: %v", len(read.Tags), len(list.Tags), len(encoded), err)
	}
}
