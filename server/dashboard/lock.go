// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// maxShownData is how many bytes of the data of a lock a page shows.
const maxShownData = 2048

func (d *Dashboard) readLock(ctx context.Context, name string) (*lock, error) {
	st, err := d.client.Status(ctx, name)
	if err != nil && !errors.Is(err, tenure.ErrUnreadable) {
		return nil, err
	}
	l := lockOf(name, st, err)
	if ledger, ok := once.Read(st); ok {
		l.ledger = ledger
	} else {
		l.text = dataText(st.Data)
	}
	return l, d.freed(ctx, []*lock{l})
}

// past returns who held a lock. It is read again when the record has changed in what it shows, and now and then:
// a holder may write late who was there before.
func (d *Dashboard) past(ctx context.Context, l *lock) ([]tenure.Tenure, reading) {
	key := fmt.Sprintf("history %q %d %s %s", l.Name, l.Token, l.Status.State, l.End)
	if l.Request != nil {
		key += l.Request.At.String()
	}
	return ask(ctx, d.cache, farPace, key, func(ctx context.Context) ([]tenure.Tenure, error) {
		return d.client.History(ctx, l.Name)
	})
}

// dataText shows the data of a record, which may be anything.
func dataText(data []byte) string {
	more := ""
	if len(data) > maxShownData {
		data, more = data[:maxShownData], " …"
	}
	if utf8.Valid(data) {
		return printable(string(data)) + more
	}
	return fmt.Sprintf("% x", data) + more
}

// lockView is one lock, and who has held it.
type lockView struct {
	Name, Data string
	Lock       *lock // nil if nothing is known of it
	Facts      []fact
	Runs       []run // of a ledger
	Timeline   *timeline
	Spans      []chip
	Terms      []term
	Earlier    bool // tenures before these are not kept
	Acts       []actForm
	NoActs     string // why there are none
}

// fact is something about a lock.
type fact struct{ Term, Text, Note, Link string }

// lock shows one lock.
func (d *Dashboard) lock(ctx context.Context, who visitor, query url.Values) (*page, *problem) {
	name := query.Get("name")
	if name == "" {
		return nil, refuse(http.StatusBadRequest, "No name", "name the lock: lock?name=NAME")
	}
	if !who.May(access.Read, name) {
		return nil, notAllowed(who, "read this lock")
	}
	l, r := ask(ctx, d.cache, lookPace, "lock "+name, func(ctx context.Context) (*lock, error) {
		return d.readLock(ctx, name)
	})
	if problem := invalid(r.err); problem != nil {
		return nil, problem
	}
	v := &lockView{Name: name}
	p := &page{View: "lock", Title: printable(name), Model: v}
	d.note(p, who, r)
	if !r.good() {
		v.NoActs = "Nobody can be asked before the store answers."
		return p, nil
	}
	if l.State == neverHeld {
		return nil, refuse(http.StatusNotFound, "No such lock", "no program has ever taken the lock %q", printable(name))
	}
	v.Lock = l
	if who.May(access.Hold, name) {
		v.Data = l.text
	}
	v.describe(r.at)
	v.runs(l.ledger, r.at)
	if l.State != unreadable {
		history, ofHistory := d.past(ctx, l)
		d.note(p, who, ofHistory)
		v.history(history, r.at, query.Get("span"))
	}
	v.acts(who)
	p.Stands = who.form && len(v.Acts) > 0
	return p, nil
}

// describe says who has it, and since when.
func (v *lockView) describe(at time.Time) {
	l := v.Lock
	v.fact("Owner", l.Owner, "", "")
	v.fact("Host", l.Host, "", "")
	v.fact("Label", l.Label, "", "")
	v.fact("Token", number(l.Token), "", "")
	if l.State != free {
		v.fact("Held since", clockText(l.Since), ageOf(l.Since, at).Text(), "")
	}
	v.fact("Free since", clockText(l.Until), ageOf(l.Until, at).Text(), "")
	if l.holds() {
		sign, beat := "just now", ""
		if l.Unchanged >= time.Second {
			sign = seconds(l.Unchanged) + " ago"
		}
		if l.Heartbeat > 0 {
			beat = "a heartbeat every " + exact(l.Heartbeat)
		}
		v.fact("Last sign of life", sign, "as seen from here", "")
		v.fact("Lease", chosen(l.Lease), beat, "")
	}
	v.fact("Priority", number(l.Priority), "", "")
	v.fact("Session", l.Session, "keeps it alive", "sessions#"+idOf(l.Session))
	why := ""
	if q := l.EndedBy; q != nil {
		why = q.By + ": " + q.Reason
	}
	v.fact("Ended", tenure.Tenure{End: l.End, Request: l.EndedBy}.Ended(), why, "")
	if group, id, ok := shard.ParseLockName(l.Name); ok {
		v.fact("Partition", id, "of the group "+group, groupLink(group))
	}
	if l.Bytes > 0 {
		v.fact("Data", counted(l.Bytes, "byte"), "", "")
	}
}

