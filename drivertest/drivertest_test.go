// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/drivertest"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// harness returns one for a database with the given bug, or for a sound one.
func harness(bug string) drivertest.Harness {
	db := newDatabase(bug)
	return drivertest.Harness{
		Open:                func(*testing.T) driver.Store { return db.open() },
		TokensOutliveDelete: db.keeping(),
		Watches:             true,
		Raises:              true,
		LeasePrecision:      time.Nanosecond,
		Ops:                 400,
		Plant: func(_ *testing.T, rec driver.Record) {
			db.mu.Lock()
			defer db.mu.Unlock()
			h := &handle{db: db, nodes: map[string]node{}}
			h.put(h.keep(rec))
		},
		Hang: db.stop,
		PlantUnreadable: func(_ *testing.T, key string) {
			db.mu.Lock()
			defer db.mu.Unlock()
			db.records[key] = driver.Record{Key: key, State: unreadable}
		},
	}
}

func TestSoundStorePasses(t *testing.T) {
	for name, sound := range map[string]func() drivertest.Harness{
		"Plain":       func() drivertest.Harness { return harness("") },
		"KeepsTokens": func() drivertest.Harness { return harness("keeping") },
		"LagsAsItMay": func() drivertest.Harness { return newCluster("").harness() },
	} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, func(*testing.T) drivertest.Harness { return sound() })
		})
	}
}

