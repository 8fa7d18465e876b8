// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/rwlock"
)

// What goes wrong, or went wrong, with locks for readers and writers of others, as their
// issues tell it.

// CURATOR-276 and CURATOR-621: a downgrade let a waiting writer in beside the reader.
func TestCurator621DowngradeBesideAWaitingWriter(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		w, next := s.process("w"), s.process("next")
		l := w.write(t.Context())
		got := make(chan *rwlock.Lease)
		go func() { got <- next.write(t.Context()) }()
		time.Sleep(5 * refresh)
		if err := l.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lease)
		select {
		case <-got:
			t.Fatal("a writer came in beside the reader")
		default:
		}
		w.release(l)
		next.release(<-got)
	})
}

// CURATOR-604 and CURATOR-206: after a loss of its session a holder went on beside the
// next one, unless it had listened. The end shows in Check, in the context, and in what the
// next acquire says.
func TestCurator604LossOfTheSession(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		r, w := s.process("r"), s.process("w")
		session, err := r.client.OpenSession(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Lock = r.lock(&rwlock.Options{Session: session})
		l := r.read(t.Context())
		r.client.Partition()
		written := w.write(t.Context())
		if l.Check() == nil || l.Context().Err() == nil {
			t.Error("the reader still believes")
		}
		r.client.Heal()
		if _, err := r.AcquireRead(t.Context(), nil); !errors.Is(err, tenure.ErrSessionClosed) {
			t.Error(err)
		}
		if _, err := r.AcquireWrite(t.Context(), nil); !errors.Is(err, tenure.ErrSessionClosed) {
			t.Error(err)
		}
		w.release(written)
		r.leave(l)
		if err := l.Release(t.Context()); !errors.Is(err, tenure.ErrLost) {
			t.Error(err)
		}
	})
}

// redisson#7098: a crashed reader was kept alive by the watchdog of another one, and
// writers waited for ever.
func TestRedisson7098CrashedReaderBesideALivingOne(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a, b, w := s.process("a"), s.process("b"), s.process("w")
		dead, living := a.read(t.Context()), b.read(t.Context())
		a.leave(dead)
		a.client.Kill()
		got := make(chan *rwlock.Lease)
		go func() { got <- w.write(t.Context()) }()
		time.Sleep(5 * lease)
		b.release(living)
		begun := time.Now()
		w.release(<-got)
		if took := time.Since(begun); took > 2*refresh {
			t.Errorf("the writer came %v after the living reader had left", took)
		}
	})
}

// redisson#1604: leases to read were not renewed. redisson#7251: they were for ever.
func TestRedisson1604And7251Renewal(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p, w := s.process("p"), s.process("w")
		l := p.read(t.Context())
		time.Sleep(10 * lease)
		if err := l.Check(); err != nil {
			t.Error(err)
		}
		p.release(l)
		p.client.Faults().ResetLog()
		time.Sleep(10 * lease)
		if n := p.client.Faults().Count(); n > 0 {
			t.Errorf("%d calls after the release", n)
		}
		w.release(w.write(t.Context()))
	})
}

// etcd#16221: a process whose session was revoked while it waited got the lock all the
// same.
func TestEtcd16221RightLostWhileWaiting(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		r, w, other := s.process("r"), s.process("w"), s.process("other")
		l := r.read(t.Context())
		got := make(chan *rwlock.Lease)
		go func() { got <- w.write(t.Context()) }()
		time.Sleep(3 * refresh)
		w.client.Pause() // with the gate in hand, until it is over
		time.Sleep(2 * lease)
		r.release(l)
		written := other.write(t.Context())
		w.client.Resume()
		time.Sleep(5 * refresh)
		select {
		case <-got:
			t.Fatal("two writers")
		default:
		}
		other.release(written)
		w.release(<-got)
	})
}

// etcd's recipes.RWMutex: no wait can be given up, and one that failed stays in
// everybody's way.
func TestEtcdGivenUpWaitLeavesNothing(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		r, w := s.process("r"), s.process("w")
		l := r.read(t.Context())
		ctx, stop := context.WithTimeout(t.Context(), 3*refresh)
		defer stop()
		if _, err := w.AcquireWrite(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(10 * time.Millisecond)
		more := s.process("more")
		got, err := more.TryAcquireRead(t.Context(), nil)
		more.release(more.got(got, err))
		r.release(l)
	})
}
