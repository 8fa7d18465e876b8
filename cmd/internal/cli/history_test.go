// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
)

// A time stands for as long as what it is written to.
func TestParseTime(t *testing.T) {
	now := time.Date(2024, 2, 29, 12, 30, 15, 643e6, time.Local)
	const form = "2006-01-02 15:04:05.999999999"
	at := func(s string) time.Time {
		tm, err := time.ParseInLocation(form, s, time.Local)
		if err != nil {
			t.Fatal(err)
		}
		return tm
	}
	for _, tc := range []struct {
		text     string
		from, to time.Time
	}{
		{"12:08:25", at("2024-02-29 12:08:25"), at("2024-02-29 12:08:26")},
		{"12:08:25.64", at("2024-02-29 12:08:25.64"), at("2024-02-29 12:08:25.65")},
		{"12:08", at("2024-02-29 12:08:00"), at("2024-02-29 12:09:00")},
		{"9:05", at("2024-02-29 09:05:00"), at("2024-02-29 09:06:00")},
		{"now", now, now},
		{"10m", now.Add(-10 * time.Minute), now.Add(-10 * time.Minute)},
		{"10m ago", now.Add(-10 * time.Minute), now.Add(-10 * time.Minute)},
		{"0s", now, now},
		{"2d", now.Add(-48 * time.Hour), now.Add(-48 * time.Hour)},
		{"2d ago", now.Add(-48 * time.Hour), now.Add(-48 * time.Hour)},
		{"1d12h", now.Add(-36 * time.Hour), now.Add(-36 * time.Hour)},
		{"yesterday", at("2024-02-28 00:00:00"), at("2024-02-29 00:00:00")},
		{"yesterday 23:59", at("2024-02-28 23:59:00"), at("2024-02-29 00:00:00")},
		{"today", at("2024-02-29 00:00:00"), at("2024-03-01 00:00:00")},
		{"2024-02-28", at("2024-02-28 00:00:00"), at("2024-02-29 00:00:00")},
		{"2024-02-28 12:08", at("2024-02-28 12:08:00"), at("2024-02-28 12:09:00")},
		{"2024-02-28 12:08:25", at("2024-02-28 12:08:25"), at("2024-02-28 12:08:26")},
		{"2024-02-28T12:08:25", at("2024-02-28 12:08:25"), at("2024-02-28 12:08:26")},
		{
			"2024-02-28T12:08:25.643Z", time.Date(2024, 2, 28, 12, 8, 25, 643e6, time.UTC),
			time.Date(2024, 2, 28, 12, 8, 25, 644e6, time.UTC),
		},
		{
			"2024-02-28T12:08:25+01:00", time.Date(2024, 2, 28, 11, 8, 25, 0, time.UTC),
			time.Date(2024, 2, 28, 11, 8, 26, 0, time.UTC),
		},
		{"2024-02-28T12:08Z", time.Date(2024, 2, 28, 12, 8, 0, 0, time.UTC), time.Date(2024, 2, 28, 12, 9, 0, 0, time.UTC)},
	} {
		s, err := parseTime(tc.text, now)
		if err != nil || !s.from.Equal(tc.from) || !s.to.Equal(tc.to) {
			t.Errorf("%q is %v to %v, %v; want %v to %v", tc.text, s.from, s.to, err, tc.from, tc.to)
		}
	}
	for _, text := range []string{
		"", " ", "soon", "25:00", "-10m", "-2d", "2d-1h", "12:", "ago", "d", "yesterday evening", "2024-02-30",
		"12:08:25Z", "99999999999d", "now ago",
	} {
		if s, err := parseTime(text, now); flags.StatusOf(err) != statusUsage {
			t.Errorf("%q is %v to %v, %v", text, s.from, s.to, err)
		}
	}
}

