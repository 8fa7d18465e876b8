// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// testFidelity checks that each field of a record comes back as it was written.
func testFidelity(t *testing.T, e *env) {
	a := e.clients[0]

	t.Run("EveryField", func(t *testing.T) {
		next := e.filled(t, e.key(), 1, driver.Held)
		want := driver.Claimed(next, driver.Record{}, false)
		rec := e.claim(t, a, next)
		e.wantEqual(t, "record after Claim", rec, want)
		e.wantStored(t, want)

		swapped := func(version int, state driver.State) driver.Record {
			next := e.filled(t, rec.Key, version, state)
			next.Token = rec.Token + 1
			e.wantEqual(t, "record after Swap", e.swap(t, a, rec, next), next)
			e.wantStored(t, next)
			e.wantListed(t, next)
			return next
		}
		rec = swapped(2, driver.Held)
		rec = swapped(3, "hibernating")
		rec = swapped(4, driver.Reserved)
		rec = swapped(5, driver.Released)

		if e.h.Raises {
			next := e.filled(t, rec.Key, 6, driver.Released)
			next.Token = rec.Token + 1<<40
			e.wantEqual(t, "record after Raise", e.raise(t, a, rec, next), next)
			e.wantStored(t, next)
			e.wantListed(t, next)
			rec = next
		}
		e.wantClaimed(t, a, e.filled(t, rec.Key, 7, driver.Held), rec)
	})

	t.Run("EveryFieldOfASession", func(t *testing.T) {
		if e.h.NoSessions {
			t.Skip("the harness declares no sessions")
		}
		next := e.filled(t, driver.SessionKey(e.sessionID()), 1, driver.Alive)
		rec := e.claim(t, a, next)
		e.wantStored(t, driver.Claimed(next, driver.Record{}, false))
		for i, state := range []driver.State{driver.Alive, driver.Closed} {
			next := e.filled(t, rec.Key, i+2, state)
			next.Token = rec.Token
			e.wantEqual(t, "record after Swap", e.swap(t, a, rec, next), next)
			e.wantStored(t, next)
			e.wantListed(t, next)
			rec = next
		}
	})

	// An empty field comes back empty, not as a placeholder.
	t.Run("NoField", func(t *testing.T) {
		next := driver.Record{Key: e.key(), Version: "v1", Owner: "o", Lease: time.Second, State: driver.Held}
		rec := e.claim(t, a, next)
		e.wantStored(t, driver.Claimed(next, driver.Record{}, false))
		full := e.filled(t, rec.Key, 1, driver.Held) // next replaces it, and is not merged into it
		full.Token = rec.Token
		full, next = e.swap(t, a, rec, full), rec
		next.Version = "v1 again"
		rec = e.swap(t, a, full, next)
		e.wantStored(t, next)
		next.Version, next.Prev = "v2", &driver.Term{}
		e.swap(t, a, rec, next)
		e.wantStored(t, next)
		e.wantListed(t, next)
		rec, next = next, next.Clone()
		next.Version, next.Asked = "v3", &driver.Request{}
		next.Prev.Asked, next.Requests = &driver.Request{}, []driver.Request{{}}
		e.swap(t, a, rec, next)
		e.wantStored(t, next)
		e.wantListed(t, next)
	})

	// All that a record may carry, in its order.
	t.Run("Requests", func(t *testing.T) {
		for _, n := range []int{1, 2, driver.MaxRequests} {
			e.keeps(t, func(next *driver.Record) {
				for i := range n {
					request := e.request(driver.HandOver)
					request.Reason = fmt.Sprint("the reason of ", i)
					if i%2 == 1 {
						request.To, request.ToLabel = "", "v2 <ü>"
					}
					next.Requests = append(next.Requests, request)
				}
			})
		}
		e.keeps(t, func(next *driver.Record) {
			request := e.request(driver.HandOver)
			request.Reason = strings.Repeat("\x01", driver.MaxReasonLen)
			request.By = strings.Repeat("ü", driver.MaxOwnerLen/2)
			request.To = strings.Repeat("b", driver.MaxOwnerLen)
			next.Requests = []driver.Request{request}
		})
		e.keeps(t, func(next *driver.Record) {
			for _, token := range []uint64{0, 1, 1<<53 + 1, driver.MaxToken} {
				request := e.request(driver.Confirm)
				request.Lock, request.Token = "k", token
				next.Requests = append(next.Requests, request)
			}
		})
	})

	t.Run("Priorities", func(t *testing.T) {
		for _, priority := range []int{1, -1, 1000, math.MaxInt32, math.MinInt32, 0} {
			e.keeps(t, func(next *driver.Record) { next.Priority = priority })
		}
	})

	t.Run("Drifts", func(t *testing.T) {
		for _, drift := range []float64{0.09, 1e-9, 0.1 + 0.2, math.Nextafter(1, 0), 0} {
			e.keeps(t, func(next *driver.Record) { next.Drift = drift })
		}
	})

	t.Run("Notify", func(t *testing.T) {
		for _, address := range []string{"udp://[2001:db8::1]:4711 secret", strings.Repeat("b", driver.MaxNotifyLen), ""} {
			e.keeps(t, func(next *driver.Record) { next.Notify = address })
		}
		rec := e.claim(t, a, e.held(e.key()))
		next := e.released(rec)
		next.Notify = "b"
		if _, err := a.Swap(t.Context(), rec, next); !errors.Is(err, driver.ErrNotApplied) {
			t.Errorf("release with an address for notifications: %v, want a refusal", err)
		}
		e.wantStored(t, rec)
	})

	t.Run("Durations", func(t *testing.T) {
		for _, d := range []time.Duration{
			time.Millisecond, 1500 * time.Microsecond, 1234567891, 10*time.Second - 1, time.Minute + 1,
			24 * time.Hour, 400 * 24 * time.Hour,
		} {
			e.keeps(t, func(next *driver.Record) {
				next.Heartbeat = d
				if next.Lease = d; e.h.Lose != nil {
					next.Lease = min(d, 10*time.Second) // longer ones than the store waits are refused
				}
			})
		}
	})

	t.Run("Times", func(t *testing.T) {
		for _, at := range []time.Time{
			time.Now(),
			time.Date(2026, 3, 29, 2, 30, 0, 999999999, time.FixedZone("", -9*3600-30*60)),
			time.Date(1969, 12, 31, 23, 59, 59, 123456789, time.UTC),
			time.Unix(0, 0),
			time.Date(2262, 4, 12, 0, 0, 0, 1, time.UTC), // past what int64 nanoseconds hold
		} {
			e.keeps(t, func(next *driver.Record) {
				*next = e.released(*next)
				next.Since, next.Until = at, at.Add(1234567)
				request := driver.Request{ID: "id", Kind: driver.StepDown, At: at.Add(5432176)}
				next.Requests, next.Asked = []driver.Request{request}, &request
				next.Prev = &driver.Term{Owner: "o", Token: 1, Since: at, Until: at.Add(7654321), Asked: &request}
			})
		}
	})
}

