// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/pattern"
	"github.com/tenurelock/tenure/cmd/internal/printable"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
)

type historyCmd struct {
	Name  string  `arg:""`
	At    *string `placeholder:"TIME"`
	Limit int     `default:"100" must:"be positive"`
	readerFlags
}

// Run shows who held the lock.
func (h *historyCmd) Run(c *console) error {
	var at span
	options := tenure.Options{HistoryLimit: h.Limit}
	if h.At != nil {
		var err error
		if at, err = parseTime(*h.At, time.Now()); err != nil {
			return err
		}
		if at.from.After(time.Now()) {
			return usage("--at %s is in the future", at.text)
		}
		options.HistoryLimit = 0 // as many as there are by default
	}
	if err := check(options, h.Name); err != nil {
		return err
	}
	v, err := h.client(c, &options, nil)
	if err != nil {
		return err
	}
	defer v.close()
	ctx, cancel := context.WithTimeout(v.ctx, lookTimeout)
	defer cancel()
	list, err := v.client.History(ctx, h.Name)
	if err == nil && len(list) == 0 {
		if found, err := h.readersWriters(ctx, c, v.client); found || err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return readFailed(ctx, err)
	case len(list) == 0 && (c.sayLedgers(ctx, v.client, h.Name) || c.saySlots(ctx, v.client, h.Name)):
	case h.At != nil:
		h.printAt(c, list, at)
	default:
		h.print(c, "", list)
	}
	return nil
}

func (h *historyCmd) print(c *console, lock string, list []tenure.Term) {
	switch {
	case c.json:
		for _, t := range list {
			o := termObject(t)
			o.Lock = lock
			c.object(o)
		}
		return
	case len(list) == 0:
		c.say("%q was never held", h.Name)
		return
	case lock != "":
		c.put(lock + ":\n")
	}
	cells := [][]string{{"TOKEN", "OWNER", "HOST", "LABEL", "SINCE", "UNTIL", "HELD", "ENDED", "WHY"}}
	var next time.Time // when the next known term began
	for i := 0; i < len(list); i++ {
		first := i
		for list[i].Unknown && i+1 < len(list) && list[i+1].Unknown {
			i++
		}
		line := termCells(list[i], next)
		if !list[i].Unknown {
			next = list[i].Since
		}
		if i > first {
			line[0] = fmt.Sprintf("%s-%s", line[0], formatToken(list[first].Token))
		}
		if list[i].Unknown && i == len(list)-1 {
			line[len(line)-1] = "dropped, or before the history was turned on, or never written"
		}
		cells = append(cells, line)
	}
	c.table(cells)
	if last := list[len(list)-1]; last.Token > 1 {
		c.say("earlier terms were dropped, or were held without a history")
	}
}

// saySlots points from the name of a semaphore to its slots, whose terms cannot be put in order,
// and reports whether it has any that was held.
func (c *console) saySlots(ctx context.Context, client *tenure.Client, name string) (found bool) {
	rows, err := partsOf(ctx, client, name)
	if err != nil || c.quiet || c.json {
		return false
	}
	for _, r := range rows {
		if _, _, ok := semaphore.ParseLockName(r.Name); ok && r.Token > 0 {
			c.say("%q was never held, and %q was: tenure history %s has its terms", name, r.Name, r.Name)
			found = true
		}
	}
	return found
}

// readersWriters prints the history of each lock of a readers-writer lock that was held, its
// writers' first. It returns false if no such lock has that name.
func (h *historyCmd) readersWriters(ctx context.Context, c *console, client *tenure.Client) (found bool, err error) {
	st, err := readersWritersStatus(ctx, client, h.Name)
	if err != nil || st.Slots == 0 {
		return false, readFailed(ctx, err)
	}
	locks := []string{rwlock.GateName(h.Name)}
	for slot := range st.Slots {
		locks = append(locks, rwlock.SlotName(h.Name, slot))
	}
	if h.At != nil {
		return true, usage("--at is for one lock, and %q is %d of them: name the lock of its writers, %q, "+
			"or of one of its readers", h.Name, len(locks), locks[0])
	}
	for _, lock := range locks {
		list, err := client.History(ctx, lock)
		if err != nil {
			return true, readFailed(ctx, err)
		}
		if len(list) > 0 {
			h.print(c, lock, list)
		}
	}
	return true, nil
}

// termCells are the columns of a term. If over is not zero, the term had ended by then.
func termCells(t tenure.Term, over time.Time) []string {
	if t.Unknown {
		return []string{
			formatToken(t.Token), "unknown", "-", "-", "-", "-", "-", "unknown",
			"the next holder kept no history, or crashed as this one did",
		}
	}
	until, held, why := clockText(t.Until), "-", "-"
	switch {
	case t.End == "":
		until, held = "now", round(time.Since(t.Since)).String()
	case t.Until.IsZero() && over.IsZero():
		until = "unknown"
	case t.Until.IsZero():
		until = "<" + clockText(over)
	default:
		held = round(t.Until.Sub(t.Since)).String()
	}
	if q := t.Request; q != nil {
		why = fmt.Sprintf("%s (%s)", q.Reason, q.By)
	}
	return dashed([]string{
		formatToken(t.Token), t.Owner, t.Host, t.Label, clockText(t.Since), until, held, endText(t),
		why,
	})
}

