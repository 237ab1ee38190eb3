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
// # Snapshots
//
// SaveSnapshot and Restore use etcd's own snapshots, with their checksum. A
// restored store goes on at a much higher revision, and counts all before it as
// compacted: clients that remember the lost one read everything anew, and never
// see time go back. Mark tells the controllers that what they find is old.
package etcd
