// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/trace"
)

func TestWriteAndRead(t *testing.T) {
	r := trace.NewRecorder()
	rec := driver.Record{
		Key: "k", Version: "v2", Beat: "v1", Owner: "a", Token: 3, State: driver.Held, Lease: time.Second,
		Requests: []driver.Request{{ID: "q", Kind: driver.HandOver, To: "b"}},
		Prev:     &driver.Term{Token: 2, End: driver.EndExpired},
	}
	r.Add(trace.Event{Do: trace.Start, Proc: "a", Timing: &trace.Timing{Lease: time.Second, Drift: 0.09}})
	r.Add(trace.Event{At: 5, Do: trace.Send, Lock: "k", Proc: "a", Who: "a/1", Request: r.Request(), Call: trace.Takeover, Next: trace.Of(rec)})
	r.Add(trace.Event{At: 7, Do: trace.Reply, Lock: "k", Proc: "a", Who: "a/1", Request: 1, Outcome: trace.Applied, Found: true, Record: trace.Of(rec)})

	var out bytes.Buffer
	if err := trace.Write(&out, r.Events()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Errorf("%d lines, want 3", n)
	}
	got, err := trace.Read(&out)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, r.Events()) {
		t.Errorf("read\n%+v\nwrote\n%+v", got, r.Events())
	}
	if q := got[2].Record.Requests; len(q) != 1 || q[0] != (trace.Asked{ID: "q", Kind: string(driver.HandOver), To: "b"}) || got[2].Record.Former != 2 {
		t.Errorf("record = %+v", got[2].Record)
	}
}

func TestReadRefusesOtherLines(t *testing.T) {
	for _, text := range []string{`{"at":1,"do":"send","color":"red"}`, `{"at":`, `[1]`} {
		if _, err := trace.Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

func TestNilRecorder(t *testing.T) {
	var r *trace.Recorder
	r.Add(trace.Event{Do: trace.Start})
	if n := r.Request(); n != 0 || r.Events() != nil {
		t.Errorf("Request = %d, Events = %v", n, r.Events())
	}
}
