// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"net/http"

	"github.com/tenurelock/tenure"
)

// saying is what came of an act: a word that stands in an address, so that nobody can have
// a page say something else.
type saying string

const (
	done       saying = "done"
	underWay   saying = "under-way"
	watching   saying = "watching"
	unanswered saying = "unanswered"
	changed    saying = "changed"
	notHeld    saying = "not-held"
	already    saying = "already-asked"
	itself     saying = "already-held"
	alive      saying = "alive"
	foreign    saying = "foreign"
	invalid    saying = "bad-request"
	unknown    saying = "unknown"
	away       saying = "unavailable"
	busy       saying = "limited"
	measured   saying = "measured"
)

// sayings are the lines that say so.
var sayings = map[string]alert{
	string(done):       {"good", "Done."},
	string(measured):   {"good", "Measured."},
	string(underWay):   {"good", "It was asked. What comes of it shows here."},
	string(watching):   {"good", "The holder is watched. The lock is released if there is no sign of life for its lease; that shows here."},
	string(unanswered): {"bad", "The holder was asked, and does not answer. The request stays with it."},
	string(changed):    {"bad", "Not done: another tenure has begun since you opened the page. Look again whom you ask."},
	string(notHeld):    {"bad", "Not done: nobody holds the lock."},
	string(already):    {"bad", "Not done: the holder was asked already, and carries one request at a time."},
	string(itself):     {"bad", "Not done: the holder is the one to hand over to."},
	string(alive):      {"bad", "Not done: the holder is alive."},
	string(foreign):    {"bad", "Not done: the holder is a client that does not understand requests."},
	string(invalid):    {"bad", "Not done."},
	string(unknown):    {"bad", "The store gave no answer, so it is not known whether this was done. Look below."},
	string(away):       {"bad", "Not done: the store cannot be used."},
	string(busy):       {"bad", "Not done: too much is under way here. Try again in a minute."},
}

// failed says that the act was not done.
func (s saying) failed() bool { return sayings[string(s)].Class == "bad" }

// status is that of the answer to an act that was not done.
func (s saying) status() int {
	switch s {
	case invalid:
		return http.StatusBadRequest
	case unanswered:
		return http.StatusGatewayTimeout
	case busy:
		return http.StatusTooManyRequests
	case unknown, away:
		return http.StatusServiceUnavailable
	}
	return http.StatusConflict
}

// outcomeOf says what an error of a request means.
func outcomeOf(err error) saying {
	switch {
	case err == nil:
		return done
	case errors.Is(err, tenure.ErrUnanswered):
		return unanswered
	case errors.Is(err, tenure.ErrNotHeld):
		return notHeld
	case errors.Is(err, tenure.ErrRequested):
		return already
	case errors.Is(err, tenure.ErrAlive):
		return alive
	case errors.Is(err, tenure.ErrForeign):
		return foreign
	case errors.Is(err, tenure.ErrInvalid), errors.Is(err, errNoKind):
		return invalid
	case errors.Is(err, tenure.ErrUncertain), errors.Is(err, context.DeadlineExceeded):
		return unknown
	}
	return away
}
