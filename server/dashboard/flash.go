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
	Class, Text string
	// word stands in an address and in audit lines, so that nobody can have a page say something else.
	word string
	// status is that of the answer to an act that was not done, and cause the error that it tells of.
	status int
	cause  error
}

// errNoKind says that there is no such request.
var errNoKind = errors.New("no such request: it is one of step-down, hand-over, release-dead, revoke")

// What can come of an act, beside what an error says.
var (
	done     = flash{"good", "Done.", "done", 0, nil}
	measured = flash{"good", "Measured.", "measured", 0, nil}
	underWay = flash{"good", "It was asked. What comes of it shows here.", "under-way", 0, nil}
	watching = flash{
		"good", "The holder is watched. The lock is released if there is no sign of life for its lease; " +
			"that shows here.", "watching", 0, nil,
	}
	changed = flash{
		"bad", "Not done: another tenure has begun since you opened the page. Look again whom you ask.",
		"changed", http.StatusConflict, nil,
	}
	itself = flash{
		"bad", "Not done: the holder is the one to hand over to.", "already-held", http.StatusConflict, nil,
	}
	busy = flash{
		"bad", "Not done: too much is under way here. Try again in a minute.",
		"limited", http.StatusTooManyRequests, nil,
	}
	away = flash{
		"bad", "Not done: the store cannot be used.", "unavailable", http.StatusServiceUnavailable, nil,
	}
)

// refusals are what errors say.
var refusals = []flash{
	{
		"bad", "The holder was asked, and does not answer. The request stays with it.",
		"unanswered", http.StatusGatewayTimeout, tenure.ErrUnanswered,
	},
	{"bad", "Not done: nobody holds the lock.", "not-held", http.StatusConflict, tenure.ErrNotHeld},
	{
		"bad", "Not done: the holder was asked already, and carries one request at a time.",
		"already-asked", http.StatusConflict, tenure.ErrRequested,
	},
	{"bad", "Not done: the holder is alive.", "alive", http.StatusConflict, tenure.ErrAlive},
	{
		"bad", "Not done: the holder is a client that does not understand requests.",
		"foreign", http.StatusConflict, tenure.ErrForeign,
	},
	{"bad", "Not done.", "bad-request", http.StatusBadRequest, tenure.ErrInvalid},
	{
		"bad", "The store gave no answer, so it is not known whether this was done. Look below.",
		"unknown", http.StatusServiceUnavailable, tenure.ErrUncertain,
	},
}

// flashOf says what the error of an act means.
func flashOf(err error) flash {
	if err == nil {
		return done
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, tenure.ErrUnanswered) {
		err = tenure.ErrUncertain
	}
	for _, f := range refusals {
		if errors.Is(err, f.cause) {
			return f
		}
	}
	return away
}

// flashNamed returns the flash that an address names.
func flashNamed(word string) *flash {
	for _, f := range append([]flash{done, measured, underWay, watching}, refusals...) {
		if f.word == word {
			return &f
		}
	}
	return nil
}
