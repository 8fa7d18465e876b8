// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"hash/fnv"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// unquoted takes back what strconv.Quote escapes although it can be seen.
var unquoted = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// printable returns s with what cannot be seen, or turns text around, spelled out as Go would: \n, \x1b,
// \u202e. What stands in a store was written by anybody who may write there. Unlike a log line, a page shows
// all else as it is, a backslash too.
func printable(s string) string {
	quoted := strconv.Quote(s)
	return unquoted.Replace(quoted[1 : len(quoted)-1])
}

// short returns a duration as people say it, by its two largest units.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + short(-d)
	case d > 0 && d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < day:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d d %02d h", int(d/day), int(d.Hours())%24)
	}
}

// seconds returns a duration in full seconds.
func seconds(d time.Duration) string { return short(max(0, d).Truncate(time.Second)) }

// exact returns a duration of which each part counts, such as a latency or a limit.
func exact(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// chosen is a duration that somebody has chosen, such as a lease.
func chosen(d time.Duration) string {
	if d >= time.Minute && d%time.Second == 0 {
		return short(d)
	}
	return exact(d)
}

// age says how long ago an instant was that somebody else's wall clock has shown.
type age struct{ Ago, Since string }

func ageOf(since, at time.Time) age {
	switch {
	case since.IsZero():
		return age{}
	case at.Before(since):
		return age{"by a clock ahead", clockText(since)}
	}
	return age{seconds(at.Sub(since)), clockText(since)}
}

// Text is the age for the end of a line.
func (a age) Text() string {
	if a.Ago == "" || a.Ago == "by a clock ahead" {
		return a.Ago
	}
	return a.Ago + " ago"
}

// clockText is a time by somebody's wall clock, for people.
func clockText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// counted is a number of things.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(n) + " " + what + "s"
}

// grouped is a number with its thousands set apart.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
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

// hashOf is a number for a name that stays the same.
func hashOf(name string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, name) //nolint:errcheck // a hash takes all
	return h.Sum64()
}

// idOf is an id for what has this name, so that the script finds it again.
func idOf(name string) string { return "r" + strconv.FormatUint(hashOf(name), 36) }

// tail is the query of an address.
func tail(query url.Values) string {
	if len(query) == 0 {
		return ""
	}
	return "?" + query.Encode()
}

func lockLink(name string) string { return "lock?name=" + url.QueryEscape(name) }

func groupLink(name string) string { return "shards?group=" + url.QueryEscape(name) }

// chip is a link with what it looks like, such as one that narrows a list; Count is how many there are.
type chip struct {
	Text, Class, Link string
	Count             int
	Here              bool
}

// pageSize is how many rows a page shows.
const pageSize = 50

// pager leads to other parts of a list.
type pager struct{ Place, Prev, Next string }

// paged returns where a part of a list of n ends that begins at from. address is that of a part.
func paged(n, from int, address func(from int) string) (to int, p pager) {
	to = min(n, from+pageSize)
	if from > 0 {
		p.Prev = address(max(0, from-pageSize))
	}
	if to < n {
		p.Next = address(to)
	}
	if n > pageSize && to > from {
		p.Place = fmt.Sprintf("%s to %s of %s", grouped(from+1), grouped(to), grouped(n))
	}
	return to, p
}
