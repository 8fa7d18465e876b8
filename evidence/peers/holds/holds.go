// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package holds judges what the work of processes has written of when they held a
// lock: see the log in package wire.
package holds

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// Hold is a time for which a process claimed the lock.
type Hold struct {
	Owner      string
	Begin, End int64
	Token      uint64 // 0 of clients without one
	Killed     bool   // it never said when it ended
}

// Death is when a process was killed, and how long it meant to hold at most.
type Death struct {
	At    int64
	Holds time.Duration
}

// Read reads a log. A hold without an end is one of a process that was
// killed in it; it has ended when the process was killed, or when the time was
// over that it meant to hold.
func Read(log io.Reader, deaths map[string]Death) ([]Hold, error) {
	var all []Hold
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
			all = append(all, Hold{Owner: l.Owner, Begin: l.At, Token: l.Token})
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
	slices.SortStableFunc(all, func(a, b Hold) int { return cmp.Compare(a.Begin, b.Begin) })
	return all, nil
}

// Wrong returns what must not be among holds in the order of their beginnings:
// two at once, or a token that does not rise.
func Wrong(all []Hold) []string {
	var found []string
	var before, counted Hold
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
