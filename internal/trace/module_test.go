// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/trace"
)

var start = trace.Event{Do: trace.Start, Proc: "a", Timing: &trace.Timing{Lease: 15 * time.Second, Window: 12 * time.Second, Drift: 0.09}}

func TestModule(t *testing.T) {
	events := []trace.Event{
		start,
		{Do: trace.Send, Lock: "other", Proc: "a", Who: "a/9", Request: 1, Call: trace.ReadCall},
		{At: 1500 * time.Millisecond, Do: trace.Send, Lock: "k", Proc: "a", Who: "a/1", Request: 2, Call: trace.Claim, Next: &trace.Record{Version: "v", Beat: "v", Owner: "ann", State: "held"}},
		{At: 3 * time.Second, Do: trace.Reply, Lock: "k", Request: 2, Outcome: trace.Unknown},
	}
	m, err := trace.NewModule("T", "k", events)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"a/1" :> "ann"`,
		`[at |-> 2000, do |-> "send", host |-> "a", p |-> "a/1", k |-> "claim", ver |-> "v"`,
		`[at |-> 4000, do |-> "reply", host |-> "a", p |-> "a/1", k |-> "claim", ver |-> "v", prev |-> None, next |-> None, out |-> "unknown", rec |-> Absent`,
	} {
		if !strings.Contains(string(m.TLA), want) {
			t.Errorf("no %s in\n%s", want, m.TLA)
		}
	}
	if strings.Contains(string(m.TLA), "a/9") {
		t.Error("the module has events of another lock")
	}
	for _, want := range []string{"Lease = 20000\n", "Usual = 16000\n", "DriftNum = 90\n"} {
		if !strings.Contains(string(m.Config), want) {
			t.Errorf("no %q in\n%s", want, m.Config)
		}
	}
}

func TestModuleOfNonsense(t *testing.T) {
	other := start
	other.Timing = &trace.Timing{Lease: time.Second}
	for name, events := range map[string][]trace.Event{
		"nothing":              nil,
		"no start":             {{Do: trace.Grant, Lock: "k", Who: "a/1"}},
		"another timing":       {start, other},
		"a reply without send": {start, {Do: trace.Reply, Lock: "k", Request: 7}},
	} {
		if _, err := trace.NewModule("T", "k", events); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
