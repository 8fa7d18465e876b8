// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
)

var timelineNow = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// tenures makes a history, newest first, from the oldest; times are minutes before now, and
// an end of -1 is not known.
func tenures(of ...struct {
	owner      string
	from, to   int
	end, asked string
},
) []tenure.Tenure {
	var list []tenure.Tenure
	for i, o := range of {
		t := tenure.Tenure{Owner: o.owner, Token: uint64(i + 1), Since: timelineNow.Add(-time.Duration(o.from) * time.Minute), End: o.end} //nolint:gosec // small
		if o.to >= 0 {
			t.Until = timelineNow.Add(-time.Duration(o.to) * time.Minute)
		}
		if o.asked != "" {
			t.Request = &tenure.Request{Kind: tenure.RequestStepDown, By: "ops", Reason: o.asked}
		}
		list = append([]tenure.Tenure{t}, list...)
	}
	return list
}

type of = struct {
	owner      string
	from, to   int
	end, asked string
}

// drawn writes the pieces of a timeline as one line each.
func drawn(b *timeline) string {
	var lines []string
	for _, p := range b.Pieces {
		line := fmt.Sprintf("%s+%s", p.X, p.W)
		if p.Class == "gap" {
			line += " gap"
		} else {
			owner, _, _ := strings.Cut(p.Title, ",")
			line += " " + owner
		}
		if p.SilentW != "" {
			line += " silent " + p.SilentW
		}
		if p.Mark != "" {
			line += " " + p.Mark
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestTimeline(t *testing.T) {
	holding := &lock{Status: tenure.Status{Token: 3, State: tenure.StateHeld, Lease: time.Minute}, State: held}
	freed := &lock{Status: tenure.Status{Token: 2, State: tenure.StateReleased, Lease: time.Minute}, State: free}
	for _, c := range []struct {
		name string
		list []tenure.Tenure
		lock *lock
		back time.Duration
		want string
	}{
		{
			"released, a gap, asked, held",
			tenures(of{"a", 100, 60, tenure.EndReleased, ""}, of{"b", 50, 20, tenure.EndSteppedDown, "new version"}, of{"c", 20, -1, "", ""}),
			holding, 0,
			"0%+40% a released\n40%+10% gap\n50%+30% b made-way\n80%+20% c",
		},
		{
			"a crash: nobody knows when it stopped, and it showed no life for a lease",
			tenures(of{"a", 100, -1, tenure.EndExpired, ""}, of{"b", 50, 40, tenure.EndFailed, ""}, of{"a", 20, -1, "", ""}),
			holding, 0,
			"0%+50% a silent 2% expired\n50%+10% b failed\n60%+20% gap\n80%+20% a",
		},
		{
			"nobody now",
			tenures(of{"a", 100, 80, tenure.EndReleased, ""}, of{"b", 80, 50, tenure.EndRevoked, ""}),
			freed, 0,
			"0%+20% a released\n20%+30% b operator\n50%+50% gap",
		},
		{
			"a clock that is behind: tenures keep the order of their tokens, and none overlaps another",
			tenures(of{"a", 100, 40, tenure.EndReleased, ""}, of{"b", 70, 30, tenure.EndReleased, ""}, of{"c", 90, -1, "", ""}),
			holding, 0,
			"0%+60% a released\n60%+10% b released\n70%+30% c",
		},
		{
			"a holder whose clock is ahead",
			tenures(of{"a", 100, 50, tenure.EndReleased, ""}, of{"b", 50, 40, tenure.EndReleased, ""}, of{"c", -10, -1, "", ""}),
			holding, 0,
			"0%+50% a released\n50%+10% b released\n60%+40% gap\n100%+0% c",
		},
		{
			"the last hour",
			tenures(of{"a", 500, 400, tenure.EndReleased, ""}, of{"b", 90, 30, tenure.EndReleased, ""}, of{"c", 15, -1, "", ""}),
			holding, time.Hour,
			"0%+50% b released\n50%+25% gap\n75%+25% c",
		},
		{
			"the last hour begins in a gap",
			tenures(of{"a", 500, 400, tenure.EndReleased, ""}, of{"b", 300, 120, tenure.EndReleased, ""}, of{"c", 30, -1, "", ""}),
			holding, time.Hour,
			"0%+50% gap\n50%+50% c",
		},
	} {
		if got := drawn(draw(c.list, c.lock, timelineNow, c.back)); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestTimelineExpired(t *testing.T) {
	l := &lock{Status: tenure.Status{Token: 1, State: tenure.StateHeld, Lease: time.Minute, Unchanged: 10 * time.Minute}, State: expired}
	b := draw(tenures(of{"a", 100, -1, "", ""}), l, timelineNow, 0)
	if got, want := drawn(b), "0%+100% a silent 10%"; got != want {
		t.Errorf("a holder that shows no life: %s, want %s", got, want)
	}
}

func TestTimelineOfNothing(t *testing.T) {
	l := &lock{Status: tenure.Status{Token: 3}}
	if b := draw([]tenure.Tenure{{Token: 3, Unknown: true}}, l, timelineNow, 0); b != nil {
		t.Errorf("%+v", b)
	}
	b := draw([]tenure.Tenure{{Token: 3, Owner: "a", Since: timelineNow}}, &lock{Status: tenure.Status{Token: 3, State: tenure.StateHeld}, State: held}, timelineNow, 0)
	if b == nil || len(b.Pieces) != 1 {
		t.Errorf("just taken: %+v", b)
	}
}

// TestTimelineTicks has few ticks, in it, at round times, whatever is shown.
func TestTimelineTicks(t *testing.T) {
	for _, back := range []time.Duration{
		time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 400 * 24 * time.Hour, 20_000 * time.Hour, 300_000 * time.Hour,
	} {
		b := draw(tenures(of{"a", int(back.Minutes()) - 1, -1, "", ""}), &lock{Status: tenure.Status{Token: 1, State: tenure.StateHeld}, State: held}, timelineNow, back)
		if n := len(b.Ticks); n < 1 && back < 10_000*time.Hour || n > 4*mostTicks {
			t.Errorf("%v: %d ticks: %v", back, n, b.Ticks)
		}
		seen := map[string]bool{}
		for _, tick := range b.Ticks {
			x, err := strconv.ParseFloat(strings.TrimSuffix(tick.X, "%"), 64)
			if err != nil || math.IsNaN(x) || x < 0 || x > 100 {
				t.Errorf("%v: a tick at %s", back, tick.X)
			}
			if back < 364*24*time.Hour && seen[tick.Text] {
				t.Errorf("%v: %s twice", back, tick.Text)
			}
			seen[tick.Text] = true
		}
	}
}

func TestSpanOf(t *testing.T) {
	many := tenures(of{"a", 9000, 8000, "released", ""}, of{"a", 300, 290, "released", ""}, of{"a", 250, 240, "released", ""}, of{"a", 200, 190, "released", ""},
		of{"a", 150, 140, "released", ""}, of{"a", 100, 90, "released", ""}, of{"a", 50, -1, "", ""})
	for _, c := range []struct{ name, want string }{{"", "6h"}, {"24h", "24h"}, {"all", "all"}, {"nonsense", "6h"}} {
		if _, got := spanOf(c.name, many, timelineNow); got != c.want {
			t.Errorf("span %q is %s, want %s", c.name, got, c.want)
		}
	}
	if _, got := spanOf("", many[:2], timelineNow); got != "all" {
		t.Errorf("of two tenures: %s", got)
	}
}

// TestOwnerColours keeps the colour of an owner while others come and go.
func TestOwnerColours(t *testing.T) {
	var list []stretch
	for i := range 2 * ownerColours {
		list = append(list, stretch{Tenure: tenure.Tenure{Owner: "web-" + strconv.Itoa(i)}})
	}
	few := coloursOf(list[:3])
	taken := map[int]bool{}
	for owner, c := range few {
		if taken[c] || c < 0 || c >= ownerColours {
			t.Errorf("%s has colour %d", owner, c)
		}
		taken[c] = true
	}
	if all := coloursOf(list); len(all) != len(list) {
		t.Errorf("%d owners have a colour, of %d", len(all), len(list))
	}
}

// A crash leaves no time of the end, but the tenure was over when the next one began.
func TestUntilHasTheKnownBound(t *testing.T) {
	begun := timelineNow.Add(-time.Hour)
	v := &lockView{Lock: &lock{}}
	v.history([]tenure.Tenure{
		{Token: 4, Owner: "d", Since: begun, Until: timelineNow, End: tenure.EndReleased},
		{Token: 3, Unknown: true},
		{Token: 2, Owner: "b", Since: begun.Add(-time.Hour), End: tenure.EndExpired},
		{Token: 1, Owner: "a", Since: begun.Add(-2 * time.Hour), End: tenure.EndExpired},
	}, timelineNow, "")
	want := []string{clockText(timelineNow), "unknown", "before " + clockText(begun), "before " + clockText(begun.Add(-time.Hour))}
	for i, r := range v.Terms {
		if i != 1 && r.Until != want[i] {
			t.Errorf("token %s: until %q, want %q", r.Token, r.Until, want[i])
		}
	}
}