// bugs are what can be broken in a database, and the check that must find it.
var bugs = []struct{ name, check string }{
	{"token not raised", "Claim/Released/DataKept"},
	{"token of the caller", "Claim/Absent"},
	{"token a float", "Token/Large"},
	{"token wraps", "Token/Highest"},
	{"claim overwrites held", "Claim/Occupied/Held"},
	{"claim takes unknown states", "Claim/Occupied/UnknownState"},
	{"claim takes reserved", "Claim/Occupied/Reserved"},
	{"claim takes what is reserved for it", "Claim/Occupied/Reserved"},
	{"claim takes past", "Claim/Occupied/Past"},
	{"claim takes held with an end", "Claim/Occupied/Stalled"},
	{"claim loses data", "Claim/Released/DataKept"},
	{"claim forgets Prev", "Claim/Released/DataKept"},
	{"claim forgets who asked", "Late/claim_under_a_session/after_claim_under_a_session"},
	{"claim keeps who asked", "Late/claim_under_a_session/after_claim_under_a_session"},
	{"Prev always released", "Late/claim_under_a_session/after_claim_under_a_session"},
	{"claim returns no prev", "Claim/Released/DataKept"},
	{"claim not atomic", "Race/Claim"},
	{"swap takes what differs in its version alone", "Condition/VersionAlone/Heartbeat"},
	{"swap ignores token", "Condition/OldTokenSameVersion/Heartbeat"},
	{"swap ignores version", "Condition/StaleVersion/Heartbeat"},
	{"swap compares owner", "Condition/VersionAndTokenOnly/Heartbeat"},
	{"swap creates", "Condition/Absent/Heartbeat"},
	{"swap merges", "Fidelity/NoField"},
	{"takeover keeps token", "Late/takeover/after_takeover"},
	{"release deletes", "Late/release/after_release"},
	{"release keeps version", "Condition/Released/Heartbeat"},
	{"request prolongs", "Late/request/after_request"},
	{"requests ignore version", "Late/request/after_heartbeat_after_the_request"},
	{"requests add up", "Late/request/after_heartbeat_after_the_request"},
	{"conflict without requests", "Late/request/after_request"},
	{"reservation raises token", "Late/hand-over/after_hand-over"},
	{"taking what is reserved keeps token", "Late/takeover_of_the_reserved/after_takeover_of_the_reserved"},
	{"reservations ignore version", "Late/hand-over/after_hand-over"},
	{"releases ignore version", "Late/release_as_asked/after_claim_under_a_session"},
	{"reserved for nobody refused", "Claim/Occupied/ReservedForNobody"},
	{"past refused", "Claim/Occupied/Past"},
	{"past overwrites past", "Claim/Occupied/Past"},
	{"past not deleted", "Delete/Present"},
	{"claim takes alive", "Claim/Occupied/Alive"},
	{"claim takes closed", "Claim/Occupied/Closed"},
	{"opening takes closed", "Claim/Occupied/Closed"},
	{"closed by anybody", "Session/Late/closing/after_delete"},
	{"closed not deleted", "Session/Late/delete/after_delete"},
	{"closed renewed", "Session/Late/heartbeat/after_closing"},
	{"claim under a session refused", "Session/Lock"},
	{"session stays at the release", "Late/release/after_release"},
	{"session stays at a takeover", "Late/takeover/after_takeover"},
	{"session stays in a term", "Session/Lock"},
	{"session dropped", "Fidelity/EveryField"},
	{"session in lower case", "Session/Lock"},
	{"long session cut", "Session/Lock"},
	{"lock of a request dropped", "Fidelity/EveryField"},
	{"token of a request dropped", "Fidelity/EveryField"},
	{"token of a request a float", "Fidelity/Requests"},
	{"requests bounded in bytes", "Session/Requests"},
	{"closed not listed", "Claim/Occupied/Closed"},
	{"sessions unchecked", "Session/Steps/Revived"},
	{"sessions refused", "Claim/Occupied/Alive"},
	{"undeclared sessions", "Session"},
	{"no hint of a closing", "Watch/Closed/SameHandle"},
	{"conflict without record", "Claim/Occupied/Held"},
	{"conflict a plain error", "Claim/Occupied/Held"},
	{"conflict without Absent", "Condition/Absent/Heartbeat"},
	{"reads cached", "Get/Strong"},
	{"memory shared", "Ownership/Given"},
	{"requests shared", "Ownership/Given"},
	{"asked shared", "Ownership/Given"},
	{"asked of the former tenure shared", "Ownership/Given"},
	{"memory of a claim shared", "Ownership/NowAndPrev"},
	{"memory of a read shared", "Ownership/Remembered"},
	{"memory without long data", "Data/Above4KiB"},
	{"lease in seconds", "Fidelity/Durations"},
	{"times in seconds", "Fidelity/Times"},
	{"label dropped", "Fidelity/EveryField"},
	{"label of the former tenure dropped", "Fidelity/EveryField"},
	{"asked of the former tenure dropped", "Fidelity/EveryField"},
	{"asked dropped", "Fidelity/EveryField"},
	{"requests dropped", "Fidelity/EveryField"},
	{"one request kept", "Fidelity/EveryField"},
	{"requests turned round", "Fidelity/Requests"},
	{"reason cut", "Fidelity/Requests"},
	{"time of a request dropped", "Fidelity/Times"},
	{"priority dropped", "Fidelity/EveryField"},
	{"priority a byte", "Fidelity/Priorities"},
	{"keys of ours refused", "Keys/Distinct"},
	{"long keys refused", "Keys/Distinct"},
	{"keys in lower case", "Keys/Distinct"},
	{"keys trimmed", "Keys/Distinct"},
	{"delete ignores version", "Condition/StaleVersion/Delete"},
	{"delete ignores token", "Condition/OldTokenSameVersion/Delete"},
	{"delete compares owner", "Condition/VersionAndTokenOnly/Delete"},
	{"delete of absent fails", "Condition/Absent/Delete"},
	{"delete takes the prefix", "Delete/LeavesOthers"},
	{"prefix ignored", "List/OrderAndPrefix"},
	{"prefix folds case", "List/OrderAndPrefix"},
	{"list folds case", "List/OrderAndPrefix"},
	{"list ends after a page", "List/OrderAndPrefix"},
	{"pages overlap", "List/OrderAndPrefix"},
	{"cursors are records", "List/OrderAndPrefix"},
	{"writes unchecked", "Errors/Claim/NoLease"},
	{"unreadable read as it is", "Unreadable"},
	{"unreadable claimed", "Unreadable"},
	{"unreadable not listed", "Unreadable"},
	{"context ignored", "Context/DoneBefore"},
	{"applied said to be not", "Context/DoneDuring"},
	{"usable after Close", "Close/CallsAfter"},
	{"second Close fails", "Close/CallsAfter"},
	{"no Watch", "Watch"},
	{"no hint of others", "Watch/Release/OtherHandle"},
	{"no hint of delete", "Watch/Delete/SameHandle"},
	{"no hint of a reservation", "Watch/Reserved/SameHandle"},
	{"no hint of a request", "Watch/Request/SameHandle"},
	{"hint of the first request alone", "Watch/Request/OtherHandle"},
	{"one watch per key", "Watch/TwoWatches"},
	{"watch hints once", "Watch/AgainAndAgain"},
	{"watch never stops", "Watch/Stop"},
	{"undeclared Watch", "Watch"},
	{"coarse times", "Get"},
	{"finer times", "Fidelity/Times"},
	{"node's version alone", "Condition/NextLife0/Heartbeat"},
	{"text cut", "Text/Kept"},
	{"text unescaped", "Text/Kept"},
	{"text folded", "Text/Kept"},
	{"text of a request without what is no character", "Text/Kept"},
	{"text unchecked", "Text/Refused"},
	{"watch armed by the next call", "Watch/AtOnce"},
	{"watch armed late", "Watch/AtOnce"},
	{"watch ignores its context", "Watch/Context/DoneBefore"},
	{"watch ends with its context", "Watch/Context/Outlived"},
	{"watch hangs past its context", "Hang/Watch"},
	{"read hangs past its context", "Hang/Get"},
	{"Close waits for the engine", "Hang/Close"},
	{"applied said to be not at Close", "Close/CallsMeanwhile"},
	{"cluster with strong reads that lag", "Servers/Strong"},
	{"cluster with conflicts that lag", "Servers/Conflict"},
	{"cluster with undeclared lag", "Get/Eventual"},
	{"delete not atomic", "Race/Delete"},
	{"swap not atomic", "Race/Everything"},
	{"takeover not atomic", "Race/Everything"},
	{"tenth swap said to be not applied", "Race/Everything"},
	{"conflicts lag", "Race/Everything"},
	{"third read lags", "Race/Everything"},
	{"reads joined", "Race/Everything"},
	{"claim forgets Prev", "Race/Everything"},
	{"claim takes past", "Race/Everything"},
	{"claim takes alive", "Race/Everything"},
	{"claim sent twice", "Claim/Absent"},
	{"no Raise", "Raise"},
	{"undeclared Raise", "Raise"},
	{"raise by one", "Raise/Raises/Held"},
	{"raise of reserved refused", "Raise/Raises/Reserved"},
	{"raise forgets Prev", "Raise/Raises/Held"},
	{"raise keeps version", "Raise/Raises/Released"},
	{"raise of the highest wraps", "Raise/ToHighest"},
	{"raise keeps data", "Fidelity/EveryField"},
	{"raise loses data", "Fidelity/EveryField"},
	{"raise ignores version", "Condition/StaleVersion/Raise"},
	{"raise ignores token", "Condition/OldTokenSameVersion/Raise"},
	{"raise creates", "Condition/Absent/Raise"},
	{"raise from nothing over a record", "Raise/NoVersion"},
	{"raise compares owner", "Condition/VersionAndTokenOnly/Raise"},
	{"raise not atomic", "Race/Raise"},
	{"raises unchecked", "Raise/Refused/NoLease"},
	{"raise may stay", "Raise/Refused/SameToken"},
	{"raise may fall", "Raise/Refused/LowerToken"},
	{"raise to held", "Raise/Refused/Held"},
	{"raise of a session", "Raise/Refused/Session"},
	{"raise of what is unreadable", "Unreadable"},
	{"no hint of a raise", "Watch/Raise/OtherHandle"},
	{"raise ignores its context", "Context/DoneBefore"},
	{"raise after Close", "Close/CallsAfter"},
	{"keeping, not listed", "Raise/Kept"},
	{"keeping, undeclared", "Raise/Kept"},
	{"keeping, one page listed", "Raise/Kept"},
	{"keeping, records listed", "Raise/Kept"},
	{"keeping, raised from any token", "Raise/Kept"},
	{"keeping, raised and kept", "Raise/Kept"},
	{"guarded undeclared", "Guarded"},
	{"guarded one life for ever", "Guarded/Life"},
	{"guarded no life", "Guarded/Life"},
	{"guarded opening returned", "Guarded/Life"},
	{"guarded shown as stored", "Guarded/Closed/Released"},
	{"guarded listed as stored", "Guarded/Closed/Released"},
	{"guarded claims", "Guarded/Closed/Absent"},
	{"guarded claims of released", "Guarded/Closed/Released"},
	{"guarded reserved", "Guarded/Closed/Reserved"},
	{"guarded takeovers", "Guarded/Closed/Held"},
	{"guarded opened by any name", "Guarded/Closed/Absent"},
	{"guarded opened by no write", "Guarded/Opens/Heartbeat"},
	{"guarded opened by claims alone", "Guarded/Opens/Heartbeat"},
	{"guarded token by step", "Guarded/Tokens"},
	{"guarded bound to no life", "Guarded/Bound"},
	{"guarded session survives", "Guarded/Session"},
	{"guarded any lease", "Guarded/Lease"},
}

