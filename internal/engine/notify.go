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

// notifier sends and receives the messages of one client. It knows which locks the client holds and
// waits for; package notification decides what the messages mean. A nil notifier belongs to a
// client without notifications; its methods do nothing.
type notifier struct {
	transport Transport
	text      string // written into records: address and secret
	now       func() time.Duration
	timers    *timers
	ctx       context.Context // ends with the client
	cancel    context.CancelFunc
	out       chan notification.Packet

	mu    sync.Mutex // guards the fields below; taken after all other mutexes
	held  *notification.Held
	waits *notification.Waits
}

const (
	// maxPackets is how many messages may wait to be sent. Further messages are dropped,
	// as a network would do. A release sends one for each waiter.
	maxPackets = 4 * notification.MaxWaiters
	// maxReceivePause is the longest pause after a receive error.
	maxReceivePause = time.Second
)

// newNotifier returns the notifier of a client, nil without a transport. now is the clock
// of the timers, lease the client's lease, and run runs a function in the background.
func newNotifier(transport Transport, lease time.Duration, now func() time.Duration, timers *timers, run func(func())) *notifier {
	if transport == nil {
		return nil
	}
	address, secret := transport.Address(), rand.Text()
	r := &notifier{
		transport: transport, text: notification.Target(address, secret), now: now, timers: timers,
		out: make(chan notification.Packet, maxPackets), held: notification.NewHeld(secret, rand.Text()),
		waits: notification.NewWaits(address, lease, notification.Env{NewID: randomID, Random: random}),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	run(r.send)
	run(r.receive)
	return r
}

// close ends the notifier after all posted messages are sent.
func (r *notifier) close() {
	if r != nil {
		r.cancel()
	}
}

func randomID() (id notification.ID) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

// own returns the target that the client's records carry.
func (r *notifier) own() string {
	if r == nil {
		return ""
	}
	return r.text
}

// holds notes that the client holds a record. A message may then report a request in it.
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

// notifies asks the waiters of the lock to read its record. The lock may be nil.
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

// asks notifies the holder at the address in its record that a request is in that
// record.
func (r *notifier) asks(key, address string) {
	if r == nil || address == "" {
		return
	}
	if packet := notification.AskedOf(key, address, randomID()); packet != nil {
		r.post(*packet)
	}
}

// awaitedTerm is a term whose end the client waits for.
type awaitedTerm struct {
	r        *notifier
	is       awaitedHolder
	observes bool
	w        *notification.Waiting // nil without a holder to notify
	timer    timer
	look     func()
	ended    bool
}

// awaitedHolder is the term of a holder that sends notifications.
type awaitedHolder struct {
	key, address string
	token        uint64
	lease        time.Duration
}

// awaits tells the holder that the client waits, or only observes, as long as the view shows
// the same term. It calls look when the holder notifies the client. If was is another term, it
// ends the wait for that one. A term without an address begins no wait.
func (r *notifier) awaits(was *awaitedTerm, is awaitedHolder, observes bool, refresh time.Duration, look func()) *awaitedTerm {
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
		return was // no holder to notify; or the client itself holds the lock
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
		a.w.Follows(before) // both waits share one limit on hints
		a.set()
	}
	return a
}

// set sets the timer for due. The caller holds a.r.mu.
func (a *awaitedTerm) set() { a.r.timers.Set(&a.timer, a.w.Next()) }

// due sends the messages that are due, and has the record read.
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

// send sends posted messages until the client ends, and then the remaining ones: the
// last release notifies, too.
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

// receive takes messages until the client ends.
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

// heard handles one message.
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
