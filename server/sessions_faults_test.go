// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/tenuretest"
)

// trouble is what fails in a world of programs that hold locks under sessions: calls to servers, and
// calls of servers to the store, are lost, late and repeated.
type trouble struct {
	w       *world
	servers []*world
	names   []string

	chance   // whose mutex guards what follows, and the programs' beliefs
	programs []*program
	leases   map[string]*tenure.Lease // of the Go program
	taken    int
}

// chance decides what happens. May be called concurrently.
type chance struct {
	mu     sync.Mutex
	src    *rand.Rand
	faults bool
}

func (x *chance) roll(n int) int { x.mu.Lock(); defer x.mu.Unlock(); return x.src.IntN(n) }

func (x *chance) upTo(d time.Duration) time.Duration { return time.Duration(x.roll(int(d))) }

// decide returns what becomes of a call to the store.
func (x *chance) decide(faultstore.Call) faultstore.Fault {
	if !x.faults {
		return faultstore.Fault{}
	}
	late := x.upTo(2 * lease)
	switch x.roll(24) {
	case 0:
		return faultstore.LoseReply()
	case 1:
		return faultstore.LoseRequest()
	case 2:
		return faultstore.LateAfterError(late)
	case 3:
		return faultstore.Duplicate(late)
	}
	return faultstore.Fault{}
}

// program follows the rules for clients.
type program struct {
	x              *trouble
	name           string
	id, beat, next string    // of the session; next: the heartbeat in progress
	opened         time.Time // before its opening was sent
	sent, deadline time.Time
	due            time.Time
	n              int
	held           map[string]*stake
}

// stake is a lock of a program, from its grant on.
type stake struct {
	token       json.Number
	after, next string
	attached    bool // confirmed
	releases    bool // it was released, and no server has answered that yet
}

// post makes a call. It returns status 0 without an answer.
func (p *program) post(path string, body object) (status int, got map[string]any) {
	x := p.x
	server := x.servers[x.roll(len(x.servers))]
	call := func(w *world) *httptest.ResponseRecorder {
		r := httptest.NewRecorder()
		w.ServeHTTP(r, request("POST", path, ci, body))
		return r
	}
	fate := x.roll(10)
	if !x.faults {
		fate = 9
	}
	switch fate {
	case 0: // lost
		time.Sleep(lease / 10)
		return 0, nil
	case 1: // late, when nobody waits for it any more
		delay, by := x.upTo(3*lease), x.servers[x.roll(len(x.servers))]
		go func() { time.Sleep(delay); call(by) }()
		time.Sleep(lease / 10)
		return 0, nil
	case 2: // repeated
		delay, by := x.upTo(3*lease), x.servers[x.roll(len(x.servers))]
		go func() { time.Sleep(delay); call(by) }()
	}
	r := call(server)
	if fate == 3 { // the answer is lost
		return 0, nil
	}
	d := json.NewDecoder(strings.NewReader(r.Body.String()))
	d.UseNumber()
	_ = d.Decode(&got)
	return r.Code, got
}

// believes says whether the program acts under a lock now. The caller holds the mutex.
func (p *program) believes(name string) bool {
	s := p.held[name]
	return s != nil && s.attached && !s.releases && time.Now().Before(p.deadline)
}

// works fails the test if anyone else acts under the lock, too.
func (p *program) works(name string) {
	x := p.x
	x.mu.Lock()
	defer x.mu.Unlock()
	if !p.believes(name) {
		return
	}
	x.taken++
	for _, other := range x.programs {
		if other != p && other.believes(name) {
			x.w.Errorf("%s and %s both hold %s", p.name, other.name, name)
		}
	}
	if l := x.leases[name]; l != nil && l.Check() == nil {
		x.w.Errorf("%s holds %s under token %s, and a Go program under %d", p.name, name, p.held[name].token, l.Token())
	}
}

// ends forgets the session and all of its locks.
func (p *program) ends() {
	p.x.mu.Lock()
	defer p.x.mu.Unlock()
	p.id, p.next, p.deadline, p.held = "", "", time.Time{}, map[string]*stake{}
}

func (p *program) follows(beat string) string {
	p.n++
	term, _, _ := strings.Cut(beat, "-")
	return fmt.Sprintf("%s-%s%012d", term, p.name, p.n)
}

// renews opens the session, or sends one try of its heartbeat.
func (p *program) renews() {
	if p.id == "" {
		p.opened = time.Now()
		if status, a := p.post("/v1/sessions/open", object{"owner": p.name}); status == 200 {
			p.id, p.beat, p.due = a["session"].(string), a["beat"].(string), time.Now()
		}
		return
	}
	if p.next == "" {
		p.next, p.sent = p.follows(p.beat), time.Now()
	}
	status, a := p.post("/v1/sessions/heartbeat", object{"session": p.id, "after": p.beat, "next": p.next})
	switch {
	case status == 410, !p.deadline.IsZero() && !time.Now().Before(p.deadline):
		p.ends()
	case status == 200:
		ms, _ := a["usable_ms"].(json.Number).Int64()
		usable := time.Duration(ms) * time.Millisecond
		if p.deadline.IsZero() && !time.Now().Before(p.opened.Add(usable)) {
			p.ends()
			return
		}
		p.x.mu.Lock()
		p.deadline = p.sent.Add(usable)
		p.x.mu.Unlock()
		p.beat, p.next, p.due = p.next, "", p.sent.Add(3*time.Second)
	}
}

