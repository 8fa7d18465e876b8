// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard"
)

const (
	// lookPace is how often what a page shows is read again at most.
	lookPace = time.Second
	// maxSessions bounds how many sessions are read.
	maxSessions = 10_000
	// shownLocks is how many of the locks under a session are named.
	shownLocks = 20
)

// sessionsModel is the sessions that keep locks alive.
type sessionsModel struct {
	Rows    []sessionRow
	Summary string
	More    int // that are not shown
	Closed  int
	Nothing string
	Known   bool
}

// sessionRow is one session.
type sessionRow struct {
	ID, Name           string
	State              state
	Owner, Host, Label string
	Ago, Since         string
	Left               string
	LeftShare          int
	Silent             string // since the last sign of life
	Locks              []link
	Count              int
	More               int // locks that are not named
	Requests           int
}

// link is a name and where it leads.
type link struct{ Text, Link string }

func (d *Dashboard) readSessions(ctx context.Context, _ string) ([]tenure.SessionStatus, error) {
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

// sessionsPage shows the sessions.
func (d *Dashboard) sessionsPage(ctx context.Context, who visitor, _ url.Values) (*page, *problem) {
	m := &sessionsModel{}
	p := &page{View: "sessions", Title: "Sessions", Model: m}
	seen := d.sessions.ask(ctx, "")
	locks := d.census(ctx, "")
	err := cmp.Or(seen.err, locks.err)
	m.Known = seen.good && locks.good
	p.Status = storeStatus(err, m.Known)
	if err != nil {
		p.Alerts = append(p.Alerts, d.storeAlert(who, err, m.Known, earlier(seen.at, locks.at)))
	}
	m.fill(seen.value, visible(locks.value.locks, who, ""), who, seen.at)
	return p, nil
}

func (m *sessionsModel) fill(all []tenure.SessionStatus, locks []*lock, who visitor, at time.Time) {
	under := map[string][]*lock{}
	for _, l := range locks {
		if l.Session != "" && l.State == tenure.StateHeld {
			under[l.Session] = append(under[l.Session], l)
		}
	}
	counts := map[state]int{}
	for _, s := range all {
		mine := under[s.ID]
		if len(mine) == 0 && !who.all() {
			continue
		}
		r := sessionRowOf(s, mine, at)
		if r.State == free {
			m.Closed++
			continue
		}
		counts[r.State]++
		m.Rows = append(m.Rows, r)
	}
	slices.SortFunc(m.Rows, func(a, b sessionRow) int {
		return cmp.Or(cmp.Compare(b.rank(), a.rank()), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Name, b.Name))
	})
	m.Summary = counted(len(m.Rows), "session")
	for _, s := range []state{inDoubt, expired} {
		if counts[s] > 0 {
			m.Summary += fmt.Sprintf(", %s %s", grouped(counts[s]), s)
		}
	}
	if more := len(m.Rows) - pageSize; more > 0 {
		m.Rows, m.More = m.Rows[:pageSize], more
	}
	if len(m.Rows) == 0 && m.Known {
		m.Nothing = "There is no session. A process that holds many locks opens one, so that one heartbeat keeps all of them alive."
		if !who.all() {
			m.Nothing = "There is no session that keeps a lock alive which " + who.Name() + " may read."
		}
	}
}

// rank puts first what an operator should look at.
func (r sessionRow) rank() int {
	switch r.State {
	case inDoubt:
		return 2
	case expired:
		return 1
	}
	return 0
}

func sessionRowOf(s tenure.SessionStatus, under []*lock, at time.Time) sessionRow {
	r := sessionRow{ID: idOf(s.ID), Name: s.ID, Owner: s.Owner, Host: s.Host, Label: s.Label, Count: len(under), Requests: s.Requests}
	r.Ago, r.Since = ago(s.Since, at)
	switch {
	case s.State != tenure.StateAlive:
		r.State = free
	case !s.Alive:
		r.State, r.Left = expired, "ran out"
	default:
		r.State = held
		if late(s.Unchanged, s.Heartbeat, s.Lease) {
			r.State = inDoubt
		}
		r.Left, r.LeftShare = left(s.FreeIn, s.Lease)
	}
	r.Silent = short(s.Unchanged.Truncate(time.Second))
	r.Locks, r.More = linksOf(under)
	return r
}

// linksOf names the locks under a session, the partitions of a group of shards together.
func linksOf(under []*lock) (links []link, more int) {
	parts := map[string]int{}
	var groups []string
	for _, l := range under {
		group, _, ok := shard.ParseLockName(l.Name)
		switch {
		case ok && parts[group] == 0:
			groups = append(groups, group)
			parts[group]++
		case ok:
			parts[group]++
		case len(links) < shownLocks:
			links = append(links, link{l.Name, lockLink(l.Name)})
		default:
			more++
		}
	}
	for _, group := range groups {
		links = append(links, link{counted(parts[group], "partition") + " of " + group, groupLink(group)})
	}
	return links, more
}

// Word is the state of a session in words: it is no lock.
func (r sessionRow) Word() string {
	if r.State == held {
		return "alive"
	}
	return string(r.State)
}

func (m *sessionsModel) text(w io.Writer) {
	if m.Nothing != "" {
		fmt.Fprintln(w, m.Nothing)
	}
	if len(m.Rows) == 0 {
		return
	}
	cells(w, "SESSION", "STATE", "OWNER", "LOCKS", "FOR", "FREE IN", "HOST", "LABEL")
	for _, r := range m.Rows {
		cells(w, r.Name, r.Word(), r.Owner, grouped(r.Count), r.Ago, r.Left, r.Host, r.Label)
	}
	if m.More > 0 {
		fmt.Fprintf(w, "and %s more\n", grouped(m.More))
	}
	if m.Closed > 0 {
		fmt.Fprintf(w, "%s closed, not swept yet\n", grouped(m.Closed))
	}
}
