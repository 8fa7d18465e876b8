// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/notification"
	"github.com/tenurelock/tenure/internal/protocol"
	"github.com/tenurelock/tenure/internal/testutil"
	"github.com/tenurelock/tenure/memstore"
)

// inNotified runs a test in a bubble, with a world without a watch and a network.
func inNotified(t *testing.T, test func(t *testing.T, w *world, n *wires)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, unwatchedWorld(t), newWires(1)) })
}

// handOver returns how long a waiter needs to get a lock after its release began.
func handOver(t *testing.T, holder, waiter *machine, after time.Duration) time.Duration {
	t.Helper()
	l := holder.MustAcquire("x", nil)
	var at time.Time
	got := testutil.Go(func() error {
		l, err := waiter.Acquire(t.Context(), "x", nil)
		if err != nil {
			return err
		}
		at = time.Now()
		return l.Release(t.Context())
	})
	time.Sleep(after)
	begun := time.Now()
	mustRelease(holder, l)
	testutil.Want(t, <-got, nil)
	return at.Sub(begun)
}

// A waiter finds a release within a datagram, a read and a claim. Without notifications it
// finds it by its next poll.
func TestNotifiesAtTheRelease(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		a, b := w.Client("a", n.notified("A")), w.Client("b", n.notified("B"))
		for i := range 20 {
			// A heartbeat that the release waits for may take 2 ms, the release takes 2,
			// the notification 1, a read and a claim 4.
			if took := handOver(t, a, b, 5*time.Second+time.Duration(i)*37*time.Millisecond); took > 9*time.Millisecond {
				t.Errorf("hand-over %d took %v with notifications", i, took)
			}
			time.Sleep(time.Second)
		}
		var slowest time.Duration
		c, d := w.Client("c"), w.Client("d")
		for i := range 20 {
			slowest = max(slowest, handOver(t, c, d, 5*time.Second+time.Duration(i)*37*time.Millisecond))
		}
		if slowest < 100*time.Millisecond {
			t.Errorf("without notifications the slowest took %v: this test shows nothing", slowest)
		}
	})
}

// The record of a lock has an address while the lock is held, and only then.
func TestAddressIsInHeldRecordsAlone(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		a, b, c := w.Client("a", n.notified("A")), w.Client("b", n.notified("B")), w.Client("c")
		carries := func(name string, owner *machine, yes bool) {
			t.Helper()
			rec := w.MustRecord(name)
			if (rec.Notify != "") != yes || yes && !strings.HasPrefix(rec.Notify, owner.Options().Notify.Address()+" ") {
				t.Errorf("%s, %s by %s, has an address at %.1q", name, rec.State, rec.Owner, rec.Notify)
			}
		}
		l := a.MustAcquire("x", nil)
		carries("x", a, true)
		time.Sleep(2 * heartbeat)
		carries("x", a, true)
		mustRelease(a, l)
		carries("x", a, false)

		l = b.MustAcquire("x", nil)
		carries("x", b, true)
		testutil.Want(t, l.StepDown(&tenure.StepDownOptions{To: "c", Reason: "a test"}), nil)
		mustRelease(b, l)
		carries("x", b, false)
		l = c.MustAcquire("x", nil) // it has none
		carries("x", c, false)
		mustRelease(c, l)

		s := mustOpen(a, nil)
		carries(driver.SessionKey(s.ID()), a, true)
		mustTake(a, s, "y")
		carries("y", a, true)

		// Taken over from a dead holder.
		l = b.MustAcquire("z", nil)
		carries("z", b, true)
		b.Partition()
		l2 := c.MustAcquire("z", nil)
		carries("z", c, false)
		mustRelease(c, l2)
		_ = l.Release(t.Context())

		// An operator's acts.
		a.MustAcquire("revoked", nil)
		testutil.Want(t, admin.Revoke(t.Context(), c.Client, "revoked", "a test"), nil)
		carries("revoked", a, false)
	})
}

