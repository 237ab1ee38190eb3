// Package etcd runs the embedded store of the API server: one etcd member, in
// this process, reachable through unix sockets in a directory that only this
// user can enter.
//
// # Order
//
// The store is started before the API server and closed after it. It has no
// part in the server's context: cancelling that one drains requests, and a
// draining request still needs its store.
//
// # When the store is full
//
// Beyond Options.QuotaBytes etcd raises the NOSPACE alarm and refuses every
// write but deletes; Check then returns an error that says so, which takes the
// server out of its Service. The recovery: restart the server. A start that
// finds the alarm compacts the history, defragments the file, and disarms the
// alarm if the file is then smaller than the quota. If it is not, restart with a
// larger quota (--embedded-etcd-quota-bytes), and delete what is not needed.
//
// # What is left out
//
// Snapshot writes what etcdutl can restore. A restore of our own, with the
// marks that A-02 asks for, is not here yet: etcd's restore code is in a module
// (go.etcd.io/etcd/etcdutl/v3) that this one does not use.
package etcd