// keeps writes a record that set has changed, and fails the test unless all of it is stored.
func (e *env) keeps(t *testing.T, set func(next *driver.Record)) {
	t.Helper()
	rec := e.claim(t, e.clients[0], e.held(e.key()))
	next := e.beat(rec)
	set(&next)
	e.wantEqual(t, "record after Swap", e.swap(t, e.clients[0], rec, next), next)
	e.wantStored(t, next)
	e.wantListed(t, next)
}

// wantListed fails the test unless List shows want.
func (e *env) wantListed(t *testing.T, want driver.Record) {
	t.Helper()
	for _, c := range e.clients {
		e.eventually(t, func() string {
			for _, rec := range e.list(t, c, want.Key, "") {
				if rec.Key == want.Key {
					return e.diff(rec, want)
				}
			}
			return fmt.Sprintf("List does not show %q", want.Key)
		})
	}
}

// filled returns a record in which no field is zero, and each field differs
// from that of a record with another n. It does so by reflection, so that a
// field that is added to the record cannot be forgotten here.
func filled(t *testing.T, key string, n int) driver.Record {
	t.Helper()
	var rec driver.Record
	fill(t, reflect.ValueOf(&rec).Elem(), "Record", n)
	rec.Key, rec.Session = key, fmt.Sprint("Session-", n) // which have a form
	rec.Drift = 1 / float64(n+2)                          // which no decimal represents exactly
	rec.Unknown = ""                                      // which is the store's own
	return rec
}

