// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"net/http"

	"github.com/tenurelock/tenure"
)

// flash is a line above the content of a page, such as what came of an act.
type flash struct {
	word   string // stands in an address, so that nobody can have a page say something else, and in audit lines
	status int    // of the answer to an act that was not done; 0 if it was
	cause  error  // that the text tells of
	Text   string
}

// Class is that of the style sheet.
func (f flash) Class() string {
	if f.status == 0 {
		return "good"
	}
	return "bad"
}

// What can come of an act, beside what an error says.
var (
	done     = flash{"done", 0, nil, "Done."}
	measured = flash{"measured", 0, nil, "Measured."}
	underWay = flash{"under-way", 0, nil, "It was asked. What comes of it shows here."}
	watching = flash{"watching", 0, nil, "The holder is watched. The lock is released if there is no sign of life for " +
		"its lease; that shows here."}
	changed = flash{"changed", http.StatusConflict, nil, "Not done: another tenure has begun since you opened the " +
		"page. Look again whom you ask."}
	itself = flash{"already-held", http.StatusConflict, nil, "Not done: the holder is the one to hand over to."}
	busy   = flash{"limited", http.StatusTooManyRequests, nil, "Not done: too much is under way here. Try again in a " +
		"minute."}
	away = flash{"unavailable", http.StatusServiceUnavailable, nil, "Not done: the store cannot be used."}
)

// refusals are what errors say.
var refusals = []flash{
	{"unanswered", http.StatusGatewayTimeout, tenure.ErrUnanswered, "The holder was asked, and does not answer. The " +
		"request stays with it."},
	{"not-held", http.StatusConflict, tenure.ErrNotHeld, "Not done: nobody holds the lock."},
	{"already-asked", http.StatusConflict, tenure.ErrRequested, "Not done: the holder was asked already, and carries " +
		"one request at a time."},
	{"alive", http.StatusConflict, tenure.ErrAlive, "Not done: the holder is alive."},
	{"foreign", http.StatusConflict, tenure.ErrForeign, "Not done: the holder is a client that does not understand " +
		"requests."},
	{"bad-request", http.StatusBadRequest, tenure.ErrInvalid, "Not done."},
	{"unknown", http.StatusServiceUnavailable, tenure.ErrUncertain, "The store gave no answer, so it is not known " +
		"whether this was done. Look below."},
	{"unknown", http.StatusServiceUnavailable, context.DeadlineExceeded, "The store gave no answer, so it is not known " +
		"whether this was done. Look below."},
}

// flashOf says what the error of an act means.
func flashOf(err error) flash {
	if err == nil {
		return done
	}
	for _, f := range refusals {
		if errors.Is(err, f.cause) {
			return f
		}
	}
	return away
}

// flashNamed returns the flash that an address names: one of what was done.
func flashNamed(word string) *flash {
	for _, f := range []flash{done, measured, underWay, watching} {
		if f.word == word {
			return &f
		}
	}
	return nil
}
