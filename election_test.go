// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/faultstore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/testutil"
)

// noWork is work for a campaign that must not win.
func noWork(context.Context, *tenure.Lease) error { panic("work without a lease") }

// When the work returns, the election ends for this candidate, with what it
// returned.
func TestElectionReturnsWhatWorkReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		e := m.Election("x", nil)
		if e.Name() != "x" {
			t.Errorf("name %q", e.Name())
		}
		for _, result := range []error{nil, errWork} {
			err := e.Run(t.Context(), func(context.Context, *tenure.Lease) error { return result })
			if err != result { //nolint:errorlint // what work returns, as it is
				t.Errorf("got %v, want %v", err, result)
			}
		}
		_, err := e.Leader(t.Context())
		testutil.Want(t, err, tenure.ErrNoLeader)
		if got := err.Error(); got != `leader "x": no leader` {
			t.Errorf("error %q", got)
		}
	})
}

// After a loss, Run waits for the work to return, and campaigns again.
func TestElectionCampaignsAgainAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		terms, working := 0, 0
		err := m.Election("x", nil).Run(t.Context(), func(ctx context.Context, l *tenure.Lease) error {
			if working++; working != 1 {
				t.Error("work runs twice at once")
			}
			defer func() { working-- }()
			if terms++; terms == 4 {
				return errWork
			}
			if l.Token() != uint64(terms) {
				t.Errorf("token %d in term %d", l.Token(), terms)
			}
			m.Faults().SetBlackHole(true)
			<-ctx.Done()
			testutil.Want(t, l.Check(), tenure.ErrLost)
			m.Faults().SetBlackHole(false)
			time.Sleep(lease) // it drains
			return fmt.Errorf("dropped")
		})
		if err != errWork { //nolint:errorlint // what work returns, as it is
			t.Errorf("got %v", err)
		}
	})
}

// A store that is silent for hours does not end a campaign.
func TestCampaignOutlastsAnyOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		m.Partition()
		run := testutil.Go(func() error {
			return m.Election("x", nil).Run(t.Context(), func(context.Context, *tenure.Lease) error { return errWork })
		})
		time.Sleep(time.Hour)
		testutil.Pending(t, "run", run)
		m.Faults().SetBlackHole(false)
		testutil.Want(t, testutil.Within(t, 0, 2*requestTimeout, func() error { return <-run }), errWork)
	})
}

func TestLeaderTellsWhoLeads(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.Client("a", func(o *tenure.Options) { o.Label = "v1.2" })
		b := w.Client("b")
		e := b.Election("x", nil)
		_, err := e.Leader(t.Context())
		testutil.Want(t, err, tenure.ErrNoLeader)

		data := []byte("10.0.0.1:80")
		options := &tenure.ElectionOptions{Data: data}
		ours := a.Election("x", options)
		copy(data, "xxxxxxxx") // it was copied
		since := time.Now()
		go func() {
			_ = ours.Run(t.Context(), func(ctx context.Context, _ *tenure.Lease) error { <-ctx.Done(); return nil })
		}()
		time.Sleep(lease)
		l, err := e.Leader(t.Context())
		testutil.Want(t, err, nil)
		if l.None() || l.Owner != "a" || l.Token != 1 || l.Host != "host-of-a" || l.Label != "v1.2" || !l.Since.Equal(since) || string(l.Data) != "10.0.0.1:80" {
			t.Errorf("leader %+v", l)
		}
		a.Partition()
		_, err = e.Leader(t.Context())
		testutil.Want(t, err, nil) // it may be alive
		time.Sleep(lease)
		_, err = e.Leader(t.Context())
		testutil.Want(t, err, tenure.ErrNoLeader)
	})
}

// campaigns has b wait for a, which leads, and returns what both campaigns return
// after their context has ended.
func campaigns(t *testing.T, end func(context.Context) (context.Context, func()), returns func(context.Context, *tenure.Lease) error) (leader, follower error) {
	t.Helper()
	w := newWorld(t)
	a, b := w.Client("a"), w.Client("b")
	ctx, stop := end(t.Context())
	defer stop()
	leads := make(chan struct{})
	led := testutil.Go(func() error {
		return a.Election("x", nil).Run(ctx, func(ctx context.Context, l *tenure.Lease) error {
			close(leads)
			<-ctx.Done()
			return returns(ctx, l)
		})
	})
	<-leads
	followed := testutil.Go(func() error { return b.Election("x", nil).Run(ctx, noWork) })
	time.Sleep(lease)
	testutil.Pending(t, "the follower", followed)
	stop()
	time.Sleep(time.Minute)
	return <-led, <-followed
}

