// Package pki keeps the installation's certificates where Kubernetes looks for
// them: the authority and the serving certificate in a Secret beside the
// server, a probe certificate in every namespace that needs one, the
// authority's certificate in the APIServices (A-09, P-11).
//
// Keeper runs beside the server; all else is called when the server starts, and
// by controllers when they reconcile. The authority is replaced in steps, between
// which the old one and the new one are both trusted (succession.go).
package pki
