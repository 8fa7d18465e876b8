// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
)

// HandlerOptions are for one handler. Nil means the defaults.
type HandlerOptions struct {
	// Lock returns the lock that a request must be made under; a request under
	// another one is refused. Set it wherever the server knows it: a client
	// that names a lock of its own choice is not compared with the holder. If
	// nil, any lock is accepted.
	Lock func(*http.Request) string

	// Resource returns the name under which the guard compares the tokens of a
	// request. If nil, it is the name of the lock: everything that is written
	// under a lock is one resource, so that a new holder's first write
	// anywhere excludes the former holder everywhere, and writes happen one at
	// a time.
	//
	// With a finer name, such as the path, writes to several resources run
	// concurrently, but a late write is admitted where the new holder has not
	// written yet. Lock must be set then, because the tokens of two locks at
	// one resource cannot be compared.
	Resource func(*http.Request) string

	// MaxBody bounds the body of a request in bytes. It is read to its end
	// before the resource is locked: otherwise a sender that is paused
	// halfway would block its successor. If zero, it is 1 MiB. Negative means
	// that next reads it itself, however long it is; bound that by
	// http.Server.ReadTimeout.
	MaxBody int64

	// OnError is called with what went wrong in the guard itself, such as a
	// database that cannot be reached. The client does not get the reason.
	OnError func(*http.Request, error)
}

const defaultMaxBody = 1 << 20

// Handler returns a handler that asks the guard before it passes a request to
// next, and holds the resource until next has returned. Put it around the
// handlers that write. All methods count, GET included: a request to read
// makes the token of a new holder known.
//
// Requests carry [LockHeader] and [TokenHeader]: see [NewTransport]. These are
// refused, by a problem document (RFC 9457) that names the tokens, and that
// [Refusal] reads:
//
//   - 428 without a token: "the origin server requires the request to be
//     conditional", against lost updates (RFC 6585, section 3);
//   - 400 with a token that cannot be read;
//   - 403 under another lock than that of [HandlerOptions.Lock];
//   - 412 with a stale token: a condition "given in the request header fields
//     evaluated to false" (RFC 9110, section 15.5.13). Not 409, which expects
//     that the request may be sent again (section 15.5.10); a stale one never
//     passes any more;
//   - 413 with a body above [HandlerOptions.MaxBody];
//   - 503 if the request ended while it waited for the resource, or the guard
//     could not be asked: nothing was written;
//   - 500 if the guard failed after next had run, as in a commit: it is not
//     known whether next's effects stay.
//
// The answer of next is kept in memory and sent when the resource is free
// again, so that no client reads of a write that was not committed, and a slow
// one excludes no other. So next cannot flush, nor take over the connection. A
// panic of next goes on, and frees the resource.
//
// Next must have done its writing when it returns: a write that goes on in
// the background, as below an http.TimeoutHandler, is not guarded any more.
// If it answers with a status of 400 or above, a [SQLGate] rolls its
// transaction back.
//
// Handler panics if guard or next is nil, or if options have Resource without
// Lock. Options may be nil.
func Handler(guard Guard, next http.Handler, options *HandlerOptions) http.Handler {
	h := &handler{guard: guard, next: next}
	if options != nil {
		h.options = *options
	}
	if h.options.MaxBody == 0 {
		h.options.MaxBody = defaultMaxBody
	}
	switch {
	case guard == nil || next == nil:
		panic("fence.Handler: guard and next must not be nil") //nolint:forbidigo // a programmer's error, as in http.Handle
	case h.options.Resource != nil && h.options.Lock == nil:
		panic("fence.Handler: HandlerOptions.Resource is set without Lock: the tokens of two locks cannot be compared") //nolint:forbidigo // a programmer's error
	}
	return h
}

type handler struct {
	guard   Guard
	next    http.Handler
	options HandlerOptions
}

// errAnswered is what the write of a request returns when next answered with
// an error. It never leaves the handler.
var errAnswered = errors.New("answered with an error")

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource, token, refusal := h.read(r)
	if refusal == nil && h.options.MaxBody >= 0 {
		refusal = readBody(w, r, h.options.MaxBody)
	}
	if refusal != nil {
		refusal.write(w)
		return
	}

	var answer answer
	began := false
	err := h.guard.Do(r.Context(), resource, token, func(ctx context.Context) error {
		began = true
		h.next.ServeHTTP(&answer, r.WithContext(ctx))
		if answer.status >= http.StatusBadRequest {
			return errAnswered
		}
		return nil
	})
	var stale *StaleError
	switch {
	case err == nil, errors.Is(err, errAnswered):
		answer.send(w)
	case errors.As(err, &stale) && !began:
		staleToken(stale).write(w)
	default:
		if h.options.OnError != nil {
			h.options.OnError(r, err)
		}
		failed(began).write(w)
	}
}

// read returns what the guard is to compare, or why it cannot.
func (h *handler) read(r *http.Request) (resource string, token uint64, refusal *problem) {
	grant, err := ParseHeader(r.Header)
	if err != nil {
		return "", 0, unreadable(err)
	}
	resource = grant.Name()
	if h.options.Lock != nil {
		if want := h.options.Lock(r); grant.Name() != want {
			return "", 0, wrongLock(grant, want)
		}
	}
	if h.options.Resource != nil {
		resource = h.options.Resource(r)
	}
	if err := checkResource(resource); err != nil {
		return "", 0, &problem{Kind: kindRequest, Status: http.StatusBadRequest, Title: "No resource", Detail: err.Error()}
	}
	return resource, grant.Token(), nil
}

func readBody(w http.ResponseWriter, r *http.Request, most int64) *problem {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return &problem{
			Kind: kindRequest, Status: http.StatusRequestEntityTooLarge, Title: "Body too large",
			Detail: fmt.Sprintf("the body has more than %d bytes: it is read before the write is admitted, so its size is bounded", most),
		}
	}
	if err != nil {
		return &problem{Kind: kindRequest, Status: http.StatusBadRequest, Title: "Body cut off", Detail: "the body could not be read to its end"}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return nil
}

// answer keeps what a handler answers.
type answer struct {
	header http.Header
	sealed http.Header // the header as it was when the status was written
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

func (a *answer) WriteHeader(status int) {
	if a.status != 0 || status < http.StatusOK { // the first one counts; informational answers are dropped
		return
	}
	a.status, a.sealed = status, a.Header().Clone()
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

func (a *answer) send(w http.ResponseWriter) {
	a.WriteHeader(http.StatusOK)
	maps.Copy(w.Header(), a.sealed)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // a client that cannot be reached learns nothing
}
