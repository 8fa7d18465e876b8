// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/internal/wire"
)

// kind is the kind of a problem, as in the document's Problem.
type kind struct {
	name   string
	status int32
	title  string
}

// The kinds. A test compares them with openapi.json.
var (
	badRequest      = kind{"bad-request", 400, "Bad request"}
	unauthenticated = kind{"unauthenticated", 401, "Not authenticated"}
	forbidden       = kind{"forbidden", 403, "Forbidden"}
	notFound        = kind{"not-found", 404, "Not found"}
	wrongMethod     = kind{"method-not-allowed", 405, "Method not allowed"}
	held            = kind{"held", 409, "Held"}
	stale           = kind{"stale", 409, "Stale token"}
	alreadyAsked    = kind{"already-asked", 409, "Already asked"}
	alive           = kind{"alive", 409, "The holder is alive"}
	notHeld         = kind{"not-held", 409, "Not held"}
	noSessions      = kind{"no-sessions", 409, "The store has no sessions"}
	unsupported     = kind{"unsupported", 409, "The store does not support it"}
	lost            = kind{"lost", 410, "Lease lost"}
	tooLarge        = kind{"too-large", 413, "Too large"}
	wrongType       = kind{"unsupported-media-type", 415, "Unsupported media type"}
	misdirected     = kind{"misdirected", 421, "Misdirected"}
	limited         = kind{"limited", 429, "Limited"}
	unknown         = kind{"unknown", 503, "Outcome unknown"}
	unavailable     = kind{"unavailable", 503, "Unavailable"}
	noLeader        = kind{"no-leader", 503, "Nobody leads"}
	unanswered      = kind{"unanswered", 504, "Not answered"}
)

// problem is why a call has failed. It is an error, so that a handler can return it.
type problem struct {
	kind
	wire.Problem
	retryAfter time.Duration // for the header; 0: none
	cause      error         // of the store, which [call.told] shows to some callers; nil: Detail is complete
}

func (p *problem) Error() string { return p.Detail }

// problemf returns a problem. The text says what was wrong, which rule, and what to do.
func problemf(k kind, format string, args ...any) *problem {
	return &problem{kind: k, Problem: wire.Problem{
		Type: "urn:tenure:problem:" + k.name, Title: k.title, Status: k.status, Detail: fmt.Sprintf(format, args...),
	}}
}

// after says when to try again.
func (p *problem) after(d time.Duration) *problem {
	p.retryAfter = d
	return p
}

// of says which error of the store it is.
func (p *problem) of(err error) *problem {
	p.cause = err
	return p
}

// holding adds the holder of the lock.
func (p *problem) holding(owner string, token uint64) *problem {
	p.Holder, p.Token = &owner, &token
	return p
}

// problemOf returns the problem that an error of the library is.
func problemOf(err error) *problem {
	var (
		p         *problem
		other     *tenure.HeldError
		gone      *tenure.SupersededError
		requested *tenure.RequestedError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, tenure.ErrUnanswered):
		return problemf(unanswered, "%v: the request stays in the record", err)
	case errors.Is(err, errDraining):
		return draining()
	case errors.Is(err, tenure.ErrInvalid):
		return problemf(badRequest, "%v", err)
	case errors.Is(err, tenure.ErrNotHeld):
		return problemf(notHeld, "%v: nothing was asked", err)
	case errors.As(err, &other):
		return heldBy(other, err)
	case errors.As(err, &gone) && gone.Replaced == nil:
		return lostTo(gone, err)
	case errors.Is(err, tenure.ErrLost) && gone == nil:
		return problemf(lost, "%v: stop at once", err)
	case errors.As(err, &requested):
		p := problemf(alreadyAsked, "%v: wait until it is done, or revoke the lock", err)
		p.Request = requestOf(&requested.Request)
		return p
	case errors.Is(err, tenure.ErrAlive):
		return problemf(alive, "%v", err)
	case errors.Is(err, tenure.ErrUncertain):
		return problemf(unknown, "the store did not answer: the write may have happened; send the same call again").of(err)
	case errors.Is(err, tenure.ErrUnreadable):
		return problemf(unavailable, "%v: nothing was done; check the record, and which program wrote it",
			err).after(retryStore)
	}
	return problemf(unavailable, "the store cannot be used: nothing was done; try another "+
		"server, or try again later").after(retryStore).of(err)
}

// retryStore is when to try again if the store cannot be used, and retrySoon if the cause lasts
// only a moment.
const (
	retryStore = 2 * time.Second
	retrySoon  = time.Second
)

func heldBy(e *tenure.HeldError, err error) *problem {
	p := problemf(held, "%v: try again, or wait for it with wait_ms", err).holding(e.Owner, e.Token)
	free := ceilMs(e.FreeIn)
	p.FreeInMs, p.Reserved, p.Label = &free, &e.Reserved, e.Label
	return p
}

func lostTo(e *tenure.SupersededError, err error) *problem {
	p := problemf(lost, "%v: stop at once", err)
	if e.Owner != "" {
		p.Holder = &e.Owner
	}
	if e.Token != 0 {
		p.Token = &e.Token
	}
	return p
}

func draining() *problem {
	return problemf(unavailable, "this server is shutting down, and nothing was done: try another "+
		"server, or try again in a moment").after(retrySoon)
}

// floorMs returns a duration in whole milliseconds, rounded down: for what must not be too
// long. ceilMs rounds up: for what must not be too short.
func floorMs(d time.Duration) int64 { return max(0, d.Milliseconds()) }

func ceilMs(d time.Duration) int64 { return max(0, (d + time.Millisecond - 1).Milliseconds()) }

// errorLog logs the errors of the store, each once a minute, under an id that callers get
// instead: the text of a driver contains its address, its database and its user.
type errorLog struct {
	mu sync.Mutex
	at map[string]time.Time // when it was written last, by id
}

const (
	errorPeriod = time.Minute
	// maxErrors bounds how many are remembered. An error has few texts.
	maxErrors = 1000
)

// ErrorID writes an error of the store into the log, unless it was written within the last
// minute, and returns the id that it has there. All servers have the same id for the same text.
func (s *Server) ErrorID(err error) string {
	cause := err // without the name of the lock: it is the same for all of them
	var of *tenure.Error
	for errors.As(cause, &of) && of.Err != nil {
		cause = of.Err
	}
	sum := sha256.Sum256([]byte(cause.Error()))
	id := hex.EncodeToString(sum[:4])
	l := &s.errors
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if at, written := l.at[id]; !written || now.Sub(at) >= errorPeriod {
		if l.at == nil || len(l.at) >= maxErrors {
			l.at = map[string]time.Time{}
		}
		l.at[id] = now
		s.o.Logger.Warn("tenure: the store cannot be used", "id", id, "error", err)
	}
	return id
}

// told returns an error as a problem for the principal: only principals with all rights see
// the text of a store.
func (c *call) told(err error) *problem {
	p := problemOf(err)
	if p.cause == nil {
		return p
	}
	of := "error " + c.s.ErrorID(p.cause)
	if all := c.principal.Prefixes(access.Admin, ""); len(all) == 1 && all[0] == "" {
		of += ": " + p.cause.Error()
	}
	told := *p
	told.Detail = fmt.Sprintf("%s (%s; see the log of this server)", p.Detail, of)
	return &told
}