var errSignal = errors.New("terminated signal received")

// ends are the ways in which the context of a campaign can end.
var ends = map[string]func(context.Context) (context.Context, func()){
	"cancelled": func(ctx context.Context) (context.Context, func()) {
		ctx, stop := context.WithCancel(ctx)
		return ctx, stop
	},
	"signal": func(ctx context.Context) (context.Context, func()) {
		ctx, stop := context.WithCancelCause(ctx)
		return ctx, func() { stop(errSignal) }
	},
	"wrapping cause": func(ctx context.Context) (context.Context, func()) {
		ctx, stop := context.WithCancelCause(ctx)
		return ctx, func() { stop(fmt.Errorf("config: %w", io.ErrUnexpectedEOF)) }
	},
	"deadline": func(ctx context.Context) (context.Context, func()) {
		ctx, stop := context.WithTimeout(ctx, 30*time.Second)
		return ctx, func() { time.Sleep(time.Minute); stop() }
	},
}

func TestCleanEndOfACampaignIsNil(t *testing.T) {
	for end, with := range ends {
		for name, returns := range map[string]func(context.Context, *tenure.Lease) error{
			"nil":     func(context.Context, *tenure.Lease) error { return nil },
			"error":   func(ctx context.Context, _ *tenure.Lease) error { return ctx.Err() },
			"cause":   func(ctx context.Context, _ *tenure.Lease) error { return context.Cause(ctx) },
			"wrapped": func(ctx context.Context, _ *tenure.Lease) error { return fmt.Errorf("page 3: %w", ctx.Err()) },
			"both": func(ctx context.Context, _ *tenure.Lease) error {
				return errors.Join(ctx.Err(), fmt.Errorf("last: %w", context.Cause(ctx)))
			},
		} {
			t.Run(end+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					leader, follower := campaigns(t, with, returns)
					testutil.Want(t, leader, nil)
					testutil.Want(t, follower, nil)
				})
			})
		}
	}
}

// Any other error of the work is returned, also if joined with the context's error.
func TestOtherErrorsOfTheWorkAreReturned(t *testing.T) {
	for end, with := range ends {
		for name, returns := range map[string]func(context.Context, *tenure.Lease) error{
			"alone":  func(context.Context, *tenure.Lease) error { return errWork },
			"joined": func(ctx context.Context, _ *tenure.Lease) error { return errors.Join(ctx.Err(), errWork) },
			"wraps": func(ctx context.Context, _ *tenure.Lease) error {
				return fmt.Errorf("%w: %w", errWork, context.Cause(ctx))
			},
		} {
			t.Run(end+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					leader, follower := campaigns(t, with, returns)
					testutil.Want(t, leader, errWork)
					testutil.Want(t, follower, nil)
				})
			})
		}
	}
	synctest.Test(t, func(t *testing.T) { // a context that is not the campaign's
		m := newWorld(t).Client("a")
		testutil.Want(t, m.Election("x", nil).Run(t.Context(), func(context.Context, *tenure.Lease) error { return context.Canceled }), context.Canceled)
	})
}

// A campaign whose lease is lost while it ends does not end cleanly.
func TestLossAtTheEndOfACampaignIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		ctx, stop := context.WithCancel(t.Context())
		ran := testutil.Go(func() error {
			return m.Election("x", nil).Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
				<-ctx.Done()
				m.Partition()
				time.Sleep(lease)
				return ctx.Err()
			})
		})
		time.Sleep(lease)
		stop()
		err := <-ran
		testutil.Want(t, err, tenure.ErrLost)
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("says too much: %q", err)
		}
	})
}

