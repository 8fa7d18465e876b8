// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/once"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/shard"
)

// historyPace is how often the history of a lock is read again where nothing has changed;
// what was written late appears then.
const historyPace = 5 * time.Second

// maxShownData is how many bytes of the data of a lock a page shows.
const maxShownData = 2048

// lockSeen is one lock, with its data.
type lockSeen struct {
	lock
	data   []byte
	ledger once.Ledger // of once or every; without runs if it has none
}

func (d *Dashboard) readLock(ctx context.Context, name string) (lockSeen, error) {
	st, err := d.client.Status(ctx, name)
	switch {
	case errors.Is(err, tenure.ErrUnreadable):
		return lockSeen{lock: unreadableLock(name, err)}, nil
	case err != nil:
		return lockSeen{}, err
	}
	one := []lock{lockOf(st)}
	err = d.freed(ctx, one)
	if ledger, ok := once.Read(st); ok {
		return lockSeen{lock: one[0], ledger: ledger}, err
	}
	// What is not shown is not kept.
	return lockSeen{lock: one[0], data: bytes.Clone(st.Data[:min(len(st.Data), maxShownData+1)])}, err
}

// historyKey asks for the history anew when the record has changed in what it shows.
func historyKey(l *lock) string {
	end := ""
	if l.Request != nil {
		end = l.Request.At.String()
	}
	return fmt.Sprintf("%s\x00%d\x00%s\x00%s\x00%s", l.Name, l.Token, l.State, l.End, end)
}

func (d *Dashboard) readHistory(ctx context.Context, key string) ([]tenure.Tenure, error) {
	name, _, _ := strings.Cut(key, "\x00")
	return d.client.History(ctx, name)
}

// lockModel is one lock, and who has held it.
type lockModel struct {
	Name     string
	State    state
	Sentence string
	Asked    string
	Facts    []fact
	Left     string // what remains of the lease, as it was last seen
	Share    int
	Data     string
	Runs     []runRow // of a ledger
	Band     *band
	Spans    []chip
	Tenures  []tenureRow
	Earlier  bool // tenures before these are not kept
	Acts     []actForm
	NoActs   string // why there are none
	Known    bool
}

// fact is something about a lock.
type fact struct{ Term, Text, Note, Link string }

// lock shows one lock.
func (d *Dashboard) lock(ctx context.Context, who visitor, query url.Values) (*page, *problem) {
	name := query.Get("name")
	if name == "" {
		return nil, &problem{http.StatusBadRequest, "No name", "name the lock: lock?name=NAME"}
	}
	if !who.May(access.Read, name) {
		return nil, notAllowed(who, "read this lock")
	}
	seen := d.locks.ask(ctx, name)
	if problem := lookProblem(seen.err); problem != nil {
		return nil, problem
	}
	m := &lockModel{Name: name, Known: seen.good}
	p := &page{View: "lock", Title: printable(name), Model: m, Status: storeStatus(seen.err, seen.good)}
	if seen.err != nil {
		p.Alerts = append(p.Alerts, d.storeAlert(who, seen.err, seen.good, seen.at))
	}
	if !seen.good {
		m.NoActs = "Nobody can be asked before the store answers."
		return p, nil
	}
	l := &seen.value.lock
	if l.state == neverHeld {
		return nil, &problem{http.StatusNotFound, "No such lock", fmt.Sprintf("no program has ever taken the lock %q", printable(name))}
	}
	m.describe(l, seen.at)
	m.data(who, seen.value.data)
	m.runs(seen.value.ledger, seen.at)
	if l.state != unreadable {
		history := d.histories.ask(ctx, historyKey(l))
		if history.err != nil && seen.err == nil {
			p.Alerts = append(p.Alerts, d.storeAlert(who, history.err, history.good, history.at))
			p.Status = storeStatus(history.err, history.good)
		}
		m.history(l, history.value, seen.at, query)
	}
	m.acts(l, who)
	p.StandStill = who.form && len(m.Acts) > 0
	return p, nil
}

// describe says who has it, and since when.
func (m *lockModel) describe(l *lock, at time.Time) {
	r := rowOf(l, at)
	m.State, m.Left, m.Share = l.state, r.Left, r.LeftShare
	if l.Request != nil {
		m.Asked = fmt.Sprintf("%s asked it to %s at %s: %s", l.Request.By, askedText(l.Request), clockText(l.Request.At), l.Request.Reason)
	}
	m.Sentence = l.sentence(r)
	m.fact("Owner", l.Owner, "", "")
	m.fact("Host", l.Host, "", "")
	m.fact("Label", l.Label, "", "")
	m.fact("Token", r.Token, "", "")
	if l.state != free {
		m.fact("Held since", clockText(l.Since), ago1(l.Since, at), "")
	}
	m.fact("Free since", clockText(l.Until), ago1(l.Until, at), "")
	if l.holds() {
		m.fact("Last sign of life", passed(l.Unchanged), "as seen from here", "")
		m.fact("Lease", term(l.Lease), heartbeatNote(l.Heartbeat), "")
	}
	if l.Priority != 0 {
		m.fact("Priority", strconv.Itoa(l.Priority), "", "")
	}
	if l.Session != "" {
		m.fact("Session", l.Session, "keeps it alive", "sessions#"+idOf(l.Session))
	}
	if l.End != "" {
		t := tenure.Tenure{End: l.End, Request: l.EndedBy}
		m.fact("Ended", endText(t), requestNote(l.EndedBy), "")
	}
	if group, id, ok := shard.ParseLockName(l.Name); ok {
		m.fact("Partition", id, "of the group "+group, "shards?group="+url.QueryEscape(group))
	}
	if l.bytes > 0 {
		m.fact("Data", counted(l.bytes, "byte"), "", "")
	}
}

