// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/text"
	"github.com/tenurelock/tenure/server/access"
)

// pageSize is how many locks a page shows.
const pageSize = 50

// nowModel is the list of locks.
type nowModel struct {
	Prefix, Only string // what the list is narrowed to
	Chips        []chip
	Rows         []row
	Summary      string
	Place        string // which of them the page shows
	First, Prev  string // addresses of other pages
	Next         string
	Cut, Known   bool // there are more locks than were read; something was read
	Parts        bool // those of shards are listed as well
	Unlisted     int  // parts of shards that are not
	Listed       string
	Nothing      string
	Rights       string
}

// chip narrows the list to one state.
type chip struct {
	Text, Class, Link string
	Count             int
	Here              bool
}

// row is one lock of a list.
type row struct {
	ID, Name, Link string
	State          state
	Holder, Note   string // who has it, had it or is to have it
	Host, Label    string
	Token          string
	Ago, Since     string // for how long, and the instant
	Left           string // what remains, as it was last seen
	LeftShare      int    // of the lease, in per cent
	Asked          string
}

// now shows all locks.
func (d *Dashboard) now(ctx context.Context, who visitor, query url.Values) (*page, *problem) {
	m := &nowModel{Prefix: query.Get("prefix"), Only: query.Get("state"), Parts: query.Get("parts") != "", Rights: rightsOf(who)}
	p := &page{View: "now", Title: "Now", Model: m}
	if m.Only != "" && !slices.Contains(states, state(m.Only)) {
		return nil, &problem{400, "No such state", fmt.Sprintf("%.40q is no state of a lock: it is one of held, asked, in doubt, expired, reserved, free, unreadable", m.Only)}
	}
	seen := d.census(ctx, m.Prefix)
	p.Status, m.Known, m.Cut = storeStatus(seen.err, seen.good), seen.good, seen.value.cut
	if seen.err != nil {
		p.Alerts = append(p.Alerts, d.storeAlert(who, seen.err, seen.good, seen.at))
	}
	locks := visible(seen.value.locks, who, m.Prefix)
	m.count(locks)
	if m.Only != "" {
		locks = slices.DeleteFunc(locks, func(l *lock) bool { return l.state != state(m.Only) })
	}
	locks = m.withoutParts(locks)
	here, from := m.cut(locks, query.Get("after"))
	here, at := d.renewed(ctx, here, seen.at)
	for _, l := range here {
		m.Rows = append(m.Rows, rowOf(l, at))
	}
	m.links(locks, from)
	m.nothing(who)
	return p, nil
}

// count says how many locks are in which state.
func (m *nowModel) count(locks []*lock) {
	counts := map[state]int{}
	for _, l := range locks {
		counts[l.state]++
	}
	m.Chips = []chip{{Text: "all", Class: "all", Link: m.address("", ""), Count: len(locks), Here: m.Only == ""}}
	for _, s := range states {
		if counts[s] > 0 || m.Only == string(s) {
			m.Chips = append(m.Chips, chip{string(s), s.Class(), m.address(string(s), ""), counts[s], m.Only == string(s)})
		}
	}
	text := []string{counted(len(locks), "lock")}
	for _, s := range []state{inDoubt, expired, unreadable} {
		if counts[s] > 0 {
			text = append(text, grouped(counts[s])+" "+string(s))
		}
	}
	m.Summary = strings.Join(text, ", ")
}

// withoutParts leaves out the partitions and workers of shards that are as they should be,
// where the list is not narrowed: there may be thousands of them, and they have a page of
// their own.
func (m *nowModel) withoutParts(locks []*lock) []*lock {
	if m.Parts || m.Only != "" || m.Prefix != "" {
		return locks
	}
	listed := slices.DeleteFunc(locks, func(l *lock) bool {
		return (l.state == held || l.state == free) && (strings.Contains(l.Name, text.PartInfix) || strings.Contains(l.Name, text.MemberInfix))
	})
	if m.Unlisted = len(locks) - len(listed); m.Unlisted > 0 {
		m.Listed = "./?parts=all"
	}
	return listed
}

// address is that of another page of the list.
func (m *nowModel) address(only, after string) string {
	query := url.Values{}
	parts := ""
	if m.Parts {
		parts = "all"
	}
	for name, value := range map[string]string{"prefix": m.Prefix, "state": only, "parts": parts, "after": after} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return "./" + tail(query)
}

// cut returns the locks of one page, and the place of the first one.
func (m *nowModel) cut(locks []*lock, after string) (here []*lock, from int) {
	from, found := slices.BinarySearchFunc(locks, after, func(l *lock, name string) int { return strings.Compare(l.Name, name) })
	if found {
		from++
	}
	return locks[from:min(len(locks), from+pageSize)], from
}

