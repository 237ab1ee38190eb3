// Package unit keeps the state of every Unit: it carries out commands, holds a Unit whose required modules fail, and
// tells its runtime (P-16, P-16b, P-16c).
//
// Data goes tags (which modules a Unit requires) → facts (what is stored of the Unit and of them, and what its runtime
// reports) → decision → status → order to the runtime. The decision is a pure function of the facts. It is taken anew
// whenever one of them changes, when a time that it named has come, and at the start, so that nothing is lost with a missed
// change, a crash or a former leader. Whatever leads to Running is decided on what was read from the store after the
// command, never on a cache.
//
// RBAC: units get, list, watch and units/status update, patch; controlmodules and iomodules get, list, watch; in the host
// cluster events create, patch.
package unit
