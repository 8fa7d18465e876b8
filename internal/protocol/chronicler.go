// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// HistoryPrefix begins the keys of all histories.
const HistoryPrefix = driver.OwnPrefix + "history/"

// HistoryKey returns the key of a tenure in the history of a lock.
func HistoryKey(lock string, token uint64) string {
	return fmt.Sprintf("%s%s/%019d", HistoryPrefix, lock, token)
}

// HistoryOf returns the lock to whose history the record with that key belongs.
func HistoryOf(key string) (lock string, ok bool) {
	name, ok := strings.CutPrefix(key, HistoryPrefix)
	end := strings.LastIndexByte(name, '/')
	if !ok || end < 0 {
		return "", false
	}
	return name[:end], true
}

// Chronicler is the machine that writes one ended tenure into the history of its
// lock.
//
// The history is kept in records of their own, one for each tenure that has ended,
// under a key made of lock and token. A process that crashes cannot write how its
// tenure ended. So the successor does: before it begins its work, it writes the entry
// of the tenure before its own, from what its grant showed. A successor that crashes
// before that leaves the end of its predecessor in its own record, from which the next
// holder completes the history: see [Grant.Past]. Two such crashes in a row leave a
// hole.
//
// The work waits for the entry for one request timeout. After that, the write is
// repeated beside the work, for a few leases. An entry that is there already was
// written by another process, from the same record. But if it is of another tenure,
// the lock's record was deleted since, and the tokens have begun again: then the
// entry is replaced. When the entry is written, the oldest one beyond the limit is
// removed. If that fails, it stays, and is not shown.
type Chronicler struct {
	t     Timing
	lock  string
	entry driver.Record
	token uint64 // of the tenure
	limit uint64 // how many tenures are kept

	begun  bool
	waited bool          // for, by the work
	until  time.Duration // at most
	out    *Call
	move   Kind          // what comes next: Enter, Look for what is too old, or Erase
	old    driver.Record // to be erased
	retry  time.Duration
	tries  int

	written bool
	done    bool
	err     error
}

// maxEntryTries bounds how often the writing of one tenure is tried again. With the
// pauses between the tries that is a few leases.
const maxEntryTries = 20

// NewChronicler returns the machine of one tenure of a lock. Limit is how many
// tenures the history keeps.
func NewChronicler(t Timing, env Env, lock string, past driver.Tenure, limit uint64) *Chronicler {
	version := env.Fresh() // a late delete removes only this tenure
	return &Chronicler{
		t: t, lock: lock, token: past.Token, limit: limit, move: Enter,
		entry: driver.Record{
			Key: HistoryKey(lock, past.Token), Version: version, Beat: version, State: driver.Past,
			Owner: past.Owner, Host: past.Host, Label: past.Label, Since: past.Since, Until: past.Until,
			End: past.End, Asked: past.Asked, Lease: t.Lease,
		},
	}
}

// Token returns the token of the tenure.
func (c *Chronicler) Token() uint64 { return c.token }

// Awaited says that the work may not begin yet, because of this tenure.
func (c *Chronicler) Awaited() bool { return c.waited }

// Written says that the tenure stands in the history.
func (c *Chronicler) Written() bool { return c.written }

// Err returns why the tenure will never be written, nil if it is or still may be.
func (c *Chronicler) Err() error { return c.err }

// Over says that the chronicler sends nothing more, and that the work need not wait.
func (c *Chronicler) Over() bool { return c.done && c.out == nil && !c.waited }

// Next returns the instant at which Step has something to do.
func (c *Chronicler) Next() (at time.Duration, due bool) {
	if c.out == nil && !c.done {
		at, due = c.retry, true
	}
	if c.waited && (!due || c.until < at) {
		at, due = c.until, true
	}
	return at, due
}

// Step lets time pass.
func (c *Chronicler) Step(now time.Duration) Action { return Action{Call: c.act(now)} }

// GiveUp says that nobody waits for the entry any more. It is written all the same,
// beside whatever comes next.
func (c *Chronicler) GiveUp(now time.Duration) Action {
	r := c.act(now)
	c.waited = false
	return Action{Call: r}
}

func (c *Chronicler) act(now time.Duration) *Call {
	if !c.begun {
		c.begun, c.waited, c.until, c.retry = true, true, now+c.t.RequestTimeout, now
	}
	c.waited = c.waited && now < c.until
	if c.out != nil || c.done || now < c.retry {
		return nil
	}
	switch c.move {
	case Look:
		c.out = &Call{Kind: Look, Key: HistoryKey(c.lock, c.token-c.limit), Consistency: driver.Eventual}
	case Erase:
		c.out = &Call{Kind: Erase, Key: c.old.Key, Prev: c.old}
	default:
		c.out = &Call{Kind: Enter, Key: c.entry.Key, Next: c.entry.Clone()}
	}
	return c.out
}

// Reply takes the result of the call under way.
func (c *Chronicler) Reply(now time.Duration, r Result) Action {
	out := c.out
	c.out = nil
	switch {
	case out.Kind == Enter:
		c.entered(now, r)
	case out.Kind == Look && r.Found && r.Record.State == driver.Past:
		c.old, c.move = r.Record, Erase
	case out.Kind == Erase && !c.written:
		c.move = Enter // whatever became of the delete: Enter tells
	default:
		c.done = true
	}
	return Action{Call: c.act(now)}
}

// entered takes the result of the write of the tenure.
func (c *Chronicler) entered(now time.Duration, r Result) {
	stands := r.Outcome == Applied || r.Outcome == Conflicted
	switch {
	case r.Outcome == Conflicted && c.another(r) && c.tries < maxEntryTries:
		c.tries++
		c.old, c.move = r.Record, Erase
	case stands:
		c.written, c.waited = true, false
		c.move, c.done = Look, c.token <= c.limit
	case c.tries == maxEntryTries, errors.Is(r.Err, driver.ErrPermanent), errors.Is(r.Err, driver.ErrClosed):
		c.err, c.done = r.Err, true
	default:
		c.tries++
		c.retry = now + c.t.Lease/10
	}
}

// another says that the entry in the way is of another tenure with the same token.
func (c *Chronicler) another(r Result) bool {
	old := r.Record
	return r.Found && old.State == driver.Past && (old.Owner != c.entry.Owner || !old.Since.Equal(c.entry.Since))
}
