// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/tenurelock/tenure/internal/engine"
	"github.com/tenurelock/tenure/internal/ringing"
)

// Bell is how the processes that use one store give each other hints. A holder rings
// those who wait for its lock when it is free. A process that asks a holder for something
// rings that holder when the request is in the record. They look, or send a heartbeat, at
// once, where they would have done so some time later.
//
// A hint changes no right. Messages may be late, lost, doubled or forged: they cost a
// bounded number of requests to the store. Where none arrive everything is as it is
// without a bell.
//
// The address is written into the records of all leases and sessions of the client,
// beside a secret that [New] makes. Whoever can read the store can read both. See
// docs/guides/bell.md.
type Bell struct {
	// Address is where other processes reach this one, in the form that Transport has
	// for it: 1 to 200 printable ASCII characters without a space.
	Address string
	// Transport carries the messages. If nil, there is no bell. One client alone
	// receives from it. It stays the caller's to close, after [Client.Close].
	Transport BellTransport
}

// BellTransport carries messages between processes. Package bell has one on UDP.
//
// It may lose messages, and bring them late, twice, or changed. No message has more than
// 512 bytes. Send and Receive may be called concurrently.
type BellTransport interface {
	// Send sends a message to an address that stood in a record. It does not wait for
	// the network. An address that it does not understand, or at which no process of
	// the fleet can be, is an error: whoever writes a record chooses it. Send must not
	// keep the message.
	Send(address string, message []byte) error
	// Receive returns the next message, or an error: when ctx ends, at the latest. After
	// another error it is called again, a little later.
	Receive(ctx context.Context) (message []byte, err error)
}

func (b Bell) validate() error {
	switch {
	case b.Transport == nil && b.Address != "":
		return invalid("bell at %.200q has no transport: set both, such as one of package bell, or none", b.Address)
	case b.Transport != nil && !ringing.IsAddress(b.Address):
		return invalid("address %.200q of the bell must have 1 to %d printable ASCII characters and no space", b.Address, ringing.MaxAddress)
	}
	return nil
}

// ringer is the bell of one client: what it holds and waits for, and the messages that
// come and go. What they mean is decided in package ringing. A nil ringer is that of a
// client without a bell; its methods do nothing.
type ringer struct {
	bell   Bell
	text   string // what is written into records: address and secret
	now    func() time.Duration
	timers *engine.Timers
	ctx    context.Context // ends with the client
	cancel context.CancelFunc
	out    chan ringing.Letter

	mu    sync.Mutex // guards the fields below; taken last of all
	held  *ringing.Held
	waits *ringing.Waits
}

const (
	// maxLetters is how many messages wait to be sent. Further ones are dropped, as a
	// network would. A release has one for each waiter.
	maxLetters = 4 * ringing.MaxWaiters
	// maxDeaf is the longest pause after a transport could not receive.
	maxDeaf = time.Second
)

