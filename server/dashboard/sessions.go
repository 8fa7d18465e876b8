// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/shard"
)

const (
	// maxSessions bounds how many sessions are read.
	maxSessions = 10_000
	// shownLocks is how many of the locks under a session are named.
	shownLocks = 20
)

// sessionsView is the sessions that keep locks alive.
type sessionsView struct {
	Rows    []session
	At      time.Time
	Summary string
	More    int // that are not shown
	Closed  int
	Nothing string
}

// session is one session, and what it keeps alive.
type session struct {
	tenure.SessionStatus
	State state // in the place of what the record says
	Locks []chip
	Count int // of its locks
	More  int // locks that are not named
}

// Word is the state of a session in words: it is no lock.
func (s session) Word() string {
	if s.State == held {
		return "alive"
	}
	return string(s.State)
}

// Remains is what remained of the lease.
func (s session) Remains() remains { return remainsOf(s.State, s.FreeIn, s.Lease) }

// sessions shows the sessions.
func (d *Dashboard) sessions(ctx context.Context, who visitor, _ url.Values) (*page, *problem) {
	v := &sessionsView{}
	p := &page{View: "sessions", Title: "Sessions", Model: v}
	all, r := ask(ctx, d.cache, lookPace, "sessions", d.readSessions)
	locks, ofLocks := d.list(ctx, "")
	r.err = cmp.Or(r.err, ofLocks.err)
	v.At, r.at = r.at, earlier(r.at, ofLocks.at)
	d.note(p, who, r)
	v.fill(all, locks.visible(who, ""), who.all(access.Read))
	if len(v.Rows) == 0 && r.good() {
		v.Nothing = "There is no session. A process that holds many locks opens one, so that one heartbeat keeps all " +
			"of them alive."
		if !who.all(access.Read) {
			v.Nothing = "There is no session that keeps a lock alive which " + who.Name() + " may read."
		}
	}
	return p, nil
}

func (d *Dashboard) readSessions(ctx context.Context) ([]tenure.SessionStatus, error) {
	var all []tenure.SessionStatus
	for s, err := range d.client.Sessions(ctx) {
		switch {
		case len(all) == maxSessions:
			return all, nil
		case err == nil:
			s.Data = nil
			all = append(all, s)
		case !errors.Is(err, tenure.ErrUnreadable):
			return nil, err
		}
	}
	return all, nil
}

// fill adds the sessions that keep some of the locks alive; idle ones too, to a visitor who may read all.
func (v *sessionsView) fill(all []tenure.SessionStatus, locks []*lock, idle bool) {
	under := map[string][]*lock{}
	for _, l := range locks {
		if l.Session != "" && l.Status.State == tenure.StateHeld {
			under[l.Session] = append(under[l.Session], l)
		}
	}
	counts := map[state]int{}
	for _, st := range all {
		mine := under[st.ID]
		switch {
		case len(mine) == 0 && !idle:
			continue
		case st.State != tenure.StateAlive:
			v.Closed++
			continue
		}
		s := session{SessionStatus: st, State: held, Count: len(mine)}
		switch {
		case !st.Alive:
			s.State = expired
		case server.Late(st.Unchanged, st.Heartbeat, st.Lease):
			s.State = inDoubt
		}
		s.Locks, s.More = linksOf(mine)
		counts[s.State]++
		v.Rows = append(v.Rows, s)
	}
	first := []state{inDoubt, expired, held} // what an operator should look at
	slices.SortFunc(v.Rows, func(a, b session) int {
		return cmp.Or(cmp.Compare(slices.Index(first, a.State), slices.Index(first, b.State)),
			cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.ID, b.ID))
	})
	v.Summary = counted(len(v.Rows), "session")
	for _, s := range []state{inDoubt, expired} {
		if counts[s] > 0 {
			v.Summary += ", " + grouped(counts[s]) + " " + string(s)
		}
	}
	v.More = max(0, len(v.Rows)-pageSize)
	v.Rows = v.Rows[:len(v.Rows)-v.More]
}

// linksOf names the locks under a session, the partitions of a group of shards together.
func linksOf(under []*lock) (links []chip, more int) {
	parts := map[string]int{}
	var groups []string
	for _, l := range under {
		group, _, ok := shard.ParseLockName(l.Name)
		switch {
		case ok:
			if parts[group]++; parts[group] == 1 {
				groups = append(groups, group)
			}
		case len(links) < shownLocks:
			links = append(links, chip{Text: l.Name, Link: lockLink(l.Name)})
		default:
			more++
		}
	}
	for _, group := range groups {
		text := counted(parts[group], "partition") + " of " + group
		links = append(links, chip{Text: text, Link: groupLink(group)})
	}
	return links, more
}
