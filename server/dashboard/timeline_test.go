// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// of is a term: times are minutes before now, and an end of -1 is not known.
type of struct {
	owner      string
	begun, end int
	how, asked string
}

// terms makes a history, newest first, from the oldest.
func terms(all ...of) []tenure.Term {
	var list []tenure.Term
	for i, o := range all {
		t := tenure.Term{Owner: o.owner, Since: minutesAgo(o.begun), End: o.how}
		t.Token = uint64(i) + 1 //nolint:gosec // small
		if o.end >= 0 {
			t.Until = minutesAgo(o.end)
		}
		if o.asked != "" {
			t.Request = &tenure.Request{Kind: tenure.RequestStepDown, By: "ops", Reason: o.asked}
		}
		list = append([]tenure.Term{t}, list...)
	}
	return list
}

func minutesAgo(n int) time.Time { return now.Add(-time.Duration(n) * time.Minute) }

// drawn writes the pieces of a timeline as one line each.
func drawn(v *timeline) string {
	var lines []string
	for _, p := range v.Pieces {
		owner, _, _ := strings.Cut(p.Title, ",")
		if p.Class == "gap" {
			owner = "gap"
		}
		line := p.X + "+" + p.W + " " + owner
		if p.SilentW != "" {
			line += " silent " + p.SilentW
		}
		lines = append(lines, strings.TrimSpace(line+" "+p.Mark))
	}
	return strings.Join(lines, "\n")
}

func TestTimeline(t *testing.T) {
	holding := &lock{Status: tenure.Status{Token: 3, State: tenure.StateHeld, Lease: time.Minute}, State: held}
	freed := &lock{Status: tenure.Status{Token: 2, State: tenure.StateReleased, Lease: time.Minute}, State: free}
	silent := &lock{
		Status: tenure.Status{Token: 1, State: tenure.StateHeld, Lease: time.Minute, Unchanged: 10 * time.Minute},
		State:  expired,
	}
	for _, c := range []struct {
		name string
		all  []of
		lock *lock
		back time.Duration
		want string
	}{
		{
			"nobody now",
			[]of{{"a", 100, 80, tenure.EndReleased, ""}, {"b", 80, 50, tenure.EndRevoked, ""}},
			freed, 0, "0%+20% a released\n20%+30% b operator\n50%+50% gap",
		},
		{
			"a clock that is behind: terms keep the order of their tokens, and none overlaps another",
			[]of{{"a", 100, 40, tenure.EndReleased, ""}, {"b", 70, 30, tenure.EndReleased, ""}, {"c", 90, -1, "", ""}},
			holding, 0, "0%+60% a released\n60%+10% b released\n70%+30% c",
		},
		{
			"a holder whose clock is ahead",
			[]of{{"a", 100, 50, tenure.EndReleased, ""}, {"b", 50, 40, tenure.EndReleased, ""}, {"c", -10, -1, "", ""}},
			holding, 0, "0%+50% a released\n50%+10% b released\n60%+40% gap\n100%+0% c",
		},
		{
			"the last hour",
			[]of{{"a", 500, 400, tenure.EndReleased, ""}, {"b", 90, 30, tenure.EndReleased, ""}, {"c", 15, -1, "", ""}},
			holding, time.Hour, "0%+50% b released\n50%+25% gap\n75%+25% c",
		},
		{
			"the last hour begins in a gap",
			[]of{{"a", 500, 400, tenure.EndReleased, ""}, {"b", 300, 120, tenure.EndReleased, ""}, {"c", 30, -1, "", ""}},
			holding, time.Hour, "0%+50% gap\n50%+50% c",
		},
		{"a holder that shows no life", []of{{"a", 100, -1, "", ""}}, silent, 0, "0%+100% a silent 10%"},
	} {
		if got := drawn(draw(terms(c.all...), c.lock, now, c.back)); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	if v := draw([]tenure.Term{{Token: 3, Unknown: true}}, holding, now, 0); v != nil {
		t.Errorf("of an unknown term: %+v", v)
	}
	if v := draw([]tenure.Term{{Token: 3, Owner: "a", Since: now}}, holding, now, 0); len(v.Pieces) != 1 {
		t.Errorf("just taken: %+v", v)
	}
}

// A timeline has few ticks, at round times, whatever is shown.
func TestTimelineTicks(t *testing.T) {
	holding := &lock{Status: tenure.Status{Token: 1, State: tenure.StateHeld}, State: held}
	for _, back := range []time.Duration{
		time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, day, 7 * day, 400 * day, 800 * day, 12_000 * day,
	} {
		v := draw(terms(of{"a", int(back.Minutes()) - 1, -1, "", ""}), holding, now, back)
		if n := len(v.Ticks); n < 1 && back < 800*day || n > 4*mostTicks {
			t.Errorf("%v: %d ticks: %v", back, n, v.Ticks)
		}
		seen := map[string]bool{}
		for _, tick := range v.Ticks {
			x, err := strconv.ParseFloat(strings.TrimSuffix(tick.X, "%"), 64)
			if err != nil || x < 0 || x > 100 || back < 364*day && seen[tick.Title] {
				t.Errorf("%v: %s at %s, or twice", back, tick.Title, tick.X)
			}
			seen[tick.Title] = true
		}
	}
}