// filled returns a record like the function of that name, but valid in the
// given state.
func (e *env) filled(t *testing.T, key string, n int, state driver.State) driver.Record {
	t.Helper()
	rec := filled(t, key, n)
	rec.Life = "" // it would bind writes: see guardedLife
	if rec.State = state; state != driver.Held || e.h.NoSessions {
		rec.Session = ""
	}
	if state != driver.Held && state != driver.Alive {
		rec.Notify = ""
	}
	return rec
}

func fill(t *testing.T, v reflect.Value, name string, n int) {
	t.Helper()
	switch typ := v.Type(); {
	case typ == typeTime:
		v.Set(reflect.ValueOf(time.Date(2026, 1, n, len(name), 7, 9, 123456789, time.UTC)))
	case typ == typeDuration:
		v.SetInt(int64(n)*int64(time.Second) + int64(len(name))*1e6 + 234567)
	case typ == typeBytes:
		v.SetBytes(fmt.Appendf(nil, "%s %d", name, n))
	case typ.Kind() == reflect.String:
		v.SetString(fmt.Sprintf("%s %d", name, n))
	case typ.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(int64(n))
	case v.CanUint():
		v.SetUint(uint64(n))
	case v.CanFloat():
		v.SetFloat(float64(n))
	case typ.Kind() == reflect.Struct:
		for i := range typ.NumField() {
			fill(t, v.Field(i), name+"."+typ.Field(i).Name, n)
		}
	case typ.Kind() == reflect.Pointer:
		v.Set(reflect.New(typ.Elem()))
		fill(t, v.Elem(), name, n)
	case typ.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(typ, 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i), fmt.Sprintf("%s[%d]", name, i), n)
		}
	default:
		t.Fatalf("drivertest cannot fill %s of type %v: add the type", name, typ)
	}
	if v.IsZero() {
		t.Fatalf("drivertest left %s zero", name)
	}
}

func testData(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]
	var every []byte
	for i := range 256 {
		every = append(every, byte(i))
	}
	large := make([]byte, driver.MaxDataLen)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range large {
		large[i] = byte(random.Uint32())
	}
	const kib = 1 << 10

	for _, tc := range []struct {
		name string
		data []byte
	}{
		{"None", nil},
		{"Empty", []byte{}},
		{"EveryByte", every},
		{"Zeros", make([]byte, 16)},
		{"NotUTF8", []byte("\xff\xfe'\"\\")},
		// A store that remembers records, or keeps long data apart, has a limit for that.
		{"Above1KiB", large[:kib+1]},
		{"Above4KiB", large[:4*kib+1]},
		{"Above64KiB", large[:64*kib+1]},
		{"Longest", large},
	} {
		t.Run(tc.name, func(t *testing.T) {
			claim := e.held(e.key())
			claim.Data = tc.data
			rec := e.claim(t, a, claim)
			e.wantStored(t, driver.Claimed(claim, driver.Record{}, false))
			_, _, err := b.Claim(t.Context(), e.held(rec.Key))
			e.wantConflict(t, "Claim of the held key", err, rec)

			next := e.withData(rec, append([]byte("more"), tc.data[:min(len(tc.data), driver.MaxDataLen-4)]...))
			rec = e.swap(t, b, rec, next)
			e.wantStored(t, next)
			next = e.withData(rec, tc.data)
			rec = e.swap(t, a, rec, next)
			e.wantStored(t, next)

			// The handle that has released it may remember it, the other one has to read it.
			free := e.swap(t, a, rec, e.released(rec))
			for _, c := range []*client{a, a, b} {
				now := e.wantClaimed(t, c, e.held(rec.Key), free)
				free = e.swap(t, c, now, e.released(now))
			}
			if e.h.Raises {
				for _, data := range [][]byte{tc.data, []byte("other"), nil} {
					next := e.raised(free, 1000)
					next.Data = data
					free = e.raise(t, b, free, next)
					e.wantStored(t, next)
				}
			}
		})
	}

	// A swap writes its own data, or none: also from a prev that has only the compared
	// fields, and so says nothing about the stored data.
	t.Run("SwapEmpties", func(t *testing.T) {
		for _, none := range [][]byte{nil, {}} {
			for _, named := range []bool{false, true} {
				claim := e.held(e.key())
				claim.Data = []byte("data")
				rec := e.claim(t, a, claim)
				next := e.withData(rec, none)
				if named {
					rec = driver.Record{Key: rec.Key, Version: rec.Version, Token: rec.Token}
				}
				e.swap(t, b, rec, next)
				e.wantStored(t, next)
			}
		}
	})
}