// fact adds one that there is.
func (m *lockModel) fact(term, text, note, link string) {
	if text != "" {
		m.Facts = append(m.Facts, fact{term, text, note, link})
	}
}

// ago1 says how long ago an instant was, for the end of a line.
func ago1(since, at time.Time) string {
	text, _ := ago(since, at)
	if text == "" || at.Before(since) {
		return text
	}
	return text + " ago"
}

// passed says how long ago something was that cannot be in the future.
func passed(d time.Duration) string {
	if d < time.Second {
		return "just now"
	}
	return short(d.Truncate(time.Second)) + " ago"
}

func heartbeatNote(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return "a heartbeat every " + exact(d)
}

func requestNote(q *tenure.Request) string {
	if q == nil {
		return ""
	}
	return fmt.Sprintf("%s: %s", q.By, q.Reason)
}

// sentence says in one line what an operator wants to know first.
func (l *lock) sentence(r row) string {
	owner, silent := l.Owner, short(l.Unchanged.Truncate(time.Second))
	switch l.state {
	case held:
		return fmt.Sprintf("%s holds it under token %s.", owner, r.Token)
	case asked:
		return fmt.Sprintf("%s holds it under token %s, and was asked to %s.", owner, r.Token, askedText(l.Request))
	case inDoubt:
		return fmt.Sprintf("%s holds it under token %s, but its heartbeat is late: no sign of life for %s. Another can take it over in %s.", owner, r.Token, silent, r.Left)
	case expired:
		return fmt.Sprintf("Nobody holds it for certain: %s has shown no sign of life for %s, longer than its lease. The next one that comes takes it.", owner, silent)
	case reserved:
		switch {
		case l.ReservedFor != "":
			return fmt.Sprintf("Nobody holds it: it is kept for %s for %s.", l.ReservedFor, r.Left)
		case l.ReservedForLabel != "":
			return fmt.Sprintf("Nobody holds it: it is kept for label %s for %s.", l.ReservedForLabel, r.Left)
		}
		return fmt.Sprintf("It was revoked from %s, and is free in %s, when that has stopped for certain.", owner, r.Left)
	case free:
		if owner == "" {
			return "Nobody holds it."
		}
		return fmt.Sprintf("Nobody holds it. %s had it last, under token %s.", owner, r.Token)
	}
	return "Its record cannot be read: " + l.reason()
}

// data shows what the holder keeps in the record to those who may hold the lock themselves.
func (m *lockModel) data(who visitor, data []byte) {
	if len(data) == 0 || !who.May(access.Hold, m.Name) {
		return
	}
	more := ""
	if len(data) > maxShownData {
		data, more = data[:maxShownData], " …"
	}
	if utf8.Valid(data) {
		m.Data = printable(string(data)) + more
	} else {
		m.Data = fmt.Sprintf("% x", data) + more
	}
}

// runRow is one run of a ledger, as tenure once NAME --show has it.
type runRow struct {
	Slot, State, Begun, Took string
	Owner, Token, Why        string
	Class                    string // of the mark
}

// runs shows the ledger of once or every.
func (m *lockModel) runs(l once.Ledger, at time.Time) {
	if len(l.Runs) == 0 {
		return
	}
	for _, r := range l.Runs {
		row := runRow{
			Slot: strconv.FormatInt(r.Slot, 10), State: string(r.State), Begun: clockText(r.Begun),
			Owner: r.Owner, Token: strconv.FormatUint(r.Token, 10),
		}
		if slot, ok := r.Scheduled(); ok {
			row.Slot = clockText(slot)
		}
		var why []string
		switch r.State {
		case once.StateDone:
			row.Took, row.Class = short(r.Took), "released"
		case once.StateFailed:
			row.Took, row.Class = short(r.Took), "failed"
			why = append(why, r.Error)
		case once.StateRunning:
			row.Took = short(max(0, at.Sub(r.Begun)).Truncate(time.Second)) + " so far"
		case once.StateUnknown:
			row.State, row.Class = "nobody knows how it ended", "expired"
		case once.StateReset, once.StateChanged: // Read leaves them out
		}
		if r.Missed > 0 {
			why = append(why, counted(r.Missed, "slot")+" before it missed")
		}
		if r.Left != "" {
			why = append(why, "left behind: "+r.Left)
		}
		row.Why = strings.Join(why, "; ")
		m.Runs = append(m.Runs, row)
	}
	if last := l.Runs[0]; last.State == once.StateRunning {
		m.fact("Running since", clockText(last.Begun), ago1(last.Begun, at), "")
	}
	done := slices.IndexFunc(l.Runs, func(r once.Run) bool { return r.State == once.StateDone })
	if done >= 0 {
		m.fact("Last success", clockText(l.Runs[done].Ended), ago1(l.Runs[done].Ended, at), "")
	} else {
		m.fact("Last success", "none", fmt.Sprintf("of the last %d runs", len(l.Runs)), "")
	}
	if l.Period > 0 {
		m.fact("Period", short(l.Period), "from the last slot to the next", "")
	}
}