// lies are what a harness may declare wrongly.
var lies = map[string]func(*drivertest.Harness){
	"cluster with undeclared lag": func(h *drivertest.Harness) { h.EventualReads = false },
	"undeclared Watch":            func(h *drivertest.Harness) { h.Watches = false },
	"undeclared Raise":            func(h *drivertest.Harness) { h.Raises = false },
	"keeping, undeclared":         func(h *drivertest.Harness) { h.TokensOutliveDelete = false },
	"undeclared sessions":         func(h *drivertest.Harness) { h.NoSessions = true },
	"coarse times":                func(h *drivertest.Harness) { h.TimePrecision = time.Second },
	"finer times":                 func(h *drivertest.Harness) { h.TimePrecision = time.Microsecond },
}

// envBug names the bug in a process that TestBugsAreFound started.
const envBug = "DRIVERTEST_BUG"

// envPatience is another patience for it.
const envPatience = "DRIVERTEST_PATIENCE"

// TestBroken runs the suite on a broken store, and so fails, in a process that
// expects that.
func TestBroken(t *testing.T) {
	bug := os.Getenv(envBug)
	if bug == "" {
		return // this is no process of TestBugsAreFound
	}
	drivertest.Run(t, func(*testing.T) drivertest.Harness {
		h := harness(bug)
		if strings.HasPrefix(bug, "cluster ") {
			h = newCluster(bug).harness()
		}
		if strings.HasPrefix(bug, "guarded ") {
			h = unguardedHarness(bug)
		}
		h.Patience = 300 * time.Millisecond
		if text := os.Getenv(envPatience); text != "" {
			h.Patience, _ = time.ParseDuration(text)
		}
		if lie := lies[bug]; lie != nil {
			lie(&h)
		}
		return h
	})
}