// A campaign that ends after its leader was asked to step down ends cleanly.
func TestStepDownAtTheEndOfACampaign(t *testing.T) {
	for name, returns := range map[string]func(context.Context) error{
		"nil": func(context.Context) error { return nil }, "error": context.Context.Err, "cause": context.Cause,
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			ctx, stop := context.WithCancel(t.Context())
			ran := testutil.Go(func() error {
				return a.Election("x", nil).Run(ctx, func(ctx context.Context, _ *tenure.Lease) error {
					<-ctx.Done()
					time.Sleep(5 * time.Second)
					return returns(ctx)
				})
			})
			time.Sleep(lease)
			asked := testutil.Go(func() error { return b.StepDown(t.Context(), "x", because("for the test")) })
			time.Sleep(heartbeat + time.Second)
			stop()
			testutil.Want(t, <-ran, nil)
			testutil.Want(t, <-asked, nil)
		})
	}
}

// If the client is closed and the context ends, a leader and a candidate end cleanly;
// if the context goes on, the client was closed during the campaign, which is an error.
func TestCampaignOfAClosedClient(t *testing.T) {
	for _, ended := range []bool{true, false} {
		inWorld(t, func(t *testing.T, w *world) {
			a, b := w.Client("a"), w.Client("b")
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			work := func(ctx context.Context, _ *tenure.Lease) error { <-ctx.Done(); return context.Cause(ctx) }
			led := testutil.Go(func() error { return a.Election("x", nil).Run(ctx, work) })
			time.Sleep(time.Second)
			followed := testutil.Go(func() error { return b.Election("x", nil).Run(ctx, work) })
			time.Sleep(time.Second)
			if ended {
				stop()
			}
			testutil.Want(t, errors.Join(a.Close(t.Context()), b.Close(t.Context())), nil)
			for _, err := range []error{<-led, <-followed} {
				if ended {
					testutil.Want(t, err, nil)
				} else {
					testutil.Want(t, err, tenure.ErrClosed)
				}
			}
		})
	}
}

// That holds whatever the work returns when its context has ended. Its own error is not
// dropped.
func TestLeaderOfAClosedClient(t *testing.T) {
	for name, returns := range map[string]func(context.Context) error{
		"nil":     func(context.Context) error { return nil },
		"error":   context.Context.Err,
		"wrapped": func(ctx context.Context) error { return fmt.Errorf("page 3: %w", ctx.Err()) },
		"own":     func(ctx context.Context) error { return errors.Join(ctx.Err(), errWork) },
	} {
		for _, asked := range []bool{false, true} {
			inWorldRun(t, fmt.Sprintf("%s/asked=%t", name, asked), func(t *testing.T, w *world) {
				a, b := w.Client("a"), w.Client("b")
				led := testutil.Go(func() error {
					return a.Election("x", nil).Run(t.Context(), func(ctx context.Context, _ *tenure.Lease) error {
						<-ctx.Done()
						time.Sleep(5 * time.Second)
						return returns(ctx)
					})
				})
				time.Sleep(lease)
				if asked {
					go func() { _ = b.StepDown(t.Context(), "x", because("for the test")) }()
					time.Sleep(heartbeat + time.Second)
				}
				testutil.Want(t, a.Close(t.Context()), nil)
				err := <-led
				testutil.Want(t, err, tenure.ErrClosed)
				if own := name == "own"; errors.Is(err, errWork) != own || errors.Is(err, context.Canceled) && !own {
					t.Errorf("the work returned its %s error, and Run %q", name, err)
				}
			})
		}
	}
}

// The error mentions a loss once, however the work returns it.
func TestRunSaysALossOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		returns func(context.Context, *tenure.Lease) error
		text    string
	}{
		"cause": {func(ctx context.Context, _ *tenure.Lease) error { return context.Cause(ctx) }, `run "x": lease expired`},
		"check": {func(_ context.Context, l *tenure.Lease) error { return l.Check() }, `run "x": lease expired`},
		"more": {
			func(_ context.Context, l *tenure.Lease) error { return fmt.Errorf("page 3: %w", l.Check()) },
			"run \"x\": lease expired\npage 3: check \"x\": lease expired",
		},
		"nil": {func(context.Context, *tenure.Lease) error { return nil }, `run "x": lease expired`},
	} {
		inWorldRun(t, name, func(t *testing.T, w *world) {
			m := w.Client("a")
			err := m.Run(t.Context(), "x", nil, func(ctx context.Context, l *tenure.Lease) error {
				m.Partition()
				<-ctx.Done()
				return tt.returns(ctx, l)
			})
			testutil.Want(t, err, tenure.ErrExpired)
			if err.Error() != tt.text {
				t.Errorf("says %q, want %q", err, tt.text)
			}
		})
	}
	inWorld(t, func(t *testing.T, w *world) { // superseded: two values of one event
		a, b := w.Client("a"), w.Client("b")
		ran := testutil.Go(func() error {
			return a.Run(t.Context(), "x", nil, func(ctx context.Context, _ *tenure.Lease) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		})
		time.Sleep(time.Second)
		go func() { _ = admin.Revoke(t.Context(), b.Client, "x", "for the test") }()
		err := <-ran
		testutil.Want(t, err, tenure.ErrSuperseded)
		if text := err.Error(); text != `run "x": lease revoked by "b": for the test` {
			t.Errorf("says %q", text)
		}
	})
}

