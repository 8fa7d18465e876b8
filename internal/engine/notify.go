// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/tenurelock/tenure/internal/notification"
)

// Transport carries messages between processes, as the API's does.
type Transport interface {
	Address() string
	Send(address string, message []byte) error
	Receive(ctx context.Context) (message []byte, err error)
}

// notifier sends and takes the messages of one client: what it holds and waits for, and the messages that
// come and go. What they mean is decided in package notification. A nil notifier is that of a
// client that neither sends nor takes notifications; its methods do nothing.
type notifier struct {
	transport Transport
	text      string // what is written into records: address and secret
	now       func() time.Duration
	timers    *timers
	ctx       context.Context // ends with the client
	cancel    context.CancelFunc
	out       chan notification.Packet

	mu    sync.Mutex // guards the fields below; taken last of all
	held  *notification.Held
	waits *notification.Waits
}

const (
	// maxPackets is how many messages wait to be sent. Further ones are dropped, as a
	// network would. A release has one for each waiter.
	maxPackets = 4 * notification.MaxWaiters
	// maxReceivePause is the longest pause after a transport could not receive.
	maxReceivePause = time.Second
)

// newNotifier returns that of a client, nil if it has no transport. Now is the clock of the
// timers, lease the client's own, and run runs a function beside the client.
func newNotifier(transport Transport, lease time.Duration, now func() time.Duration, timers *timers, run func(func())) *notifier {
	if transport == nil {
		return nil
	}
	address, secret := transport.Address(), rand.Text()
	r := &notifier{
		transport: transport, text: notification.Target(address, secret), now: now, timers: timers,
		out: make(chan notification.Packet, maxPackets), held: notification.NewHeld(secret, rand.Text()),
		waits: notification.NewWaits(address, lease, notification.Env{Word: word, Random: random}),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	run(r.send)
	run(r.receive)
	return r
}

// close ends it, when what is posted is sent.
func (r *notifier) close() {
	if r != nil {
		r.cancel()
	}
}

func word() (id notification.ID) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

// own returns what the records of the client carry.
func (r *notifier) own() string {
	if r == nil {
		return ""
	}
	return r.text
}

// holds notes that the client holds a record. A message may say that a request is in it.
func (r *notifier) holds(k *heldRecord) *notification.Lock {
	if r == nil {
		return nil
	}
	rec := k.h.Record()
	if rec.Notify != r.text {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held.Begin(k.key, rec.Lease, k.asked)
}

// notifies tells those who wait for the lock to look. The lock may be nil.
func (r *notifier) notifies(l *notification.Lock) {
	if l == nil {
		return
	}
	r.mu.Lock()
	packets := r.held.Notify(r.now(), l)
	r.mu.Unlock()
	for _, packet := range packets {
		r.post(packet)
	}
}

// leaves forgets a lock, which may be nil.
func (r *notifier) leaves(l *notification.Lock) {
	if l == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held.End(l)
}

// asks tells the holder, whose record has the address, that a request is in it.
func (r *notifier) asks(key, address string) {
	if r == nil || address == "" {
		return
	}
	if packet := notification.AskedOf(key, address, word()); packet != nil {
		r.post(*packet)
	}
}

// awaitedTerm is a term whose end the client waits for.
type awaitedTerm struct {
	r        *notifier
	is       term
	observes bool
	w        *notification.Waiting // nil if there is nobody to tell
	timer    timer
	look     func()
	ended    bool
}

// term is that of a holder that sends notifications.
type term struct {
	key, address string
	token        uint64
	lease        time.Duration
}

// awaits has the holder told that the client waits, or only observes, for as long as the
// same term is shown, and look called when that says so. It ends the wait for another term,
// was, which may be nil. A term without an address ends it for good.
func (r *notifier) awaits(was *awaitedTerm, is term, observes bool, refresh time.Duration, look func()) *awaitedTerm {
	address := is.address
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
	case was == nil && address == "", was == nil && address == r.text:
		return was // nobody to tell; or it holds the lock itself
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var before *notification.Waiting
	if was != nil && was.w != nil {
		before, was.ended = was.w, true
		r.timers.Drop(&was.timer)
		r.waits.End(before)
	}
	if address == "" {
		return nil
	}
	a := &awaitedTerm{r: r, is: is, observes: observes, look: look}
	a.timer.Run = a.due
	if address != r.text {
		a.w = r.waits.Begin(r.now(), is.key, address, is.lease, refresh, a.set)
	}
	if a.w != nil {
		a.w.Observes(r.now(), observes)
		a.w.Follows(before)
		a.set()
	}
	return a
}

// set has due called when that is due. The caller holds the notifier.
func (a *awaitedTerm) set() { a.r.timers.Set(&a.timer, a.w.Next()) }

// due sends what is to be sent, and has the record looked at.
func (a *awaitedTerm) due(now time.Duration) {
	r := a.r
	r.mu.Lock()
	if a.ended {
		r.mu.Unlock()
		return
	}
	packet, look := a.w.Step(now)
	a.set()
	r.mu.Unlock()
	if packet != nil {
		r.post(*packet)
	}
	if look {
		a.look()
	}
}

// post sends a packet soon. It never blocks.
func (r *notifier) post(packet notification.Packet) {
	select {
	case r.out <- packet:
	default: // lost
	}
}

// send sends what is posted, until the client ends, and then the rest: the last release
// notifies, too.
func (r *notifier) send() {
	for {
		select {
		case packet := <-r.out:
			_ = r.transport.Send(packet.To, packet.Message) // lost, if it fails
			continue
		default:
		}
		select {
		case packet := <-r.out:
			_ = r.transport.Send(packet.To, packet.Message)
		case <-r.ctx.Done():
			if len(r.out) == 0 {
				return
			}
		}
	}
}

// receive takes what comes, until the client ends.
func (r *notifier) receive() {
	for failures := 0; ; {
		b, err := r.transport.Receive(r.ctx)
		switch {
		case r.ctx.Err() != nil:
			return
		case err == nil:
			failures = 0
			r.heard(b)
		default:
			failures = min(failures+1, 10)
			pause := time.NewTimer(min(time.Millisecond<<failures, maxReceivePause))
			select {
			case <-pause.C:
			case <-r.ctx.Done():
			}
			pause.Stop()
		}
	}
}

// heard takes one message.
func (r *notifier) heard(b []byte) {
	m, ok := notification.Parse(b)
	if !ok {
		return
	}
	r.mu.Lock()
	var answer *notification.Packet
	var call func()
	if m.Kind == notification.Wait || m.Kind == notification.Asked {
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
