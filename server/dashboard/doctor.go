// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server/access"
)

const (
	// doctorPace is how often the doctor looks at most.
	doctorPace = 5 * time.Second
	// looks is how many reads a latency is measured by, and of which lock: one that nobody
	// takes.
	looks    = 5
	lookName = "tenure-dashboard-looks"
	// sweepAge is how long ago a lock was released that may be swept.
	sweepAge = 30 * 24 * time.Hour
	// clockStep is how far a wall clock may go another way before it is told.
	clockStep = time.Second
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
	// Err is an error of the store, or of the engine, which is shown behind the text to
	// those with the right admin to all names; others see an id of it. It may be nil.
	Err error
}

// doctorModel is what a doctor has found.
type doctorModel struct {
	Rows     []Finding
	Summary  string
	Measures bool   // the visitor may have writes measured
	Confirm  bool   // with its token
	Sweep    string // the command that clears what may be swept
}

// doctor shows what was found.
func (d *Dashboard) doctor(ctx context.Context, who visitor, _ url.Values) (*page, *problem) {
	if !who.anything() {
		return nil, notAllowed(who, "see the doctor's findings")
	}
	seen := d.findings.ask(ctx, "")
	m := &doctorModel{Rows: seen.value, Measures: who.form && who.admin(), Confirm: who.shares}
	p := &page{View: "doctor", Title: "Doctor", Model: m, Status: http.StatusOK, StandStill: false}
	if seen.err != nil {
		p.Alerts = append(p.Alerts, d.storeAlert(who, seen.err, seen.good, seen.at))
		p.Status = storeStatus(seen.err, seen.good)
	}
	locks := d.census(ctx, "")
	if locks.err != nil {
		p.Alerts = append(p.Alerts, d.storeAlert(who, locks.err, locks.good, locks.at))
		p.Status = max(p.Status, storeStatus(locks.err, locks.good))
	}
	m.Rows = slices.Clone(m.Rows)
	for i, f := range m.Rows {
		if f.Err != nil {
			m.Rows[i].Text += d.storeError(who, f.Err)
		}
	}
	m.Rows = append(m.Rows, m.records(visible(locks.value.locks, who, ""), locks)...)
	m.summarize()
	return p, nil
}

// admin says that the visitor may do all to all locks.
func (v visitor) admin() bool {
	prefixes := v.Prefixes(access.Admin, "")
	return len(prefixes) == 1 && prefixes[0] == ""
}

// examine makes the checks that are the same for all visitors.
func (d *Dashboard) examine(ctx context.Context, _ string) ([]Finding, error) {
	found := numbers(d.client.Options())
	found = append(found, d.clock.finding(d.client, time.Now()))
	found = append(found, d.reads(ctx))
	if writes, ok := d.clock.writes(); ok {
		found = append(found, writes)
	}
	return append(found, d.options.Doctor(ctx)...), nil
}

// numbers says what follows from the options of the client.
func numbers(o tenure.Options) []Finding {
	window := time.Duration(float64(o.LeaseDuration) * (1 - o.MaxClockDrift) / (1 + o.MaxClockDrift))
	usable := window - o.Grace
	spare := usable - o.HeartbeatPeriod - 2*o.RequestTimeout
	f := []Finding{{"lease", Good, fmt.Sprintf("Lease %v, heartbeat every %v, request timeout %v, grace %v: a holder may act for %s after it has sent its last good heartbeat.",
		o.LeaseDuration, o.HeartbeatPeriod, o.RequestTimeout, o.Grace, exact(usable)), "", nil}}
	level, advice := Good, ""
	if spare < o.HeartbeatPeriod {
		level, advice = Warn, "A longer lease, or a shorter heartbeat, leaves time for one more."
	}
	return append(f,
		Finding{"lease", level, fmt.Sprintf("The store may be away for %s before a lease is lost. A crashed holder's lock is free %v after its last heartbeat was seen.", exact(spare), o.LeaseDuration), advice, nil},
		Finding{"clock", Good, fmt.Sprintf("Leases allow the rate of a clock to be wrong by %.2f %%.", 100*o.MaxClockDrift), "", nil},
		Finding{"limits", Good, fmt.Sprintf("Names have %s at most, reasons %s, data %s.",
			counted(driver.MaxNameLen, "byte"), counted(driver.MaxReasonLen, "byte"), counted(driver.MaxDataLen, "byte")), "", nil},
	)
}