func TestBugsAreFound(t *testing.T) {
	if os.Getenv(envBug) != "" {
		t.Skip("this is a process of TestBugsAreFound")
	}
	for _, bug := range bugs {
		t.Run(bug.name, func(t *testing.T) {
			t.Parallel()
			wantFailure(t, bug.name, bug.check)
		})
	}
}

// TestPatienceRunsOut: the first missing hint costs the whole patience, and each
// further one 2 seconds. A store that never hints fails soon.
func TestPatienceRunsOut(t *testing.T) {
	enginetest.MakeVerify(t)
	if os.Getenv(envBug) != "" {
		t.Skip("this is a process of TestBugsAreFound")
	}
	t.Setenv(envPatience, "3s")
	out := fails(t, "no hint of a request", "Watch")
	if strings.Count(out, "within 3s") != 1 || strings.Count(out, "within 2s") < 1 {
		t.Errorf("it did not wait for 3 s once, and then for 2 s:\n%s", out)
	}
}

// wantFailure runs TestBroken with a bug in a process of its own, and fails
// unless the given check does.
func wantFailure(t *testing.T, bug, check string) {
	t.Helper()
	out := fails(t, bug, check)
	if want := "--- FAIL: TestBroken/" + check + " "; !strings.Contains(out, want) {
		t.Errorf("%q did not fail:\n%s", check, out)
	}
}

// fails runs a check of TestBroken with a bug in a process of its own, and returns what
// that says.
func fails(t *testing.T, bug, check string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestBroken$/^"+strings.ReplaceAll(check, "/", "$/^")+"$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), envBug+"="+bug)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("the suite passed a store with this bug (%v):\n%s", err, out)
	}
	return string(out)
}
