// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
	"github.com/tenurelock/tenure/server"
	"github.com/tenurelock/tenure/tenuretest"
)

// crowd are programs behind servers, and Go programs, that use one semaphore and one lock for
// readers and writers, while calls, and what servers and Go programs send to the store, are lost, late
// and repeated.
type crowd struct {
	w       *world
	servers []*world

	chance // whose mutex guards what follows
	actors []actor
	most   int             // that may hold a slot
	shown  map[bool]uint64 // the highest fencing tokens at work, by whether it was a writer's
	acted  map[string]int  // how often, by kind
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

const (
	aSlot   = "slot"
	aReader = "reader"
	aWriter = "writer"
	drained = "drained" // a writer that has waited for readers
)

// actor is who may act under a part of a lock.
type actor interface {
	// acts says as what it acts now, if it does, under which lock, and under which fencing token. The
	// caller holds the mutex.
	acts() (kind, lock string, token uint64, ok bool)
}

// look fails the test if those that act now must not act beside each other.
func (x *crowd) look() {
	x.mu.Lock()
	defer x.mu.Unlock()
	slots, writers, readers := map[string]bool{}, 0, 0
	for _, a := range x.actors {
		kind, lock, token, ok := a.acts()
		if !ok {
			continue
		}
		x.acted[kind]++
		switch kind {
		case aSlot:
			if slots[lock] {
				x.w.Errorf("two hold %s", lock)
			}
			slots[lock] = true
		case aReader:
			readers++
			if x.shown[true] > token {
				x.w.Errorf("a reader acts under %d, and a writer has under %d", token, x.shown[true])
			}
			x.shown[false] = max(x.shown[false], token)
		case aWriter:
			writers++
			if x.shown[true] > token || x.shown[false] > token {
				x.w.Errorf("a writer acts under %d, and others have under %d and %d", token, x.shown[true], x.shown[false])
			}
			x.shown[true] = max(x.shown[true], token)
		}
	}
	if len(slots) > x.most {
		x.w.Errorf("%d hold a slot, of %d", len(slots), x.most)
	}
	if writers > 1 || writers == 1 && readers > 0 {
		x.w.Errorf("%d write beside %d that read", writers, readers)
	}
}

// remoter is a program behind the servers, which follows the rules for clients.
type remoter struct {
	x     *crowd
	owner string
	n     int

	// Guarded by the mutex of x, where others read it.
	kind, name     string // of the part that it has; "" for none
	token, fence   uint64
	beat, next     string // next: the heartbeat in progress
	sent, deadline time.Time
	due            time.Time
	drains, ending bool
	unwritten      string
}

func (p *remoter) acts() (kind, lock string, token uint64, ok bool) {
	ok = p.kind != "" && !p.ending && !p.drains && time.Now().Before(p.deadline)
	return p.kind, p.name, p.fence, ok
}

// post makes a call, and waits for it until it is over, or for its client's timeout. It returns status
// 0 without an answer.
func (p *remoter) post(path string, body object, wait time.Duration) (status int, got map[string]any) {
	x := p.x
	timeout := wait + lease/10
	send := func() chan *httptest.ResponseRecorder {
		by, done := x.servers[x.roll(len(x.servers))], make(chan *httptest.ResponseRecorder, 1)
		go func() {
			r := httptest.NewRecorder()
			by.ServeHTTP(r, request("POST", path, ci, body))
			done <- r
		}()
		return done
	}
	fate := 9
	if x.faults {
		fate = x.roll(10)
	}
	switch fate {
	case 0: // lost
		time.Sleep(timeout)
		return 0, nil
	case 1: // late, when nobody waits for it any more
		delay := x.upTo(3 * lease)
		go func() { time.Sleep(delay); <-send() }()
		time.Sleep(timeout)
		return 0, nil
	case 2: // repeated
		delay := x.upTo(3 * lease)
		go func() { time.Sleep(delay); <-send() }()
	}
	select {
	case r := <-send():
		if fate == 3 { // the answer is lost
			return 0, nil
		}
		if fate == 4 { // or late
			time.Sleep(x.upTo(lease / 5))
		}
		d := json.NewDecoder(strings.NewReader(r.Body.String()))
		d.UseNumber()
		_ = d.Decode(&got)
		return r.Code, got
	case <-time.After(timeout):
		return 0, nil
	}
}

func whole(v any) int64 {
	n, _ := v.(json.Number)
	i, _ := n.Int64()
	return i
}

// takes acquires a part.
func (p *remoter) takes() {
	x := p.x
	kind := []string{aSlot, aReader, aWriter, aWriter}[x.roll(4)]
	wait := time.Duration(x.roll(2)) * x.upTo(8*time.Second)
	body := object{"owner": p.owner, "wait_ms": wait.Milliseconds(), "name": "jobs/c"}
	switch kind {
	case aSlot:
		body["name"], body["slots"] = "jobs/s", 2
	case aReader:
		body["shared"] = true
	case aWriter:
		body["exclusive"] = true
	}
	sent := time.Now()
	status, a := p.post("/v1/acquire", body, wait)
	if status != 200 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	p.kind, p.name, p.beat, p.next = kind, a["name"].(string), a["beat"].(string), ""
	p.token, p.fence = uint64(whole(a["token"])), uint64(whole(a["fence_token"]))
	p.drains, p.ending = a["drain"] == true, false
	p.unwritten, _ = a["unwritten"].(string)
	p.deadline, p.due = time.Time{}, time.Now()
	if ms := whole(a["usable_ms"]); ms > 0 && time.Since(sent) < lease/10 {
		p.deadline, p.due = sent.Add(time.Duration(ms)*time.Millisecond), sent.Add(3*time.Second)
	}
}

// ends forgets the part.
func (p *remoter) ends() {
	p.x.mu.Lock()
	defer p.x.mu.Unlock()
	p.kind = ""
}

// beats sends one try of a heartbeat.
func (p *remoter) beats() {
	if p.next == "" {
		p.n++
		term, _, _ := strings.Cut(p.beat, "-")
		p.next, p.sent = fmt.Sprintf("%s-%s%012d", term, p.owner, p.n), time.Now()
	}
	status, a := p.post("/v1/heartbeat", object{"name": p.name, "token": p.token, "after": p.beat, "next": p.next}, 0)
	switch {
	case status == 410:
		p.ends()
	case status == 200 && a["asked"] != nil:
		p.leaves()
	case status == 200:
		p.x.mu.Lock()
		defer p.x.mu.Unlock()
		p.deadline = p.sent.Add(time.Duration(whole(a["usable_ms"])) * time.Millisecond)
		p.beat, p.next, p.due = p.next, "", p.sent.Add(3*time.Second)
	}
}

// leaves releases the part.
func (p *remoter) leaves() {
	x := p.x
	x.mu.Lock()
	p.ending = true
	x.mu.Unlock()
	body := object{"name": p.name, "token": p.token}
	switch {
	case p.kind == aWriter && p.drains:
		body["data"] = p.unwritten
	case x.roll(4) == 0:
		body["failed"] = "disk full"
	}
	beats := []string{p.beat}
	if p.next != "" {
		beats = []string{p.next, p.beat}
	}
	for _, beat := range beats {
		body["after"] = beat
		for until := time.Now().Add(lease); time.Now().Before(until); time.Sleep(time.Second / 2) {
			if status, _ := p.post("/v1/release", body, 0); status == 200 {
				p.ends()
				return
			} else if status == 410 {
				break
			}
		}
	}
	p.ends()
}

func (p *remoter) run(until time.Time) {
	x := p.x
	for time.Now().Before(until) {
		time.Sleep(x.upTo(time.Second))
		x.look()
		switch {
		case p.kind == "":
			p.takes()
			continue
		case !p.deadline.IsZero() && !time.Now().Before(p.deadline):
			p.ends()
			continue
		case !time.Now().Before(p.due):
			if p.deadline.IsZero() && p.next == "" && x.roll(6) == 0 {
				time.Sleep(x.upTo(3 * lease)) // its machine, between the grant and the first heartbeat
			}
			p.beats()
			continue
		}
		if p.kind == aWriter && p.drains {
			wait := x.upTo(2 * time.Second)
			status, _ := p.post("/v1/drain", object{"name": p.name, "token": p.token, "wait_ms": wait.Milliseconds()}, wait)
			x.mu.Lock()
			if p.drains = status != 200 || !time.Now().Before(p.deadline); !p.drains {
				x.acted[drained]++
			}
			x.mu.Unlock()
		}
		x.look()
		switch x.roll(16) {
		case 0, 1, 2:
			p.leaves()
		case 3: // it has crashed
			p.ends()
		}
	}
	p.ends()
}

// gopher is a Go program.
type gopher struct {
	x    *crowd
	sem  *semaphore.Semaphore
	lock *rwlock.Lock

	slot *semaphore.Lease // guarded by the mutex of x, as is part
	part *rwlock.Lease
}

func (g *gopher) acts() (kind, lock string, token uint64, ok bool) {
	switch {
	case g.slot != nil && g.slot.Check() == nil:
		return aSlot, g.slot.Name(), 0, true
	case g.part != nil && g.part.Check() == nil && g.part.Writing():
		return aWriter, "", g.part.Token(), true
	case g.part != nil && g.part.Check() == nil:
		return aReader, "", g.part.Token(), true
	}
	return "", "", 0, false
}

func (g *gopher) run(ctx context.Context, until time.Time) {
	x := g.x
	for time.Now().Before(until) {
		time.Sleep(x.upTo(3 * time.Second))
		o := &tenure.AcquireOptions{Wait: 1 + x.upTo(8*time.Second)}
		var slot *semaphore.Lease
		var part *rwlock.Lease
		var err error
		switch x.roll(4) {
		case 0:
			slot, err = g.sem.Acquire(ctx, o)
		case 1:
			part, err = g.lock.AcquireWrite(ctx, &rwlock.WriteOptions{AcquireOptions: *o})
		default:
			part, err = g.lock.AcquireRead(ctx, o)
		}
		if errors.Is(err, tenure.ErrClosed) {
			return // it was killed
		}
		if err != nil {
			continue
		}
		x.mu.Lock()
		g.slot, g.part = slot, part
		x.mu.Unlock()
		for range x.roll(8) {
			x.look()
			time.Sleep(x.upTo(time.Second))
		}
		x.look()
		x.mu.Lock()
		g.slot, g.part = nil, nil
		x.mu.Unlock()
		if slot != nil {
			_ = slot.Release(ctx)
		} else {
			_ = part.Release(ctx)
		}
	}
}

// resizes changes the number of slots again and again.
func (x *crowd) resizes(ctx context.Context, s *semaphore.Semaphore, until time.Time) {
	for time.Now().Before(until) {
		time.Sleep(x.upTo(lease))
		n := 1 + x.roll(3)
		x.mu.Lock()
		x.most = max(x.most, n)
		x.mu.Unlock()
		if s.Resize(ctx, n, &semaphore.ResizeOptions{Wait: true}) == nil {
			x.mu.Lock()
			x.most = n
			x.mu.Unlock()
		}
	}
}

// TestPartsUnderFaults: whatever becomes of calls and of writes, there are never more holders of slots
// than slots, two in one slot, or a writer beside others, and fencing tokens rise.
func TestPartsUnderFaults(t *testing.T) {
	seeds := 24
	if testing.Short() {
		seeds = 6
	}
	acted := map[string]int{}
	for seed := range seeds {
		tenuretest.Test(t, func(t *testing.T, in *tenuretest.World) {
			w := serve(t, in, func(o *server.Options) { o.Limits.Calls, o.Limits.Beats = 1e6, 1e6 })
			x := &crowd{
				w: w, servers: []*world{w, w.another()},
				chance: chance{src: rand.New(rand.NewPCG(2, uint64(seed))), faults: seed%4 > 0},
				most:   2, shown: map[bool]uint64{}, acted: acted,
			}
			clients := []*tenuretest.Client{in.Client("go-1"), in.Client("go-2")}
			for _, c := range append(clients, x.servers[0].client, x.servers[1].client) {
				c.Faults().Inject(faultstore.Rule{Decide: x.decide})
			}
			until := time.Now().Add(20 * lease)
			var all sync.WaitGroup
			for i := range 5 {
				p := &remoter{x: x, owner: string(rune('A' + i))}
				x.actors = append(x.actors, p)
			}
			for _, c := range clients {
				x.actors = append(x.actors, &gopher{
					x: x, sem: testutil.Must(semaphore.New(c.Client, "jobs/s", 2, nil))(t),
					lock: testutil.Must(rwlock.New(c.Client, "jobs/c", nil))(t),
				})
			}
			for _, a := range x.actors {
				switch a := a.(type) {
				case *remoter:
					all.Go(func() { a.run(until) })
				case *gopher:
					all.Go(func() { a.run(t.Context(), until) })
				}
			}
			resizer := testutil.Must(semaphore.New(in.Client("resizer").Client, "jobs/s", 2, nil))(t)
			all.Go(func() { x.resizes(t.Context(), resizer, until) })
			if x.faults {
				time.Sleep(5 * lease)
				if cut := x.servers[seed%2].client; seed%3 == 0 {
					cut.Suspend(x.upTo(2 * lease))
				} else {
					cut.Partition()
					time.Sleep(2 * lease)
					cut.Heal()
				}
				time.Sleep(5 * lease)
				clients[seed%2].Kill()
			}
			all.Wait()
			time.Sleep(4 * lease) // what is late
		})
	}
	for kind, least := range map[string]int{aSlot: 100, aReader: 100, aWriter: 50, drained: 2} {
		if acted[kind] < least*seeds {
			t.Errorf("%d looks at a %s, want %d", acted[kind], kind, least*seeds)
		}
	}
	t.Logf("looks at holders at work: %v", acted)
}
