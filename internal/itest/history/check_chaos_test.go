// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
)

// recover has a healthy process take the lock, and checks what it finds: every
// tenure of which a record was left is in the history as it was, and no more
// than holes others are shown as unknown.
func (s *scene) recover(holes int) error {
	lost, last, err := s.lost()
	if err != nil {
		return err
	}
	if len(lost) > holes {
		return fmt.Errorf("%d holes, want %d at most: nothing was left of the tenures %v", len(lost), holes, lost)
	}
	c, err := s.client("healthy", time.Minute)
	if err != nil {
		return err
	}
	defer c.Close(s.t.Context())
	ctx, stop := context.WithTimeout(s.t.Context(), patience)
	defer stop()

	before := time.Now()
	l, err := c.Acquire(ctx, lockName, recorded)
	if err != nil {
		return err
	}
	after := time.Now()
	if l.Token() != last+1 {
		return fmt.Errorf("token %d after %d", l.Token(), last)
	}
	history, err := c.History(ctx, lockName)
	if err != nil {
		return err
	}
	errs := []error{s.check(history, l.Token(), lost)}

	// Who led, by what this process has seen itself.
	s.mu.Lock()
	was := s.truth[last]
	s.mu.Unlock()
	errs = append(errs,
		holds(history, after, "healthy", true),
		holds(history, before, map[bool]string{true: was.Owner}[was.Until.IsZero()], !was.Until.IsZero()))

	// The records of all of them stand, not only what the lock itself shows.
	for range 2 {
		if err := l.Release(ctx); err != nil {
			return err
		}
		if l, err = c.Acquire(ctx, lockName, recorded); err != nil {
			return err
		}
	}
	if history, err = c.History(ctx, lockName); err != nil {
		return err
	}
	errs = append(errs, s.check(history, last+3, lost), l.Release(ctx))
	return errors.Join(errs...)
}

// lost returns the tenures of which no record is left, and the last token.
func (s *scene) lost() (lost map[uint64]bool, last uint64, err error) {
	rec, err := s.store.Get(s.t.Context(), lockName, driver.Strong)
	if err != nil {
		return nil, 0, err
	}
	kept := map[uint64]bool{rec.Token: true}
	if rec.Prev != nil {
		kept[rec.Prev.Token] = true
	}
	page, err := s.store.List(s.t.Context(), driver.OwnPrefix+"history/"+lockName+"/", "")
	if err != nil {
		return nil, 0, err
	}
	for _, past := range page.Records {
		token, err := strconv.ParseUint(path.Base(past.Key), 10, 64)
		if err != nil {
			return nil, 0, err
		}
		kept[token] = true
	}
	lost = map[uint64]bool{}
	for token := uint64(1); token <= rec.Token; token++ {
		if !kept[token] {
			lost[token] = true
		}
	}
	return lost, rec.Token, nil
}

// check compares a history with the truth.
func (s *scene) check(history []tenure.Tenure, newest uint64, lost map[uint64]bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.settle()}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if uint64(len(history)) != newest {
		bad("history of %d tenures, want %d:%v", len(history), newest, brief(history))
	}
	for i, h := range history {
		was, seen := s.truth[h.Token]
		switch {
		case h.Token != newest-uint64(i):
			bad("tokens are not dense: %d at %d from %d", h.Token, i, newest)
		case !seen:
			bad("tenure %d was never seen: %+v", h.Token, h)
		case h.Unknown != lost[h.Token]:
			bad("tenure %d is unknown=%v, want %v: it was %+v", h.Token, h.Unknown, lost[h.Token], was)
		case !h.Unknown && !same(was, plain(h)):
			bad("history says %+v, it was %+v", h, was)
		}
	}
	for token, g := range s.granted {
		if was := s.truth[token]; was.Owner != g.owner {
			bad("token %d was granted to %s; the record said %s", token, g.owner, was.Owner)
		}
		if lost[token] {
			_, _, certain := tenure.HolderAt(history, g.known)
			if certain {
				bad("what was in the unknown tenure %d is certain", token)
			}
			continue
		}
		if err := holds(history, g.known, g.owner, !s.truth[token].Until.IsZero()); err != nil {
			bad("of what the holder of token %d knew: %w", token, err)
		}
	}
	return errors.Join(append(errs, s.changes(history, newest, lost))...)
}

func plain(h tenure.Tenure) driver.Tenure {
	t := driver.Tenure{
		Owner: h.Owner, Token: h.Token, Host: h.Host, Label: h.Label,
		Since: h.Since, Until: h.Until, End: driver.EndReason(h.End),
	}
	if q := h.Request; q != nil {
		t.Asked = &driver.Request{Kind: driver.RequestKind(q.Kind), By: q.By, Reason: q.Reason, To: q.To}
	}
	return t
}

// changes asks who held the lock just before and after each change of holder.
func (s *scene) changes(history []tenure.Tenure, newest uint64, lost map[uint64]bool) error {
	var errs []error
	ask := func(at time.Time, owner string, certain bool) {
		errs = append(errs, holds(history, at, owner, certain))
	}
	for token := uint64(1); token <= newest; token++ {
		if lost[token] {
			continue
		}
		is := s.truth[token]
		since, until := is.Since, is.Until
		clean := token == newest && is.End == "" || !until.IsZero()
		if until.IsZero() || until.After(since) {
			ask(since, is.Owner, clean)
		}
		if until.After(since) {
			ask(until.Add(-time.Nanosecond), is.Owner, true)
		}
		before := since.Add(-time.Nanosecond)
		was := s.truth[token-1]
		switch {
		case token == 1:
			ask(before, "", true)
		case lost[token-1]:
			if h, _, certain := tenure.HolderAt(history, before); certain {
				errs = append(errs, fmt.Errorf("before tenure %d, after an unknown one: %+v for certain", token, h))
			}
		case was.Until.IsZero():
			ask(before, was.Owner, false)
		case !was.Until.After(before):
			ask(before, "", true)
		}
	}
	return errors.Join(errs...)
}

// holds returns an error unless HolderAt answers so; no owner is nobody.
func holds(history []tenure.Tenure, at time.Time, owner string, certain bool) error {
	h, ok, sure := tenure.HolderAt(history, at)
	if h.Owner != owner || ok != (owner != "") || sure != certain {
		return fmt.Errorf("at %v: %q, certain=%v, want %q, certain=%v; of%v", at, h.Owner, sure, owner, certain, brief(history))
	}
	return nil
}

func brief(history []tenure.Tenure) string {
	var text strings.Builder
	clock := func(t time.Time) string {
		if t.IsZero() {
			return "?"
		}
		return t.Format("05.000000")
	}
	for _, h := range history {
		fmt.Fprintf(&text, " [%d %s %s-%s %s]", h.Token, h.Owner, clock(h.Since), clock(h.Until), h.End)
	}
	return text.String()
}