// tenureRow is one tenure of the table.
type tenureRow struct {
	Token, Owner, Host, Label string
	Since, Until, Held        string
	Ended, Class              string
	By, Why                   string
}

// history shows who held the lock.
func (m *lockModel) history(l *lock, list []tenure.Tenure, at time.Time, query url.Values) {
	var next time.Time // when the nearest later tenure that is known began
	for i := 0; i < len(list); i++ {
		first := i
		for list[i].Unknown && i+1 < len(list) && list[i+1].Unknown {
			i++
		}
		r := tenureRowOf(list[i], l, at)
		if t := list[i]; !t.Unknown {
			if t.Until.IsZero() && t.End != "" && !next.IsZero() {
				r.Until = "before " + clockText(next)
			}
			next = t.Since
		}
		if i > first {
			r.Token += " to " + strconv.FormatUint(list[first].Token, 10)
		}
		m.Tenures = append(m.Tenures, r)
	}
	if n := len(list); n > 0 {
		m.Earlier = list[n-1].Token > 1
	}
	span, chosen := spanOf(query.Get("span"), list, at)
	m.Band = drawBand(list, l, at, span)
	for _, s := range spans {
		m.Spans = append(m.Spans, chip{Text: s.name, Link: lockLink(m.Name) + "&span=" + s.name, Here: s.name == chosen})
	}
}

func tenureRowOf(t tenure.Tenure, l *lock, at time.Time) tenureRow {
	r := tenureRow{
		Token: strconv.FormatUint(t.Token, 10), Owner: t.Owner, Host: t.Host, Label: t.Label,
		Since: clockText(t.Since), Until: clockText(t.Until), Ended: endText(t), Class: endClass(t),
	}
	if q := t.Request; q != nil {
		r.By, r.Why = q.By, q.Reason
	}
	switch {
	case t.Unknown:
		r.Owner, r.Why = "unknown", "not kept, or its holder crashed before it was written"
	case t.End == "" && l.state == expired:
		r.Until, r.Ended, r.Class = "unknown", "no sign of life", endClass(tenure.Tenure{End: tenure.EndExpired})
	case t.End == "" && t.Token == l.Token && l.holds():
		r.Until, r.Ended = "now", "holds it"
		r.Held = short(max(0, at.Sub(t.Since)).Truncate(time.Second))
		if q := t.Request; q != nil {
			r.Ended = "asked to " + askedText(q)
		}
	case t.Until.IsZero():
		r.Until = "unknown"
	default:
		r.Held = short(max(0, t.Until.Sub(t.Since)))
	}
	return r
}

func (m *lockModel) text(w io.Writer) {
	fmt.Fprintln(w, printable(m.Name)+": "+cmp.Or(string(m.State), "not known"))
	if m.Sentence != "" {
		fmt.Fprintln(w, printable(m.Sentence))
	}
	if m.Asked != "" {
		fmt.Fprintln(w, printable(m.Asked))
	}
	fmt.Fprintln(w)
	for _, f := range m.Facts {
		text := f.Text
		if f.Note != "" {
			text += " (" + f.Note + ")"
		}
		cells(w, f.Term, text)
	}
	if len(m.Runs) > 0 {
		fmt.Fprintln(w)
		cells(w, "SLOT", "STATE", "BEGUN", "TOOK", "OWNER", "TOKEN", "WHY")
	}
	for _, r := range m.Runs {
		cells(w, r.Slot, r.State, r.Begun, r.Took, r.Owner, r.Token, r.Why)
	}
	if len(m.Tenures) == 0 {
		return
	}
	fmt.Fprintln(w)
	cells(w, "TOKEN", "OWNER", "HOST", "LABEL", "SINCE", "UNTIL", "HELD", "ENDED", "WHY")
	for _, t := range m.Tenures {
		why := t.Why
		if t.By != "" {
			why += " (" + t.By + ")"
		}
		cells(w, t.Token, t.Owner, t.Host, t.Label, t.Since, t.Until, t.Held, t.Ended, why)
	}
	if m.Earlier {
		fmt.Fprintln(w, "earlier tenures are not kept, or were held without a history")
	}
}
