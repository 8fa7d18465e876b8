// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
)

// t0 is when the demos of these tests begin.
var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }

// goodReports are those of a demo that went as it must, with a lease of 3 s.
func goodReports() []report {
	a := report{Replica: "replica-1", PID: 101, Token: 1}
	b := report{Replica: "replica-2", PID: 102, Token: 2}
	c := report{Replica: "replica-3", PID: 103, Token: 3}
	is := func(r report, k kind, s float64) report {
		r.Kind, r.Time = k, at(s)
		return r
	}
	after := func(r, former report, end string) report {
		r.Previous = &previous{Owner: former.Replica, Token: former.Token, End: end}
		return r
	}
	dead := is(a, exited, 2.11)
	dead.Error = "signal: killed"
	beat := is(a, renewed, 1.81)
	beat.Took = seconds(10 * time.Millisecond)
	return []report{
		is(a, started, 0), is(b, started, 0), is(c, started, 0),
		is(a, leading, 0.1), beat,
		is(a, killed, 2.1), dead,
		after(is(b, leading, 4.85), a, "expired"), is(b, renewed, 5.5),
		is(b, steppedDown, 7), is(b, stopping, 7.001), is(b, stopped, 7.002), is(b, released, 7.004),
		after(is(c, leading, 7.003), b, "stepped_down"), // the heir was quicker than the answer
		is(b, asked, 8.9), is(b, exited, 8.95),
		is(c, asked, 9), is(c, stopping, 9.001), is(c, stopped, 9.002), is(c, released, 9.003), is(c, exited, 9.1),
	}
}

func TestCheckGoodReports(t *testing.T) {
	tenures, err := check(3*time.Second, goodReports())
	if err != nil {
		t.Fatal(err)
	}
	if len(tenures) != 3 {
		t.Fatalf("%d tenures, want 3", len(tenures))
	}
	if err := checkHistory(tenures, goodHistory()); err != nil {
		t.Error(err)
	}
	got := strings.Join(table(goodHistory(), tenures, t0), "\n")
	want := `
The history of the lock:
  TOKEN  OWNER                        FROM       TO   ENDED
      1  replica-1 (pid 101)         0.1 s        ?   expired
      2  replica-2 (pid 102)         4.8 s    7.0 s   stepped down
         asked by the demo: a test
      3  replica-3 (pid 103)         7.0 s    9.0 s   released`
	if got != want {
		t.Errorf("table:\n%s\nwant:\n%s", got, want)
	}
}

// goodHistory is that of the same demo, the newest tenure first.
func goodHistory() []tenure.Tenure {
	return []tenure.Tenure{
		{Token: 3, Owner: "replica-3", Since: at(7.003), Until: at(9.003), End: tenure.EndReleased},
		{
			Token: 2, Owner: "replica-2", Since: at(4.84), Until: at(7.002), End: tenure.EndSteppedDown,
			Request: &tenure.Request{By: "the demo", Reason: "a test"},
		},
		{Token: 1, Owner: "replica-1", Since: at(0.1), End: tenure.EndExpired},
	}
}

