// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Module is a trace of one lock as TLC reads it.
type Module struct {
	Name   string
	TLA    []byte // the module, to be written to Name + ".tla"
	Config []byte // its configuration, to be written to Name + ".cfg"
}

// units is how many of the model's units of time a lease has.
const units = 20000

// NewModule writes the events of a lock as a module that extends spec/Trace.tla.
// All processes must count by the same timing.
func NewModule(name, lock string, events []Event) (Module, error) {
	m := moduleWriter{sends: map[int]Event{}, owners: map[string]string{}, hosts: map[string]string{}}
	for _, e := range events {
		if e.Lock != "" && e.Lock != lock {
			continue
		}
		if err := m.event(e); err != nil {
			return Module{}, err
		}
	}
	if m.timing == nil {
		return Module{}, fmt.Errorf("trace of %q: no process starts", lock)
	}
	return Module{Name: name, TLA: m.module(name), Config: m.config()}, nil
}

// Locks returns the names of the locks of a trace, in their order of appearance.
func Locks(events []Event) []string {
	var locks []string
	for _, e := range events {
		if e.Lock != "" && !slices.Contains(locks, e.Lock) {
			locks = append(locks, e.Lock)
		}
	}
	return locks
}

type moduleWriter struct {
	timing  *Timing
	reserve time.Duration // the shortest reservation
	sends   map[int]Event
	owners  map[string]string // by machine
	hosts   map[string]string
	lines   []string
}

func (m *moduleWriter) event(e Event) error {
	if e.Do == Start {
		if m.timing != nil && *m.timing != *e.Timing {
			return fmt.Errorf("process %q counts by %+v, another one by %+v", e.Proc, *e.Timing, *m.timing)
		}
		m.timing = e.Timing
		return nil
	}
	if m.timing == nil {
		return fmt.Errorf("event %q of %q before any process starts", e.Do, e.Who)
	}
	f := fields{"at": strconv.FormatInt(m.scaled(e.At), 10), "do": quoted(string(e.Do))}
	if e.Do == Send {
		m.sends[e.Request] = e
	}
	if e.Do == Send || e.Do == Apply || e.Do == Reply {
		s, ok := m.sends[e.Request]
		if !ok {
			return fmt.Errorf("request %d is not sent before its %q", e.Request, e.Do)
		}
		if s.Call == ReadCall && e.Do == Apply {
			return nil // the reply says what was read
		}
		e.Who, e.Proc, e.Call = s.Who, s.Proc, s.Call
		f["k"] = quoted(s.Call)
		f["ver"] = "None"
		if s.Next != nil {
			f["ver"] = version(s.Next.Version)
		}
	}
	f["host"] = quoted(e.Proc)
	if e.Do != Crash {
		f["p"] = quoted(e.Who)
		m.hosts[e.Who] = e.Proc
	} else {
		f["p"] = quoted("")
	}
	switch e.Do {
	case Send:
		if e.Next != nil {
			f["next"] = record(e.Next)
			if e.Call == Claim || e.Call == Takeover {
				m.owners[e.Who] = e.Next.Owner
			}
			if e.Next.State == "reserved" && e.Next.Owner != "" && (m.reserve == 0 || e.Next.Lease < m.reserve) {
				m.reserve = e.Next.Lease
			}
		}
		if e.Prev != nil {
			f["prev"] = fmt.Sprintf("[ver |-> %s, tok |-> %d]", version(e.Prev.Version), e.Prev.Token)
		}
	case Apply, Reply, Grant:
		f["out"] = quoted(e.Outcome)
		f["rec"] = record(e.Record)
	case End:
		f["cause"] = quoted(e.Cause)
	}
	m.lines = append(m.lines, f.String())
	return nil
}

// scaled returns d in units of the model.
func (m *moduleWriter) scaled(d time.Duration) int64 {
	return int64(float64(d) / float64(m.timing.Lease) * units)
}

func (m *moduleWriter) module(name string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "---- MODULE %s ----\nEXTENDS Trace\n\n", name)
	function := func(name string, of map[string]string, value func(string) string) {
		var parts []string
		for _, who := range m.machines() {
			parts = append(parts, quoted(who)+" :> "+value(of[who]))
		}
		fmt.Fprintf(&b, "%s ==\n    %s\n\n", name, strings.Join(parts, "\n @@ "))
	}
	function("TheHosts", m.hosts, quoted)
	function("TheOwners", m.owners, version)
	fmt.Fprintf(&b, "TheEvents == <<\n%s\n>>\n====\n", strings.Join(m.lines, ",\n"))
	return b.Bytes()
}

func (m *moduleWriter) machines() []string {
	var all []string
	for who := range m.hosts {
		all = append(all, who)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return all
}

func (m *moduleWriter) config() []byte {
	var b bytes.Buffer
	var machines []string
	for _, who := range m.machines() {
		machines = append(machines, quoted(who))
	}
	fmt.Fprintf(&b, "CONSTANTS\n    Machines = {%s}\n", strings.Join(machines, ", "))
	fmt.Fprintf(&b, "    Lease = %d\n    Grace = %d\n    Reserve = %d\n    Usual = %d\n",
		units, m.scaled(m.timing.Grace), m.scaled(m.reserve), m.scaled(m.timing.Window))
	fmt.Fprintf(&b, "    DriftNum = %d\n    DriftDen = 1000\n", int(math.Ceil(m.timing.Drift*1000)))
	b.WriteString(`    Mates = {}
    None = None
    Step = Step
    Tick = 1
    MaxToken = 1000000
    MaxTakes = 1000
    MaxBeats = 1000
    Uses = {"crash", "give up", "step down", "hand over", "offer", "quit", "free", "revoke"}
    Reduced = FALSE
    Wrong = {}
    Window <- Usual
    Shortest <- AtLeast
    Longest <- AtMost
    OwnerOf <- KnownAs
    Successors <- Named
    Lingers <- Forever
    Hosts <- TheHosts
    Owners <- TheOwners
    Events <- TheEvents
SPECIFICATION TraceSpec
`)
	return b.Bytes()
}

// fields is a record of the model. Fields that the event does not have get None.
type fields map[string]string

func (f fields) String() string {
	var b strings.Builder
	b.WriteString("  [")
	for i, name := range [...]string{"at", "do", "host", "p", "k", "ver", "prev", "next", "out", "rec", "cause"} {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s |-> %s", name, cmp.Or(f[name], "None"))
	}
	b.WriteString("]")
	return b.String()
}

// record writes a record as the model has it: the owner and the requests of a
// released one do not matter.
func record(r *Record) string {
	if r == nil {
		return "Absent"
	}
	owner, req := version(r.Owner), "None"
	if len(r.Requests) > 0 {
		req = "Step"
		if r.Requests[0].To != "" {
			req = quoted(r.Requests[0].To)
		}
	}
	if r.State == "released" {
		owner = "None"
	}
	return fmt.Sprintf("[ver |-> %s, beat |-> %s, tok |-> %d, st |-> %s, own |-> %s, req |-> %s, end |-> None, prev |-> None]",
		version(r.Version), version(r.Beat), r.Token, quoted(r.State), owner, req)
}

// version writes a name that may be missing.
func version(v string) string {
	if v == "" {
		return "None"
	}
	return quoted(v)
}

func quoted(s string) string { return strconv.Quote(s) }
