// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/test/chaos/replica"
	"github.com/tenurelock/tenure/test/chaos/trial"
	"github.com/tenurelock/tenure/test/harness/machine"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/page"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// programs contend for locks. Each lock is held for its time: some briefly, some for many heartbeats.
const programs = 4

var holdTimes = []time.Duration{
	300 * time.Millisecond, time.Second, 2 * time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second,
	5 * time.Second, 15 * time.Second,
}

// lossReport is what came of many losses.
type lossReport struct {
	Date    string          `json:"date"` // of the run's start, UTC
	Machine machine.Machine `json:"machine"`
	Lease   time.Duration   `json:"leaseNs"`
	Found   []lossFound     `json:"found"`
}

// lossFound is what one library did in all losses of a kind.
type lossFound struct {
	Library string `json:"library"`
	Version string `json:"version"`
	Way     string `json:"way"`
	Losses  int    `json:"losses"`
	Holds   int    `json:"holds"`

	// Overlaps are holds that began while a check of a former holder still passed, After how many losses there were
	// any, and Longest for how long. Twice are tokens that were granted twice.
	Overlaps int           `json:"overlaps"`
	After    int           `json:"lossesWithOverlaps"`
	Longest  time.Duration `json:"longestOverlapNs"`
	Twice    []string      `json:"tokensTwice,omitempty"` // the first ones
	Doubled  int           `json:"tokensTwiceInAll,omitempty"`

	// Of the holds at a loss: those whose record survived, and of these the ones that ended before the time; those whose
	// record was lost. Left are those whose record survived, but whose program had no server for too long.
	Survived  int      `json:"survived"`
	Disturbed []string `json:"survivedAndDisturbed,omitempty"`
	Left      int      `json:"survivedAndLeft,omitempty"`
	Lost      int      `json:"lost"`

	// Wait is how long nobody must be granted a lock, and NoOne how long nobody was.
	Wait   time.Duration `json:"waitNs"`
	NoOne  spread        `json:"nobodyGrantedNs"`
	Tokens bool          `json:"hasTokens"`
}

// guarded says that the library must neither have two holders nor grant a token twice.
func (f *lossFound) guarded() bool { return f.Tokens && f.Wait > 0 }

// spread are the times after all losses.
type spread struct{ Min, Median, Max time.Duration }

func spreadOf(times []time.Duration) spread {
	slices.Sort(times)
	return spread{times[0], times[len(times)/2], times[len(times)-1]}
}

// losing are servers that lose what they have answered, in one way.
type losing interface {
	Primary() string
	lags(ctx context.Context) // before what is lost
	strikes(ctx context.Context)
	// moves has the programs find the primary, and notes when.
	moves(ctx context.Context, members []*member, now *struck)
	Rejoin(ctx context.Context) // of the servers that were lost
}

// way is a way in which servers lose writes.
type way struct {
	named
	open func(context.Context, *fixture) losing // has the place of the fixture be there
}

// losses are those of one engine, in each way under each library.
type losses struct {
	page.Part
	ways    []way
	columns []column
}

var redisLosses = losses{
	tableOf("losses", "go run ./test/faults -losses 100", nil, nil).Part,
	[]way{
		failover.way("fail-over", "failover to a replica that lags"),
		powerCut.way("power-cut", "power cut, with everysec"),
	},
	pick(redisColumns, "tenure-redis,redsync"),
}

// again loses writes so many times in each way of a list, in all if it is empty.
func (l losses) again(ctx context.Context, times int, list string, write bool) {
	ways, columns := pick(l.ways, list), l.columns
	if write && len(ways) < len(l.ways) {
		must.Do(errors.New("-write is for all ways: leave out -rows"))
	}
	r := &harness{say: proc.Logf}
	found := &lossReport{
		Date: time.Now().UTC().Format(time.DateTime) + " UTC", Machine: machine.Here(), Lease: usualLease,
		Found: make([]lossFound, len(ways)*len(columns)),
	}
	r.Run(func() {
		r.build(ctx, nil, columns)
		must.AtOnce(ctx, len(found.Found), len(found.Found), func(ctx context.Context, i int) {
			way, c := ways[i/len(columns)], columns[i%len(columns)]
			s := &fixture{harness: r, column: c, lease: usualLease, word: strings.ToLower(rand.Text())}
			s.Run(func() { found.Found[i] = s.loses(ctx, way, times) })
			found.Found[i].Library, found.Found[i].Way, found.Found[i].Version = c.title, way.title, r.versions[c.id]
		})
		if found.complete() != nil {
			kept := r.dir + "-wrong"
			must.Do(os.Rename(r.dir, kept))
			r.say("the logs are in %s", kept)
		}
	})
	found.Machine.LoadAfter = machine.Load()
	fmt.Fprint(os.Stdout, found.markdown())
	for _, f := range found.Found {
		fmt.Fprintf(os.Stdout, "%s, %s: %q %q\n", f.Library, f.Way, f.Twice, f.Disturbed)
	}
	must.Do(found.complete())
	if write {
		must.Do(l.Write(found, found.markdown()))
	}
}