func endText(t tenure.Term) string {
	switch {
	case t.End != "":
		return t.Ended()
	case t.Request != nil:
		return "asked " + requestText(*t.Request)
	}
	return "holds it"
}

type termJSON struct {
	Lock    string       `json:"lock,omitempty"` // where there are several
	Token   uint64       `json:"token"`
	Owner   string       `json:"owner,omitempty"`
	Host    string       `json:"host,omitempty"`
	Label   string       `json:"label,omitempty"`
	Since   string       `json:"since,omitempty"`
	Until   string       `json:"until,omitempty"`
	End     string       `json:"end,omitempty"`
	Request *requestJSON `json:"request,omitempty"`
	Unknown bool         `json:"unknown,omitempty"`
}

// requestJSON is a request to a holder.
type requestJSON struct {
	Kind    string `json:"kind"`
	By      string `json:"by"`
	Reason  string `json:"reason"`
	To      string `json:"to,omitempty"`
	ToLabel string `json:"to_label,omitempty"`
	At      string `json:"at,omitempty"`
}

func requestObject(q *tenure.Request) *requestJSON {
	if q == nil {
		return nil
	}
	return &requestJSON{Kind: string(q.Kind), By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel, At: instant(q.At)}
}

func termObject(t tenure.Term) termJSON {
	return termJSON{
		Token: t.Token, Owner: t.Owner, Host: t.Host, Label: t.Label, Since: instant(t.Since), Until: instant(t.Until),
		End: t.End, Request: requestObject(t.Request), Unknown: t.Unknown,
	}
}

// span is a time as people write it, as long as its last unit: a time with seconds is
// that second, a time with minutes that minute, and a date that day; an age is an
// instant. So a time from one of our tables, which is cut to the second, finds what
// happened then.
type span struct {
	from, to time.Time // to is not in it, unless it is from
	text     string
	// again is how much later the same time stands on the clock once more, in an hour
	// that there is twice; 0 of others.
	again time.Duration
}

// twice returns the first instant that a clock without a zone shows as it shows t, and
// how much later it does so once more.
func twice(t time.Time) (first time.Time, again time.Duration) {
	const shown = "2006-01-02 15:04:05"
	for _, shift := range []time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour} {
		switch text := t.Format(shown); {
		case t.Add(shift).Format(shown) == text:
			return t, shift
		case t.Add(-shift).Format(shown) == text:
			return t.Add(-shift), shift
		}
	}
	return t, 0
}

// Layouts of a time, and how long one is.
var layouts = []struct {
	layout string
	unit   time.Duration // 0: a day
}{
	{"2006-01-02T15:04:05Z07:00", time.Second},
	{"2006-01-02T15:04Z07:00", time.Minute},
	{"2006-01-02T15:04:05", time.Second},
	{"2006-01-02 15:04:05", time.Second},
	{"2006-01-02T15:04", time.Minute},
	{"2006-01-02 15:04", time.Minute},
	{time.DateOnly, 0},
}

var fraction = pattern.Lazy(`:\d\d[.,](\d{1,9})`)

func parseTime(text string, now time.Time) (span, error) {
	now = now.Local()
	day := func(back int) string { return now.AddDate(0, 0, -back).Format(time.DateOnly) }
	word, rest, _ := strings.Cut(text, " ")
	whole := text
	switch {
	case text == "now":
		return span{from: now, to: now, text: clockText(now)}, nil
	case word == "today":
		whole = strings.TrimSpace(day(0) + " " + rest)
	case word == "yesterday":
		whole = strings.TrimSpace(day(1) + " " + rest)
	case len(word) <= 2 || word[2] == ':' || word[1] == ':': // a time of today; "9:05" as well
		whole = day(0) + " " + text
	}
	for _, l := range layouts {
		t, err := time.ParseInLocation(l.layout, whole, time.Local)
		if err != nil {
			continue
		}
		var again time.Duration
		if l.unit > 0 && !strings.HasSuffix(l.layout, "Z07:00") {
			t, again = twice(t)
		}
		s := span{from: t, to: t.Add(l.unit), text: clockText(t), again: again}
		switch digits := fraction().FindStringSubmatch(whole); {
		case l.unit == 0:
			s.to, s.text = t.AddDate(0, 0, 1), "on "+t.Format(time.DateOnly)
			return s, nil
		case l.unit == time.Minute:
			s.text = strings.TrimSuffix(s.text, ":00")
		case digits != nil:
			s.to = t.Add(time.Second / time.Duration(math.Pow10(len(digits[1]))))
			s.text += "." + digits[1]
		}
		return s, nil
	}
	if ago, ok := parseAgo(strings.TrimSuffix(text, " ago")); ok {
		t := now.Add(-ago)
		return span{from: t, to: t, text: clockText(t)}, nil
	}
	return span{}, usage("--at %.40q is not a time: write 2006-01-02T15:04:05Z, 2006-01-02 15:04:05, 15:04 or 15:04:05 "+
		"of today, a date, now, today or yesterday, or how long ago, such as 10m or 2d", text)
}

