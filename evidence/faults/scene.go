// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/wire"
)

// rig is what all cells share.
type rig struct {
	engines     map[string]engine         // by name
	programs    map[string]*peers.Program // by column
	tenured     string                    // the service's command, by its path, if its clients are looked at
	program     string                    // this one, by its path
	suspendable string                    // the same, with a runtime that can be told to sleep
	dir         string                    // for logs and programs
	say         func(format string, args ...any)

	mu       sync.Mutex
	versions map[string]string // of the columns' libraries
}

// scene is one client under one fault.
type scene struct {
	*rig
	column
	*place
	lease   time.Duration
	word    string // of its locks' names
	service *servedBy

	// Guarded by mu of the rig.
	members []*member
	names   int
}

func (r *rig) scene(ctx context.Context, c column, lease time.Duration) (*scene, error) {
	s := &scene{rig: r, column: c, lease: lease, word: strings.ToLower(rand.Text())}
	var err error
	s.place, err = c.open(ctx, s)
	return s, err
}

// end ends the processes and their gates.
func (s *scene) end(ctx context.Context) {
	s.mu.Lock()
	members := s.members
	s.mu.Unlock()
	for _, m := range members {
		m.Kill()
		m.gate.Close()
	}
	if s.close != nil {
		s.close(ctx)
	}
}

// beat is the time between two heartbeats.
func (s *scene) beat() time.Duration { return s.lease / s.beats }

// lock returns the name of a lock that nobody has used.
func (s *scene) lock() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names++
	return s.named(s.names)
}

func (s *scene) named(n int) string { return fmt.Sprintf("tenure-faults-%s-%d", s.word, n) }

// endpoint is how a client is told of an address, that of a gate or of the engine.
func (p *place) endpoint(address string) (string, error) {
	if p.reached == nil {
		return address, nil
	}
	return p.reached(address)
}

// repeat makes runs of a row, some of them at the same time.
func (s *scene) repeat(
	ctx context.Context, n int, run func(ctx context.Context, i int) (float64, error),
) ([]float64, error) {
	figures := make([]float64, n)
	return figures, wait.AtOnce(ctx, n, s.together, func(ctx context.Context, i int) (err error) {
		figures[i], err = run(ctx, i)
		return err
	})
}

// member is a process with an open client, behind a gate of its own.
type member struct {
	*peers.Member
	gate  gate.Gate
	scene *scene
	slept []byte // of one that can be suspended
}

// manner is how a member differs from the ordinary.
type manner struct {
	// eager looks at a held lock each 20 ms where looking is all it can do, so
	// that it takes over when the lock can be taken, and not when it looks next.
	eager bool
	// unbounded leaves the time-out of requests away, where the library leaves
	// that to its user.
	unbounded bool
	// releasing sets the option that client-go needs to release a lock at all.
	releasing bool
	// suspendable can be suspended.
	suspendable bool
	// session holds its locks under one session. Tenure's alone has such a thing.
	session bool
}

const eagerRefresh = 20 * time.Millisecond

func (s *scene) member(ctx context.Context, how manner) (*member, error) {
	program := s.programs[s.id]
	var slept []byte
	if how.suspendable {
		var err error
		if program, slept, err = s.sleeper(program); err != nil {
			return nil, err
		}
	}
	r := wire.Request{
		Command: wire.Open, Region: dynamo.Region, Table: s.table, Secret: s.secret,
		Owner: "faults-" + strings.ToLower(rand.Text()), LeaseMs: peers.Milliseconds(s.lease), Notice: true,
		RequestTimeout: !how.unbounded, ReleaseOnCancel: how.releasing, Session: how.session,
	}
	if s.heartbeat > 0 {
		r.HeartbeatMs = peers.Milliseconds(time.Duration(s.heartbeat * float64(s.lease)))
	}
	switch {
	case s.refresh > 0 && how.eager:
		r.RefreshMs = peers.Milliseconds(eagerRefresh)
	case s.refresh > 0:
		r.RefreshMs = peers.Milliseconds(time.Duration(s.refresh * float64(s.lease)))
	}
	g, err := s.gate(r.Owner)
	if err != nil {
		return nil, err
	}
	r.Endpoint, err = s.endpoint(g.Address())
	var p *peers.Member
	if err == nil {
		p, err = program.Open(ctx, r)
	}
	if err != nil {
		g.Close()
		return nil, err
	}
	m := &member{p, g, s, slept}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = append(s.members, m)
	s.versions[s.id] = p.Version()
	return m, nil
}

// two are members, one of each manner.
func (s *scene) two(ctx context.Context, how, other manner) (one, two *member, err error) {
	if one, err = s.member(ctx, how); err == nil {
		two, err = s.member(ctx, other)
	}
	return one, two, err
}

// held are two members, of which the first one holds a lock.
func (s *scene) held(ctx context.Context) (holder, other *member, name string, err error) {
	holder, other, err = s.two(ctx, manner{}, manner{})
	if err != nil {
		return nil, nil, "", err
	}
	name = s.lock()
	_, err = holder.Acquire(ctx, name)
	return holder, other, name, err
}

// refusedAs says that an error is a refusal of a kind.
func refusedAs(err error, kind string) bool {
	var refused *peers.Refused
	return errors.As(err, &refused) && refused.Kind == kind
}

// pair is a holder at work, and one who waits for its lock in another process.
type pair struct {
	*scene
	name           string
	holder, waiter *member
	log            string // of the work
	granted        *peers.Call
}

