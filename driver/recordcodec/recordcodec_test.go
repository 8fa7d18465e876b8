// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package recordcodec_test

import (
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

var update = flag.Bool("update", false, "write the golden file again")

// full has every field.
func full() driver.Record {
	at := time.Date(2026, 3, 29, 2, 30, 0, 999999999, time.UTC)
	asked := driver.Request{ID: "q-1", Kind: driver.HandOver, Lock: "nightly", Token: driver.MaxToken, By: "ops", Reason: "deploy\n\"1.4\"", To: "web-8", At: at}
	return driver.Record{
		Key: "nightly/Grüße", Version: "T-n", Beat: "T-m", Owner: "web-7 <a&b>", Token: driver.MaxToken, Lease: 15*time.Second + 1, Session: "S-1",
		Heartbeat: 1500 * time.Microsecond, Drift: 0.1 + 0.2, Notify: "udp://[2001:db8::1]:4711 secret", State: driver.Held, Priority: math.MinInt32,
		Requests: []driver.Request{asked, {}, {ToLabel: "v2"}}, Data: []byte{0, 1, 0xff}, Host: "host", Label: "v1\u2028", Since: at, Until: at.Add(1),
		End: driver.EndCrashed, Asked: &driver.Request{}, Unknown: `{"colour":{"a":[1,null]},"x":"y"}`,
		Prev: &driver.Term{Owner: "web-6", Token: 1<<53 + 1, Host: "h", Label: "l", Since: at, Until: at, End: driver.EndFailed, Asked: &asked},
	}
}

// TestGolden is what the stores of others read: it changes with a note in the
// changelog, or never.
func TestGolden(t *testing.T) {
	name := filepath.Join("testdata", "record.json")
	released := full()
	released.State, released.Requests, released.Prev, released.Unknown = driver.Released, nil, nil, ""
	got := recordcodec.Encode(full()) + "\n" + recordcodec.Encode(driver.Record{}) + "\n" + recordcodec.EncodeTerm(full().Prev) + "\n" +
		recordcodec.EncodeTerm(&driver.Term{}) + "\n" + recordcodec.EncodeTerm(nil) + "\n" + recordcodec.Encode(released) + "\n"
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the texts are\n%s\nwant\n%s", got, want)
	}
}

func TestEveryFieldComesBack(t *testing.T) {
	rec := full()
	for i := range reflect.TypeFor[driver.Record]().NumField() { // a new field is noticed here
		name := reflect.TypeFor[driver.Record]().Field(i).Name
		stored := name != "Life" && name != "Opens"
		if reflect.ValueOf(rec).Field(i).IsZero() && stored {
			t.Errorf("the test leaves %s empty", name)
		}
	}
	got, err := recordcodec.Decode(recordcodec.Encode(rec))
	if err != nil || !reflect.DeepEqual(got, rec) {
		t.Errorf("%+v, %v\nwant %+v", got, err, rec)
	}
	for _, rec := range []driver.Record{{}, {Prev: &driver.Term{}}, {Asked: &driver.Request{}, Requests: []driver.Request{{}}}} {
		if got, err := recordcodec.DecodePart(recordcodec.Encode(rec)); err != nil || !reflect.DeepEqual(got, rec) {
			t.Errorf("%+v, %v; want %+v", got, err, rec)
		}
	}
}