// The library never shows the secret.
func TestNotificationSecretIsShownToNobody(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		a, b := w.Client("a", n.notified("A")), w.Client("b", n.notified("B"))
		l := a.MustAcquire("x", &tenure.AcquireOptions{History: true})
		_, secret := notifyOf(t, w.MustRecord("x"))
		var shown []string
		show := func(v any, err error) {
			shown = append(shown, fmt.Sprintf("%v %+v %#v %v %+v", v, v, v, err, err))
		}
		_, err := b.TryAcquire(t.Context(), "x", nil)
		show(nil, err)
		s, err := b.Status(t.Context(), "x")
		show(s, err)
		show(b.Options(), nil)
		show(a.Options(), nil)
		show(b.Client, nil)
		show(l, nil)
		show(w.MustRecord("x"), nil)
		asked := testutil.Go(func() error { return b.StepDown(t.Context(), "x", because("a test")) })
		<-l.Context().Done()
		mustRelease(a, l)
		testutil.Want(t, <-asked, nil)
		l = b.MustAcquire("x", &tenure.AcquireOptions{History: true})
		h, err := b.History(t.Context(), "x")
		show(h, err)
		former, _ := l.Previous()
		show(former, nil)
		for _, e := range append(a.Events(), b.Events()...) {
			show(e, e.Err)
		}
		all := strings.Join(shown, "\n")
		if strings.Contains(all, secret) {
			t.Error("the secret is shown")
		}
		if !strings.Contains(all, "a test") {
			t.Error("nothing is shown")
		}
	})
}

// A client that asks a holder to stop notifies it: the holder stops at once, and not with its
// next heartbeat.
func TestRequestIsNotified(t *testing.T) {
	for _, tt := range []struct {
		name     string
		session  bool
		notified bool
	}{{"address", false, true}, {"address of a session", true, true}, {"no address", false, false}} {
		t.Run(tt.name, func(t *testing.T) {
			inNotified(t, func(t *testing.T, w *world, n *wires) {
				a, b := w.Client("a"), w.Client("b")
				if tt.notified {
					a, b = w.Client("A", n.notified("A")), w.Client("B", n.notified("B"))
				}
				l := takes(a, "x", tt.session)
				testutil.Want(t, l.Renew(t.Context()), nil) // the next heartbeat is a period from now
				begun := time.Now()
				asked := testutil.Go(func() error { return b.StepDown(t.Context(), "x", because("a test")) })
				<-l.Context().Done()
				if took := time.Since(begun); (took < 20*time.Millisecond) != tt.notified {
					t.Errorf("told to stop after %v", took)
				}
				begun = time.Now()
				mustRelease(a, l)
				testutil.Want(t, <-asked, nil)
				if took := time.Since(begun); tt.notified && took > 20*time.Millisecond {
					t.Errorf("the requester knew %v after the release", took)
				}
			})
		})
	}
}

// When a session is closed, the waiters for its locks are notified, although no record
// of a lock has changed.
func TestNotifiesAtTheEndOfASession(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		a, b := w.Client("a", n.notified("A")), w.Client("b", n.notified("B"))
		s := mustOpen(a, nil)
		var got []<-chan error
		var leases []*tenure.Lease
		for _, name := range names(5) {
			l := mustTake(a, s, name)
			leases = append(leases, l)
			got = append(got, testutil.Go(func() error { _, err := b.Acquire(t.Context(), name, nil); return err }))
		}
		time.Sleep(2 * lease)
		begun := time.Now()
		closed := testutil.Go(func() error { return s.Close(t.Context()) })
		for _, l := range leases {
			testutil.Want(t, l.Release(t.Context()), nil)
		}
		testutil.Want(t, <-closed, nil)
		for _, g := range got {
			testutil.Want(t, <-g, nil)
		}
		if took := time.Since(begun); took > 30*time.Millisecond {
			t.Errorf("all taken %v after the session was closed", took)
		}
	})
}

// A release of unknown outcome notifies as well: it may have been applied.
func TestNotifiesAtAReleaseOfUnknownOutcome(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		a := w.Client("a", n.notified("A"))
		b := w.Client("b", n.notified("B"), func(o *tenure.Options) { o.RefreshPeriod = 10 * time.Minute })
		l := a.MustAcquire("x", nil)
		got := testutil.Go(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
		time.Sleep(3 * time.Second)
		begun := time.Now()
		a.Inject(faultstore.OpRelease, 0, 1, faultstore.LoseReplyHang())
		a.Inject(faultstore.OpRelease, 0, 0, faultstore.BlackHole()) // it never learns that it was applied
		released := testutil.Go(func() error { return l.Release(t.Context()) })
		testutil.Want(t, <-got, nil)
		if took := time.Since(begun); took > requestTimeout+20*time.Millisecond {
			t.Errorf("taken %v after the release", took)
		}
		<-released //nolint:errcheck // it is superseded, or uncertain
	})
}

