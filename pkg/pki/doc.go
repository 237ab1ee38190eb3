// Package pki keeps the installation's certificates where Kubernetes looks for
// them: the authority and the serving certificate in a Secret beside the
// server, a probe certificate in every namespace that needs one, the
// authority's certificate in the APIServices (A-09, P-11).
//
// Nothing here runs by itself: the server calls it when it starts, and the
// controllers when they reconcile. Replacing the authority while it is still
// valid, which needs the old one and the new one trusted for a while, is not
// here yet.
package pki
