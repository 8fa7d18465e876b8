// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"net/http"
)

// answer is one of a server.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// head hands on what comes before the body.
func (a *answer) head(rw http.ResponseWriter) {
	for name, values := range a.header {
		rw.Header()[name] = values
	}
	rw.WriteHeader(a.status)
}

// write hands an answer on. Without one, since the server is not there or has gone away, the
// caller gets a 502, as from any proxy.
func (a *answer) write(rw http.ResponseWriter, err error) {
	if err != nil {
		badGateway(rw)
		return
	}
	a.head(rw)
	_, _ = rw.Write(a.body) // the caller may be gone
}

// cut hands on the half of an answer, and ends the connection.
func (a *answer) cut(rw http.ResponseWriter, err error) {
	if err != nil || len(a.body) < 2 {
		hangUp()
	}
	rw.Header().Set("Content-Length", fmt.Sprint(len(a.body)))
	rw.Header().Set("Content-Type", a.header.Get("Content-Type"))
	rw.WriteHeader(a.status)
	_, _ = rw.Write(a.body[:len(a.body)/2])
	_ = http.NewResponseController(rw).Flush() // the half has to be on its way
	hangUp()
}

// badGateway is what a proxy says of a server that it has no answer from.
func badGateway(rw http.ResponseWriter) {
	rw.Header().Set("Content-Type", "text/html")
	rw.WriteHeader(http.StatusBadGateway)
	_, _ = rw.Write([]byte("<html><body><h1>502 Bad Gateway</h1></body></html>\n"))
}

// hangUp ends the connection without an answer.
func hangUp() {
	panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to end a connection without an answer
}