// Nothing to run is an error, before anything is acquired.
func TestWorkIsNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newWorld(t).Client("a")
		s := mustOpen(m, nil)
		n := m.Faults().Count()
		for what, err := range map[string]error{
			"run": m.Run(t.Context(), "x", nil, nil), "run under a session": s.Run(t.Context(), "x", nil, nil),
			"lead": m.Election("x", nil).Run(t.Context(), nil),
		} {
			if err == nil || !strings.Contains(err.Error(), "the work is nil") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if m.Faults().Count() != n {
			t.Error("something was sent")
		}
	})
}

// A candidate that was paused while it won does not lead, and campaigns again.
func TestCampaignWonDuringAPause(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		clock := &leapingClock{Clock: tenure.MonotonicClock()}
		m := w.Client("a", func(o *tenure.Options) { o.Clock = clock })
		m.Inject(faultstore.OpClaim, 0, 1, faultstore.Slow(0, time.Second))
		time.AfterFunc(time.Second/2, func() { clock.leapt.Store(int64(lease)) })
		led := 0
		testutil.Want(t, m.Election("x", nil).Run(t.Context(), func(ctx context.Context, l *tenure.Lease) error {
			led++
			testutil.Want(t, ctx.Err(), nil)
			return l.Check()
		}), nil)
		if led != 1 {
			t.Errorf("led %d times", led)
		}
	})
}

// The preferred candidate comes to lead, in whatever order the candidates come,
// and leadership does not flap.
func TestPriority(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	for i, order := range [][]int{{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}, {1, 2, 3}, {2, 1, 3}, {3, 2, 1}} {
		cools := time.Duration(i/6) * coolDown
		inWorldRun(t, fmt.Sprintf("%v, cools for %v", order, cools), func(t *testing.T, w *world) {
			c, ctx := newCampaign(t)
			for _, p := range order {
				c.join(ctx, w.Client(fmt.Sprint("p", p), labelled("v1")), &tenure.ElectionOptions{Priority: p, CoolDown: cools}, time.Second)
				time.Sleep(3 * time.Second)
			}
			time.Sleep(20 * lease)
			if got := leader(t, w.Client("who")); got != "p3" {
				t.Errorf("%s leads", got)
			}
			reigns := c.over(t)
			t.Log(owners(reigns))
			seen := map[string]bool{}
			for i, r := range reigns {
				if seen[r.owner] {
					t.Errorf("%s leads again: %v", r.owner, owners(reigns))
				}
				seen[r.owner] = true
				if i > 0 && r.owner < reigns[i-1].owner {
					t.Errorf("a lesser one comes to lead: %v", owners(reigns))
				}
			}
			for _, r := range reigns[:len(reigns)-1] {
				if r.end.Sub(r.begin) < lease {
					t.Errorf("%s was asked after %v already", r.owner, r.end.Sub(r.begin))
				}
			}
		})
	}
}

// asks returns the requests for a hand-over that a machine has written, except those that
// lost to another write.
func asks(m *machine) []faultstore.Logged {
	return slices.DeleteFunc(m.Faults().Log(), func(c faultstore.Logged) bool {
		n := len(c.Next.Requests)
		lost := errors.As(c.Err, new(*driver.ConflictError))
		return c.Op != faultstore.OpRequest || c.Next.Requests[n-1].Kind != driver.HandOver || lost
	})
}