// worstText has texts that some engine, or its quoting or encoding, cuts, folds,
// unescapes or refuses. The contract allows all of them. Each is tested within a
// string, and alone.
func worstText() []string {
	all := []string{
		// What some engines treat as no character, or as a delimiter.
		"\x7f", "\u00a0", "\u00ad", "\u200b", "\u200d", "\u202e", "\u2028", "\u2029", "\u2066", "\ufeff", "\ue000", "\ufdd0", "\ufffd", "\ufffe", "\uffff",
		"\U0001fffe", "\U000e0001", "\U0010ffff", "\U0001f44b\U0001f3fd", " ", "\r\n",
		// What looks like an escape, a quote, a placeholder or a comment.
		`\`, `\\`, `\"`, `\'`, `\n`, `\0`, `\x00`, `\u0000`, `\\u0000`, `\ud800`, `%00`, `%s`, `%`, `&#0;`, `&amp;`, `'`, `''`, `"`, "`", `$1`, `$$`, `${a}`, `:a`, `?`, `@a`,
		`{{a}}`, `{`, `}`, `[`, `]]>`, `<!--`, `/*`, `--`, `;`, `#`, `|`, "null", "NULL", `\N`, "true", "0", "0012", "-0", "1e3", "1e400", "NaN",
		// What equals another text once it is normalised or folded.
		"e\u0301", "\u212b", "\ufb01", "\u0130", "\u1e9e", "\u03c2",
	}
	for c := rune(0x01); c < 0xa0; c++ {
		if c < ' ' || c > '~' {
			all = append(all, string(c))
		}
	}
	return all
}

// testText checks that all text comes back as it was written, or is refused.
func testText(t *testing.T, e *env) {
	a, b := e.clients[0], e.clients[1]

	// Through a life, so that the store moves it into Prev by itself, too.
	t.Run("Kept", func(t *testing.T) {
		for _, worst := range worstText() {
			forms := []string{"a" + worst + "b", worst}
			if testing.Short() {
				forms = forms[:1]
			}
			for _, s := range forms {
				rec := e.claim(t, a, e.held(e.key()))
				next := e.beat(rec)
				fillText(&next, s)
				e.wantEqual(t, fmt.Sprintf("record with %q after Swap", s), e.swap(t, a, rec, next), next)
				_, _, err := b.Claim(t.Context(), e.held(rec.Key))
				if conflict := asConflict(t, "Claim", rec.Key, err); conflict != nil {
					e.wantEqual(t, fmt.Sprintf("the conflict with %q", s), conflict.Current, next)
				}
				free := e.released(next)
				free.Requests, free.End = nil, next.End
				e.swap(t, b, next, free)
				e.wantEqual(t, fmt.Sprintf("record with %q, released", s), e.get(t, a, rec.Key), free)
				claim := e.held(rec.Key)
				claim.Owner, claim.Host, claim.Label = s, s, s
				want := driver.Claimed(claim, free, true)
				e.wantEqual(t, fmt.Sprintf("record after Claim by %q", s), e.claim(t, b, claim), want)
				e.wantEqual(t, fmt.Sprintf("record of %q", s), e.get(t, a, rec.Key), want)
				if t.Failed() {
					return // the others would say the same
				}
			}
		}
	})

	// Everywhere the same rule: what gets into a request is carried by each heartbeat.
	t.Run("Refused", func(t *testing.T) {
		for _, s := range []string{"a\x00b", "\x00", "a\xffb", "a\xe4\xb8", "\xed\xa0\x80"} {
			eachText(func(field string, set func(*driver.Record, string)) {
				if t.Failed() {
					return // the others would say the same
				}
				name := fmt.Sprintf("%s with %q", field, s)
				next := e.withRequests(e.key())
				set(&next, s)
				now, _, err := a.Claim(t.Context(), next)
				wantRefusedText(t, "Claim of "+name, now, err)
				if field == "Key" {
					return
				}
				e.wantAbsent(t, next.Key)
				rec := e.claim(t, a, e.held(e.key()))
				next = e.withRequests(rec.Key)
				next.Token = rec.Token
				set(&next, s)
				now, err = a.Swap(t.Context(), rec, next)
				wantRefusedText(t, "Swap of "+name, now, err)
				e.wantStored(t, rec)
			})
		}
	})
}

