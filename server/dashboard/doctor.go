// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/server/access"
)

const (
	// looks is how many reads a latency is measured by, and of which lock: one that nobody takes.
	looks    = 5
	lookName = "tenure-dashboard-looks"
	// sweepAge is how long ago a lock was released that may be swept.
	sweepAge = 30 * day
	// clockAhead is how far in the future a holder may have begun.
	clockAhead = 5 * time.Second
	// mostNamed is how many locks a finding names.
	mostNamed = 3
)

// Levels of a finding.
const (
	Good = "good" // as it should be
	Warn = "warn" // works, and may not one day
	Bad  = "bad"  // does not work, or not safely
)

// Finding is one thing that was found.
type Finding struct {
	// Check says what was looked at, in a word. Level is Good, Warn or Bad.
	Check, Level string
	// Text is what was found, and Advice what to do, if anything.
	Text, Advice string
	// Err is an error of the store, or of the engine, which is shown behind the text to those with the right
	// admin to all names; others see an id of it. It may be nil.
	Err error
}

// doctorView is what a doctor has found.
type doctorView struct {
	Rows     []Finding
	Summary  string
	Measures bool // the visitor may have writes measured
	Confirm  bool // with its token
}

// doctor shows what was found: by the doctor of the program, by reads, and in the records that the visitor may
// see.
func (d *Dashboard) doctor(ctx context.Context, who visitor, _ url.Values) (*page, *problem) {
	if !who.anything() {
		return nil, notAllowed(who, "see the doctor's findings")
	}
	v := &doctorView{Measures: who.form && who.all(access.Admin), Confirm: who.shares}
	p := &page{View: "doctor", Title: "Doctor", Model: v}
	found, r := ask(ctx, d.cache, farPace, "findings", d.examine)
	d.note(p, who, r)
	locks, r := d.list(ctx, "")
	d.note(p, who, r)
	v.Rows = slices.Clone(found)
	for i, f := range v.Rows {
		if f.Err != nil {
			v.Rows[i].Text += d.storeError(who, f.Err)
		}
	}
	if r.good {
		v.Rows = append(v.Rows, records(locks.visible(who, ""), locks.cut, r)...)
	}
	v.Summary = summary(v.Rows)
	return p, nil
}

func summary(all []Finding) string {
	counts := map[string]int{}
	for _, f := range all {
		counts[f.Level]++
	}
	switch {
	case counts[Bad] > 0:
		return counted(counts[Bad], "finding") + " must be looked at now."
	case counts[Warn] > 0:
		return counted(counts[Warn], "finding") + " should be looked at."
	}
	return "Nothing is wrong that can be seen from here."
}

// examine makes the checks that are the same for all visitors.
func (d *Dashboard) examine(ctx context.Context) ([]Finding, error) {
	found := append(d.options.Doctor(ctx), d.reads(ctx))
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.writes != nil {
		found = append(found, *d.writes)
	}
	return found, nil
}

// reads measures how long the store takes to answer.
func (d *Dashboard) reads(ctx context.Context) Finding {
	var took []time.Duration
	for range looks {
		asked := time.Now()
		if _, err := d.client.Status(ctx, lookName); err != nil {
			return Finding{"store", Bad, "It cannot be read: ", "Fix that first.", err}
		}
		took = append(took, time.Since(asked))
	}
	return d.latency("Reads take", took)
}

// latency compares how long requests took with the timeout of requests.
func (d *Dashboard) latency(what string, took []time.Duration) Finding {
	timeout := d.client.Options().RequestTimeout
	slices.Sort(took)
	middle, most := took[len(took)/2], took[len(took)-1]
	f := Finding{Check: "store", Level: Good}
	f.Text = fmt.Sprintf("%s %s to %s, %s in the middle; the request timeout is %v.",
		what, exact(took[0]), exact(most), exact(middle), timeout)
	switch {
	case middle > timeout:
		f.Level, f.Advice = Bad, "Most heartbeats would fail: this store wants a longer lease."
	case most > timeout/4:
		f.Level, f.Advice = Warn, "A slow day would cost leases: this store wants a longer lease."
	}
	return f
}