// takes goes one step on with a lock: it acquires it, attaches it, or releases it.
func (p *program) takes(name string) {
	s := p.held[name]
	if s == nil {
		if status, a := p.post("/v1/acquire", object{"name": name, "owner": p.name, "wait_ms": 2000 * p.x.roll(2)}); status == 200 {
			beat := a["beat"].(string)
			p.x.mu.Lock()
			p.held[name] = &stake{token: a["token"].(json.Number), after: beat, next: p.follows(beat)}
			p.x.mu.Unlock()
		}
		return
	}
	one := object{"name": name, "token": s.token, "after": s.after, "next": s.next}
	body := object{"session": p.id, "locks": []object{one}}
	path := "/v1/sessions/release"
	if !s.releases {
		path = "/v1/sessions/attach"
		body["beat"] = p.beat
	}
	status, a := p.post(path, body)
	lost := status == 410
	done := status == 200
	if done {
		result := a["results"].([]any)[0].(map[string]any)
		if problem, is := result["problem"].(map[string]any); is {
			done, lost = false, problem["status"].(json.Number) == "410"
		}
	}
	p.x.mu.Lock()
	defer p.x.mu.Unlock()
	switch {
	case lost, done && s.releases:
		delete(p.held, name)
	case done:
		s.attached = true
	}
}

func (p *program) run(until time.Time) {
	x := p.x
	for time.Now().Before(until) {
		time.Sleep(x.upTo(time.Second))
		if !p.deadline.IsZero() && !time.Now().Before(p.deadline) {
			p.ends()
		}
		if p.id == "" || !time.Now().Before(p.due) {
			p.renews()
		}
		if p.id == "" {
			continue
		}
		name := x.names[x.roll(len(x.names))]
		if s := p.held[name]; s == nil || !s.attached || s.releases {
			p.takes(name)
		}
		for _, name := range x.names {
			p.works(name)
		}
		switch s := p.held[name]; x.roll(20) {
		case 0, 1, 2:
			if s != nil {
				x.mu.Lock()
				s.releases = true
				x.mu.Unlock()
			}
		case 3: // its session is closed, however that is answered
			id, beat := p.id, p.beat
			if p.next != "" {
				beat = p.next
			}
			p.ends()
			p.post("/v1/sessions/close", object{"session": id, "after": beat})
		case 4:
			p.ends() // it has crashed
		}
	}
}

// TestSessionsUnderFaults: whatever becomes of calls and of writes, two programs never hold one lock,
// nor does a Go program beside them.
func TestSessionsUnderFaults(t *testing.T) {
	seeds := 24
	if testing.Short() {
		seeds = 6
	}
	taken := 0
	for seed := range seeds {
		tenuretest.Test(t, func(t *testing.T, in *tenuretest.World) {
			w := serve(t, in, func(o *server.Options) { o.Limits.Calls, o.Limits.Beats = 1e6, 1e6 })
			x := &trouble{
				w: w, servers: []*world{w, w.another()}, names: []string{"jobs/a", "jobs/b"},
				chance: chance{src: rand.New(rand.NewPCG(1, uint64(seed))), faults: seed%4 > 0},
				leases: map[string]*tenure.Lease{},
			}
			for _, server := range x.servers {
				server.client.Faults().Inject(faultstore.Rule{Decide: x.decide})
			}
			until := time.Now().Add(12 * lease)
			var all sync.WaitGroup
			for i := range 3 {
				x.programs = append(x.programs, &program{x: x, name: string(rune('A' + i)), held: map[string]*stake{}})
			}
			for _, p := range slices.Clone(x.programs) {
				all.Go(func() { p.run(until) })
			}
			all.Go(func() { x.library(in.Client("library"), until) })
			all.Wait()
			time.Sleep(4 * lease) // what is late
			taken += x.taken
			if x.taken == 0 {
				t.Errorf("seed %d: no program has held a lock", seed)
			}
		})
	}
	t.Logf("%d looks at a lock by its holder", taken)
}

// library is a Go program that takes the same locks, with leases of their own.
func (x *trouble) library(c *tenuretest.Client, until time.Time) {
	ctx := x.w.T.Context()
	for time.Now().Before(until) {
		time.Sleep(x.upTo(3 * time.Second))
		name := x.names[x.roll(len(x.names))]
		x.mu.Lock()
		held := maps.Clone(x.leases)
		x.mu.Unlock()
		if l := held[name]; l != nil {
			_ = l.Release(ctx)
			x.mu.Lock()
			delete(x.leases, name)
			x.mu.Unlock()
			continue
		}
		l, err := c.TryAcquire(ctx, name, nil)
		if err != nil {
			continue
		}
		x.mu.Lock()
		x.leases[name] = l
		for _, p := range x.programs {
			if p.believes(name) && l.Check() == nil {
				x.w.Errorf("a Go program holds %s under token %d, and %s under %s", name, l.Token(), p.name, p.held[name].token)
			}
		}
		x.mu.Unlock()
	}
	for _, l := range x.leases {
		_ = l.Release(ctx)
	}
}