// withRequests returns a held record that has a request wherever one can be.
func (e *env) withRequests(key string) driver.Record {
	rec := e.held(key)
	asked, before := e.request(driver.StepDown), e.request(driver.Revoke)
	rec.Requests = []driver.Request{e.request(driver.HandOver), e.request(driver.StepDown)}
	rec.Asked, rec.Prev = &asked, &driver.Term{Owner: "before", Token: 1, Asked: &before}
	return rec
}

// wantRefusedText fails the test unless the write was refused for good: an uncertain
// error would be retried, with every heartbeat.
func wantRefusedText(t *testing.T, what string, now driver.Record, err error) {
	t.Helper()
	wantRefused(t, what, now, err)
	if err != nil && (!errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, driver.ErrPermanent)) {
		t.Errorf("%s: %v; want a refusal for good: call CheckClaim and CheckSwap first", what, err)
	}
}

// fillText puts s into all free text of a held record.
func fillText(rec *driver.Record, s string) {
	request := driver.Request{ID: s, Kind: driver.RequestKind(s), Lock: s, By: s, Reason: s, To: s}
	asked, before := request, request
	rec.Owner, rec.Host, rec.Label, rec.Beat, rec.End = s, s, s, s, driver.EndReason(s)
	rec.Requests, rec.Asked = []driver.Request{request, request}, &asked
	rec.Prev = &driver.Term{Owner: s, Token: 1, Host: s, Label: s, End: driver.EndReason(s), Asked: &before}
}

// eachText calls do for each field that is text, with what sets it: in the last
// request of a list, and in each record that withRequests returns. The fields are
// found by reflection, so that a new field is not forgotten.
func eachText(do func(field string, set func(*driver.Record, string))) {
	var walk func(typ reflect.Type, name string, at func(reflect.Value) reflect.Value)
	walk = func(typ reflect.Type, name string, at func(reflect.Value) reflect.Value) {
		switch typ.Kind() {
		case reflect.String:
			if name != "Session" && name != "Unknown" { // has a form of its own; is the store's
				do(name, func(rec *driver.Record, s string) { at(reflect.ValueOf(rec).Elem()).SetString(s) })
			}
		case reflect.Pointer:
			walk(typ.Elem(), name, func(v reflect.Value) reflect.Value { return at(v).Elem() })
		case reflect.Slice:
			walk(typ.Elem(), name+"[]", func(v reflect.Value) reflect.Value { return at(v).Index(at(v).Len() - 1) })
		case reflect.Struct:
			for i := range typ.NumField() {
				if f := typ.Field(i); f.IsExported() {
					walk(f.Type, strings.TrimPrefix(name+"."+f.Name, "."), func(v reflect.Value) reflect.Value { return at(v).Field(i) })
				}
			}
		}
	}
	walk(reflect.TypeFor[driver.Record](), "", func(v reflect.Value) reflect.Value { return v })
}