// Waiters are notified in order of arrival, and read one after the other.
func TestNotifiedInTheOrderOfArrival(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		const waiters = 10
		a := w.Client("a", n.notified("A"))
		l := a.MustAcquire("x", nil)
		won := make(chan string, waiters)
		var all []*machine
		var ended []<-chan error
		for i := range waiters {
			m := w.Client(fmt.Sprintf("w%d", i), n.notified(fmt.Sprintf("W%d", i)), func(o *tenure.Options) {
				o.RefreshPeriod = 10 * time.Minute // no look comes first by chance
			})
			all = append(all, m)
			ended = append(ended, testutil.Go(func() error {
				l, err := m.Acquire(t.Context(), "x", nil)
				if err != nil {
					return err
				}
				won <- m.Options().Owner
				time.Sleep(time.Minute)
				return l.Release(t.Context())
			}))
			time.Sleep(3 * time.Second)
		}
		looks := func() (n int) {
			for _, m := range all {
				n += m.Faults().Count(faultstore.OpGet)
			}
			return n
		}
		before := looks()
		time.Sleep(time.Second) // each looks once in a lease, at the end of a third second
		mustRelease(a, l)
		if first := <-won; first != "w0" {
			t.Errorf("%s was first", first)
		}
		if at := looks(); at-before > 5 {
			t.Errorf("%d looks until the first had it", at-before)
		}
		for _, e := range ended {
			testutil.Want(t, <-e, nil)
		}
	})
}

// slowly is a transport that takes its time.
type slowly struct{ tenure.Notifier }

func (s slowly) Send(to string, message []byte) error {
	<-time.After(50 * time.Millisecond)
	return s.Notifier.Send(to, message)
}

// The last release notifies, too: a client that is closed sends its messages first. After
// that it forgets its locks.
func TestNotifiesBeforeTheClientIsClosed(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		const waiters = 5
		a := w.Client("a", func(o *tenure.Options) {
			o.Notify = slowly{n.notifier("A")}
		})
		l := a.MustAcquire("x", nil)
		ctx, stop := context.WithCancel(t.Context())
		var ended []<-chan error
		for i := range waiters {
			m := w.Client(fmt.Sprint("w", i), n.notified(fmt.Sprint("W", i)))
			ended = append(ended, testutil.Go(func() error { _, err := m.Acquire(ctx, "x", nil); return err }))
		}
		time.Sleep(5 * time.Second)
		mustRelease(a, l)
		testutil.Want(t, a.Close(t.Context()), nil)
		if sent := n.sent(notification.Notify); sent != waiters {
			t.Errorf("%d of %d were notified", sent, waiters)
		}
		stop()
		for _, e := range ended {
			<-e //nolint:errcheck // one has it
		}
	})
}

// A released lock is forgotten: its waiters get no answer any more.
func TestReleasedLockHasNoAddress(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		a := w.Client("a", n.notified("A"))
		n.notifier("B")
		l := a.MustAcquire("x", nil)
		to, secret := notifyOf(t, w.MustRecord("x"))
		m := notification.Message{Kind: notification.Wait, Lock: notification.NameOf(secret, "x"), Address: "B"}
		for i, want := range []int{1, 1} {
			n.inject(forge(m, to, secret))
			time.Sleep(time.Second)
			if sent := n.sent(notification.Ack); sent != want {
				t.Errorf("%d answers after message %d, want %d", sent, i, want)
			}
			if i == 0 {
				mustRelease(a, l)
			}
		}
	})
}

// A transport that fails, or delivers garbage, does no harm.
func TestTransportThatFails(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		a, b := w.Client("a", n.notified("A")), w.Client("b", n.notified("nowhere"))
		n.mu.Lock()
		delete(n.ends, "nowhere") // nothing arrives there, and it cannot be sent to
		n.mu.Unlock()
		for _, b := range [][]byte{nil, {0}, []byte("TENUREB1"), make([]byte, 512), []byte(strings.Repeat("TENUREB1", 100))} {
			n.inject(&notification.Packet{To: "A", Message: b})
		}
		if took := handOver(t, a, b, 5*time.Second); took > byLooks {
			t.Errorf("hand-over took %v", took)
		}
	})
}