// links says what stands before and after this page.
func (m *nowModel) links(locks []*lock, from int) {
	if from > 0 {
		m.First, m.Prev = m.address(m.Only, ""), m.address(m.Only, "")
		if before := from - pageSize - 1; before >= 0 {
			m.Prev = m.address(m.Only, locks[before].Name)
		}
	}
	to := min(len(locks), from+pageSize)
	if to < len(locks) {
		m.Next = m.address(m.Only, locks[to-1].Name)
	}
	if len(locks) > pageSize && to > from {
		m.Place = fmt.Sprintf("%s to %s of %s", grouped(from+1), grouped(to), grouped(len(locks)))
	}
}

// nothing says why there is no lock to show.
func (m *nowModel) nothing(who visitor) {
	switch {
	case len(m.Rows) > 0 || !m.Known:
	case !who.anything():
		m.Nothing = who.Name() + " may not read any lock. " + m.Rights
	case m.Only != "" && m.Prefix != "":
		m.Nothing = fmt.Sprintf("No lock whose name begins with “%s” is %s.", printable(m.Prefix), m.Only)
	case m.Only != "":
		m.Nothing = fmt.Sprintf("No lock is %s.", m.Only)
	case m.Prefix != "":
		m.Nothing = fmt.Sprintf("There is no lock whose name begins with “%s” and that %s may read.", printable(m.Prefix), who.Name())
	case !who.all():
		m.Nothing = "There is no lock that " + who.Name() + " may read. " + m.Rights
	default:
		m.Nothing = "There are no locks yet. One appears when a program takes it for the first time."
	}
}

// rowOf shows a lock as it was seen.
func rowOf(l *lock, at time.Time) row {
	r := row{ID: idOf(l.Name), Name: l.Name, Link: lockLink(l.Name), State: l.state, Holder: l.Owner, Host: l.Host, Label: l.Label}
	if l.Token > 0 {
		r.Token = strconv.FormatUint(l.Token, 10)
	}
	since := l.Since
	switch l.state {
	case held, asked, inDoubt:
		r.Left, r.LeftShare = left(l.FreeIn, l.Lease)
	case expired:
		r.Left = "ran out"
	case reserved:
		since = l.Until
		r.Holder, r.Note = cmp.Or(l.ReservedFor, l.ReservedForLabel), "kept for it"
		switch {
		case l.ReservedFor == "" && l.ReservedForLabel != "":
			r.Note = "kept for this label"
		case r.Holder == "":
			r.Holder, r.Note = l.Owner, "revoked, until it has stopped for certain"
		}
		r.Left, r.LeftShare = left(l.FreeIn, l.Lease)
	case free:
		since, r.Note = l.Until, "had it last"
	case unreadable:
		r.Note = l.reason()
	}
	if l.Request != nil {
		r.Asked = fmt.Sprintf("asked to %s by %s: %s", askedText(l.Request), l.Request.By, l.Request.Reason)
	}
	r.Ago, r.Since = ago(since, at)
	return r
}

// left says what remained of a lease when its record was read.
func left(freeIn, lease time.Duration) (text string, share int) {
	if lease > 0 {
		share = int(min(100, max(0, 100*freeIn/lease)))
	}
	return short(freeIn.Round(time.Second)), share
}

// ago says how long ago an instant was that somebody else's wall clock has shown.
func ago(since, at time.Time) (text, instant string) {
	if since.IsZero() {
		return "", ""
	}
	passed := at.Sub(since)
	if passed < 0 {
		return "by a clock ahead", clockText(since)
	}
	return short(passed.Truncate(time.Second)), clockText(since)
}

// idOf is an id for what has this name, so that the script finds it again.
func idOf(name string) string {
	h := fnv.New64a()
	io.WriteString(h, name) //nolint:errcheck // a hash takes all
	return "r" + strconv.FormatUint(h.Sum64(), 36)
}

// lockLink is the address of the page of a lock.
func lockLink(name string) string { return "lock?name=" + url.QueryEscape(name) }

func (m *nowModel) text(w io.Writer) {
	if m.Nothing != "" {
		fmt.Fprintln(w, m.Nothing)
		return
	}
	if len(m.Rows) == 0 {
		return
	}
	cells(w, "LOCK", "STATE", "OWNER", "TOKEN", "FOR", "FREE IN", "HOST", "LABEL")
	for _, r := range m.Rows {
		cells(w, r.Name, string(r.State), r.Holder, r.Token, r.Ago, r.Left, r.Host, r.Label)
	}
	if m.Place != "" {
		fmt.Fprintln(w, m.Place)
	}
	if m.Next != "" {
		fmt.Fprintln(w, "next: "+strings.TrimPrefix(m.Next, "./"))
	}
}

// mayOperate says whether a visitor may do what a request of that kind does.
func mayOperate(who visitor, kind tenure.RequestKind, name string) bool {
	right := access.Ask
	if kind == tenure.RequestRevoke {
		right = access.Revoke
	}
	return who.May(right, name)
}