// records says what the locks show that a visitor may see.
func records(locks []*lock, cut bool, r reading) (found []Finding) {
	add := func(check, level, advice, format string, args ...any) {
		found = append(found, Finding{check, level, fmt.Sprintf(format, args...), advice, nil})
	}
	var unread, ahead []string
	sweepable := 0
	for _, l := range locks {
		switch {
		case l.State == unreadable:
			unread = append(unread, l.Name)
		case l.holds() && l.Since.Sub(r.at) > clockAhead:
			ahead = append(ahead, l.Name)
		case l.State == free && l.Bytes == 0 && l.Session == "" && !l.Until.IsZero() && r.at.Sub(l.Until) > sweepAge:
			sweepable++
		}
	}
	add("records", Good, "", "%s, listed in %s.", counted(len(locks), "lock"), exact(r.took))
	if cut {
		add("records", Warn, "Narrow the list by a prefix. See whether old ones may be swept.",
			"There are more than %s: the rest is not counted here.", counted(maxLocks, "lock"))
	}
	if len(unread) > 0 {
		add("records", Warn, "Such a lock can neither be taken nor released: another version of Tenure, or another "+
			"program, has written it. Delete it when nobody uses it.",
			"%s cannot be read: %s", counted(len(unread), "record"), named(unread))
	}
	if len(ahead) > 0 {
		add("clock", Warn, "Leases are not affected; the times shown are wrong. Run chrony or systemd-timesyncd on both "+
			"machines.", "%s began in the future, by the clock of this machine: %s", counted(len(ahead), "holder"), named(ahead))
	}
	if sweepable > 0 {
		add("sweep", Good, "tenure sweep --released-before=30d --dry-run", "Released more than 30 days ago, and may be "+
			"swept if tokens may begin at 1 again: %s.", counted(sweepable, "lock"))
	} else {
		add("sweep", Good, "", "No lock was released more than 30 days ago: nothing to sweep.")
	}
	return found
}

// named lists some names.
func named(names []string) string {
	var some []string
	for _, name := range names[:min(len(names), mostNamed)] {
		some = append(some, "“"+printable(name)+"”")
	}
	if more := len(names) - len(some); more > 0 {
		some = append(some, grouped(more)+" more")
	}
	return strings.Join(some, ", ") + "."
}

// measure opens and closes a session of its own, and notes how long that took: two writes, as heartbeats are.
func (d *Dashboard) measure(w http.ResponseWriter, r *http.Request) {
	who, ok := d.acting(w, r)
	if !ok {
		return
	}
	line := access.Act{Principal: who.Name(), Action: "measure", Outcome: "forbidden"}
	if !who.all(access.Admin) {
		d.audit(r.Context(), line)
		d.failed(w, r, notAllowed(who, "have writes measured"))
		return
	}
	f := d.measureWrites(r.Context())
	line.Outcome = flashOf(f.Err).word
	if f.Err != nil {
		line.Detail = f.Err.Error()
	}
	d.audit(r.Context(), line)
	d.mu.Lock()
	d.writes = &f
	d.mu.Unlock()
	d.cache.stale()
	seeOther(w, "doctor?said="+measured.word)
}

func (d *Dashboard) measureWrites(ctx context.Context) Finding {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	begun := time.Now()
	s, err := d.client.OpenSession(ctx, nil)
	opened := time.Now()
	if err == nil {
		err = s.Close(ctx)
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return Finding{"store", Good, "Writes cannot be measured here: the store keeps no sessions.", "", nil}
	case err != nil:
		return Finding{"store", Bad, "It cannot be written: ", "Fix that first.", err}
	}
	f := d.latency("Two writes took", []time.Duration{opened.Sub(begun), time.Since(opened)})
	f.Text += " Measured at " + clockText(time.Now()) + "."
	return f
}