// A notifier whose address no record can hold is refused.
func TestAddressOfTheNotifierIsChecked(t *testing.T) {
	n := newWires(1)
	for _, address := range []string{"", "a b", "ä", "a\n", strings.Repeat("a", 201)} {
		_, err := tenure.New(memstore.New(), &tenure.Options{Notify: &wire{n, address}})
		if err == nil || !strings.Contains(err.Error(), "notification address") {
			t.Errorf("notifier at %.20q: %v", address, err)
		}
	}
}

// Waiters of a remote holder, and its lock, have no address.
func TestRemoteHoldersHaveNoAddress(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		a := w.Client("a", n.notified("A"))
		rec, err := a.Engine().RemoteAcquire(t.Context(), protocol.Want{Key: "x", Owner: "elsewhere", Patience: lease}, false, nil)
		testutil.Want(t, err, nil)
		if rec := w.MustRecord("x"); rec.Notify != "" {
			t.Error("the lock of a holder elsewhere has the address of the service")
		}
		a.Engine().RemoteDiscard("x", rec.Token)
	})
}

// wires is a network of notifiers with faults. Make it inside a bubble.
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
	count map[notification.Kind]int // that were sent
	bytes map[notification.Kind]int // of the longest
	kept  []notification.Packet     // the last ones, for replays
}

func newWires(seed uint64) *wires {
	return &wires{
		dice: rand.New(rand.NewPCG(seed, 0)), ends: map[string]chan []byte{}, latency: time.Millisecond,
		count: map[notification.Kind]int{}, bytes: map[notification.Kind]int{},
	}
}

// wire is the end of one process.
type wire struct {
	of      *wires
	address string
}

// notifier returns the notifier of a client.
func (n *wires) notifier(address string) tenure.Notifier {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends[address] = make(chan []byte, 1000)
	return &wire{n, address}
}

func (w *wire) Address() string { return w.address }

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
	if m, ok := notification.Parse(message); ok {
		n.count[m.Kind]++
		n.bytes[m.Kind] = max(n.bytes[m.Kind], len(message))
	}
	b := append([]byte(nil), message...)
	n.kept = append(n.kept, notification.Packet{To: to, Message: b})
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
func (n *wires) inject(l *notification.Packet) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deliver(0, l.To, l.Message)
}

// sent returns how many messages of a kind were sent.
func (n *wires) sent(k notification.Kind) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count[k]
}

// unwatched is a store without a watch, such as DynamoDB.
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
	w := worldOn(t, func() driver.Store { return records.Open() })
	w.Wrap(func(_ string, s driver.Store) driver.Store { return &unwatched{Store: s, delay: 2 * time.Millisecond} })
	return w
}

// notified returns an option that gives a client a notifier.
func (n *wires) notified(address string) func(*tenure.Options) {
	return func(o *tenure.Options) { o.Notify = n.notifier(address) }
}

// notifyOf returns address and secret in a record.
func notifyOf(t *testing.T, rec driver.Record) (address, secret string) {
	t.Helper()
	address, secret, ok := strings.Cut(rec.Notify, " ")
	if !ok {
		t.Fatalf("the record of %q has no address", rec.Key)
	}
	return address, secret
}

// forge returns a message that anyone who can read the store can make.
func forge(m notification.Message, to, secret string) *notification.Packet {
	return &notification.Packet{To: to, Message: m.Append(nil, secret)}
}

// byLooks is the longest that a hand-over takes without notifications. A poll comes up to an eighth
// of the refresh period late, and another quarter if it then falls soon after a heartbeat; and the
// calls are short.
const byLooks = refresh + refresh/8 + refresh/4 + 50*time.Millisecond

// If messages do not arrive, a hand-over is as fast as without notifications.
func TestBlockedPortMakesNothingSlower(t *testing.T) {
	for name, blocked := range map[string]func(from, to string) bool{
		"both ways":   func(string, string) bool { return true },
		"to holder":   func(_, to string) bool { return to == "A" },
		"from holder": func(from, _ string) bool { return from == "A" },
	} {
		t.Run(name, func(t *testing.T) {
			inNotified(t, func(t *testing.T, w *world, n *wires) {
				n.blocked = blocked
				a, b := w.Client("a", n.notified("A")), w.Client("b", n.notified("B"))
				for i := range 20 {
					if took := handOver(t, a, b, 5*time.Second+time.Duration(i)*53*time.Millisecond); took > byLooks {
						t.Errorf("hand-over %d took %v", i, took)
					}
				}
			})
		})
	}
}

