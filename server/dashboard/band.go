// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tenurelock/tenure"
)

// band is the tenures of a lock over time. All places are in per cent of its width.
type band struct {
	Pieces   []piece
	Ticks    []tick
	Owners   []legend
	Kinds    []legend // what the marks mean that there are
	From, To string
	Label    string // all of it in a sentence, for those who cannot see it
}

// piece is one tenure, or one gap between two, or a part of either.
type piece struct {
	X, W  string
	Class string
	Owner string // is written on it, if there is room
	Title string
	// Silent and SilentW are the part at its end in which there was no sign of life.
	Silent, SilentW string
	// Mark says how it ended, or that somebody has asked, and stands at End.
	Mark, End string
}

type tick struct {
	X, Text string
	Second  bool // is left out where there is little room
}

// legend says what a class looks like.
type legend struct{ Class, Text string }

// span is for how long a band goes back.
type span struct {
	name string
	back time.Duration // 0: all that is known
}

var spans = []span{
	{"1h", time.Hour},
	{"6h", 6 * time.Hour},
	{"24h", 24 * time.Hour},
	{"7d", 7 * 24 * time.Hour},
	{"30d", 30 * 24 * time.Hour},
	{"all", 0},
}

// enoughTenures is how many tenures a band should show, if nobody says how far back it is to
// go.
const enoughTenures = 6

// spanOf returns how far back a band goes: as is said, or far enough for some tenures.
func spanOf(name string, list []tenure.Tenure, at time.Time) (time.Duration, string) {
	if i := slices.IndexFunc(spans, func(s span) bool { return s.name == name }); i >= 0 {
		return spans[i].back, name
	}
	begun := make([]time.Time, 0, len(list))
	for _, t := range list {
		if !t.Unknown && !t.Since.IsZero() {
			begun = append(begun, t.Since)
		}
	}
	if len(begun) < enoughTenures {
		return 0, "all"
	}
	for _, s := range spans {
		if s.back == 0 || begun[enoughTenures-1].After(at.Add(-s.back)) {
			return s.back, s.name
		}
	}
	return 0, "all"
}

const (
	// ownerColours is how many colours there are for owners.
	ownerColours = 8
	// roomForName is how many per cent of the band an owner's name needs.
	roomForName = 7
	// leastSilent is from how many per cent on it can be seen that there was no sign of life.
	leastSilent = 0.5
	// leastBand is how long a band is at least, so that a lock that was just taken for the
	// first time has one.
	leastBand = time.Minute
)

// stretch is a tenure as the band takes it: in the order of tokens, whatever the clocks of
// the holders say.
type stretch struct {
	tenure.Tenure
	from, to time.Time
	going    bool          // it goes on
	silent   time.Duration // of its end there was no sign of life
	known    bool          // when it ended
}

// drawBand draws a history, which has the newest tenure first.
func drawBand(list []tenure.Tenure, l *lock, at time.Time, back time.Duration) *band {
	all := stretches(list, l, at)
	if len(all) == 0 {
		return nil
	}
	from := all[0].from
	if back > 0 {
		from = at.Add(-back)
	}
	if at.Sub(from) < leastBand {
		from = at.Add(-leastBand)
	}
	b := &band{From: clockText(from), To: clockText(at)}
	place := func(t time.Time) float64 {
		share := float64(t.Sub(from)) / float64(at.Sub(from))
		return 100 * min(1, max(0, share))
	}
	colours := colourOwners(all)
	shown, gaps := 0, 0
	end := all[0].from // of the tenure before
	for _, s := range all {
		if s.from.After(end) && s.from.After(from) {
			gaps++
			b.gap(place(end), place(s.from), s.from.Sub(end))
		}
		if !s.to.Before(from) {
			shown++
			b.add(s, place, colours)
		}
		end = s.to
	}
	if last := all[len(all)-1]; !last.going {
		b.gap(place(last.to), 100, at.Sub(last.to))
	}
	b.ticks(from, at, place)
	b.Label = fmt.Sprintf("%s from %s to %s, with %s with nobody between them; the table below has each.",
		counted(shown, "tenure"), b.From, b.To, counted(gaps, "gap"))
	return b
}