// newRinger returns the bell of a client, nil if it has none. Now is the clock of the
// timers, lease the client's own, and run runs a function beside the client.
func newRinger(bell Bell, lease time.Duration, now func() time.Duration, timers *engine.Timers, run func(func())) *ringer {
	if bell.Transport == nil {
		return nil
	}
	secret := rand.Text()
	r := &ringer{
		bell: bell, text: ringing.Bell(bell.Address, secret), now: now, timers: timers,
		out: make(chan ringing.Letter, maxLetters), held: ringing.NewHeld(secret, rand.Text()),
		waits: ringing.NewWaits(bell.Address, lease, ringing.Env{Word: word, Random: engine.Random}),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	run(r.send)
	run(r.receive)
	return r
}

// close ends it, when what is posted is sent.
func (r *ringer) close() {
	if r != nil {
		r.cancel()
	}
}

func word() (id ringing.ID) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

// own returns what the records of the client carry.
func (r *ringer) own() string {
	if r == nil {
		return ""
	}
	return r.text
}

// holds notes that the client holds the lock, or keeps the session, whose record has the
// bell. Asked is called when a message says that a request is in the record; it must not
// block.
func (r *ringer) holds(key, bell string, lease time.Duration, asked func()) *ringing.Lock {
	if r == nil || bell != r.text {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held.Begin(key, lease, asked)
}

// rings tells those who wait for the lock to look. The lock may be nil.
func (r *ringer) rings(l *ringing.Lock) {
	if l == nil {
		return
	}
	r.mu.Lock()
	letters := r.held.Ring(r.now(), l)
	r.mu.Unlock()
	for _, letter := range letters {
		r.post(letter)
	}
}

// leaves forgets a lock, which may be nil.
func (r *ringer) leaves(l *ringing.Lock) {
	if l == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held.End(l)
}

// asks tells the holder, whose record has the bell, that a request is in it.
func (r *ringer) asks(key, bell string) {
	if r == nil || bell == "" {
		return
	}
	if letter := ringing.AskedOf(key, bell, word()); letter != nil {
		r.post(*letter)
	}
}

// awaited is a tenure that the client waits for.
type awaited struct {
	r        *ringer
	is       tenancy
	observes bool
	w        *ringing.Waiting // nil if there is nobody to tell
	timer    engine.Timer
	look     func()
	ended    bool
}

// tenancy is the tenure of a holder that has a bell.
type tenancy struct {
	key, bell string
	token     uint64
	lease     time.Duration
}

// awaits has the holder told that the client waits, or only observes, for as long as the
// same tenure is shown, and look called when it rings. It ends the wait for another tenure, was, which may be nil. An empty bell ends it for good.
func (r *ringer) awaits(was *awaited, is tenancy, observes bool, refresh time.Duration, look func()) *awaited {
	bell := is.bell
	switch {
	case r == nil:
		return nil
	case was != nil && was.is == is:
		if was.w != nil && was.observes != observes {
			r.mu.Lock()
			defer r.mu.Unlock()
			was.observes = observes
			was.w.Observes(r.now(), observes)
			was.set()
		}
		return was
	case was == nil && bell == "", was == nil && bell == r.text:
		return was // nobody to tell; or it holds the lock itself
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var before *ringing.Waiting
	if was != nil && was.w != nil {
		before, was.ended = was.w, true
		r.timers.Drop(&was.timer)
		r.waits.End(before)
	}
	if bell == "" {
		return nil
	}
	a := &awaited{r: r, is: is, observes: observes, look: look}
	a.timer.Run = a.due
	if bell != r.text {
		a.w = r.waits.Begin(r.now(), is.key, bell, is.lease, refresh, a.set)
	}
	if a.w != nil {
		a.w.Observes(r.now(), observes)
		a.w.Follows(before)
		a.set()
	}
	return a
}

// set has due called when that is due. The caller holds the ringer.
func (a *awaited) set() { a.r.timers.Set(&a.timer, a.w.Next()) }

// due sends what is to be sent, and has the record looked at.
func (a *awaited) due(now time.Duration) {
	r := a.r
	r.mu.Lock()
	if a.ended {
		r.mu.Unlock()
		return
	}
	letter, look := a.w.Step(now)
	a.set()
	r.mu.Unlock()
	if letter != nil {
		r.post(*letter)
	}
	if look {
		a.look()
	}
}

// post sends a letter soon. It never blocks.
func (r *ringer) post(letter ringing.Letter) {
	select {
	case r.out <- letter:
	default: // lost
	}
}

// send sends what is posted, until the client ends, and then the rest: the last release
// rings, too.
func (r *ringer) send() {
	for {
		select {
		case letter := <-r.out:
			_ = r.bell.Transport.Send(letter.To, letter.Message) // lost, if it fails
			continue
		default:
		}
		select {
		case letter := <-r.out:
			_ = r.bell.Transport.Send(letter.To, letter.Message)
		case <-r.ctx.Done():
			if len(r.out) == 0 {
				return
			}
		}
	}
}

// receive takes what comes, until the client ends.
func (r *ringer) receive() {
	for failures := 0; ; {
		b, err := r.bell.Transport.Receive(r.ctx)
		switch {
		case r.ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
			r.heard(b)
		default:
			failures = min(failures+1, 10)
			pause := time.NewTimer(min(time.Millisecond<<failures, maxDeaf))
			select {
			case <-pause.C:
			case <-r.ctx.Done():
			}
			pause.Stop()
		}
	}
}

// heard takes one message.
func (r *ringer) heard(b []byte) {
	m, ok := ringing.Parse(b)
	if !ok {
		return
	}
	r.mu.Lock()
	var answer *ringing.Letter
	var call func()
	if m.Kind == ringing.Wait || m.Kind == ringing.Asked {
		answer, call = r.held.Heard(r.now(), b, m)
	} else {
		r.waits.Heard(r.now(), b, m)
	}
	r.mu.Unlock()
	if answer != nil {
		r.post(*answer)
	}
	if call != nil {
		call()
	}
}
