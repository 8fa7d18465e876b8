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

	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// hold is a time for which a process claimed the lock.
type hold struct {
	owner      string
	begin, end int64
	token      uint64 // 0 of the peers
	killed     bool   // it never said when it ended
}

// death is when a process was killed, and how long it meant to hold at most.
type death struct {
	at    int64
	holds time.Duration
}

// readHolds reads a log. A hold without an end is one of a process that was
// killed in it; it has ended when the process was killed, or when the time was
// over that it meant to hold.
func readHolds(log io.Reader, deaths map[string]death) ([]hold, error) {
	var all []hold
	open := map[string]int{} // by owner, where its open hold is in all
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var (
			h    hold
			what string
			at   int64
		)
		if n, _ := fmt.Sscan(lines.Text(), &what, &h.owner, &at, &h.token); n < 3 {
			return nil, fmt.Errorf("line %q", lines.Text())
		}
		i, found := open[h.owner]
		switch {
		case what == wire.LogBegin && !found:
			h.begin = at
			open[h.owner] = len(all)
			all = append(all, h)
		case what == wire.LogEnd && found && at >= all[i].begin:
			all[i].end = at
			delete(open, h.owner)
		default:
			return nil, fmt.Errorf("line %q is not in its place", lines.Text())
		}
	}
	for owner, i := range open {
		d, dead := deaths[owner]
		if !dead {
			return nil, fmt.Errorf("%s lives, and has not said when its last hold ended", owner)
		}
		all[i].killed = true
		all[i].end = max(all[i].begin, min(d.at, all[i].begin+d.holds.Nanoseconds()))
	}
	slices.SortStableFunc(all, func(a, b hold) int { return cmp.Compare(a.begin, b.begin) })
	return all, nil
}

// wrong returns what must not be among holds in the order of their beginnings:
// two at once, or a token that does not rise.
func wrong(all []hold) []string {
	var found []string
	var before, counted hold
	for _, h := range all {
		if before.owner != "" && h.begin < before.end {
			found = append(found, fmt.Sprintf("%s began %v before %s ended: %+v, %+v", h.owner, time.Duration(before.end-h.begin), before.owner, before, h))
		}
		if h.end > before.end {
			before = h
		}
		if h.token == 0 {
			continue
		}
		if h.token <= counted.token {
			found = append(found, fmt.Sprintf("token %d of %s after %d of %s", h.token, h.owner, counted.token, counted.owner))
		}
		counted = h
	}
	return found
}

// The check itself must see what is wrong.
func TestHoldsAreChecked(t *testing.T) {
	deaths := map[string]death{"dead": {at: 100, holds: 50}, "late": {at: 1000, holds: 50}}
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