// A port that is blocked after the holder has answered changes nothing either, and a
// port that is opened is used.
func TestPortBlockedLater(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		a, b := w.Client("a", n.notified("A")), w.Client("b", n.notified("B"))
		shut := false
		n.blocked = func(string, string) bool { return shut } // called under the network's mutex
		set := func(yes bool) {
			n.mu.Lock()
			defer n.mu.Unlock()
			shut = yes
		}
		for i := range 10 {
			l := a.MustAcquire("x", nil)
			got := testutil.Go(func() error {
				l, err := b.Acquire(t.Context(), "x", nil)
				if err == nil {
					err = l.Release(t.Context())
				}
				return err
			})
			set(i%2 == 1) // shut, and opened meanwhile
			time.Sleep(10*time.Second + time.Duration(i)*53*time.Millisecond)
			set(i%2 == 0)
			most := byLooks
			if i%2 == 1 {
				most = 20 * time.Millisecond
				time.Sleep(lease / 3) // for the next message
			}
			begun := time.Now()
			mustRelease(a, l)
			testutil.Want(t, <-got, nil)
			if took := time.Since(begun); took > most {
				t.Errorf("hand-over %d took %v, want %v at most", i, took, most)
			}
			set(false)
		}
	})
}

// Over a network that loses, duplicates, delays and replays messages, with forged ones in
// between, no two processes hold the lock, no hand-over is slower than without notifications,
// and no process polls without a pause.
func TestNotificationsOverABadNetwork(t *testing.T) {
	enginetest.MakeVerify(t)
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { badNetwork(t, unwatchedWorld(t), seed) })
		})
	}
}

func badNetwork(t *testing.T, w *world, seed uint64) {
	longest, middling := byLooks, refresh/3
	n := newWires(seed)
	n.loss, n.double, n.late, n.replays = 0.3, 0.3, 0.1, 0.3
	const machines = 4
	var mu sync.Mutex
	var holds *tenure.Lease
	var freed time.Time // when the last release began
	var slowest, sum time.Duration
	grants := 0
	ctx, stop := context.WithTimeout(t.Context(), 15*time.Minute)
	defer stop()
	var all []*machine
	var ended []<-chan error
	begun := time.Now()
	for i := range machines {
		m := w.Client(fmt.Sprint("m", i), n.notified(fmt.Sprint("M", i)))
		all = append(all, m)
		ended = append(ended, testutil.Go(func() error {
			for {
				l, err := m.Acquire(ctx, "x", nil)
				if err != nil {
					return nil
				}
				mu.Lock()
				if holds != nil && holds.Check() == nil {
					t.Errorf("%s has it while %s may act", l.Owner(), holds.Owner())
				}
				if holds = l; !freed.IsZero() {
					took := time.Since(freed)
					slowest, sum = max(slowest, took), sum+took
				}
				grants++
				hold := time.Second + time.Duration(n.roll()*float64(20*time.Second))
				mu.Unlock()
				time.Sleep(hold)
				mu.Lock()
				freed = time.Now()
				mu.Unlock()
				testutil.Want(t, l.Release(t.Context()), nil)
				time.Sleep(2 * refresh) // it is another one's turn
			}
		}))
		time.Sleep(time.Second)
	}
	// A reader of the table notifies all processes all the time, with replayed and forged
	// messages.
	forgers := testutil.Go(func() error {
		for ctx.Err() == nil {
			time.Sleep(50 * time.Millisecond)
			rec := w.MustRecord("x")
			if rec.Notify == "" {
				continue
			}
			to, secret := notifyOf(t, rec)
			id := notification.NameOf(secret, "x")
			n.inject(forge(notification.Message{Kind: notification.Asked, Lock: id}, to, secret))
			n.inject(forge(notification.Message{Kind: notification.Wait, Lock: id, Address: fmt.Sprint("M", n.index(machines))}, to, secret))
			n.replayOne()
		}
		return nil
	})
	for _, e := range append(ended, forgers) {
		testutil.Want(t, <-e, nil)
	}
	elapsed := time.Since(begun)
	if slowest > longest {
		t.Errorf("the slowest of %d hand-overs took %v", grants, slowest)
	}
	// With a message in three lost, notifications still do their work.
	if mean := sum / time.Duration(max(1, grants-1)); grants < 50 || mean > middling {
		t.Errorf("%d hand-overs took %v in the mean", grants, mean)
	}
	for _, m := range all {
		// Ordinary polls are a refresh period apart, hints a quarter of one, each of them two
		// reads at most; a heartbeat is H apart, early ones a quarter.
		reads, most := m.Faults().Count(faultstore.OpGet), int(elapsed/refresh)*(2+2*4)
		writes, mostWrites := m.Faults().Count(faultstore.OpHeartbeat), int(elapsed/heartbeat)*5
		if reads > most || writes > mostWrites {
			t.Errorf("%s made %d reads and %d heartbeats in %v: at most %d and %d are allowed", m.Options().Owner, reads, writes, elapsed, most, mostWrites)
		}
		t.Logf("%s: %.1f reads and %.2f heartbeats a second; slowest hand-over %v, mean %v of %d", m.Options().Owner,
			float64(reads)/elapsed.Seconds(), float64(writes)/elapsed.Seconds(), slowest, sum/time.Duration(max(1, grants-1)), grants)
	}
}