// A history that tells something else than what was seen fails the demo.
func TestCheckBadHistory(t *testing.T) {
	seen, err := check(3*time.Second, goodReports())
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func([]tenure.Tenure) []tenure.Tenure{
		"a tenure is missing": func(h []tenure.Tenure) []tenure.Tenure { return h[1:] },
		"another owner":       func(h []tenure.Tenure) []tenure.Tenure { h[1].Owner = "replica-1"; return h },
		"another token":       func(h []tenure.Tenure) []tenure.Tenure { h[2].Token = 7; return h },
		"another end":         func(h []tenure.Tenure) []tenure.Tenure { h[2].End = tenure.EndReleased; return h },
		"nobody asked":        func(h []tenure.Tenure) []tenure.Tenure { h[1].Request = nil; return h },
		"a hole":              func(h []tenure.Tenure) []tenure.Tenure { h[1] = tenure.Tenure{Token: 2, Unknown: true}; return h },
	} {
		if err := checkHistory(seen, spoil(goodHistory())); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Each of these demos breaks one promise, and the check must say which.
func TestCheckBadReports(t *testing.T) {
	of := func(rs []report, replica string, k kind) *report {
		i := slices.IndexFunc(rs, func(r report) bool { return r.Replica == replica && r.Kind == k })
		return &rs[i]
	}
	for _, c := range []struct {
		name  string
		spoil func([]report) []report
		want  string
	}{
		{"two leaders at once", func(rs []report) []report {
			of(rs, "replica-2", stopped).Time = at(7.5)
			return rs
		}, "two leaders at once: replica-3 with token 3 began before replica-2 with token 2 had ended"},
		{"a leader that never stops", func(rs []report) []report {
			return slices.DeleteFunc(rs, func(r report) bool { return r.Replica == "replica-2" && r.Kind == stopped })
		}, "two leaders at once"},
		{"a leader beside the one that is not killed yet", func(rs []report) []report {
			of(rs, "replica-2", leading).Time = at(1.5)
			return rs
		}, "two leaders at once: replica-2 with token 2 began before replica-1 with token 1 had ended"},
		{"tokens 1, 3", func(rs []report) []report {
			for i := range rs {
				if rs[i].Replica == "replica-2" {
					rs[i].Token = 3
				}
				if rs[i].Replica == "replica-3" {
					rs[i].Token = 4
				}
			}
			return rs
		}, "the tokens of the leaders are [1 3 4]: they must be [1 2 3]"},
		{"the same token twice", func(rs []report) []report {
			of(rs, "replica-3", leading).Token = 2
			return rs
		}, "the tokens of the leaders are [1 2 2]"},
		{"only two tenures", func(rs []report) []report {
			return slices.DeleteFunc(rs, func(r report) bool { return r.Replica == "replica-3" && r.Kind == leading })
		}, "the tokens of the leaders are [1 2]"},
		{"a takeover before the lease has run out", func(rs []report) []report {
			of(rs, "replica-2", leading).Time = at(4.6)
			return rs
		}, "replica-2 took over 2.8 s after the last heartbeat of replica-1, which was killed: the lease is 3 s"},
		{"a record that tells another end", func(rs []report) []report {
			of(rs, "replica-2", leading).Previous.End = "released"
			return rs
		}, "replica-2 found before its own tenure that of replica-1 with token 1, released: it must be that of replica-1 with token 1, expired"},
		{"a record that tells nothing", func(rs []report) []report {
			of(rs, "replica-3", leading).Previous = nil
			return rs
		}, "replica-3 found no tenure before its own"},
		{"a polite end without a release", func(rs []report) []report {
			return slices.DeleteFunc(rs, func(r report) bool { return r.Replica == "replica-2" && r.Kind == released })
		}, `the tenure with token 2 of replica-2 ended as "": it should have been "stepped_down"`},
		{"a lost lease", func(rs []report) []report {
			of(rs, "replica-3", released).Kind = lost
			return rs
		}, `the tenure with token 3 of replica-3 ended as "lost"`},
		{"a leader twice", func(rs []report) []report {
			for i := range rs {
				if rs[i].Replica == "replica-3" {
					rs[i].Replica = "replica-2"
				}
			}
			return rs
		}, "replica-2 led twice"},
		{"an exit that is no success", func(rs []report) []report {
			of(rs, "replica-3", exited).Error = "exit status 1"
			return rs
		}, `replica-3 (pid 103) exited with status "exit status 1"`},
		{"a kill that does not kill", func(rs []report) []report {
			of(rs, "replica-1", exited).Error = ""
			return rs
		}, `replica-1 (pid 101) exited with status "0"`},
		{"a process that is left", func(rs []report) []report {
			return slices.DeleteFunc(rs, func(r report) bool { return r.Replica == "replica-2" && r.Kind == exited })
		}, "process 102 was not waited for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := check(3*time.Second, c.spoil(goodReports()))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got: %v\nwant: %s", err, c.want)
			}
		})
	}
}
