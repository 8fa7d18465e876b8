// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/test/peers/wire"
)

// hold is a time for which a process claimed the lock.
type hold struct {
	Owner      string
	Begin, End int64
	Token      uint64 // 0 of clients without one
	Killed     bool   // it never said when it ended
}

// death is when a process was killed, and how long it meant to hold at most.
type death struct {
	At    int64
	Holds time.Duration
}

// readHolds reads a log. A hold without an end is one of a process that was
// killed in it; it has ended when the process was killed, or when the time was
// over that it meant to hold.
func readHolds(log io.Reader, deaths map[string]death) ([]hold, error) {
	var all []hold
	open := map[string]int{} // by owner, where its open hold is in all
	for lines := bufio.NewScanner(log); lines.Scan(); {
		l, err := wire.ParseLog(lines.Text())
		if err != nil {
			return nil, err
		}
		i, found := open[l.Owner]
		switch {
		case l.What == wire.LogBegin && !found:
			open[l.Owner] = len(all)
			all = append(all, hold{Owner: l.Owner, Begin: l.At, Token: l.Token})
		case l.What == wire.LogEnd && found && l.At >= all[i].Begin:
			all[i].End = l.At
			delete(open, l.Owner)
		default:
			return nil, fmt.Errorf("line %q is not in its place", lines.Text())
		}
	}
	for owner, i := range open {
		d, dead := deaths[owner]
		if !dead {
			return nil, fmt.Errorf("%s lives, and has not said when its last hold ended", owner)
		}
		all[i].Killed = true
		all[i].End = max(all[i].Begin, min(d.At, all[i].Begin+d.Holds.Nanoseconds()))
	}
	slices.SortStableFunc(all, func(a, b hold) int { return cmp.Compare(a.Begin, b.Begin) })
	return all, nil
}

// wrong returns what must not be among holds in the order of their beginnings:
// two at once, or a token that does not rise.
func wrong(all []hold) []string {
	var found []string
	var before, counted hold
	for _, h := range all {
		if before.Owner != "" && h.Begin < before.End {
			found = append(found, fmt.Sprintf("%s began %v before %s ended: %+v, %+v",
				h.Owner, time.Duration(before.End-h.Begin), before.Owner, before, h))
		}
		if h.End > before.End {
			before = h
		}
		if h.Token == 0 {
			continue
		}
		if h.Token <= counted.Token {
			found = append(found, fmt.Sprintf("token %d of %s after %d of %s", h.Token, h.Owner, counted.Token, counted.Owner))
		}
		counted = h
	}
	return found
}

// The check itself must see what is wrong.
func TestHoldsAreChecked(t *testing.T) {
	deaths := map[string]death{"dead": {At: 100, Holds: 50}, "late": {At: 1000, Holds: 50}}
	for _, tt := range []struct{ name, log, want string }{
		{"one after the other", "begin a 1 1\nend a 5\nbegin b 5\nend b 9\nbegin a 10 2\nend a 11", ""},
		{"written late", "begin b 5\nbegin a 1 1\nend a 5\nend b 9", ""},
		{"two at once", "begin a 1\nbegin b 4\nend a 5\nend b 9", "b began 1ns before a ended"},
		{"one within another", "begin a 1\nend a 9\nbegin b 2\nend b 3\nbegin c 8\nend c 9", "b began 7ns before a ended|c began 1ns before a ended"},
		{"token stands", "begin a 1 7\nend a 2\nbegin b 3\nend b 4\nbegin c 5 7\nend c 6", "token 7 of c after 7 of a"},
		{"token falls", "begin a 1 7\nend a 2\nbegin c 5 6\nend c 6", "token 6 of c after 7 of a"},
		{"killed", "begin dead 90\nbegin a 100\nend a 101", ""},
		{"killed, overlapped", "begin dead 90\nbegin a 99\nend a 101", "a began 1ns before dead ended"},
		{"killed late", "begin late 90\nbegin a 140\nend a 141", ""},
		{"killed late, overlapped", "begin late 90\nbegin a 139\nend a 141", "a began 1ns before late ended"},
		{"no end", "begin a 1", "a lives"},
		{"twice", "begin a 1\nbegin a 2", "not in its place"},
		{"end alone", "end a 1", "not in its place"},
		{"half a line", "begin a", "line"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, err := readHolds(strings.NewReader(tt.log), deaths)
			found := wrong(all)
			if err != nil {
				found = append(found, err.Error())
			}
			var want []string
			if tt.want != "" {
				want = strings.Split(tt.want, "|")
			}
			if !slices.EqualFunc(found, want, strings.Contains) {
				t.Errorf("found %q, want %q", found, want)
			}
		})
	}
}