// roll returns a number in [0, 1), index a number below n; replayOne delivers an old message
// again.
func (n *wires) roll() float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dice.Float64()
}

func (n *wires) index(of int) int { return int(n.roll() * float64(of)) }

func (n *wires) replayOne() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.kept) > 0 {
		l := n.kept[n.dice.IntN(len(n.kept))]
		n.deliver(0, l.To, l.Message)
	}
}

// flooded sends forged messages to a waiter and a holder each millisecond for a while. It
// returns how many reads and heartbeats in a period follow.
func flooded(t *testing.T, w *world, n *wires) (reads, heartbeats float64) {
	a, b := w.Client("a", n.notified("A")), w.Client("b", n.notified("B"))
	b.BoundReads(0) // they are counted here
	a.MustAcquire("x", nil)
	ctx, stop := context.WithCancel(t.Context())
	got := testutil.Go(func() error { _, err := b.Acquire(ctx, "x", nil); return err })
	time.Sleep(lease)
	to, secret := notifyOf(t, w.MustRecord("x"))
	hint := notification.Message{Kind: notification.Notify, Lock: notification.NameOf(secret, "x")}
	for _, l := range n.kept { // what somebody on the way sees
		if m, _ := notification.Parse(l.Message); m.Kind == notification.Wait {
			hint.Nonce = m.Nonce
		}
	}
	looked, beat := b.Faults().Count(faultstore.OpGet), a.Faults().Count(faultstore.OpHeartbeat)
	const long = 30 * time.Second
	for range int(long / time.Millisecond) {
		n.inject(forge(hint, "B", secret))
		n.inject(forge(notification.Message{Kind: notification.Asked, Lock: hint.Lock}, to, secret))
		time.Sleep(time.Millisecond)
	}
	stop()
	testutil.Want(t, <-got, context.Canceled)
	return float64(b.Faults().Count(faultstore.OpGet)-looked) / float64(long/refresh),
		float64(a.Faults().Count(faultstore.OpHeartbeat)-beat) / float64(long/heartbeat)
}

// Hints have a limit: four in a refresh period, each of them two reads, and four early
// heartbeats in a period.
func TestFloodOfNotificationsCostsLittle(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		reads, heartbeats := flooded(t, w, n)
		t.Logf("%.2f reads in a refresh period, %.2f heartbeats in a period", reads, heartbeats)
		if reads > 10 || heartbeats > 4.5 {
			t.Errorf("%.2f reads in a refresh period, %.2f heartbeats in a period", reads, heartbeats)
		}
		if reads < 4 || heartbeats < 3 {
			t.Error("the flood did not arrive: this test shows nothing")
		}
	})
}

