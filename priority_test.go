// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/faultstore"
)

// The preferred candidate comes to lead, in whatever order the candidates come,
// and leadership does not go to and fro.
func TestPriority(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	for _, order := range [][]int{{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}} {
		inWorldRun(t, fmt.Sprint(order), func(t *testing.T, w *world) {
			c, ctx := newCampaign(t)
			for _, p := range order {
				c.join(ctx, w.machine(fmt.Sprint("p", p)), &tenure.ElectionOptions{Priority: p}, time.Second)
				time.Sleep(3 * time.Second)
			}
			time.Sleep(20 * lease)
			if got := leader(t, w.machine("who")); got != "p3" {
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

// A preferred candidate that loses its lease again and again asks once in a
// while, and no more.
func TestPriorityPause(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	inWorld(t, func(t *testing.T, w *world) {
		c, ctx := newCampaign(t)
		good, sick := w.machine("good"), w.machine("sick")
		c.join(ctx, good, nil, 0)
		time.Sleep(time.Second)
		c.join(ctx, sick, &tenure.ElectionOptions{Priority: 9, PriorityPause: time.Hour}, 0)
		for range 6 * 30 {
			time.Sleep(2 * time.Minute)
			if leader(t, good) == "sick" {
				sick.faults.SetBlackHole(true)
				time.Sleep(2 * lease)
				sick.faults.SetBlackHole(false)
			}
		}
		asked := 0
		for _, r := range c.over(t) {
			if r.owner == "good" && errors.Is(r.cause, tenure.ErrSteppedDown) {
				asked++
			}
		}
		// Six hours, and half a minute for each time that it was made sick.
		if asked < 5 || asked > 7 {
			t.Errorf("it asked %d times in six hours", asked)
		}
	})
}

// A preferred candidate that looks once an hour, without a watch, does not miss the
// reservation that it has asked for: in the record of the lock, and in that of the leader's
// session, which has the request no longer than until the next heartbeat.
func TestPriorityWithRareLooks(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	for _, tt := range []struct {
		tied  bool
		drain time.Duration
	}{{false, time.Second}, {true, time.Second}, {true, 5 * lease}} {
		inWorldRun(t, fmt.Sprintf("session %v, drains for %v", tt.tied, tt.drain), func(t *testing.T, w *world) {
			c, ctx := newCampaign(t)
			good := w.machine("good", func(o *tenure.Options) { o.StopTimeout = 2 * tt.drain })
			rare := w.machine("rare", func(o *tenure.Options) { o.RefreshPeriod = time.Hour })
			rare.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpWatch}, Fault: faultstore.Fault{Effect: faultstore.Refused}})
			election := good.Election("x", nil)
			if tt.tied {
				election = good.mustOpen(nil).Election("x", nil)
			}
			c.run(ctx, election, tt.drain)
			time.Sleep(time.Second)
			c.join(ctx, rare, &tenure.ElectionOptions{Priority: 1}, 0)
			time.Sleep(12 * time.Hour)
			if got := owners(c.over(t)); !slices.Equal(got, []string{"good", "rare"}) {
				t.Errorf("leaders %v", got)
			}
		})
	}
}

// Once it leads no more, and must not ask again yet, it looks as rarely as before.
func TestRareLooksWithinThePriorityPause(t *testing.T) {
	notOnEngines(t, tooManyCalls)
	inWorld(t, func(t *testing.T, w *world) {
		c, ctx := newCampaign(t)
		good, boss := w.machine("good"), w.machine("boss")
		rare := w.machine("rare", func(o *tenure.Options) { o.RefreshPeriod = time.Hour })
		rare.faults.Inject(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpWatch}, Fault: faultstore.Fault{Effect: faultstore.Refused}})
		c.run(ctx, good.mustOpen(nil).Election("x", nil), 0)
		time.Sleep(time.Second)
		c.join(ctx, rare, &tenure.ElectionOptions{Priority: 1, PriorityPause: 1000 * time.Hour}, 0)
		time.Sleep(time.Hour)
		want(t, boss.StepDown(t.Context(), "x", "deploy"), nil)
		time.Sleep(4 * time.Hour) // and has stood back
		if n := rare.during(10*time.Hour, faultstore.OpGet, "x"); n > 12 {
			t.Errorf("%d looks within ten hours", n)
		}
		if got := owners(c.over(t)); !slices.Equal(got, []string{"good", "rare", "good"}) {
			t.Errorf("leaders %v", got)
		}
	})
}
