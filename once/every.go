// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package once

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
)

// EveryOptions are for [Every]. Nil means the defaults.
type EveryOptions struct {
	// CatchUp lets periods that are late be followed by shorter ones, so that the
	// phase is kept: what a period has overrun counts for the next one, up to this
	// many periods. Then runs are not spaced by a period, but in any time T there
	// are at most T(1+ρ)/P + CatchUp + 1 of them. It makes up for work that took
	// long and for changes of the leader, not for time in which no process was alive,
	// which is not measured. If zero, each period lasts at least Period.
	CatchUp int

	// AllowRepeats accepts a store that may lose writes ([tenure.Options.LossyStore]). There a
	// failover may lose that a period was begun: then its work is run again. If false, Every
	// refuses such a store.
	AllowRepeats bool

	// Timeout, Retries and RetryDelay are as in [Options].
	Timeout    time.Duration
	Retries    int
	RetryDelay time.Duration

	// OnRun is called in this process with each run that it has ended, and with the
	// error of its work, nil if it was done. It is also called with an error that
	// matches [ErrNotRun] if a period was, or may have been, begun and its work was
	// not run. It is called from the goroutine that runs the work, which goes on
	// when it returns. If nil, [ShowEvery] shows the same.
	OnRun func(run Run, err error)
}

// Every runs work each period in one of the processes that call it, for as long as
// ctx lasts. It campaigns for the lock [EveryLockName] as [tenure.Election.Run]
// does: one process leads, and the others take over when it ends. Period is at least
// two heartbeat periods of the client.
//
// The store has the number of begun periods, and a lower bound of the time since the
// last one began. The leader writes it, with heartbeats, each hundredth of the period,
// or each heartbeat period if that is longer. When a period has passed, one write
// begins the next one; the work runs when that is confirmed. Time is the elapsed time
// of one process after the other, not of wall clocks. So a change of the leader makes a
// period longer by that interval at most, or by a lease if the leader had just begun it,
// and by the time in which no process was alive; never shorter.
//
// The first run comes a period after the first call, or after the record was deleted:
// nothing runs at once, because a new ledger looks like a lost one.
//
// Every runs one work at a time. If the work takes longer than the period, the next
// one begins when it returns. An error of the work ends nothing: it is in the
// ledger, and is handed to [EveryOptions.OnRun]. A period is begun at most once: if
// its holder is lost then, the work is not run again.
//
// Every returns nil when ctx ends and the work has returned. It returns an error
// that matches [tenure.ErrUnreadable] if the lock's data are not a ledger, and the
// store's own as [tenure.Election.Run] does. A panic of work is written down as a
// failure, releases the lock, and goes on.
func Every(ctx context.Context, client *tenure.Client, name string, period time.Duration, options *EveryOptions, work Work) error {
	var o EveryOptions
	if options != nil {
		o = *options
	}
	err := checkCall(client, name, o.AllowRepeats)
	if err == nil {
		err = errors.Join(checkPeriod(client, period), checkWork(o.Timeout, o.Retries, &o.RetryDelay), checkCatchUp(o.CatchUp))
	}
	if err == nil && work == nil {
		err = errors.New("the work is nil: pass a function")
	}
	if err != nil {
		return wrap(opEvery, name, err)
	}
	return (&timekeeper{client: client, name: name, period: period, options: o, work: work}).run(ctx)
}

const opEvery = "run every period of"

// maxPeriod keeps sums of ages within a duration.
const maxPeriod = 10 * 366 * 24 * time.Hour

func checkPeriod(client *tenure.Client, period time.Duration) error {
	c := client.Options()
	switch {
	case period < 2*c.HeartbeatPeriod:
		return fmt.Errorf("period %v must be at least twice the heartbeat period, %v: choose a longer one, or a shorter lease", period, c.HeartbeatPeriod)
	case period > maxPeriod:
		return fmt.Errorf("period %v must be at most %v", period, maxPeriod)
	case c.ManualHeartbeat:
		return errors.New("the client has ManualHeartbeat set, so that nothing renews the lease between two runs; use another client")
	}
	return nil
}

// EveryStatus is what the store has of the periods of one name.
type EveryStatus struct {
	Name string
	// Number is how many periods were begun; Kept is false if no process has kept time
	// under this name yet.
	Number int64
	Kept   bool
	// Age is a lower bound of the time since the last one was begun, when it was
	// written; Period is the writer's.
	Age, Period time.Duration
	// Held says that the lock shows a leader that may be alive, Owner and Token who
	// leads or has led last.
	Held  bool
	Owner string
	Token uint64
	// Runs are the last 20 runs, the newest first. Their slots are the numbers of
	// their periods.
	Runs []Run
}

// MarshalJSON writes the status with the names name, number, age_seconds,
// period_seconds, held, owner, token and runs; number, age and period only if time
// is kept.
func (s EveryStatus) MarshalJSON() ([]byte, error) {
	out := struct {
		Name   string   `json:"name"`
		Number *int64   `json:"number,omitempty"`
		Age    *float64 `json:"age_seconds,omitempty"`
		Period *float64 `json:"period_seconds,omitempty"`
		Held   bool     `json:"held"`
		Owner  string   `json:"owner,omitempty"`
		Token  uint64   `json:"token,omitempty"`
		Runs   []Run    `json:"runs"`
	}{Name: s.Name, Held: s.Held, Owner: s.Owner, Token: s.Token, Runs: s.Runs}
	if s.Kept {
		age, period := s.Age.Seconds(), s.Period.Seconds()
		out.Number, out.Age, out.Period = &s.Number, &age, &period
	}
	return json.Marshal(out)
}

// ShowEvery reads the ledger of [Every] under this name, with one strong read: see
// [Show].
func ShowEvery(ctx context.Context, client *tenure.Client, name string) (EveryStatus, error) {
	const op = "show periods of"
	if err := checkCall(client, name, true); err != nil {
		return EveryStatus{}, wrap(op, name, err)
	}
	st, err := client.Status(ctx, EveryLockName(name))
	if err != nil {
		return EveryStatus{}, wrap(op, name, err)
	}
	l, err := parseEvery(st.Data, st.Token)
	if err != nil {
		return EveryStatus{}, wrap(op, name, err)
	}
	return EveryStatus{
		Name: name, Number: l.N, Kept: l.ID != "", Age: l.age(), Period: time.Duration(l.Period) * time.Millisecond,
		Held: st.Held, Owner: st.Owner, Token: st.Token, Runs: runsOf(l.Runs, alive(st)),
	}, nil
}

// ResetEvery begins a new ledger for [Every]: no period is counted, and none of the
// time that has passed; the runs are forgotten. The reason is in the history of
// the lock, and must not be empty. Like [Reset] it writes a new ledger if the
// lock's data are not a ledger. It returns a [*RunningError] if a leader is alive: ask
// it to step down, or stop it, and try again.
func ResetEvery(ctx context.Context, client *tenure.Client, name, reason string) error {
	if err := checkReset(client, name, reason); err != nil {
		return wrap(opReset, name, err)
	}
	lease, err := reserve(ctx, client, EveryLockName(name))
	if err != nil {
		return wrap(opReset, name, err)
	}
	return finishReset(ctx, lease, name, newPeriods().bytes(), "reset: "+textOf(errors.New(reason)))
}
