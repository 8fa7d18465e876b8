// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// HistoryPrefix begins the keys of all histories.
const HistoryPrefix = driver.OwnPrefix + "history/"

// HistoryKey returns the key of a term in the history of a lock.
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

// HistoryWriter is the machine that writes one ended term into the history of its
// lock.
//
// The history has one record for each term that has ended, under a key made of lock and
// token. A process that crashes cannot write how its term ended. So its successor does:
// before it begins its work, it writes the entry of the term before its own, from what
// its grant showed. A successor that crashes before that leaves the end of its
// predecessor in its own record, from which the next holder completes the history: see
// [Grant.Past]. Two such crashes in a row leave a hole.
//
// The work waits for the entry for one request timeout. After that, the write is repeated in the
// background, until the store has given no answer for [entryLeases]. If the entry exists already,
// another process has written it from the same record. If the entry shows another term, the lock's
// record was deleted and its tokens restarted: the machine replaces that entry. After the
// write, the machine removes the oldest entry beyond the limit. If that fails, the old entry
// stays, and is not shown.
type HistoryWriter struct {
	retrier
	lock  string
	entry driver.Record
	token uint64 // of the term
	limit uint64 // how many terms are kept

	begun  bool
	waited bool          // work awaits it
	until  time.Duration // at most
	move   Kind          // the next call: HistoryPut, Read of the entry that is too old, or Delete
	old    driver.Record // to be erased
	erased int           // how many other entries were deleted

	written bool
}

// entryLeases is how many leases the store may leave the write of an entry unanswered.
const entryLeases = 4

// maxErased bounds how many entries of other terms are deleted.
const maxErased = 20

// NewHistoryWriter returns the machine of one term of a lock. Limit is how many
// terms the history keeps.
func NewHistoryWriter(t Timing, env Env, lock string, past driver.Term, limit uint64) *HistoryWriter {
	version := env.Fresh() // a late delete removes only this entry
	return &HistoryWriter{
		retrier: retrier{t: t, env: env, patience: entryLeases * t.Lease},
		lock:    lock, token: past.Token, limit: limit, move: HistoryPut,
		entry: driver.Record{
			Key: HistoryKey(lock, past.Token), Version: version, Beat: version, State: driver.Past,
			Owner: past.Owner, Host: past.Host, Label: past.Label, Since: past.Since, Until: past.Until,
			End: past.End, Asked: past.Asked, Lease: t.Lease,
		},
	}
}

// Token returns the token of the term.
func (c *HistoryWriter) Token() uint64 { return c.token }

// Awaited says that the work must still wait for this entry.
func (c *HistoryWriter) Awaited() bool { return c.waited }

// Written says that the history has the term.
func (c *HistoryWriter) Written() bool { return c.written }

// Err returns why the term will never be written, nil if it is or still may be.
func (c *HistoryWriter) Err() error { return c.err }

// Over says that the machine sends nothing more, and that the work need not wait.
func (c *HistoryWriter) Over() bool { return c.retrier.Over() && !c.waited }

// Next returns the instant at which Step has something to do.
func (c *HistoryWriter) Next() (at time.Duration, due bool) {
	at, due = c.next(c.move, 0)
	if c.waited && (!due || c.until < at) {
		at, due = c.until, true
	}
	return at, due
}

// Step lets time pass.
func (c *HistoryWriter) Step(now time.Duration) Action { return Action{Call: c.act(now)} }

// GiveUp says that no caller waits for the entry any more. The machine writes it all
// the same, in the background.
func (c *HistoryWriter) GiveUp(now time.Duration) Action {
	r := c.act(now)
	c.waited = false
	return Action{Call: r}
}

func (c *HistoryWriter) act(now time.Duration) *Call {
	if !c.begun {
		c.begun, c.waited, c.until = true, true, now+c.t.RequestTimeout
	}
	c.waited = c.waited && now < c.until
	if !c.due(now, c.move, 0) {
		return nil
	}
	r := &Call{Kind: c.move}
	switch c.move {
	case Read:
		r.Key, r.Consistency = HistoryKey(c.lock, c.token-c.limit), driver.Eventual
	case Delete:
		r.Key, r.Prev = c.old.Key, c.old
	default:
		r.Key, r.Next = c.entry.Key, c.entry.Clone()
	}
	return c.send(now, 0, r)
}

// Reply takes the result of the call under way.
func (c *HistoryWriter) Reply(now time.Duration, r Result) Action {
	out, answered := c.replied(now, r)
	switch {
	case out.Kind == HistoryPut && answered:
		c.tookEntry(r)
	case out.Kind == HistoryPut:
		if c.spent(now) {
			c.finish(Unusable, driver.Record{}, r.Err)
		}
	case out.Kind == Read && r.Found && r.Record.State == driver.Past:
		c.old, c.move = r.Record, Delete
	case out.Kind == Delete && !c.written:
		c.move = HistoryPut // whether the delete was applied or not, HistoryPut finds out
	default:
		c.finish(Done, c.entry, nil)
	}
	return Action{Call: c.act(now)}
}

// tookEntry handles the answer to the write of the entry.
func (c *HistoryWriter) tookEntry(r Result) {
	if r.Outcome == Conflicted && c.another(r) && c.erased < maxErased {
		c.erased++
		c.old, c.move = r.Record, Delete
		return
	}
	c.written, c.waited, c.move = true, false, Read
	if c.token <= c.limit {
		c.finish(Done, c.entry, nil)
	}
}

// another says that the conflicting entry is of another term with the same token.
func (c *HistoryWriter) another(r Result) bool {
	old := r.Record
	return r.Found && old.State == driver.Past && (old.Owner != c.entry.Owner || !old.Since.Equal(c.entry.Since))
}
