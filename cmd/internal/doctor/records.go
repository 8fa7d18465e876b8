// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/rwlock"
)

const (
	// mostRecords bounds how many records are checked, and recordsPatience for how
	// long.
	mostRecords     = 5000
	recordsPatience = 10 * time.Second
	// mostNamed is how many of the wrong records are named.
	mostNamed = 3
)

// records checks the records of the store: whether all of them can be read, and whether
// holders have the same bound on clock drift.
func (p *Patient) records(ctx context.Context, store driver.Store) {
	ctx, cancel := context.WithTimeout(ctx, recordsPatience)
	defer cancel()
	unreadable := map[string]string{}
	holders := map[float64][]string{} // by the bound that they keep for the rate of a clock
	sides := map[string]*sides{}      // of locks for readers and writers
	var beating []driver.Record       // by their heartbeats they are alive, or not
	begun, seen := time.Now(), 0
	for cursor := ""; seen < mostRecords; {
		page, err := store.List(ctx, "", cursor)
		if err != nil {
			p.Tell(driver.Warn("records", "cannot be listed: %v", err).Advise("tenure status without a name " +
				"does not work"))
			return
		}
		for key, err := range page.Unreadable {
			unreadable[key] = err.Error()
		}
		for _, r := range page.Records {
			count(sides, r)
			switch {
			case strings.HasPrefix(r.Key, driver.OwnPrefix) && !r.State.OfSession():
			case !r.State.OfSession() && !protocol.Readable(r):
				unreadable[r.Key] = fmt.Sprintf("its lease is %v, and its state %q", r.Lease, r.State)
			case r.State == driver.Held || r.State == driver.Alive:
				if r.Drift > 0 {
					holders[r.Drift] = append(holders[r.Drift], r.Owner)
				}
				if r.Heartbeat > 0 && r.Session == "" && r.Heartbeat <= longestBeat && len(beating) < mostBeating {
					beating = append(beating, r)
				}
			}
		}
		seen += len(page.Records) + len(page.Unreadable)
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if len(unreadable) == 0 {
		p.Tell(driver.OK("records", "all %d records can be read", seen))
	} else {
		var all []string
		for _, key := range slices.Sorted(maps.Keys(unreadable)) {
			all = append(all, fmt.Sprintf("%q: %s", key, unreadable[key]))
		}
		p.Tell(driver.Warn("records", "%d of %d records cannot be read: %s", len(unreadable), seen, some(all)).
			Advise("such a lock can be neither taken nor released: another version of Tenure, or another " +
				"program, has written it; delete it when no program uses it"))
	}
	p.sides(sides)
	p.drift(holders)
	p.silent(ctx, store, begun, beating)
}

// sides counts the records of a lock for readers and writers.
type sides struct {
	gate, sized    bool
	readers, slots int
}

// count counts a record that is a side of a readers-writer lock.
func count(all map[string]*sides, r driver.Record) {
	of := func(name string) *sides {
		if all[name] == nil {
			all[name] = &sides{}
		}
		return all[name]
	}
	if name, ok := rwlock.ParseGateName(r.Key); ok {
		of(name).gate = true
	} else if name, _, ok := rwlock.ParseSlotName(r.Key); ok {
		of(name).slots++
		if r.State == driver.Held {
			of(name).readers++
		}
	} else if name, _, ok := rwlock.ParseSize(tenure.Status{Name: r.Key, Data: r.Data}); ok {
		of(name).sized = true
	}
}

// sides reports the locks for readers and writers, and those whose number of slots is lost:
// their readers cannot be found.
func (p *Patient) sides(all map[string]*sides) {
	var readers, locks int
	var lost []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch s := all[name]; {
		case s.sized:
			locks++
			readers += s.readers
		case s.gate && s.slots > 0:
			lost = append(lost, fmt.Sprintf("%q", name))
		}
	}
	if locks > 0 {
		p.Tell(driver.OK("readers and writers", "%d of these locks, %d processes reading", locks, readers))
	}
	if len(lost) > 0 {
		p.Tell(driver.Warn("readers and writers", "the number of slots is not stored: %s", some(lost)).
			Advise("no writer can take the lock, because the record NAME:readers was deleted; stop all " +
				"programs that use the lock, and delete NAME:gate and all of NAME:read/*, too"))
	}
}

const (
	// longestBeat is the longest heartbeat period that is waited for, twice, and
	// mostBeating how many records are read again then.
	longestBeat = recordsPatience / 4
	mostBeating = 100
)

// silent reports holders without a heartbeat. Only a wait for their lease shows that they
// are dead, and a job that tries only once does not wait.
func (p *Patient) silent(ctx context.Context, store driver.Store, begun time.Time, beating []driver.Record) {
	if len(beating) == 0 {
		return
	}
	slices.SortFunc(beating, func(a, b driver.Record) int { return cmp.Compare(a.Heartbeat, b.Heartbeat) })
	var silent []string
	for _, was := range beating {
		timer := time.NewTimer(time.Until(begun.Add(2 * was.Heartbeat)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		is, err := store.Get(ctx, was.Key, driver.Strong)
		if err == nil && is.State == was.State && is.Token == was.Token && is.Sign() == was.Sign() {
			what := fmt.Sprintf("%q", was.Key)
			if was.State == driver.Alive {
				what = "session " + driver.SessionID(was.Key)
			}
			silent = append(silent, fmt.Sprintf("%s of %q (one every %v)", what, was.Owner, was.Heartbeat))
		}
	}
	if len(silent) > 0 {
		p.Tell(driver.Warn("holders", "no heartbeat for two periods: %s", some(silent)).
			Advise("they are dead, paused or cut off. A waiting process gets the lock when the lease has " +
				"run out; jobs that try only once (--wait 0) find it held until a process has waited: run " +
				"tenure reap for them"))
	}
}

// some names the first wrong records, and counts the rest.
func some(wrong []string) string {
	if n := len(wrong); n > mostNamed {
		wrong = append(wrong[:mostNamed:mostNamed], "and "+driver.Counted(n-mostNamed, "other"))
	}
	return strings.Join(wrong, "; ")
}

// drift compares the holders' bounds on the error of a clock's rate. The defaults may differ.
func (p *Patient) drift(holders map[float64][]string) {
	var all []string
	set := false
	for _, bound := range slices.Sorted(maps.Keys(holders)) {
		set = set || bound != protocol.RawDrift && bound != protocol.DefaultDrift
		all = append(all, fmt.Sprintf("%g %% (%q)", 100*bound, holders[bound][0]))
	}
	if !set || len(all) < 2 {
		return
	}
	p.Tell(driver.Warn("drift", "holders use different bounds on clock drift: %s", strings.Join(all, ", ")).
		Advise("a holder with a low bound is safe only if all clocks stay within it: give all processes the same MaxClockDrift"))
}
