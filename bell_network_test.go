// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/ringing"
	"github.com/tenurelock/tenure/memstore"
)

// wires is a network of bells with faults. Make it inside a bubble.
type wires struct {
	loss    float64 // of all messages
	double  float64 // are delivered twice
	late    float64 // are delivered after 10 s
	replays float64 // are delivered again after a minute
	latency time.Duration
	blocked func(from, to string) bool

	mu    sync.Mutex
	dice  *rand.Rand
	ends  map[string]chan []byte
	count map[ringing.Kind]int // that were sent
	bytes map[ringing.Kind]int // of the longest
	kept  []ringing.Letter     // the last ones, for replays
}

func newWires(seed uint64) *wires {
	return &wires{
		dice: rand.New(rand.NewPCG(seed, 0)), ends: map[string]chan []byte{}, latency: time.Millisecond,
		count: map[ringing.Kind]int{}, bytes: map[ringing.Kind]int{},
	}
}

// wire is the end of one process.
type wire struct {
	of      *wires
	address string
}

// bell returns the bell of a client.
func (n *wires) bell(address string) tenure.Bell {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends[address] = make(chan []byte, 1000)
	return tenure.Bell{Address: address, Transport: &wire{n, address}}
}

func (w *wire) Receive(ctx context.Context) ([]byte, error) {
	w.of.mu.Lock()
	end := w.of.ends[w.address]
	w.of.mu.Unlock()
	select {
	case b := <-end:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *wire) Send(to string, message []byte) error {
	n := w.of
	n.mu.Lock()
	defer n.mu.Unlock()
	if m, ok := ringing.Parse(message); ok {
		n.count[m.Kind]++
		n.bytes[m.Kind] = max(n.bytes[m.Kind], len(message))
	}
	b := append([]byte(nil), message...)
	n.kept = append(n.kept, ringing.Letter{To: to, Message: b})
	if n.ends[to] == nil {
		return errors.New("nobody is there")
	}
	if n.blocked != nil && n.blocked(w.address, to) || n.dice.Float64() < n.loss {
		return nil
	}
	after := n.latency
	if n.dice.Float64() < n.late {
		after = 10 * time.Second
	}
	n.deliver(after, to, b)
	if n.dice.Float64() < n.double {
		n.deliver(after+time.Duration(n.dice.Float64()*float64(time.Second)), to, b)
	}
	if n.dice.Float64() < n.replays {
		n.deliver(time.Minute, to, b)
	}
	return nil
}

// deliver brings a message later. The caller holds the wires.
func (n *wires) deliver(after time.Duration, to string, b []byte) {
	end := n.ends[to]
	if end == nil {
		return
	}
	time.AfterFunc(after, func() {
		select {
		case end <- b:
		default:
		}
	})
}

// inject brings a message to an address now.
func (n *wires) inject(l *ringing.Letter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deliver(0, l.To, l.Message)
}

// sent returns how many messages of a kind were sent.
func (n *wires) sent(k ringing.Kind) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count[k]
}

// unwatched is a store without a watch, as DynamoDB is one.
type unwatched struct {
	driver.Store
	delay time.Duration // of each call that a lock needs
}

func (s *unwatched) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	<-time.After(s.delay)
	return s.Store.Get(ctx, key, c)
}

func (s *unwatched) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	<-time.After(s.delay)
	return s.Store.Swap(ctx, prev, next)
}

func (s *unwatched) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	<-time.After(s.delay)
	return s.Store.Claim(ctx, next)
}

// unwatchedWorld returns a world whose store cannot watch, and answers each call after
// two milliseconds.
func unwatchedWorld(t *testing.T) *world {
	t.Helper()
	records := memstore.New()
	return &world{t: t, records: records, open: func() driver.Store {
		return &unwatched{Store: records.Open(), delay: 2 * time.Millisecond}
	}}
}

// belled returns an option that gives a client a bell.
func (n *wires) belled(address string) func(*tenure.Options) {
	return func(o *tenure.Options) { o.Bell = n.bell(address) }
}

// bellOf returns address and secret of the bell in a record.
func bellOf(t *testing.T, rec driver.Record) (address, secret string) {
	t.Helper()
	address, secret, ok := strings.Cut(rec.Bell, " ")
	if !ok {
		t.Fatalf("the record of %q has no bell", rec.Key)
	}
	return address, secret
}

// forge returns a message as whoever can read the store can make it.
func forge(m ringing.Message, to, secret string) *ringing.Letter {
	return &ringing.Letter{To: to, Message: m.Append(nil, secret)}
}
