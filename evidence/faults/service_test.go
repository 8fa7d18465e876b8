// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/peers"
	"github.com/tenurelock/tenure/evidence/peers/service"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// serviceRig is a rig with tenured and its clients, and with what a suspend needs.
func serviceRig(t *testing.T) *rig {
	t.Helper()
	e := enginetest.FullDynamoDB(t)
	r := &rig{engine: e.URL, db: dynamo.Connect(e.URL), versions: map[string]string{}, dir: t.TempDir(), say: t.Logf}
	if err := r.prepareService(t.Context(), clients); errors.Is(err, peers.ErrNoToolchain) {
		enginetest.Missing(t, "a client's toolchain", "scripts/setup installs it: "+err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	if err := r.prepareSleep(t.Context(), clients); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestServiceRows throws some faults at clients of the service, each at another language.
func TestServiceRows(t *testing.T) {
	r := serviceRig(t)
	var wg sync.WaitGroup
	for id, name := range map[string]string{
		suspendRow: "typescript-1", "lost-cut": "java-3", "close-waiting": "java-1",
		"bad-gateway": "python-3", "twice": "typescript-3", "step-down": "python-1",
	} {
		thrown, err := pick(clientRows(), id, "row", row.name)
		if err != nil {
			t.Fatal(err)
		}
		chosen, err := pick(clients, name, "library", subject.id)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			cells, err := r.row(t.Context(), thrown[0], chosen)
			c := cells[name]
			t.Logf("%s, %s: %s: %s", id, name, c.Verdict, c.Seen)
			if err != nil || c.Verdict != passed {
				t.Errorf("%s, %s: %s, %s, %v; want it passed", id, name, c.Verdict, c.Seen, err)
			}
		})
	}
	wg.Wait()
}

// TestServiceRowsBite: a client that breaks a rule does not pass the row that is about it.
// Others are broken in package evidence/service.
func TestServiceRowsBite(t *testing.T) {
	r := serviceRig(t)
	wrong := *r.clients[service.Python]
	wrong.Command.Env = append(slices.Clone(wrong.Command.Env), service.WrongEnv+"=mono-clock")
	r.clients[service.Python] = &wrong
	thrown, err := pick(clientRows(), suspendRow, "row", row.name)
	if err != nil {
		t.Fatal(err)
	}
	cells, err := r.row(t.Context(), thrown[0], clients[:1])
	if c := cells[clients[0].name]; err != nil || c.Verdict != failed {
		t.Errorf("with a clock that stands still: %s, %s, %v; want it failed", c.Verdict, c.Seen, err)
	}
}

// TestServicePage holds the page to the run that it shows, in which all was passed.
func TestServicePage(t *testing.T) {
	var r report
	if err := page.ReadJSON(serviceFile, &r); err != nil {
		t.Fatal(err)
	}
	if err := r.serviceComplete(); err != nil {
		t.Error(err)
	}
	if err := page.Check(servicePage, r.serviceTables(), serviceCommand); err != nil {
		t.Error(err)
	}
}

// TestServiceComplete: a report that lacks something, or in which something failed, is none
// to be shown.
func TestServiceComplete(t *testing.T) {
	r := &report{Cells: map[string]map[string]cell{}, Libraries: map[string]string{}}
	for _, row := range clientRows() {
		r.Cells[row.id] = map[string]cell{}
		for _, s := range clients {
			r.Libraries[s.name] = "v1"
			r.Cells[row.id][s.name] = cell{Verdict: passed, Seen: "something"}
		}
	}
	if err := r.serviceComplete(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"- **Crash of a holder**: A holder is killed", "Passed: Python, 1 replica 20 of 20",
	} {
		if text := r.serviceTables(); !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	r.Cells["crash"]["java-3"] = cell{Verdict: failed, Seen: "not got"}
	delete(r.Cells["twice"], "python-1")
	r.Cells["former"] = nil
	err := r.serviceComplete()
	for _, want := range []string{"Java, 3 replicas does not pass crash: not got", "twice was not looked at for python-1", "no row former"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
