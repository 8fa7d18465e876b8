// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package proxy is an HTTP proxy that does to calls what networks, middleboxes and
// attackers do: it loses requests and answers, delays them, carries them out twice or much
// later, answers in the place of a server, ends connections in the middle of an answer,
// and answers a GET from its cache, whatever the server said of caching.
//
// A [Proxy] draws these by chance, from a seed, by the probabilities of its [Weather]. One
// fault can be asked for as well: see [Proxy.Strike]. It keeps the last calls that it has
// seen, so that an attacker can send them again: see [Proxy.Captured] and [Proxy.Resend].
//
// It is a handler. Package gate puts one on a socket, and cuts that off.
package proxy
