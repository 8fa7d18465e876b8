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
//	s.Shutdown(ctx)     // waiting calls end with: ask another server
//	h.Shutdown(ctx)     // heartbeats were served until now
//	client.Close(ctx)
//
// The command tenured is this with flags. openapi.json describes requests and answers; the
// server serves it under that name.
//
// A client is the holder. It makes its beats, counts its lease by its own clock, and stops
// its work when the lease is over. The server carries out what it says, and keeps no
// state that matters: any number of servers on one store serve the same clients, and no lock
// is lost when a server crashes.
//
// # Files
//
// A call comes in through call.go: host, origin, route (routes.go), principal (auth.go,
// principals.go, principal_set.go), limits (limits.go). Then its handler reads it (body.go),
// does its work (holding.go and asking.go by internal/remote, looking.go, events.go) and
// answers, with a problem if it cannot (problem.go). Waiting calls are in a gate (gate.go),
// which a shutdown closes.
//
// # Guarantees
//
// The guarantees of package tenure, for clients that follow the rules of the document: at most
// one of them may act under a lock at a time, whatever is lost, duplicated, delayed or replayed
// on the network, and whichever servers crash. A client sends a call again, unchanged, if the
// answer is unknown, or if it gets no answer.
//
// The server sends the beat of a holder only to that holder. Nothing else that the server
// shows makes it possible to renew or release a lock.
//
// A principal cannot reach a lock to which it has no right, also not by a derived name. Its
// calls do not delay heartbeats of others: heartbeats and releases have their own budget.
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
