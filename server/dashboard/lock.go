// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
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

// past returns who held a lock. It reads the history again when the record shows a change, and now and then,
// because a holder may write an earlier term late.
func (d *Dashboard) past(ctx context.Context, l *lock) ([]tenure.Term, reading) {
	key := fmt.Sprintf("history %q %d %s %s", l.Name, l.Token, l.Status.State, l.End)
	if l.Request != nil {
		key += l.Request.At.String()
	}
	return ask(ctx, d.cache, farPace, key, func(ctx context.Context) ([]tenure.Term, error) {
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
	Earlier    bool // terms before these are not kept
	Acts       []actForm
	NoActs     string // why there are no acts
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
		v.NoActs = "No request can be sent before the store answers."
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
		v.fact("Last sign of life", sign, "as seen from this server", "")
		v.fact("Lease", chosen(l.Lease), beat, "")
	}
	v.fact("Priority", number(l.Priority), "", "")
	v.fact("Session", l.Session, "keeps it alive", "sessions#"+idOf(l.Session))
	why := ""
	if q := l.EndedBy; q != nil {
		why = q.By + ": " + q.Reason
	}
	v.fact("Ended", tenure.Term{End: l.End, Request: l.EndedBy}.Ended(), why, "")
	if group, id, ok := shard.ParseLockName(l.Name); ok {
		v.fact("Partition", id, "of the group "+group, groupLink(group))
	}
	if l.Bytes > 0 {
		v.fact("Data", counted(l.Bytes, "byte"), "", "")
	}
}

// number formats a number; "" for 0.
func number[N int | uint64](n N) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// fact adds a fact, unless its text is empty.
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
	Slot, State, Took, Class, Why string // Class is the class of the mark
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
			r.State, r.Class = "not known how it ended", "expired"
		case once.StateReset, once.StateChanged: // Read leaves them out
		}
		if of.Missed > 0 {
			why = append(why, counted(of.Missed, "slot")+" missed before it")
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

// term is one holder's time, or several unknown terms.
type term struct {
	tenure.Term
	Token, Until, Held string
	How, Class         string // how it ended
	By, Why            string
}

// history shows who held the lock, newest first.
func (v *lockView) history(history []tenure.Term, at time.Time, name string) {
	var next time.Time // when the nearest later term that is known began
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

func termOf(of tenure.Term, l *lock, at time.Time) term {
	t := term{
		Term: of, Token: strconv.FormatUint(of.Token, 10), Until: cmp.Or(clockText(of.Until), "unknown"),
		How: of.Ended(), Class: endClass(of.End),
	}
	if q := of.Request; q != nil {
		t.By, t.Why = q.By, q.Reason
	}
	switch {
	case of.Unknown:
		t.Owner, t.Why = "unknown", "dropped, or the next holder kept no history, or crashed as this one did"
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

// timeline is the terms of a lock over time. All places are in per cent of its width.
type timeline struct {
	Pieces []piece
	Ticks  []piece // with the time of day as the title
	Owners []chip
	Marks  []chip // what the marks mean that there are
	Label  string // all of it in a sentence, for screen readers
}

// piece is one term, or one gap between two.
type piece struct {
	X, W, Class, Title string
	Owner              string // is written on it, if there is room
	Silent, SilentW    string // the part at its end in which there was no sign of life
	Mark, End          string // Mark, at End, says how it ended, or that its holder was asked
}

// spans are for how long a timeline may go back; 0: all that is known.
var spans = []struct {
	name string
	back time.Duration
}{{"1h", time.Hour}, {"6h", 6 * time.Hour}, {"24h", day}, {"7d", 7 * day}, {"30d", 30 * day}, {"all", 0}}

const (
	day = 24 * time.Hour
	// enoughTerms is how many terms a timeline should show, if the visitor has not chosen a span.
	enoughTerms = 6
	// ownerColours is how many colours there are for owners.
	ownerColours = 8
	// roomForName is how many per cent of the timeline an owner's name needs.
	roomForName = 7
	// leastSilent is from how many per cent on it can be seen that there was no sign of life.
	leastSilent = 0.5
	// leastTimeline is how long a timeline is at least, so that a lock that was just taken has one.
	leastTimeline = time.Minute
)

// spanOf returns how far back a timeline goes: as is said, or far enough for some terms.
func spanOf(name string, history []tenure.Term, at time.Time) (back time.Duration, chosen string) {
	var begun []time.Time
	for _, t := range history {
		if !t.Unknown && !t.Since.IsZero() {
			begun = append(begun, t.Since)
		}
	}
	found := spans[len(spans)-1]
	for _, s := range slices.Backward(spans) {
		if s.name == name {
			return s.back, s.name
		}
		if s.back > 0 && len(begun) >= enoughTerms && begun[enoughTerms-1].After(at.Add(-s.back)) {
			found = s
		}
	}
	return found.back, found.name
}

// stretch is a term as the timeline takes it: in the order of tokens, whatever the clocks of the holders say.
type stretch struct {
	tenure.Term
	from, to time.Time
	going    bool          // it has not ended
	silent   time.Duration // of its end there was no sign of life
}

// stretches returns the known terms in the order of their tokens, one after the other: they must not
// overlap, even if clocks differ. The history has the newest first.
func stretches(history []tenure.Term, l *lock, at time.Time) []stretch {
	var all []stretch
	for _, t := range slices.Backward(history) {
		if t.Since.IsZero() || t.Since.After(at) && t.Token != l.Token {
			continue // unknown, or by a clock that is far ahead
		}
		s := stretch{Term: t, from: earlier(t.Since, at), to: earlier(t.Until, at)}
		s.going = t.End == "" && t.Token == l.Token && l.holds() && l.State != expired
		if n := len(all); n > 0 {
			before := &all[n-1]
			if before.Until.IsZero() { // it was over when this one began
				before.to = later(s.from, before.from)
				before.silent = min(l.Lease, before.to.Sub(before.from))
			}
			s.from = later(s.from, before.to)
		}
		if t.Until.IsZero() {
			s.to = at // or until the next one has begun
		}
		s.to = later(s.to, s.from)
		if l.State == expired && t.Token == l.Token {
			s.silent = min(l.Unchanged, s.to.Sub(s.from))
		}
		all = append(all, s)
	}
	return all
}

// draw draws a history, which has the newest term first; nil if nothing is known.
func draw(history []tenure.Term, l *lock, at time.Time, back time.Duration) *timeline {
	all := stretches(history, l, at)
	if len(all) == 0 {
		return nil
	}
	from := all[0].from
	if back > 0 {
		from = at.Add(-back)
	}
	from = earlier(from, at.Add(-leastTimeline))
	place := func(t time.Time) float64 {
		return 100 * min(1, max(0, float64(t.Sub(from))/float64(at.Sub(from))))
	}
	v := &timeline{}
	colours := coloursOf(all)
	terms, gaps := 0, 0
	end := all[0].from // of the term before
	for _, s := range all {
		if s.from.After(end) && s.from.After(from) {
			gaps++
			v.gap(place(end), place(s.from), s.from.Sub(end))
		}
		if !s.to.Before(from) {
			terms++
			v.add(s, place, "o"+strconv.Itoa(colours[s.Owner]))
		}
		end = s.to
	}
	if !all[len(all)-1].going {
		v.gap(place(end), 100, at.Sub(end))
	}
	v.ticks(from, at, place)
	v.Label = fmt.Sprintf("%s from %s to %s, with %s without a holder between them; the table below lists all.",
		counted(terms, "term"), clockText(from), clockText(at), counted(gaps, "gap"))
	return v
}

// gap adds a time without a holder.
func (v *timeline) gap(from, to float64, lasted time.Duration) {
	if to > from {
		v.Pieces = append(v.Pieces, piece{
			X: percent(from), W: percent(to - from), Class: "gap", Title: "no holder, for " + short(lasted),
		})
	}
}

// add adds one term.
func (v *timeline) add(s stretch, place func(time.Time) float64, class string) {
	from, to := place(s.from), place(s.to)
	p := piece{X: percent(from), W: percent(to - from), Class: class, Title: s.title(), End: percent(to)}
	if to-from >= roomForName {
		p.Owner = printable(s.Owner)
	}
	if begun := place(s.to.Add(-s.silent)); begun < to {
		share := 100 * min(1, (to-begun)/(to-from))
		p.Silent, p.SilentW = percent(100-share), percent(share)
		if to-begun >= leastSilent {
			v.Marks = explained(v.Marks, "silent", "no sign of life")
		}
	}
	switch {
	case !s.going:
		p.Mark = endClass(s.End)
		v.Marks = explained(v.Marks, p.Mark, markTexts[p.Mark])
	case s.Request != nil:
		p.Mark = "asked"
		v.Marks = explained(v.Marks, p.Mark, "asked to make way")
	}
	v.Pieces = append(v.Pieces, p)
	v.Owners = explained(v.Owners, class, printable(s.Owner))
}

// explained adds what a class means, once.
func explained(all []chip, class, text string) []chip {
	if l := (chip{Class: class, Text: text}); text != "" && !slices.Contains(all, l) {
		all = append(all, l)
	}
	return all
}

// title says all of a term in a line.
func (s stretch) title() string {
	text := fmt.Sprintf("%s, token %d, %s", printable(s.Owner), s.Token, seconds(s.to.Sub(s.from)))
	if s.going {
		text += ", holds it"
	} else if how := s.Ended(); how != "" {
		text += ", " + how
	}
	if q := s.Request; q != nil {
		text += fmt.Sprintf("; %s asked it to %s: %s", printable(q.By), printable(askedText(q)), printable(q.Reason))
	}
	return text
}

// markTexts are the classes of how a term can have ended, and what they mean.
var markTexts = map[string]string{
	"released": "released",
	"made-way": "made way when asked",
	"expired":  "expired: taken over",
	"failed":   "its work failed, or did not stop",
	"operator": "taken by an operator",
}

// endClass sorts the ends of terms into few.
func endClass(end string) string {
	switch end {
	case tenure.EndReleased, tenure.EndAbandoned:
		return "released"
	case tenure.EndSteppedDown, tenure.EndHandedOver:
		return "made-way"
	case tenure.EndFailed, tenure.EndStalled, tenure.EndStopTimeout:
		return "failed"
	case tenure.EndRevoked, tenure.EndReleasedDead, tenure.EndRaised:
		return "operator"
	case "":
		return ""
	}
	return "expired"
}

// coloursOf gives each owner a colour that it keeps while others come and go, as far as there are enough.
func coloursOf(all []stretch) map[string]int {
	colours, taken := map[string]int{}, map[int]bool{}
	for _, s := range slices.Backward(all) {
		if _, known := colours[s.Owner]; known {
			continue
		}
		c := int(hashOf(s.Owner) % ownerColours)
		for tries := 0; taken[c] && tries < ownerColours; tries++ {
			c = (c + 1) % ownerColours
		}
		colours[s.Owner], taken[c] = c, true
	}
	return colours
}

// steps are how far the ticks of a timeline may be apart.
var steps = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 2 * day, 7 * day, 14 * day, 28 * day, 91 * day, 364 * day,
}

const (
	mostTicks = 7
	// tickMargin is how near to an end of the timeline no tick is, in per cent.
	tickMargin = 3
)

// ticks adds the times of day below a timeline.
func (v *timeline) ticks(from, to time.Time, place func(time.Time) float64) {
	i := slices.IndexFunc(steps, func(d time.Duration) bool { return to.Sub(from)/d <= mostTicks })
	if i < 0 {
		i = len(steps) - 1
	}
	step, layout := steps[i], "15:04"
	switch {
	case step >= day:
		layout = "Jan 2"
	case step < time.Minute:
		layout = "15:04:05"
	case to.Sub(from) > 20*time.Hour:
		layout = "Jan 2 15:04"
	}
	for t := from.UTC().Truncate(step).Add(step); t.Before(to) && len(v.Ticks) < 4*mostTicks; t = t.Add(step) {
		if x := place(t); x >= tickMargin && x <= 100-tickMargin {
			class := ""
			if len(v.Ticks)%2 == 1 {
				class = " second" // is left out where there is little room
			}
			v.Ticks = append(v.Ticks, piece{X: percent(x), Title: t.Format(layout), Class: class})
		}
	}
}

// percent is a place or a width, as the attribute of a drawing.
func percent(x float64) string {
	return strconv.FormatFloat(math.Round(x*1000)/1000, 'f', -1, 64) + "%"
}
