// Package initializer hands admission plugins what they need beyond what k8s.io/apiserver gives: informers and a client
// for our own kinds, an authorizer that is not cached, and the names under which the server itself writes.
package initializer

import (
	"slices"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/fieldplane/fieldplane/generated/clientset/versioned"
	"github.com/fieldplane/fieldplane/generated/informers"
)

// WantsFieldplaneInformers is implemented by plugins that look up objects of our own kinds. What an informer shows may
// be old: a plugin reads live before it refuses.
type WantsFieldplaneInformers interface {
	SetFieldplaneInformers(informers.SharedInformerFactory)
	admission.InitializationValidator
}

// WantsFieldplaneClient is implemented by plugins that read objects of our own kinds live.
type WantsFieldplaneClient interface {
	SetFieldplaneClient(versioned.Interface)
	admission.InitializationValidator
}

// WantsUncachedAuthorizer is implemented by plugins that ask for a permission whose revocation must deny the next
// request (T-13): the authorizer asks the host cluster every time.
type WantsUncachedAuthorizer interface {
	SetUncachedAuthorizer(authorizer.UnconditionalAuthorizer)
	admission.InitializationValidator
}

// WantsServerIdentity is implemented by plugins that tell the server's own writes from those of users.
type WantsServerIdentity interface {
	SetServerIdentity(ServerIdentity)
	admission.InitializationValidator
}

// ServerIdentity is the set of user names under which the server itself writes: its service account's and the loopback user's.
type ServerIdentity struct{ names []string }

// NewServerIdentity returns the identity that the user names make up; empty names are left out, so that an unset
// service account never makes an anonymous writer the server.
func NewServerIdentity(names ...string) ServerIdentity {
	return ServerIdentity{names: slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })}
}

// Empty tells that the server has no name, which no plugin accepts.
func (s ServerIdentity) Empty() bool { return len(s.names) == 0 }

// Is tells whether a user is the server itself; a request without a user is not.
func (s ServerIdentity) Is(u user.Info) bool {
	return u != nil && slices.Contains(s.names, u.GetName())
}

// New returns the initializer that gives each plugin what it wants of the four.
func New(f informers.SharedInformerFactory, c versioned.Interface, uncached authorizer.UnconditionalAuthorizer, identity ServerIdentity) admission.PluginInitializer {
	return pluginInitializer{informers: f, client: c, uncached: uncached, identity: identity}
}

type pluginInitializer struct {
	informers informers.SharedInformerFactory
	client    versioned.Interface
	uncached  authorizer.UnconditionalAuthorizer
	identity  ServerIdentity
}

// Initialize implements admission.PluginInitializer.
func (i pluginInitializer) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(WantsFieldplaneInformers); ok {
		wants.SetFieldplaneInformers(i.informers)
	}
	if wants, ok := plugin.(WantsFieldplaneClient); ok {
		wants.SetFieldplaneClient(i.client)
	}
	if wants, ok := plugin.(WantsUncachedAuthorizer); ok {
		wants.SetUncachedAuthorizer(i.uncached)
	}
	if wants, ok := plugin.(WantsServerIdentity); ok {
		wants.SetServerIdentity(i.identity)
	}
}