// A preferred candidate that loses its lease again and again asks each leader once, after
// that leader has led for a lease. If the leader does not answer, it asks again after a
// lease.
func TestPriorityAsksOncePerTermAndLease(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	inWorld(t, func(t *testing.T, w *world) {
		c, ctx := newCampaign(t)
		good, sick := w.Client("good"), w.Client("sick")
		c.join(ctx, good, nil, 0)
		time.Sleep(time.Second)
		c.join(ctx, sick, &tenure.ElectionOptions{Priority: 9}, 0)
		for range 30 {
			time.Sleep(2 * time.Minute)
			if leader(t, good) == "sick" {
				sick.Faults().SetBlackHole(true)
				time.Sleep(2 * lease)
				sick.Faults().SetBlackHole(false)
			}
		}
		asked := map[uint64]bool{}
		for _, c := range asks(sick) {
			if asked[c.Prev.Token] {
				t.Errorf("it asked the leader under token %d twice", c.Prev.Token)
			}
			asked[c.Prev.Token] = true
		}
		for _, r := range c.over(t) {
			if r.owner == "good" && errors.Is(r.cause, tenure.ErrSteppedDown) && (r.end.Sub(r.begin) < lease || !asked[r.token]) {
				t.Errorf("good was asked after %v", r.end.Sub(r.begin))
			}
		}
		if len(asked) < 20 {
			t.Errorf("it asked %d leaders within an hour", len(asked))
		}
	})
	inWorld(t, func(t *testing.T, w *world) {
		c, ctx := newCampaign(t)
		good, boss := w.Client("good"), w.Client("boss")
		c.join(ctx, good, nil, 0)
		time.Sleep(time.Second)
		boss.Inject(faultstore.OpRequest, 0, 0, faultstore.LoseRequest())
		c.join(ctx, boss, &tenure.ElectionOptions{Priority: 9}, 0)
		time.Sleep(10 * lease)
		asks := asks(boss)
		for i := 1; i < len(asks); i++ {
			if gap := asks[i].Begin.Sub(asks[i-1].Begin); gap < lease {
				t.Errorf("it asked again after %v", gap)
			}
		}
		if len(asks) < 5 {
			t.Errorf("it asked %d times, and none arrived", len(asks))
		}
		c.over(t)
	})
}

// A preferred candidate that polls once an hour, without a watch, does not miss the
// reservation that it has asked for, whether the request is in the lock's record or in the
// record of the leader's session, which keeps it only until the next heartbeat. A candidate
// with a cool-down observes, and asks as well.
func TestPriorityWithRareLooks(t *testing.T) {
	enginetest.MakeVerify(t)
	notOnEngines(t, tooManyCalls)
	for _, tt := range []struct {
		under bool
		drain time.Duration
		cools bool
	}{
		{false, time.Second, false},
		{true, time.Second, false},
		{true, 5 * lease, false},
		{false, time.Second, true},
		{true, time.Second, true},
		{true, 5 * lease, true},
	} {
		inWorldRun(t, fmt.Sprintf("session %v, drains for %v, cools %v", tt.under, tt.drain, tt.cools), func(t *testing.T, w *world) {
			c, ctx := newCampaign(t)
			good := w.Client("good", func(o *tenure.Options) { o.StopTimeout = 2 * tt.drain })
			rare := w.Client("rare", labelled("v2"), func(o *tenure.Options) { o.RefreshPeriod = time.Hour })
			preferred := &tenure.ElectionOptions{Priority: 1}
			if tt.cools {
				preferred.CoolDown = coolDown
			}
			rare.Inject(faultstore.OpWatch, 0, 0, faultstore.Fault{Effect: faultstore.Refused})
			election := good.Election("x", nil)
			if tt.under {
				election = mustOpen(good, nil).Election("x", nil)
			}
			c.run(ctx, election, tt.drain)
			time.Sleep(time.Second)
			c.join(ctx, rare, preferred, 0)
			time.Sleep(4 * time.Hour)
			asks := asks(rare)
			if got := owners(c.over(t)); !slices.Equal(got, []string{"good", "rare"}) {
				t.Errorf("leaders %v", got)
			}
			if most := 1 + int(tt.drain/lease); len(asks) == 0 || len(asks) > most {
				t.Errorf("it asked %d times, want %d at most", len(asks), most)
			}
		})
	}
}