// number is one that there is; "" for 0.
func number[N int | uint64](n N) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// fact adds one that there is.
func (v *lockView) fact(name, text, note, link string) {
	if text != "" {
		v.Facts = append(v.Facts, fact{name, text, note, link})
	}
}

// askedText says what a holder was asked.
func askedText(q *tenure.Request) string {
	switch {
	case q.Kind == tenure.RequestHandOver && q.To != "":
		return "hand over to " + q.To
	case q.Kind == tenure.RequestHandOver && q.ToLabel != "":
		return "hand over to label " + q.ToLabel
	}
	name := string(q.Kind)
	if i := slices.IndexFunc(acts, func(a act) bool { return a.request == q.Kind }); i >= 0 {
		name = acts[i].Kind
	}
	return strings.NewReplacer("_", " ", "-", " ").Replace(name)
}

// run is one run of a ledger, as tenure once NAME --show has it.
type run struct {
	once.Run
	Slot, State, Took, Class, Why string // Class is that of the mark
}

// runs shows the ledger of once or every.
func (v *lockView) runs(l once.Ledger, at time.Time) {
	if len(l.Runs) == 0 {
		return
	}
	for _, of := range l.Runs {
		r := run{Run: of, Slot: strconv.FormatInt(of.Slot, 10), State: string(of.State)}
		if slot, ok := of.Scheduled(); ok {
			r.Slot = clockText(slot)
		}
		var why []string
		switch of.State {
		case once.StateDone:
			r.Took, r.Class = short(of.Took), "released"
		case once.StateFailed:
			r.Took, r.Class = short(of.Took), "failed"
			why = append(why, of.Error)
		case once.StateRunning:
			r.Took = seconds(at.Sub(of.Begun)) + " so far"
		case once.StateUnknown:
			r.State, r.Class = "nobody knows how it ended", "expired"
		case once.StateReset, once.StateChanged: // Read leaves them out
		}
		if of.Missed > 0 {
			why = append(why, counted(of.Missed, "slot")+" before it missed")
		}
		if of.Left != "" {
			why = append(why, "left behind: "+of.Left)
		}
		r.Why = strings.Join(why, "; ")
		v.Runs = append(v.Runs, r)
	}
	if last := l.Runs[0]; last.State == once.StateRunning {
		v.fact("Running since", clockText(last.Begun), ageOf(last.Begun, at).Text(), "")
	}
	success, note := "none", fmt.Sprintf("of the last %d runs", len(l.Runs))
	if i := slices.IndexFunc(l.Runs, func(r once.Run) bool { return r.State == once.StateDone }); i >= 0 {
		success, note = clockText(l.Runs[i].Ended), ageOf(l.Runs[i].Ended, at).Text()
	}
	v.fact("Last success", success, note, "")
	if l.Period > 0 {
		v.fact("Period", short(l.Period), "from the last slot to the next", "")
	}
}

// term is one holder's time, or some that nobody knows of.
type term struct {
	tenure.Tenure
	Token, Until, Held string
	How, Class         string // how it ended
	By, Why            string
}

// history shows who held the lock: the newest first.
func (v *lockView) history(history []tenure.Tenure, at time.Time, name string) {
	var next time.Time // when the nearest later tenure that is known began
	for i := 0; i < len(history); i++ {
		first := i
		for history[i].Unknown && i+1 < len(history) && history[i+1].Unknown {
			i++
		}
		of := history[i]
		t := termOf(of, v.Lock, at)
		if !of.Unknown {
			if of.Until.IsZero() && of.End != "" && !next.IsZero() {
				t.Until = "before " + clockText(next)
			}
			next = of.Since
		}
		if i > first {
			t.Token += " to " + strconv.FormatUint(history[first].Token, 10)
		}
		v.Terms = append(v.Terms, t)
		v.Earlier = of.Token > 1
	}
	back, chosen := spanOf(name, history, at)
	v.Timeline = draw(history, v.Lock, at, back)
	for _, s := range spans {
		v.Spans = append(v.Spans, chip{Text: s.name, Link: lockLink(v.Name) + "&span=" + s.name, Here: s.name == chosen})
	}
}

func termOf(of tenure.Tenure, l *lock, at time.Time) term {
	t := term{
		Tenure: of, Token: strconv.FormatUint(of.Token, 10), Until: cmp.Or(clockText(of.Until), "unknown"),
		How: of.Ended(), Class: endClass(of.End),
	}
	if q := of.Request; q != nil {
		t.By, t.Why = q.By, q.Reason
	}
	switch {
	case of.Unknown:
		t.Owner, t.Why = "unknown", "not kept, or its holder crashed before it was written"
		t.Until, t.How = clockText(of.Until), cmp.Or(t.How, "unknown")
	case of.End == "" && l.State == expired:
		t.Until, t.How, t.Class = "unknown", "no sign of life", endClass(tenure.EndExpired)
	case of.End == "" && of.Token == l.Token && l.holds():
		t.Until, t.How, t.Held = "now", "holds it", seconds(at.Sub(of.Since))
		if of.Request != nil {
			t.How = "asked to " + askedText(of.Request)
		}
	case !of.Until.IsZero():
		t.Held = short(max(0, of.Until.Sub(of.Since)))
	}
	return t
}