// struck is one loss.
type struck struct {
	lagged, at int64             // when the lag began, and when what was lost was lost
	up         int64             // from when on only the server that goes on can have granted a lock
	tokens     map[string]uint64 // of the records of locks that are held, on the server that goes on
	stopped    int64             // when the former primary stopped, if programs may find it for a while
	moved      map[string]int64  // when each program found the server that goes on, by its owner; up, if nil
}

// loses runs programs while writes are lost.
func (s *fixture) loses(ctx context.Context, w way, times int) lossFound {
	servers := w.open(ctx, s)
	members := make([]*member, programs)
	names, logs := make([]string, len(holdTimes)), make([]string, len(holdTimes))
	for i := range holdTimes {
		names[i] = s.lock(ctx)
		logs[i] = s.file(names[i]+"-*.log", "")
	}
	for i := range members {
		members[i] = s.member(ctx, manner{tokens: true})
		for n, hold := range holdTimes {
			o := members[i].Asking(wire.Work, names[n])
			o.HoldMs, o.PauseMs, o.DurationMs = hold.Milliseconds(), 20, (12 * time.Hour).Milliseconds()
			o.Log = logs[n]
			members[i].Begin(o)
		}
	}
	var waits time.Duration
	if s.ours {
		store := s.store(servers.Primary())
		waits = store.(driver.Guarded).Waits() //nolint:forcetypeassert // its package says so
		must.Do(store.Close())
	}
	all, began := make([]struck, times), time.Now()
	for n := range all {
		// Some locks are granted again, and have had heartbeats.
		must.Do(wait.For(ctx, max(waits-time.Since(began), s.lease)+time.Second+mathrand.N(time.Second)))
		now := &all[n]
		now.lagged = proc.Monotonic()
		servers.lags(ctx)
		began, now.at = time.Now(), proc.Monotonic()
		servers.strikes(ctx)
		now.tokens = s.tokens(ctx, servers.Primary(), names)
		servers.moves(ctx, members, now)
		servers.Rejoin(ctx)
		if n%10 == 9 {
			s.say("%s, %s: %d of %d losses", s.id, w.id, n+1, times)
		}
	}
	must.Do(wait.For(ctx, max(waits-time.Since(began), s.lease)+2*time.Second))
	for _, m := range members {
		m.Kill()
	}
	return s.judgeLosses(all, waits, names, logs)
}

// store opens the store of the fixture at an address.
func (s *fixture) store(address string) driver.Store {
	return replica.OpenStore(s.engine.scheme+s.endpoint(address), s.table)
}

// tokens are those of the locks that are held, as the server has them.
func (s *fixture) tokens(ctx context.Context, address string, names []string) map[string]uint64 {
	tokens := map[string]uint64{}
	if !s.ours {
		return tokens
	}
	store := s.store(address)
	for _, name := range names {
		if rec, err := store.Get(ctx, name, driver.Strong); !errors.Is(err, driver.ErrNotFound) {
			if must.Have(rec, err).State == driver.Held {
				tokens[name] = rec.Token
			}
		}
	}
	must.Do(store.Close())
	return tokens
}

// judgeLosses reads the logs of the locks.
func (s *fixture) judgeLosses(all []struck, waits time.Duration, names, logs []string) (f lossFound) {
	f.Losses, f.Tokens, f.Wait = len(all), s.ours, waits
	free, after := make([]time.Duration, len(all)), map[int]bool{}
	for n, name := range names {
		log := trial.Log{Holds: readHolds(name, string(must.Have(os.ReadFile(logs[n]))))}
		f.Holds += len(log.Holds)
		for i, now := range all {
			next := int64(math.MaxInt64)
			if i+1 < len(all) {
				next = all[i+1].at
			}
			f.survived(now, next, log.Holds, holdTimes[n])
			first := slices.IndexFunc(log.Holds, func(h trial.Hold) bool { return h.Begin > now.up })
			if first >= 0 {
				after := time.Duration(log.Holds[first].Begin - now.at)
				free[i] = min(cmp.Or(free[i], after), after)
			}
		}
		for _, wrong := range f.judge(log) {
			if wrong.Sin != trial.Overlap {
				if f.Doubled++; len(f.Twice) < 10 {
					f.Twice = append(f.Twice, wrong.Text)
				}
				continue
			}
			f.Overlaps++
			f.Longest = max(f.Longest, wrong.Early)
			after[sort.Search(len(all), func(i int) bool { return all[i].at > wrong.Next.Begin })] = true
		}
	}
	f.After, f.NoOne = len(after), spreadOf(free)
	return f
}

// judge returns what is wrong with a log. Where tokens are missing, or granted twice, the order of the grants stands
// for them.
func (f *lossFound) judge(log trial.Log) (found []trial.Finding) {
	if f.Tokens {
		found = log.Judge()
	}
	if f.guarded() {
		return found
	}
	found = slices.DeleteFunc(found, func(w trial.Finding) bool { return w.Sin == trial.Overlap })
	for i := range log.Holds {
		log.Holds[i].Token = uint64(i + 1)
	}
	return append(found, log.Judge()...)
}

