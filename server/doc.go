// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package server is the lock service: locks, leadership and fencing tokens over HTTP and
// JSON, for programs in any language, on any store.
//
//	principals, err := server.OpenPrincipals("/etc/tenure/principals", logger)
//	...
//	s, err := server.New(client, server.Options{Principals: principals, Logger: logger})
//	...
//	h := s.HTTPServer() // an http.Server with the time limits that it needs
//	go h.Serve(listener)
//	...
//	s.Shutdown(ctx)     // those who wait are told to ask another server
//	h.Shutdown(ctx)     // heartbeats were served until now
//	client.Close(ctx)
//
// The command tenured is this with flags. The document of what is sent and answered is
// openapi.json, which the server serves under that name.
//
// A client is the holder. It makes its beats, counts its lease by its own clock, and stops
// its work when the lease is over. The server carries out what it says, and keeps no
// state that matters: any number of servers on one store serve the same clients, and no lock
// is lost when a server crashes.
//
// # Files
//
// A call comes in through call.go: host, origin, route (routes.go), principal (auth.go,
// principals.go, principal_set.go), limits (limits.go). Then its handler reads it (body.go), does its
// work (holding.go and asking.go by internal/remote, looking.go, events.go) and answers, with
// a problem if it cannot (problem.go). What waits stands in a gate (gate.go), which a shutdown closes.
//
// # Guarantees
//
// Those of package tenure, for clients that keep the rules of the document: at most one of
// them may act under a lock at a time, whatever is lost, doubled, delayed or replayed on the
// way, and whichever servers crash. A call that is answered with unknown, or with nothing, is
// sent again as it was.
//
// The beat of a holder is told to nobody but the holder. Nothing else that the server shows
// lets one renew or release a lock.
//
// A principal reaches no lock to which it has no right, by no name that is derived from one.
// Its calls take no heartbeat from others: heartbeats and releases have a budget of their own.
//
// # What is not guaranteed
//
// A client that breaks the rules, by counting from the answer, say, may act beside the next
// holder. Use the clients that we have, and a fence at the resource.
//
// A principal that may hold a lock may write its data, and the data of derived locks, such
// as the ledger of a job of package once.
//
// Limits hold for one server. What a client may use of three replicas is three times as much.
//
// A list, a stream and a metric show a state of some time ago, and decide nothing.
package server
