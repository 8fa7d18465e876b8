// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package recordcodec

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// sample is a held lock, as a store on etcd or ZooKeeper keeps it.
func sample() driver.Record {
	at := time.Date(2026, 11, 26, 9, 34, 51, 244723749, time.UTC)
	return driver.Record{
		Key: "nightly-report", Version: "2RYF2HMJ4DTMI-MRVVFJ5SEEKIA", Beat: "2RYF2HMJ4DTMI-MRVVFJ5SEEKIA", Owner: "web-7-4711-kxq2ma", Token: 12,
		Lease: 15 * time.Second, Heartbeat: 3 * time.Second, Drift: 0.09, State: driver.Held, Host: "web-7", Since: at,
		Prev: &driver.Term{Owner: "web-6-4712-abq2ma", Token: 11, Host: "web-6", Since: at.Add(-time.Hour), Until: at, End: driver.EndReleased},
	}
}

// TestRecordsArePlain: usual records are read the quick way.
func TestRecordsArePlain(t *testing.T) {
	if text := Encode(sample()); !plainly(text) {
		t.Errorf("not plain: %s", text)
	}
}

func plainly(text string) bool {
	_, plain := scan(text)
	return plain
}

// FuzzScan: the quick way finds what the rules of encoding/json find, or leaves it to them.
func FuzzScan(f *testing.F) {
	whole := Encode(sample())
	for _, text := range []string{
		whole, whole[:len(whole)-1], whole + "}", whole + " ", "", "{", "{}", "{},", "[]", "null", `{"a":1,"a":2}`, `{"a":{"b":1,"b":2}}`,
		`{"a":[1,-2.5,"c",{},[]],"b":{"c":{"d":[]}}}`, `{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":1e3}`, `{"a":-0}`, `{"a":1x}`, `{"a":"\u0041"}`,
		"{\"a\":\"\n\"}", `{"a":true}`, `{"a":nullx}`, `{"a" :1}`, `{"a":1,}`, `{,"a":1}`, `{"a":[1,]}`, `{"a":[1 ]}`, `{a:1}`, `{"a"}`, `{"a":}`,
		`{"a":` + strings.Repeat("[", 12) + strings.Repeat("]", 12) + "}", "{\"a\":\"\x00\"}", "{\"a\":\"\x7f\u2028\"}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := open(text, "")
		if err != nil || !plainly(text) {
			return
		}
		want, err := openAny(text, "")
		if err != nil || len(want.members)+len(r.members) > 0 && !reflect.DeepEqual(r.members, want.members) {
			t.Errorf("%q is read as %+v; by the rules %+v, %v", text, r.members, want, err)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	rec := sample()
	b.ReportAllocs()
	for b.Loop() {
		_ = Encode(rec)
	}
}

func BenchmarkDecode(b *testing.B) {
	text := Encode(sample())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(text); err != nil {
			b.Fatal(err)
		}
	}
}
