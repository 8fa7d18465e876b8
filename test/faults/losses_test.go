// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRedisRows has Redis lose what it has answered, under Tenure and under libraries that do not pass.
func TestRedisRows(t *testing.T) {
	for id, want := range map[string]map[string]verdict{
		"tenure-redis": {
			"lost-acquire": passed, "tokens": passed, "fail-over": passed, "power-cut": passed, "emptied": passed,
			"isolated": passed,
		},
		"redsync":   {"lost-acquire": passed, "tokens": failed, "fail-over": failed, "isolated": failed, childRow: none},
		"redislock": {"tokens": failed, "isolated": failed, "dead-try": passed},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			throw(t, redisTable, id, want, nil)
		})
	}
}

// TestJudgeOfLosses: what programs must not do at a loss is counted, and so is what is left of the holds.
func TestJudgeOfLosses(t *testing.T) {
	// A lock is held for 300 ms, and the loss comes at 1,000 ms: the server is away until 1,050 ms.
	const ms = int64(time.Millisecond)
	const guarded = time.Second
	kept, gone := map[string]uint64{"l": 7}, map[string]uint64{"l": 6}
	for name, test := range map[string]struct {
		log    string
		tokens map[string]uint64 // nil: of a library without tokens
		waits  time.Duration
		want   lossFound
	}{
		"survived": {
			"begin a 900 7\nend a 1195\nbegin b 4200 8\nend b 4495\n", kept, guarded,
			lossFound{Holds: 2, Survived: 1, NoOne: after(3200)},
		},
		"disturbed": {
			"begin a 900 7\nend a 1050\nbegin b 4200 8\nend b 4495\n", kept, guarded,
			lossFound{
				Holds: 2, Survived: 1, Disturbed: []string{"50 ms after a loss; its program found the server after 50 ms"},
				NoOne: after(3200),
			},
		},
		"lost": {
			"begin a 900 7\nend a 1050\nbegin b 4200 8\nend b 4495\n", gone, guarded,
			lossFound{Holds: 2, Lost: 1, NoOne: after(3200)},
		},
		"two holders": {
			"begin a 900 7\nbegin b 1100 8\nend a 1150\nend b 1395\n", gone, guarded,
			lossFound{
				Holds: 2, Lost: 1, Overlaps: 1, After: 1, Longest: 50 * time.Millisecond,
				NoOne: after(100),
			},
		},
		"one token": {
			"begin a 900 7\nend a 1050\nbegin b 4200 7\nend b 4495\n", gone, guarded,
			lossFound{
				Holds: 2, Lost: 1, Twice: []string{"token 7 of l was granted to a and to b"}, Doubled: 1,
				NoOne: after(3200),
			},
		},
		"two holders, without tokens": {
			"begin a 900\nbegin b 1100\nend a 1150\nend b 1395\n", nil, 0,
			lossFound{
				Holds: 2, Overlaps: 1, After: 1, Longest: 50 * time.Millisecond,
				NoOne: after(100),
			},
		},
		"stayed with the former primary": {
			"begin b 900 7\nend b 1050\nbegin a 4200 8\nend a 4495\n", kept, guarded,
			lossFound{Holds: 2, Left: 1, NoOne: after(3200)},
		},
		"two holders, without a guard": {
			"begin a 900 7\nbegin b 1100 6\nend a 1150\nend b 1395\nbegin c 4200 7\nend c 4495\n", kept, 0,
			lossFound{
				Holds: 3, Overlaps: 1, After: 1, Longest: 50 * time.Millisecond, Doubled: 1,
				Twice: []string{"token 7 of l was granted to a and to c"}, NoOne: after(100),
			},
		},
	} {
		file := filepath.Join(t.TempDir(), "log")
		var text strings.Builder
		for line := range strings.Lines(test.log) { // its instants are milliseconds
			f := strings.Fields(line)
			f[2] += "000000"
			text.WriteString(strings.Join(f, " ") + "\n")
		}
		if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &fixture{column: column{ours: test.tokens != nil}}
		at := struck{
			at: 1000 * ms, up: 1050 * ms, tokens: test.tokens,
			stopped: 1020 * ms, moved: map[string]int64{"b": 2600 * ms}, // for which the others did not wait
		}
		got := s.judgeLosses([]struck{at}, test.waits, []string{"l"}, []string{file})
		test.want.Losses, test.want.Tokens, test.want.Wait = 1, test.tokens != nil, test.waits
		if !equal(got, test.want) {
			t.Errorf("%s: %+v; want %+v", name, got, test.want)
		}
	}
}

func after(ms time.Duration) spread { return spreadOf([]time.Duration{ms * time.Millisecond}) }

func equal(a, b lossFound) bool {
	x, y := &lossReport{Found: []lossFound{a}}, &lossReport{Found: []lossFound{b}}
	return x.markdown() == y.markdown() && a.Holds == b.Holds && slices.Equal(a.Disturbed, b.Disturbed) &&
		slices.Equal(a.Twice, b.Twice)
}

// TestLossesThatAreNotShown: a run in which Tenure did what it must not is not written.
func TestLossesThatAreNotShown(t *testing.T) {
	good := func() lossFound {
		return lossFound{
			Library: "Tenure", Way: "w", Losses: 1, Holds: 100, Survived: 100, Lost: 9, Tokens: true,
			Wait: time.Second, NoOne: after(2000),
		}
	}
	for want, spoil := range map[string]func(*lossFound){
		"":                                   func(*lossFound) {},
		"only 3 holds":                       func(f *lossFound) { f.Holds = 3 },
		"1 overlaps":                         func(f *lossFound) { f.Overlaps = 1 },
		`granted twice ["t"]`:                func(f *lossFound) { f.Twice, f.Doubled = []string{"t"}, 1 },
		`disturbed: ["a" "a"`:                func(f *lossFound) { f.Disturbed = slices.Repeat([]string{"a"}, 6) },
		"0 records survived":                 func(f *lossFound) { f.Survived = 0 },
		"1 overlaps, 0 tokens":               func(f *lossFound) { f.Wait, f.Overlaps = 0, 1 },
		"0 overlaps, 1 tokens":               func(f *lossFound) { f.Wait, f.Doubled = 0, 1 },
		"and 0 were lost":                    func(f *lossFound) { f.Lost = 0 },
		"was granted after 500ms, before 1s": func(f *lossFound) { f.NoOne = after(500) },
	} {
		f := good()
		spoil(&f)
		err := (&lossReport{Found: []lossFound{f}}).complete()
		if (want == "") != (err == nil) || !strings.Contains(errors.Join(err, errors.New("")).Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
