// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurelock/tenure"
)

// frame is the time between two pictures of the live view.
const frame = 50 * time.Millisecond

// output shows a demo. Its methods are called by one goroutine.
type output interface {
	report(report)                  // everything that happened
	say(at time.Duration, s string) // what people should know of it
	draw(scene)                     // how it stands now; called often
	close()                         // the show is over; may be called again
	tell(lines []string)            // what to remember
}

// scene is what the live view shows.
type scene struct {
	*stage
	now  time.Time
	next string
	due  time.Time // when next is due; zero if nobody can know it
}

// demo is one run. All of it belongs to one goroutine; the company hands the
// reports over.
type demo struct {
	lease   time.Duration
	place   place
	begin   time.Time
	company *company
	// operator asks for a step-down, and reads the history.
	operator *tenure.Client
	out      output
	stage    stage
	log      []report
	next     string
	due      time.Time
}

// run plays the demo, checks what was seen, and clears up in any case.
func run(ctx context.Context, url string, lease time.Duration, keep bool, out output) (err error) {
	defer out.close()
	at, err := newPlace(url)
	if err != nil {
		return err
	}
	defer func() {
		switch {
		case !keep:
			err = errors.Join(err, at.clear())
		case at.folder != "" && err != nil:
			err = fmt.Errorf("%w (kept: %s)", err, at.folder)
		}
	}()
	company, err := newCompany()
	if err != nil {
		return err
	}
	operator, closeOperator, err := newOperator(at, lease)
	if err != nil {
		company.close()
		return err
	}
	d := &demo{
		lease: lease, place: at, begin: time.Now(), company: company, operator: operator, out: out, stage: stage{lease: lease},
	}
	defer closeOperator()
	defer company.close()

	d.out.report(report{Kind: began, Time: d.begin, Folder: at.folder, Store: at.at.Shown(), Lock: at.lock, Lease: seconds(lease)})
	if err := d.play(ctx); err != nil {
		d.out.report(d.stamped(report{Kind: failed, Time: time.Now(), Error: err.Error()}))
		return err
	}
	tenures, err := check(lease, d.log)
	history, historyErr := operator.History(ctx, at.lock)
	if historyErr == nil {
		historyErr = checkHistory(tenures, history)
	}
	err = errors.Join(err, historyErr)
	for _, t := range tenures {
		r := report{
			Kind: seen, Time: time.Now(), Token: t.Token, Owner: t.Replica, PID: t.PID, End: t.ended(),
			From: seconds(t.From.Sub(d.begin)),
		}
		if !t.To.IsZero() {
			r.To = seconds(t.To.Sub(d.begin))
		}
		d.out.report(d.stamped(r))
	}
	verdict := report{Kind: passed, Time: time.Now()}
	if err != nil {
		verdict.Kind, verdict.Error = failed, err.Error()
	}
	d.out.report(d.stamped(verdict))
	d.out.close()
	d.out.tell(table(history, tenures, d.begin))
	if err == nil {
		d.out.tell(moral(at, keep))
	}
	return err
}

// newOperator returns a client that holds nothing, and what closes it.
func newOperator(at place, lease time.Duration) (*tenure.Client, func(), error) {
	store, err := at.open()
	if err != nil {
		return nil, nil, err
	}
	client, err := tenure.New(store, &tenure.Options{Owner: "the demo", LeaseDuration: lease})
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return client, func() {
		_ = client.Close(context.Background()) // it holds nothing
		_ = store.Close()
	}, nil
}

// take takes a report in.
func (d *demo) take(r report) {
	r = d.stamped(r)
	d.log = append(d.log, r)
	d.stage.apply(r)
	d.out.report(r)
	if r.Kind == trouble {
		d.say("%s: %s.", r.Replica, r.Error)
	}
	d.draw()
}

func (d *demo) stamped(r report) report {
	r.Elapsed = seconds(r.Time.Sub(d.begin))
	return r
}

// say tells people what has happened just now.
func (d *demo) say(format string, a ...any) {
	d.out.say(time.Since(d.begin), fmt.Sprintf(format, a...))
}

// later notes what happens next, and when.
func (d *demo) later(next string, due time.Time) {
	d.next, d.due = next, due
	d.draw()
}

func (d *demo) draw() {
	d.out.draw(scene{stage: &d.stage, now: time.Now(), next: d.next, due: d.due})
}

// await waits until done, which the reports bring about.
func (d *demo) await(ctx context.Context, what string, done func() bool) error {
	limit := patience + 2*d.lease
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !done() {
		late, err := d.step(ctx, timer.C)
		if err != nil {
			return err
		}
		if late && !done() {
			return fmt.Errorf("waited %v in vain for: %s", limit, what)
		}
	}
	return nil
}

// until waits until the given time.
func (d *demo) until(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	for {
		if over, err := d.step(ctx, timer.C); over || err != nil {
			return err
		}
	}
}

// step waits for one thing to happen. It returns true if it was the timer.
func (d *demo) step(ctx context.Context, timer <-chan time.Time) (bool, error) {
	redraw := time.NewTimer(frame)
	defer redraw.Stop()
	select {
	case r := <-d.company.reports:
		d.take(r)
		return false, d.stage.fault(r)
	case <-redraw.C:
		d.draw()
		return false, nil
	case <-timer:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// fault returns an error if the play cannot go on after the report.
func (s *stage) fault(e report) error {
	r := s.find(e.Replica)
	switch {
	case e.Kind == lost:
		return fmt.Errorf("%s lost its lease: %s", e.Replica, e.Error)
	case e.Kind == exited && !r.ending:
		return fmt.Errorf("%s (pid %d) ended by itself: %s", e.Replica, e.PID, e.Error)
	}
	return nil
}