// reads measures how long the store takes to answer.
func (d *Dashboard) reads(ctx context.Context) Finding {
	timeout := d.client.Options().RequestTimeout
	var took []time.Duration
	for range looks {
		asked := time.Now()
		if _, err := d.client.Status(ctx, lookName); err != nil {
			return Finding{"store", Bad, "It cannot be read: ", "Fix that first.", err}
		}
		took = append(took, time.Since(asked))
	}
	return latency("Reads take", took, timeout)
}

// latency compares how long requests took with the timeout of requests.
func latency(what string, took []time.Duration, timeout time.Duration) Finding {
	slices.Sort(took)
	middle, most := took[len(took)/2], took[len(took)-1]
	f := Finding{"store", Good, fmt.Sprintf("%s %s to %s, %s in the middle; the request timeout is %v.", what, exact(took[0]), exact(most), exact(middle), timeout), "", nil}
	switch {
	case middle > timeout:
		f.Level, f.Advice = Bad, "Most heartbeats would fail: this store wants a longer lease."
	case most > timeout/4:
		f.Level, f.Advice = Warn, "A slow day would cost leases: this store wants a longer lease."
	}
	return f
}

// records says what the locks show that a visitor may see.
func (m *doctorModel) records(locks []*lock, seen answer[census]) []Finding {
	if !seen.good {
		return nil
	}
	now := seen.at
	var unread, ahead []string
	sweepable := 0
	leases := map[time.Duration]int{}
	for _, l := range locks {
		switch {
		case l.state == unreadable:
			unread = append(unread, l.Name)
		case l.holds() && l.Since.Sub(now) > clockAhead:
			ahead = append(ahead, l.Name)
		case l.state == free && l.bytes == 0 && l.Session == "" && now.Sub(l.Until) > sweepAge && !l.Until.IsZero():
			sweepable++
		}
		if l.holds() {
			leases[l.Lease]++
		}
	}
	found := []Finding{{"records", Good, fmt.Sprintf("%s, listed in %s.", counted(len(locks), "lock"), exact(seen.took)), "", nil}}
	if seen.value.cut {
		found = append(found, Finding{"records", Warn, fmt.Sprintf("There are more than %s: the rest is not counted here.", counted(maxLocks, "lock")), "Narrow the list by a prefix. See whether old ones may be swept.", nil})
	}
	if len(unread) > 0 {
		found = append(found, Finding{
			"records", Warn, counted(len(unread), "record") + " cannot be read: " + named(unread),
			"Such a lock can neither be taken nor released: another version of Tenure, or another program, has written it. Delete it when nobody uses it.", nil,
		})
	}
	if len(ahead) > 0 {
		found = append(found, Finding{
			"clock", Warn, counted(len(ahead), "holder") + " began in the future, by the clock of this machine: " + named(ahead),
			"Leases are not affected; the times shown are wrong. Run chrony or systemd-timesyncd on both machines.", nil,
		})
	}
	if len(leases) > 1 {
		var all []string
		for lease, n := range leases {
			all = append(all, fmt.Sprintf("%s (%s)", term(lease), counted(n, "lock")))
		}
		slices.Sort(all)
		found = append(found, Finding{"lease", Good, "Holders keep different leases: " + strings.Join(all, ", ") + ".", "", nil})
	}
	if sweepable > 0 {
		m.Sweep = "tenure sweep --released-before=30d --dry-run"
		found = append(found, Finding{"sweep", Good, fmt.Sprintf("Released more than 30 days ago, and may be swept if tokens may begin at 1 again: %s.", counted(sweepable, "lock")), m.Sweep, nil})
	} else {
		found = append(found, Finding{"sweep", Good, "No lock was released more than 30 days ago: nothing to sweep.", "", nil})
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

func (m *doctorModel) summarize() {
	counts := map[string]int{}
	for _, f := range m.Rows {
		counts[f.Level]++
	}
	switch {
	case counts[Bad] > 0:
		m.Summary = counted(counts[Bad], "finding") + " must be looked at now."
	case counts[Warn] > 0:
		m.Summary = counted(counts[Warn], "finding") + " should be looked at."
	default:
		m.Summary = "Nothing is wrong that can be seen from here."
	}
}

func (m *doctorModel) text(w io.Writer) {
	cells(w, "CHECK", "LEVEL", "FINDING", "ADVICE")
	for _, f := range m.Rows {
		cells(w, f.Check, f.Level, f.Text, f.Advice)
	}
	fmt.Fprintln(w, m.Summary)
}

// clockWatch compares the wall clock of this machine with elapsed time, since the start; and
// keeps what was measured last.
type clockWatch struct {
	wall    time.Time // without the monotonic reading
	elapsed time.Duration

	mu       sync.Mutex
	measured *Finding
}

func newClockWatch(c *tenure.Client) *clockWatch {
	return &clockWatch{wall: time.Now().Round(0), elapsed: c.Elapsed()}
}

func (c *clockWatch) finding(client *tenure.Client, now time.Time) Finding {
	passed := client.Elapsed() - c.elapsed
	off := now.Round(0).Sub(c.wall) - passed
	f := Finding{"clock", Good, fmt.Sprintf("The wall clock of this server has kept in step with elapsed time for %s.", short(passed)), "", nil}
	if off.Abs() > clockStep {
		f.Level = Warn
		f.Text = fmt.Sprintf("The wall clock of this server has gone %s another way than elapsed time in %s.", exact(off), short(passed))
		f.Advice = "Leases count elapsed time, and the times shown here may be wrong. See the time service of this machine."
	}
	return f
}

func (c *clockWatch) writes() (Finding, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.measured == nil {
		return Finding{}, false
	}
	return *c.measured, true
}

// measure opens and closes a session of its own, and notes how long that took: two writes,
// as heartbeats are.
func (d *Dashboard) measure(w http.ResponseWriter, r *http.Request) {
	who, ok := d.acting(w, r)
	if !ok {
		return
	}
	line := access.Act{Principal: who.Name(), Action: "measure", Outcome: "done"}
	if !who.admin() {
		line.Outcome = "forbidden"
		d.audit(r.Context(), line)
		d.failed(w, r, notAllowed(who, "have writes measured"))
		return
	}
	f, err := d.measureWrites(r.Context())
	if err != nil {
		line.Outcome, line.Detail = string(outcomeOf(err)), err.Error()
	}
	d.audit(r.Context(), line)
	d.clock.mu.Lock()
	d.clock.measured = &f
	d.clock.mu.Unlock()
	d.findings.stale()
	seeOther(w, "doctor?said="+string(measured))
}

func (d *Dashboard) measureWrites(ctx context.Context) (Finding, error) {
	ctx, cancel := bounded(ctx, patience)
	defer cancel()
	begun := time.Now()
	s, err := d.client.OpenSession(ctx, nil)
	if errors.Is(err, errors.ErrUnsupported) {
		return Finding{"store", Good, "Writes cannot be measured here: the store keeps no sessions.", "", nil}, err
	}
	if err != nil {
		return Finding{"store", Bad, "It cannot be written: ", "Fix that first.", err}, err
	}
	took := []time.Duration{time.Since(begun)}
	begun = time.Now()
	if err := s.Close(ctx); err != nil {
		return Finding{"store", Bad, "A record cannot be written again: ", "Fix that first.", err}, err
	}
	took = append(took, time.Since(begun))
	f := latency("Two writes took", took, d.client.Options().RequestTimeout)
	f.Text += " Measured at " + clockText(time.Now()) + "."
	return f, nil
}
