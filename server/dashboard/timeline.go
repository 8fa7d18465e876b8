// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tenurelock/tenure"
)

// timeline is the tenures of a lock over time. All places are in per cent of its width.
type timeline struct {
	Pieces []piece
	Ticks  []piece // with the time of day as the title
	Owners []chip
	Marks  []chip // what the marks mean that there are
	Label  string // all of it in a sentence, for those who cannot see it
}

// piece is one tenure, or one gap between two.
type piece struct {
	X, W, Class, Title string
	Owner              string // is written on it, if there is room
	Silent, SilentW    string // the part at its end in which there was no sign of life
	Mark, End          string // Mark says how it ended, or that somebody has asked, and stands at End
}

// spans are for how long a timeline may go back; 0: all that is known.
var spans = []struct {
	name string
	back time.Duration
}{{"1h", time.Hour}, {"6h", 6 * time.Hour}, {"24h", day}, {"7d", 7 * day}, {"30d", 30 * day}, {"all", 0}}

const (
	day = 24 * time.Hour
	// enoughTerms is how many tenures a timeline should show, if nobody says how far back it is to go.
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

// spanOf returns how far back a timeline goes: as is said, or far enough for some tenures.
func spanOf(name string, history []tenure.Tenure, at time.Time) (back time.Duration, chosen string) {
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

// stretch is a tenure as the timeline takes it: in the order of tokens, whatever the clocks of the holders say.
type stretch struct {
	tenure.Tenure
	from, to time.Time
	going    bool          // it goes on
	silent   time.Duration // of its end there was no sign of life
}

// stretches puts the tenures that are known in the order of their tokens, one behind the other: clocks that
// differ must not have two overlap. The history has the newest first.
func stretches(history []tenure.Tenure, l *lock, at time.Time) []stretch {
	var all []stretch
	for _, t := range slices.Backward(history) {
		if t.Since.IsZero() || t.Since.After(at) && t.Token != l.Token {
			continue // unknown, or by a clock that is far ahead
		}
		s := stretch{Tenure: t, from: earlier(t.Since, at), to: earlier(t.Until, at)}
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

// draw draws a history, which has the newest tenure first; nil if nothing is known.
func draw(history []tenure.Tenure, l *lock, at time.Time, back time.Duration) *timeline {
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
	end := all[0].from // of the tenure before
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
	v.Label = fmt.Sprintf("%s from %s to %s, with %s with nobody between them; the table below has each.",
		counted(terms, "tenure"), clockText(from), clockText(at), counted(gaps, "gap"))
	return v
}

// gap adds a time in which nobody had the lock.
func (v *timeline) gap(from, to float64, lasted time.Duration) {
	if to > from {
		v.Pieces = append(v.Pieces, piece{
			X: percent(from), W: percent(to - from), Class: "gap", Title: "nobody, for " + short(lasted),
		})
	}
}

// add adds one tenure.
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

// title says all of a tenure in a line.
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

// markTexts are the classes of how a tenure can have ended, and what they mean.
var markTexts = map[string]string{
	"released": "released",
	"made-way": "made way when asked",
	"expired":  "expired: taken over",
	"failed":   "its work failed, or did not stop",
	"operator": "taken by an operator",
}

// endClass sorts the ends of tenures into few.
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