// longHold is longer than any row.
const longHold = 10 * time.Minute

// pair sets the two up, and lets them be for a while that ends at a random moment
// between two heartbeats.
func (s *scene) pair(ctx context.Context, how manner) (*pair, error) {
	p := &pair{scene: s, name: s.lock()}
	var err error
	if p.holder, p.waiter, err = s.two(ctx, how, manner{eager: true}); err != nil {
		return nil, err
	}
	if p.log, err = writeFile(s.dir, p.name+"-*.log", ""); err != nil {
		return nil, err
	}
	o := p.holder.Asking(wire.Work, p.name)
	o.HoldMs, o.DurationMs, o.Log = longHold.Milliseconds(), 50, p.log
	work := p.holder.Begin(o)
	err = wait.Until(ctx, "work begins", func() bool {
		b, err := p.belief()
		return err != nil || b.begin > 0 || answered(work)
	})
	if answered(work) {
		answer, ended := work.Wait(ctx)
		return nil, errors.Join(err, ended, fmt.Errorf("work has ended before it was seen to begin: %+v", answer.Counts))
	}
	p.granted = p.waiter.Begin(p.waiter.Asking(wire.Acquire, p.name))
	return p, errors.Join(err, wait.For(ctx, s.beat()+time.Duration(mathrand.Float64()*float64(s.beat()))))
}

// strike makes a fault, and waits until it has hit a request of the holder.
func (p *pair) strike(ctx context.Context, fault func(gate.Gate)) error {
	fault(p.holder.gate)
	return wait.Until(ctx, "the fault hits a heartbeat", func() bool { return !p.holder.gate.Struck().IsZero() })
}

// passes waits until the other one has the lock, for as long as that could take.
func (p *pair) passes(ctx context.Context) (granted int64, err error) {
	bound, cancel := context.WithTimeout(ctx, 8*p.lease)
	defer cancel()
	a, err := p.granted.Wait(bound)
	if err != nil {
		err = fmt.Errorf("the other one gets the lock: %w", err)
	}
	return a.GotNs, err
}

// passed says whether the other one has it.
func (p *pair) passed() bool { return answered(p.granted) }

func answered(c *peers.Call) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// margin waits until the other one has the lock and the holder knows, and returns how long
// before the grant it knew.
func (p *pair) margin(ctx context.Context) (float64, error) {
	granted, err := p.passes(ctx)
	if err != nil {
		return 0, err
	}
	b, err := p.over(ctx, 2*p.lease)
	return milliseconds(granted - b.told()), err
}

// belief is for how long a holder took the lock for its own, on the machine's
// monotonic clock. What has not happened is zero.
type belief struct{ begin, end, no, notice int64 }

// until is the instant up to which the holder believed: it stops at a check that
// fails or at a notice, whichever comes first.
func (b belief) until() int64 { return earlier(b.end, b.notice) }

// told is the instant at which the holder knew. It is later than until where a
// check hangs before it says no.
func (b belief) told() int64 {
	if b.no == 0 {
		return earlier(b.end, b.notice) // the Java client's log has no other; its checks follow within 2 ms
	}
	return earlier(b.no, b.notice)
}

// earlier is the earlier of two instants. The second one may not have come.
func earlier(at, other int64) int64 {
	if other > 0 && other < at {
		return other
	}
	return at
}

// goesOn says that nothing has ended.
func (b belief) goesOn() bool { return b.end == 0 && b.notice == 0 }

// belief reads the log of the holder's work.
func (p *pair) belief() (b belief, err error) {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return b, err
	}
	instants := map[string]*int64{
		wire.LogBegin: &b.begin, wire.LogEnd: &b.end, wire.LogNo: &b.no, wire.LogNotice: &b.notice,
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		l, err := wire.ParseLog(lines.Text())
		if at := instants[l.What]; err == nil && at != nil { // else it is being written
			*at = l.At
		}
	}
	return b, nil
}

// over waits for the end of the work, for as long as it could take.
func (p *pair) over(ctx context.Context, bound time.Duration) (b belief, err error) {
	ended := wait.Within(ctx, bound, func() bool {
		b, err = p.belief()
		return err != nil || b.end > 0
	})
	if !ended {
		b.end = proc.Monotonic() // it believes still
	}
	return b, errors.Join(err, context.Cause(ctx))
}

// sleeper returns a program like this one that can be suspended, and the memory
// where it finds for how long it was.
func (s *scene) sleeper(program *peers.Program) (*peers.Program, []byte, error) {
	file := filepath.Join(s.dir, "slept-"+rand.Text())
	slept, err := proc.Map(file, 8)
	if err != nil {
		return nil, nil, err
	}
	sleeps := *program
	sleeps.Command.Env = append(slices.Clone(program.Command.Env), suspendEnv+"="+file)
	if s.onLibc() {
		sleeps.Command.Env = append(sleeps.Command.Env, "LD_PRELOAD="+filepath.Join(s.dir, preloaded))
	} else {
		sleeps.Command.Args = []string{s.suspendable}
	}
	return &sleeps, slept, nil
}

// sleep has the monotonic clock of a process that is stopped stand for d more.
func (m *member) sleep(d time.Duration) {
	binary.NativeEndian.PutUint64(m.slept, binary.NativeEndian.Uint64(m.slept)+uint64(d))
}