// A time in the hour that the clock shows twice, when summer ends, is either of them.
func TestTimeThatThereIsTwice(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	defer func(local *time.Location) { time.Local = local }(time.Local) //nolint:gosmopolitan // what the command goes by
	time.Local = berlin                                                 //nolint:gosmopolitan // the same
	begun := time.Date(2026, 10, 25, 0, 30, 10, 0, time.UTC)
	for _, later := range []time.Duration{0, time.Hour} {
		held := tenure.Term{
			Token: 1, Owner: "o", End: tenure.EndReleased,
			Since: begun.Add(later), Until: begun.Add(later + 40*time.Second),
		}
		for text, want := range map[string]string{
			"2026-10-25 02:30:20": "at 2026-10-25 02:30:20, a time that occurs twice, \"L\" was held by \"o\"",
			"2026-10-25 02:30":    "at 2026-10-25 02:30, a time that occurs twice, \"L\" was held by \"o\"",
			"2026-10-25 02:31:20": "at 2026-10-25 02:31:20, a time that occurs twice, \"L\" had no holder",
			"2026-10-25 03:30:20": "at 2026-10-25 03:30:20 \"L\" had no holder",
		} {
			at, err := parseTime(text, begun.Add(48*time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			h := &historyCmd{Name: "L"}
			if h.printAt(&console{stdout: &out}, []tenure.Term{held}, at); !strings.HasPrefix(out.String(), want) {
				t.Errorf("%q says %q; want %q", text, out.String(), want)
			}
		}
	}
}

func TestDuring(t *testing.T) {
	noon := time.Date(2024, 2, 29, 12, 0, 0, 0, time.Local)
	at := func(ms int) time.Time { return noon.Add(time.Duration(ms) * time.Millisecond) }
	ended := func(token uint64, since, until int) tenure.Term {
		return tenure.Term{Token: token, Owner: "o", Since: at(since), Until: at(until), End: tenure.EndReleased}
	}
	crashed := func(token uint64, since int) tenure.Term {
		return tenure.Term{Token: token, Owner: "o", Since: at(since), End: tenure.EndExpired}
	}
	unknown := func(token uint64) tenure.Term { return tenure.Term{Token: token, Unknown: true} }
	raised := tenure.Term{Token: 9, Since: at(20000), Until: at(20000), End: tenure.EndRaised}
	running := tenure.Term{Token: 5, Owner: "o", Since: at(25643)}
	history := []tenure.Term{
		running, ended(4, 12000, 12400), ended(3, 11200, 11900), crashed(2, 5500),
		ended(1, 0, 1000),
	}
	holes := []tenure.Term{ended(9, 20000, 21000), unknown(8), ended(7, 10000, 11000), unknown(6), unknown(5)}
	for _, tc := range []struct {
		what     string
		history  []tenure.Term
		from, to int
		want     string
	}{
		{"the second in which it began", history, 25000, 26000, "[5] all"},
		{"the second before", history, 24000, 25000, "[] all"},
		{"an instant before", history, 25642, 25642, "[] all"},
		{"the instant", history, 25643, 25643, "[5] all"},
		{"later", history, 99000, 99000, "[5] all"},
		{"two in a second", history, 11000, 12000, "[3 2?] all"},
		{"a minute", history, 0, 60000, "[5 4 3 2 1] all"},
		{"while it had crashed, or not", history, 8000, 9000, "[2?] all"},
		{"as it began, and crashed later", history, 5000, 6000, "[2] all"},
		{"when it ended", history, 12400, 12400, "[] all"},
		{"before all", history, -2000, -1000, "[] all"},
		{"nothing", nil, 0, 1000, "[] all"},
		{"in a hole", holes, 15000, 16000, "[] not all"},
		{"beside a hole", holes, 10500, 11500, "[7] not all"},
		{"within one", holes, 10200, 10400, "[7] all"},
		{"after a hole", holes, 20000, 30000, "[9] all"},
		{"before the history", holes, 1000, 2000, "[] not all"},
		{"a trimmed history", history[:2], 11000, 11500, "[] not all"},
		{"before a restore", []tenure.Term{raised, ended(1, 0, 1000)}, 15000, 16000, "[] not all"},
	} {
		found, all := during(tc.history, span{from: at(tc.from), to: at(tc.to)})
		text := "["
		for i, h := range found {
			if i > 0 {
				text += " "
			}
			text += fmt.Sprint(h.Token)
			if !h.certain {
				text += "?"
			}
		}
		if text += "] all"; !all {
			text = text[:len(text)-3] + "not all"
		}
		if d := cmp.Diff(tc.want, text); d != "" {
			t.Errorf("%s (- want, + got):\n%s", tc.what, d)
		}
		if tc.from != tc.to {
			continue
		}
		// Of an instant the library says the same.
		h, ok, certain := tenure.HolderAt(tc.history, at(tc.from))
		if ok != (len(found) == 1) || ok && (h.Token != found[0].Token || certain != (found[0].certain && all)) ||
			!ok && certain != all {
			t.Errorf("%s: HolderAt says %v %v %v, during %s", tc.what, h.Token, ok, certain, text)
		}
	}
}
