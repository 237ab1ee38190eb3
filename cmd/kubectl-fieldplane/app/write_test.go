package app

import (
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fieldplane/fieldplane/apis/physical/v1alpha1"
)

// written are the requests to write tags.
func (s *session) written() []*v1alpha1.UnitTags {
	var sent []*v1alpha1.UnitTags
	for _, action := range s.client.Actions() {
		if update, ok := action.(clienttesting.UpdateActionImpl); ok && action.Matches("update", "units/tags") && update.Namespace == "site-a" {
			sent = append(sent, update.Object.(*v1alpha1.UnitTags))
		}
	}
	return sent
}

// Req: P-16b
func TestValuesAreWrittenInOneRequestOnce(t *testing.T) {
	odd := &v1alpha1.ControlModule{ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "odd"}, Spec: v1alpha1.ControlModuleSpec{Tags: []v1alpha1.Tag{{Name: "a=b"}, {Name: "c"}, {Name: "c=d"}}}}
	for _, test := range []struct {
		name string
		args []string
		want []v1alpha1.TagWrite
		out  string
	}{
		{"one", []string{"pump-3/speed=-14.5"}, []v1alpha1.TagWrite{{ControlModule: "pump-3", Name: "speed", Value: "-14.5"}}, "pump-3/speed = -14.5\n"},
		{"several, an empty one, and one with a slash", []string{"a/x=", "a/y/z=true", "b/x= 1\x1b"},
			[]v1alpha1.TagWrite{{ControlModule: "a", Name: "x"}, {ControlModule: "a", Name: "y/z", Value: "true"}, {ControlModule: "b", Name: "x", Value: " 1\x1b"}}, "a/x = \na/y/z = true\nb/x =  1\uFFFD\n"},
		{"a name with an equals sign", []string{"odd/a=b=1", "odd/c=d=2"}, []v1alpha1.TagWrite{{ControlModule: "odd", Name: "a=b", Value: "1"}, {ControlModule: "odd", Name: "c", Value: "d=2"}}, ""},
		{"a value with one", []string{"none/a=b=1"}, []v1alpha1.TagWrite{{ControlModule: "none", Name: "a", Value: "b=1"}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(mixer(), odd).units(nil, nil, nil).run(t, slices.Concat([]string{"write", "mixer"}, test.args, []string{"--reason", " why "})...).wantOK(t)
			want := &v1alpha1.UnitTags{ObjectMeta: metav1.ObjectMeta{Namespace: "site-a", Name: "mixer"}, Writes: test.want, Reason: "why"}
			if sent := s.written(); len(sent) != 1 || !reflect.DeepEqual(sent[0], want) {
				t.Errorf("sent %+v", sent)
			}
			if test.out != "" {
				wantText(t, s.out, strings.ReplaceAll(test.out, " \n", "\n"))
			}
		})
	}
}

// Req: P-16b
func TestAWriteIsNeverSentTwiceAndTellsWhatIsKnownOfIt(t *testing.T) {
	group := v1alpha1.Resource("units")
	for _, test := range []struct {
		name   string
		answer error
		code   int
		wants  []string
	}{
		{"the Unit does not run", apierrors.NewConflict(group, "mixer", errors.New("tags are written in state Running alone")), exitFailed,
			[]string{"error: the server refuses: ", "tags are written in state Running alone\nWhat became of each value is recorded: "}},
		{"a value is none", apierrors.NewInvalid(v1alpha1.SchemeGroupVersion.WithKind("UnitTags").GroupKind(), "mixer", nil), exitFailed, []string{"is invalid", "Nothing was changed by it."}},
		{"the right is missing", apierrors.NewForbidden(group, "mixer", errors.New("no")), exitFailed, []string{"it is update on units/tags, which the ClusterRole fieldplane-unit-operator has"}},
		{"the runtime is away", apierrors.NewServiceUnavailable("the runtime is not in contact"), exitFailed, []string{"error: cannot write the tags: the runtime is not in contact\n"}},
		{"the device does not answer", apierrors.NewTimeoutError("0 of 1 values were written: pump-3/speed is uncertain", 0), exitUnfinished,
			[]string{"error: whether all values were written is not known: ", "0 of 1 values were written: pump-3/speed is uncertain\nWhat became of each value is recorded: kubectl -n site-a get unit mixer -o jsonpath='{.status.writes}'"}},
		{"somebody on the way does not answer", apierrors.NewGenericServerResponse(503, "put", group, "mixer", "error trying to reach service", 0, true), exitUnfinished, []string{"is not known"}},
		{"nobody answers", io.ErrUnexpectedEOF, exitUnfinished, []string{"error: whether all values were written is not known: unexpected EOF\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSession(mixer()).units(nil, nil, test.answer).run(t, "write", "mixer", "pump-3/speed=1")
			wantContains(t, s.errOut, test.wants...)
			if s.code != test.code || len(s.written()) != 1 {
				t.Errorf("code %d, sent %v\n%s", s.code, s.written(), s.errOut)
			}
		})
	}
	for _, test := range []struct {
		name       string
		args       []string
		what, todo string
	}{
		{"nothing", []string{"write", "mixer"}, "what to write is not said", "write UNIT MODULE/TAG=VALUE..."},
		{"no value", []string{"write", "mixer", "pump-3/speed"}, `"pump-3/speed" is not MODULE/TAG=VALUE`, "for example"},
		{"no module", []string{"write", "mixer", "speed=1"}, `"speed=1" is not MODULE/TAG=VALUE`, "for example"},
		{"no tag", []string{"write", "mixer", "pump-3/=1"}, `is not MODULE/TAG=VALUE`, "for example"},
		{"a long value", []string{"write", "mixer", "a/b=" + strings.Repeat("x", 1025)}, "the value of a/b has 1025 bytes", "shorter"},
		{"twice", []string{"write", "mixer", "a/b=1", "a/b=2"}, "a/b is given twice", "Nothing was written"},
		{"too many", slices.Concat([]string{"write", "mixer"}, slices.Repeat([]string{"a/b=1"}, 33)), "33 values are given", "several goes"},
		{"a long reason", []string{"write", "mixer", "a/b=1", "--reason", strings.Repeat("x", 1025)}, "--reason has 1025 bytes", "shorter"},
	} {
		t.Run(test.name, func(t *testing.T) {
			newSession(mixer()).units(nil, nil, nil).run(t, test.args...).wantRefused(t, test.what, test.todo)
		})
	}
}