// survived looks at the hold of a lock at a loss. Another loss may come before its end.
func (f *lossFound) survived(now struck, next int64, holds []trial.Hold, whole time.Duration) {
	const late = 100 * time.Millisecond // of the last check
	i := slices.IndexFunc(holds, func(h trial.Hold) bool { return h.Begin < now.at && h.Last > now.at })
	if i < 0 || !f.guarded() {
		return
	}
	h := holds[i]
	moved := cmp.Or(now.moved[h.Owner], now.up)
	switch {
	case now.tokens[h.Lock] != h.Token:
		f.Lost++
		return
	case now.stopped > 0 && moved-now.stopped > usualLease.Nanoseconds()/2:
		f.Left++
		return
	}
	f.Survived++
	if h.Last < next && time.Duration(h.Last-h.Begin) < whole-late {
		f.Disturbed = append(f.Disturbed, fmt.Sprintf("%s after a loss; its program found the server after %s",
			lengthOf(time.Duration(h.Last-now.at)), lengthOf(time.Duration(moved-now.at))))
	}
}

// readHolds reads the log of a lock, in the order of the grants. What has not ended when its process was killed has the
// last check that was logged: none.
func readHolds(lock, log string) (holds []trial.Hold) {
	open := map[string]int{}
	for line := range strings.Lines(log) {
		l := must.Have(wire.ParseLog(line))
		switch l.What {
		case wire.LogBegin:
			open[l.Owner] = len(holds)
			holds = append(holds, trial.Hold{Lock: lock, Owner: l.Owner, Token: l.Token, Begin: l.At, Last: l.At})
		case wire.LogEnd:
			holds[open[l.Owner]].Last = l.At
		}
	}
	slices.SortStableFunc(holds, func(a, b trial.Hold) int { return cmp.Compare(a.Begin, b.Begin) })
	return holds
}

// complete returns an error if Tenure has done what it must not, or too little has happened to say so.
func (r *lossReport) complete() (err error) {
	for _, f := range r.Found {
		wrong := func(format string, args ...any) {
			err = errors.Join(err, fmt.Errorf(f.Library+", "+f.Way+": "+format, args...))
		}
		if f.Holds < 10*f.Losses {
			wrong("only %d holds", f.Holds)
		}
		if !f.Tokens {
			continue
		}
		switch {
		case !f.guarded():
			if f.Overlaps == 0 || f.Doubled == 0 {
				wrong("%d overlaps, %d tokens granted twice: such losses show nothing of a guard", f.Overlaps, f.Doubled)
			}
		case f.Overlaps > 0 || f.Doubled > 0:
			wrong("%d overlaps; tokens granted twice %q", f.Overlaps, f.Twice)
		case len(f.Disturbed)*20 > f.Survived: // else the machine was busy for most of a lease
			wrong("disturbed: %q", f.Disturbed)
		case f.Survived == 0 || f.Lost == 0:
			wrong("%d records survived, and %d were lost", f.Survived, f.Lost)
		case f.NoOne.Min < f.Wait:
			wrong("a lock was granted after %v, before %v", f.NoOne.Min, f.Wait)
		}
	}
	return err
}

func (r *lossReport) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Run on %s, on %v; lease %v; %d programs contend for %d locks.\n\n", r.Date, r.Machine, r.Lease,
		programs, len(holdTimes))
	head, lines := []string{""}, make([][]string, 7)
	for _, f := range r.Found {
		head = append(head, f.Library+", "+f.Way)
		tokens, survived, lost, wait := "has none", "–", "–", "–"
		if f.Tokens {
			tokens = page.Thousands(f.Doubled)
		}
		if f.guarded() {
			wait = lengthOf(f.Wait)
			survived = fmt.Sprintf("%d, ended early: %d", f.Survived, len(f.Disturbed))
			if f.Left > 0 {
				survived += fmt.Sprintf("; stayed too long: %d", f.Left)
			}
			lost = fmt.Sprint(f.Lost)
		}
		for i, cell := range []string{
			fmt.Sprintf("%d; %s", f.Losses, page.Thousands(f.Holds)),
			fmt.Sprintf("**%d**; %s, up to %s", f.After, page.Plural(f.Overlaps, "overlap"), lengthOf(f.Longest)),
			tokens, survived, lost,
			fmt.Sprintf("%s; %s to %s", lengthOf(f.NoOne.Median), lengthOf(f.NoOne.Min), lengthOf(f.NoOne.Max)),
			wait,
		} {
			lines[i] = append(lines[i], cell)
		}
	}
	for i, title := range []string{
		"losses; holds of a lock", "losses after which two held a lock", "tokens granted twice",
		"holds at a loss whose record survived", "whose record was lost", "nobody was granted a lock for (median; range)",
		"and must not be for",
	} {
		lines[i] = append([]string{title}, lines[i]...)
	}
	page.Table(&b, head, lines)
	return b.String()
}