// TestReleasedTextIsATerm: an engine that cannot compute stores the text of a
// released record as its successor's Prev.
func TestReleasedTextIsATerm(t *testing.T) {
	for _, end := range []driver.EndReason{"", driver.EndSteppedDown} {
		rec := full()
		rec.State, rec.Session, rec.Notify, rec.Requests, rec.End = driver.Released, "", "", nil, end
		got, err := recordcodec.DecodeTerm(recordcodec.Encode(rec))
		if want := rec.Term(driver.EndReleased); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("with end %q: %+v, %v; want %+v", end, got, err, want)
		}
	}
	for _, want := range []*driver.Term{nil, {}, full().Prev} {
		if got, err := recordcodec.DecodeTerm(recordcodec.EncodeTerm(want)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
}

// TestResting: a program that does not know of sessions cannot read a lock under a
// session as held.
func TestResting(t *testing.T) {
	rec := full()
	for _, state := range []driver.State{driver.Held, driver.Released, driver.Alive, "hibernating"} {
		rec.State = state
		text := recordcodec.Encode(rec)
		older := strings.Replace(text, `"session":"S-1",`, "", 1) // as a program that ignores the member
		read, err := recordcodec.DecodePart(older)
		if state == driver.Held {
			if !errors.Is(err, driver.ErrUnreadable) || !strings.Contains(text, `"state":"resting"`) {
				t.Errorf("%s is read as %q, %v", older, read.State, err)
			}
		} else if err != nil || read.State != state {
			t.Errorf("%s is read as %q, %v; want %q", older, read.State, err, state)
		}
	}
}

// TestDamagedTexts: no damaged value comes back as zero.
func TestDamagedTexts(t *testing.T) {
	for _, text := range []string{
		"", " ", "x", "null", "[]", `"s"`, "{", "{}}", "{} {}", `{"owner":"a"}x`, `{"owner":}`, `{"owner":"a",}`, "{\"owner\":\"\xff\"}",
		`{"owner":null}`, `{"owner":1}`, `{"owner":"a","owner":"a"}`, `{"owner":"\u0000"}`, `{"asked":{"reason":"a\u0000"}}`, `{"x":1,"x":1}`,
		`{"token":null}`, `{"token":"1"}`, `{"token":-1}`, `{"token":1.5}`, `{"token":1e3}`, `{"token":9223372036854775808}`,
		`{"lease":15}`, `{"lease":"15"}`, `{"lease":"0s"}`, `{"lease":"-1s"}`, `{"lease":"soon"}`, `{"lease":""}`, `{"heartbeat":"0s"}`,
		`{"drift":"0"}`, `{"drift":-0.1}`, `{"drift":-0}`, `{"drift":1}`, `{"drift":1e999}`, `{"priority":1.5}`, `{"priority":"1"}`, `{"priority":99999999999999999999}`,
		`{"state":"resting"}`, `{"state":"held","session":"s"}`, `{"state":"resting","session":1}`,
		`{"data":"?"}`, `{"data":1}`, `{"since":"today"}`, `{"since":""}`, `{"since":1}`, `{"until":"0001-01-01T00:00:00Z"}`,
		`{"requests":{}}`, `{"requests":[1]}`, `{"requests":[null]}`, `{"requests":null}`, `{"requests":[{"token":-1}]}`, `{"requests":[{"at":"x"}]}`,
		`{"asked":null}`, `{"asked":"x"}`, `{"asked":{"by":1}}`, `{"prev":null}`, `{"prev":[]}`, `{"prev":{"token":"1"}}`, `{"prev":{"asked":null}}`, `{"prev":{"owner":"a","owner":"b"}}`,
	} {
		if rec, err := recordcodec.DecodePart(text); !errors.Is(err, driver.ErrUnreadable) {
			t.Errorf("%s: %+v, %v; want ErrUnreadable", text, rec, err)
		}
	}
	for _, text := range []string{"", "{", "[]", "null ", `{"token":-1}`, `{"asked":null}`, `{"until":"x"}`, `{"owner":null}`, `{"state":1}`} {
		if tenure, err := recordcodec.DecodeTerm(text); !errors.Is(err, driver.ErrUnreadable) {
			t.Errorf("%s: %+v, %v; want ErrUnreadable", text, tenure, err)
		}
	}
}

// TestWholeRecords have all that every record has.
func TestWholeRecords(t *testing.T) {
	for name, change := range map[string]func(*driver.Record){
		"key":     func(r *driver.Record) { r.Key = "" },
		"version": func(r *driver.Record) { r.Version = "" },
		"state":   func(r *driver.Record) { r.State = "" },
		"owner":   func(r *driver.Record) { r.Owner = "" },
		"token":   func(r *driver.Record) { r.Token = 0 },
		"lease":   func(r *driver.Record) { r.Lease = 0 },
	} {
		rec := full()
		change(&rec)
		if _, err := recordcodec.Decode(recordcodec.Encode(rec)); !errors.Is(err, driver.ErrUnreadable) || !strings.Contains(err.Error(), "it has no "+name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	nobody := full()
	nobody.State, nobody.Owner = driver.Reserved, ""
	if _, err := recordcodec.Decode(recordcodec.Encode(nobody)); err != nil {
		t.Errorf("kept for nobody: %v", err)
	}
}

// TestUnknownMembersStay: an older program renews the record of a newer one.
func TestUnknownMembersStay(t *testing.T) {
	rec, err := recordcodec.DecodePart(`{"owner": "a", "later": {"b": [1, 2.50, "\u00fc"]}, "host":"h", "OWNER":"b", "n": 12345678901234567890}`)
	if err != nil {
		t.Fatal(err)
	}
	if rec.Owner != "a" {
		t.Errorf("the owner is %q: a name in other letters is another name", rec.Owner)
	}
	rec.Host, rec.Version = "h2", "v2"
	want := `{"version":"v2","owner":"a","host":"h2","later":{"b":[1,2.50,"\u00fc"]},"OWNER":"b","n":12345678901234567890}`
	if got := recordcodec.Encode(rec); got != want {
		t.Errorf("it is written on as\n%s, want\n%s", got, want)
	}
	// A text that is not an object of unknown members did not come from Decode.
	for _, unknown := range []string{"x", "[]", `{"owner":"b"}`, "{}"} {
		if got := recordcodec.Encode(driver.Record{Owner: "a", Unknown: unknown}); got != `{"owner":"a"}` {
			t.Errorf("with %s: %s", unknown, got)
		}
	}
}

// FuzzDecode: a decoded record is encoded as it was read.
func FuzzDecode(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("testdata", "record.json"))
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(golden)) {
		f.Add(strings.TrimSpace(line))
	}
	f.Add(`{"state":"resting","session":"s"}`)
	f.Add(`{"state":"released","session":"s"}`)
	f.Add(`{"later":1,"owner":"\ud800","since":"2026-01-01T00:00:00.5+01:00","lease":"1h0.5s"}`)
	f.Fuzz(func(t *testing.T, text string) {
		rec, err := recordcodec.DecodePart(text)
		if err != nil {
			if !errors.Is(err, driver.ErrUnreadable) {
				t.Errorf("%q: %v", text, err)
			}
		} else {
			again, err := recordcodec.DecodePart(recordcodec.Encode(rec))
			if err != nil || !reflect.DeepEqual(again, rec) {
				t.Errorf("%q is read as %+v, and then as %+v, %v", text, rec, again, err)
			}
		}
		tenure, err := recordcodec.DecodeTerm(text)
		if err != nil {
			return
		}
		if again, err := recordcodec.DecodeTerm(recordcodec.EncodeTerm(tenure)); err != nil || !reflect.DeepEqual(again, tenure) {
			t.Errorf("%q is read as %+v, and then as %+v, %v", text, tenure, again, err)
		}
	})
}

// TestWrittenAsJSON: a string and a number are written as encoding/json writes them, in the
// quick way and in the other one.
func TestWrittenAsJSON(t *testing.T) {
	want := func(v any) string {
		var text strings.Builder
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(text.String(), "\n")
	}
	var strange []string
	for c := range rune(0x180) {
		strange = append(strange, "a"+string(c)+"b")
	}
	strange = append(strange, "\u2028", "\u2029", "\ufffd", "Grüße", "\xff", "a\xc3", "<a&b>", `"`, `\`, "😀", strings.Repeat("x", 1<<11))
	for _, s := range strange {
		if got, want := recordcodec.EncodeTerm(&driver.Term{Owner: s}), `{"owner":`+want(s)+`}`; got != want {
			t.Errorf("%q is written as %s, want %s", s, got, want)
		}
	}
	for _, x := range []float64{0.05, 1e-6, 9.99e-7, 1e-7, 5e-324, 0.1 + 0.2, math.Nextafter(1, 0), 1, 1e5 + 0.1, 1e6, 1e20, 1e21, math.MaxFloat64, -0.5} {
		if got, want := recordcodec.Encode(driver.Record{Drift: x}), `{"drift":`+want(x)+`}`; got != want {
			t.Errorf("%v is written as %s, want %s", x, got, want)
		}
	}
}