var daysAgo = pattern.Lazy(`^(\d{1,5})d`)

// parseAgo reads how long ago something was: a duration, which may begin with days.
func parseAgo(text string) (time.Duration, bool) {
	days := time.Duration(0)
	if m := daysAgo().FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1]) // five digits
		days = time.Duration(n) * 24 * time.Hour
		if text = text[len(m[0]):]; text == "" {
			return days, true
		}
	}
	d, err := time.ParseDuration(text)
	return days + d, err == nil && d >= 0 && !strings.ContainsAny(text, "+-")
}

// holding is a term that falls into a span of time. It is not certain if its
// holder had crashed and may have been dead already.
type holding struct {
	tenure.Term
	certain bool
}

// during returns the terms of a history, newest first, that fall into a span of time,
// by the wall clocks of the holders. All is false if the history has a gap there, or
// begins later.
func during(history []tenure.Term, s span) (found []holding, all bool) {
	first, ok, certain := tenure.HolderAt(history, s.from)
	all = ok || certain
	hole, next := false, time.Time{} // before the next term, and when that began
	for _, t := range history {
		if t.Unknown || t.Since.IsZero() {
			hole = true
			continue
		}
		if hole && t.Until.Before(s.to) && (next.IsZero() || s.from.Before(next)) {
			all = false
		}
		if t.Since.After(s.from) && t.Since.Before(s.to) {
			found = append(found, holding{t, true})
		}
		hole, next = false, t.Since
	}
	if ok {
		found = append(found, holding{first, certain})
	}
	return found, all
}

// atJSON is the answer to --at as an object of --json.
type atJSON struct {
	Lock    string     `json:"lock"`
	At      string     `json:"at"`
	To      string     `json:"to,omitempty"` // the end of the span, if at is not an instant
	Certain bool       `json:"certain"`
	Holder  *termJSON  `json:"holder,omitempty"` // the last one then
	Holders []termJSON `json:"holders,omitempty"`
}

func (h *historyCmd) printAt(c *console, list []tenure.Term, at span) {
	found, all := during(list, at)
	if at.again > 0 {
		then, known := during(list, span{from: at.from.Add(at.again), to: at.to.Add(at.again)})
		all = all && known
		for _, t := range then {
			if !slices.ContainsFunc(found, func(f holding) bool { return f.Token == t.Token }) {
				found = append(found, t)
			}
		}
	}
	certain := all && (at.again == 0 || len(found) == 0)
	for _, t := range found {
		certain = certain && t.certain
	}
	if c.json {
		o := atJSON{Lock: h.Name, At: instant(at.from), Certain: certain}
		if at.to.After(at.from) {
			o.To = instant(at.to.Add(at.again))
		}
		for _, t := range found {
			o.Holders = append(o.Holders, termObject(t.Term))
		}
		if len(found) > 0 {
			o.Holder = &o.Holders[0]
		}
		c.object(o)
		return
	}
	var lines []string
	for _, t := range found {
		holder := holderText(t.Owner, t.Token)
		lines = append(lines, fmt.Sprintf("%s %q was held by %s, %s", at.when(), h.Name, holder, t.how(at)))
	}
	switch {
	case len(found) == 0 && all:
		lines = append(lines, fmt.Sprintf("%s %q had no holder", at.when(), h.Name))
	case len(found) == 0:
		lines = append(lines, fmt.Sprintf("%s it is not known who held %q: the history has a gap there, or begins later",
			at.when(), h.Name))
	case !all:
		lines = append(lines, fmt.Sprintf("%s others may have held it, too: the history has a gap there, or begins later",
			at.when()))
	}
	for _, line := range lines {
		c.put(printable.Text(line) + "\n")
	}
}

func (s span) when() string {
	if s.again > 0 {
		return "at " + s.text + ", a time that occurs twice,"
	}
	if strings.HasPrefix(s.text, "on ") {
		return s.text
	}
	return "at " + s.text
}

// how says since when, and until when, if that is known.
func (t holding) how(at span) string {
	text := "since " + clockText(t.Since)
	switch {
	case t.End == "":
	case t.Until.IsZero() && t.certain:
		text += "; it did not report its end (" + endText(t.Term) + ")"
	case t.Until.IsZero():
		text += ", unless it had already crashed: it did not report its end (" + endText(t.Term) + ")"
	case !t.Until.After(at.to) && at.to.After(at.from):
		text += ", until " + clockText(t.Until) + " (" + endText(t.Term) + ")"
	}
	return text
}
