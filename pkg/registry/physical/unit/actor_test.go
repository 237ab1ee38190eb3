package unit

import (
	"context"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Req: P-16 (what is remembered of commands leaves room for a hold)
func TestAnActorTakesNoMoreRoomThanANameNeeds(t *testing.T) {
	of := func(name string) string {
		return actorOf(genericapirequest.WithUser(context.Background(), &user.DefaultInfo{Name: name}))
	}
	if got := actorOf(context.Background()); got != "" {
		t.Errorf("nobody is %q", got)
	}
	for _, name := range []string{"alice", "system:serviceaccount:plant:robot", strings.Repeat("a", 512), "Jörg"} {
		if got := of(name); got != name {
			t.Errorf("%q becomes %q", name, got)
		}
	}
	long := strings.Repeat("ä", 300_000)
	a, b := of(long+"a"), of(long+"b")
	if a == b || len(a) > 512 || !utf8.ValidString(a) || a != of(long+"a") {
		t.Errorf("two long names are told as %q and %q", a, b)
	}
	if got := of("al\xffice"); !utf8.ValidString(got) {
		t.Errorf("%q cannot be told", got)
	}
}