// takeoverWhileNotified returns how long it takes to take over from a holder that has crashed,
// while an attacker forges its notifications.
func takeoverWhileNotified(t *testing.T, w *world, n *wires) time.Duration {
	a, b := w.Client("a", n.notified("A")), w.Client("b", n.notified("B"))
	a.MustAcquire("x", nil)
	got := testutil.Go(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
	time.Sleep(lease)
	a.Partition()
	crashed := time.Now()
	_, secret := notifyOf(t, w.MustRecord("x"))
	hint := notification.Message{Kind: notification.Notify, Lock: notification.NameOf(secret, "x")}
	for _, l := range n.kept {
		if m, _ := notification.Parse(l.Message); m.Kind == notification.Wait {
			hint.Nonce = m.Nonce
		}
	}
	for time.Since(crashed) < 4*lease {
		select {
		case err := <-got:
			testutil.Want(t, err, nil)
			return time.Since(crashed)
		default:
			n.inject(forge(hint, "B", secret))
			time.Sleep(10 * time.Millisecond)
		}
	}
	t.Cleanup(func() { <-got }) //nolint:errcheck // it ends with the context of the test
	return time.Since(crashed)
}

// A notification is no read: it shows no sign of life, and prolongs no dead holder's lease.
func TestRingsDelayNoTakeover(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		if took := takeoverWhileNotified(t, w, n); took > lease+refresh {
			t.Errorf("taken over %v after the crash", took)
		}
	})
}

// slowRelease returns how long after a release was applied that takes half a second the
// waiter has the lock.
func slowRelease(t *testing.T, w *world, n *wires) time.Duration {
	a, b := w.Client("a", n.notified("A")), w.Client("b", n.notified("B"))
	l := a.MustAcquire("x", nil)
	got := testutil.Go(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
	time.Sleep(lease)
	// Begin soon after an ordinary poll, so that the next one does not find it by chance.
	for looks := b.Faults().Count(faultstore.OpGet); b.Faults().Count(faultstore.OpGet) == looks; {
		time.Sleep(time.Millisecond)
	}
	a.Inject(faultstore.OpRelease, 0, 1, faultstore.Slow(refresh/2, 0))
	testutil.Want(t, l.Release(t.Context()), nil)
	released := time.Now()
	testutil.Want(t, <-got, nil)
	return time.Since(released)
}

// No waiter is notified before the release is applied: a waiter that reads then finds the lock
// held, and is not notified again.
func TestRingComesAfterTheRelease(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		if took := slowRelease(t, w, n); took > 10*time.Millisecond {
			t.Errorf("taken %v after the release", took)
		}
	})
}

// A process is notified only after it has repeated what was sent to its address, so that a reader
// of the table cannot have a third party notified.
func TestNoThirdPartyIsNotified(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		a := w.Client("a", n.notified("A"))
		n.notifier("victim")
		l := a.MustAcquire("x", nil)
		to, secret := notifyOf(t, w.MustRecord("x"))
		for i := range 100 {
			m := notification.Message{Kind: notification.Wait, Lock: notification.NameOf(secret, "x"), Address: "victim"}
			m.Nonce[0], m.Echo[0] = byte(i), byte(i)
			n.inject(forge(m, to, secret))
			time.Sleep(10 * time.Millisecond)
		}
		mustRelease(a, l)
		time.Sleep(time.Second)
		if sent := n.sent(notification.Notify); sent != 0 {
			t.Errorf("%d notifications to somebody who does not wait", sent)
		}
		if sent := n.sent(notification.Ack); sent != 100 {
			t.Errorf("%d answers to 100 messages", sent)
		}
	})
}

// A waiter's message confirms no write: the lease of a holder without an answer of the store
// ends at its deadline, although another process keeps sending it that it waits.
func TestWaitConfirmsNothing(t *testing.T) {
	inNotified(t, func(t *testing.T, w *world, n *wires) {
		a, b := w.Client("a", n.notified("A")), w.Client("b", n.notified("B"))
		l := a.MustAcquire("x", nil)
		got := testutil.Go(func() error { _, err := b.Acquire(t.Context(), "x", nil); return err })
		time.Sleep(lease)
		testutil.Want(t, l.Renew(t.Context()), nil)
		a.Partition()
		begun := time.Now()
		ctx, stop := context.WithTimeout(l.Context(), 2*lease)
		defer stop()
		<-ctx.Done()
		if took := time.Since(begun); took > usable {
			t.Errorf("the lease lasted for %v, %v are allowed", took, usable)
		}
		testutil.Want(t, <-got, nil)
	})
}
