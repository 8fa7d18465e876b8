// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package dashboard shows people who holds which lock, who led when, and what is in doubt,
// and lets them ask holders to make way: web pages that a program mounts, beside the lock
// service of package server.
//
//	pages, err := dashboard.New(dashboard.Options{Server: service, Key: key})
//	...
//	defer pages.Close()
//	mux.Handle("/", pages)
//
// The pages are: all locks now; one lock, with its tenures as a timeline; the
// sessions; the groups of package shard as grids; and what a doctor would look at. Each
// works without JavaScript. With it, a page stays up to date by itself. A client without
// a browser, such as curl, gets the same as plain text.
//
// All links are relative. Below a prefix, mount it with [http.StripPrefix] and a slash at
// the end of the prefix.
//
// # Who sees what
//
// A program sends a bearer token with each request. A browser cannot, so a form takes the
// token once, and answers with a cookie for an hour. It holds the sum of the token and its
// end, encrypted by [Options.Key], and nothing else; it opens these pages alone. The rights of
// the principal are asked for each page, each row and each act, so a right that was taken
// away is gone at once. A token that is replaced ends its cookies.
//
// A page shows the locks that its visitor may read, and no others, nor how many there are.
// The sessions are shown that keep such a lock alive; all of them to a visitor who may read
// all locks.
//
// # What it keeps
//
// Nothing that matters: what the store has answered last, to show it to several visitors,
// and while the store is away. Any replica with the same key serves any page. The store is
// asked while somebody looks, and not otherwise; for a large or slow one all visitors
// together ask a fifth of the time at most.
//
// # What is not guaranteed
//
// What a page shows was so when the store was read. Only the client of a holder knows how
// long it may act. Times of day are by the wall clocks of the holders.
//
// A browser sends a cookie to all ports of a host. On a loopback address without TLS, any
// program that listens on that address can see it: it can read these pages for an hour, and
// sign the visitor out. It changes nothing else: there, each form that acts sends the token
// of the visitor besides, which no page knows. A script keeps the token in the tab.
package dashboard
