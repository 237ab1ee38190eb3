package object

import "k8s.io/apiserver/pkg/registry/rest"

// Strategy lets tests of all kinds ask a subresource's strategy.
func (s *Subresource) Strategy() rest.RESTUpdateStrategy { return s.store.UpdateStrategy }