// stretches puts the tenures that are known in the order of their tokens, one behind the
// other: clocks that differ must not have two overlap.
func stretches(list []tenure.Tenure, l *lock, at time.Time) []stretch {
	var all []stretch
	for _, t := range slices.Backward(list) {
		if t.Since.IsZero() || t.Since.After(at) && t.Token != l.Token {
			continue // unknown, or by a clock that is far ahead
		}
		s := stretch{Tenure: t, from: earlier(t.Since, at), to: earlier(t.Until, at), known: !t.Until.IsZero()}
		s.going = t.End == "" && t.Token == l.Token && l.holds() && l.state != expired
		if n := len(all); n > 0 {
			before := &all[n-1]
			if !before.known {
				before.to = later(s.from, before.from)
				before.silent = min(l.Lease, before.to.Sub(before.from))
			}
			s.from = later(s.from, before.to)
		}
		if !s.known {
			s.to = at // or until the next one has begun
		}
		s.to = later(s.to, s.from)
		if l.state == expired && t.Token == l.Token {
			s.silent = min(l.Unchanged, s.to.Sub(s.from))
		}
		all = append(all, s)
	}
	return all
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// gap adds a time in which nobody had the lock.
func (b *band) gap(from, to float64, lasted time.Duration) {
	if to > from {
		b.Pieces = append(b.Pieces, piece{X: percent(from), W: percent(to - from), Class: "gap", Title: "nobody, for " + short(lasted)})
	}
}

// add adds one tenure.
func (b *band) add(s stretch, place func(time.Time) float64, colours map[string]int) {
	from, to := place(s.from), place(s.to)
	class := "o" + strconv.Itoa(colours[s.Owner])
	p := piece{X: percent(from), W: percent(to - from), Class: class, Title: s.title()}
	if to-from >= roomForName {
		p.Owner = printable(s.Owner)
	}
	if begun := place(s.to.Add(-s.silent)); begun < to {
		share := 100 * min(1, (to-begun)/(to-from))
		p.Silent, p.SilentW = percent(100-share), percent(share)
		if to-begun >= leastSilent {
			b.kind("silent", "no sign of life")
		}
	}
	if !s.going {
		p.Mark = endClass(s.Tenure)
		b.kind(p.Mark, endKinds[p.Mark])
	} else if s.Request != nil {
		p.Mark = "asked"
		b.kind("asked", "asked to make way")
	}
	p.End = percent(to)
	b.Pieces = append(b.Pieces, p)
	owner := legend{class, printable(s.Owner)}
	if !slices.Contains(b.Owners, owner) {
		b.Owners = append(b.Owners, owner)
	}
}

// kind adds what a mark means.
func (b *band) kind(class, text string) {
	k := legend{class, text}
	if text != "" && !slices.Contains(b.Kinds, k) {
		b.Kinds = append(b.Kinds, k)
	}
}

// title says all of a tenure in a line.
func (s stretch) title() string {
	lasted := short(s.to.Sub(s.from).Truncate(time.Second))
	text := fmt.Sprintf("%s, token %d, %s", printable(s.Owner), s.Token, lasted)
	switch ended := endText(s.Tenure); {
	case s.going:
		text += ", holds it"
	case ended != "":
		text += ", " + ended
	}
	if q := s.Request; q != nil {
		text += fmt.Sprintf("; %s asked it to %s: %s", printable(q.By), printable(askedText(q)), printable(q.Reason))
	}
	return text
}

// endKinds are the classes of how a tenure can have ended, and what they mean.
var endKinds = map[string]string{
	"released": "released",
	"made-way": "made way when asked",
	"expired":  "expired: taken over",
	"failed":   "its work failed, or did not stop",
	"operator": "taken by an operator",
}

// endClass sorts the ends of tenures into few.
func endClass(t tenure.Tenure) string {
	switch t.End {
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

// colourOwners gives each owner a colour that it keeps while others come and go, as far as
// there are enough.
func colourOwners(all []stretch) map[string]int {
	colours, taken := map[string]int{}, map[int]bool{}
	for _, s := range slices.Backward(all) {
		if _, known := colours[s.Owner]; known {
			continue
		}
		h := fnv.New32a()
		io.WriteString(h, s.Owner) //nolint:errcheck // a hash takes all
		c := int(h.Sum32() % ownerColours)
		for range ownerColours {
			if !taken[c] {
				break
			}
			c = (c + 1) % ownerColours
		}
		colours[s.Owner], taken[c] = c, true
	}
	return colours
}

// steps are how far the ticks of a band may be apart.
var steps = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 2 * 24 * time.Hour, 7 * 24 * time.Hour, 14 * 24 * time.Hour, 28 * 24 * time.Hour, 91 * 24 * time.Hour, 364 * 24 * time.Hour,
}

const (
	mostTicks = 7
	// tickMargin is how near to an end of the band no tick is, in per cent.
	tickMargin = 3
)

// ticks adds the times of day below a band.
func (b *band) ticks(from, to time.Time, place func(time.Time) float64) {
	i := slices.IndexFunc(steps, func(d time.Duration) bool { return to.Sub(from)/d <= mostTicks })
	if i < 0 {
		i = len(steps) - 1
	}
	step, layout := steps[i], "15:04"
	switch {
	case step >= 24*time.Hour:
		layout = "Jan 2"
	case step < time.Minute:
		layout = "15:04:05"
	case to.Sub(from) > 20*time.Hour:
		layout = "Jan 2 15:04"
	}
	n := 0
	for t := from.UTC().Truncate(step).Add(step); t.Before(to) && n < 4*mostTicks; t = t.Add(step) {
		if x := place(t); x >= tickMargin && x <= 100-tickMargin {
			b.Ticks = append(b.Ticks, tick{percent(x), t.Format(layout), n%2 == 1})
			n++
		}
	}
}

// percent is a place or a width, as the attribute of a drawing.
func percent(x float64) string {
	return strconv.FormatFloat(math.Round(x*1000)/1000, 'f', -1, 64) + "%"
}
