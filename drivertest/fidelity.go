// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// testFidelity checks that each field of a record comes back as it went in.
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

		next = e.filled(t, rec.Key, 6, driver.Held)
		e.wantClaimed(t, a, next, rec)
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

	// What is empty comes back empty, not as something that stands for it.
	t.Run("NoField", func(t *testing.T) {
		next := driver.Record{Key: e.key(), Version: "v1", Owner: "o", Lease: time.Second, State: driver.Held}
		rec := e.claim(t, a, next)
		e.wantStored(t, driver.Claimed(next, driver.Record{}, false))
		next = rec
		next.Version, next.Prev = "v2", &driver.Tenure{}
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
		rec := e.claim(t, a, e.held(e.key()))
		for _, n := range []int{1, 2, driver.MaxRequests, 0} {
			next := e.beat(rec)
			next.Requests = nil
			for i := range n {
				request := e.request(driver.HandOver)
				request.Reason = fmt.Sprint("the reason of ", i)
				if i%2 == 1 {
					request.To, request.ToLabel = "", "v2 <ü>"
				}
				next.Requests = append(next.Requests, request)
			}
			rec = e.swap(t, a, rec, next)
			e.wantStored(t, next)
			e.wantListed(t, next)
		}
		next := e.beat(rec)
		next.Requests = []driver.Request{e.request(driver.HandOver)}
		next.Requests[0].Reason = strings.Repeat("\x01", driver.MaxReasonLen)
		next.Requests[0].By = strings.Repeat("ü", driver.MaxOwnerLen/2)
		next.Requests[0].To = strings.Repeat("b", driver.MaxOwnerLen)
		rec = e.swap(t, a, rec, next)
		e.wantStored(t, next)

		next = e.beat(rec)
		next.Requests = nil
		for _, token := range []uint64{0, 1, 1<<53 + 1, driver.MaxToken} {
			request := e.request(driver.Confirm)
			request.Lock, request.Token = "k", token
			next.Requests = append(next.Requests, request)
		}
		e.swap(t, a, rec, next)
		e.wantStored(t, next)
	})

	t.Run("Priorities", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		for _, priority := range []int{1, -1, 1000, math.MaxInt32, math.MinInt32, 0} {
			next := e.beat(rec)
			next.Priority = priority
			rec = e.swap(t, a, rec, next)
			e.wantStored(t, next)
		}
	})

	t.Run("Strings", func(t *testing.T) {
		for _, s := range []string{
			"plain", " leading and trailing ", "", "tab\tand\nnew\r\nline", `"quotes' \ and %_*?$;--`,
			"Grüße, 世界, 👋🏽", "e\u0301 is not \u00e9", "null", "true", "0012", "1e3", "<a>&amp;{}[]",
			"\u2028\ufeff\U0010ffff", strings.Repeat("ü", driver.MaxOwnerLen/2-1),
		} {
			rec := e.claim(t, a, e.held(e.key()))
			next := e.beat(rec)
			next.Owner, next.Host, next.Label, next.Beat = "o"+s, s, s, s
			request := driver.Request{ID: s, Kind: driver.RequestKind(s), Lock: s, By: s, Reason: s, To: s}
			next.Requests, next.Asked = []driver.Request{request, request}, &request
			next.Prev = &driver.Tenure{Owner: s, Token: 1, Host: s, Label: s, End: driver.EndReason(s), Asked: &request}
			e.swap(t, a, rec, next)
			e.wantStored(t, next)
		}
	})

	t.Run("Drifts", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		for _, drift := range []float64{0.09, 1e-9, 0.1 + 0.2, math.Nextafter(1, 0), 0} {
			next := e.beat(rec)
			next.Drift = drift
			rec = e.swap(t, a, rec, next)
			e.wantStored(t, next)
		}
	})

	t.Run("Bells", func(t *testing.T) {
		rec := e.claim(t, a, e.held(e.key()))
		for _, bell := range []string{"udp://[2001:db8::1]:4711 secret", strings.Repeat("b", driver.MaxBellLen), ""} {
			next := e.beat(rec)
			next.Bell = bell
			rec = e.swap(t, a, rec, next)
			e.wantStored(t, next)
		}
		next := e.released(rec)
		next.Bell = "b"
		if _, err := a.Swap(t.Context(), rec, next); !errors.Is(err, driver.ErrNotApplied) {
			t.Errorf("release with a bell: %v, want a refusal", err)
		}
		e.wantStored(t, rec)
	})

	t.Run("Durations", func(t *testing.T) {
		for _, d := range []time.Duration{
			time.Millisecond, 1500 * time.Microsecond, 1234567891, 10*time.Second - 1, time.Minute + 1,
			24 * time.Hour, 400 * 24 * time.Hour,
		} {
			rec := e.claim(t, a, e.held(e.key()))
			next := e.beat(rec)
			next.Lease, next.Heartbeat = d, d
			e.swap(t, a, rec, next)
			e.wantStored(t, next)
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
			rec := e.claim(t, a, e.held(e.key()))
			next := e.released(rec)
			next.Since, next.Until = at, at.Add(1234567)
			request := driver.Request{ID: "id", Kind: driver.StepDown, At: at.Add(5432176)}
			next.Requests, next.Asked = []driver.Request{request}, &request
			next.Prev = &driver.Tenure{Owner: "o", Token: 1, Since: at, Until: at.Add(7654321), Asked: &request}
			e.swap(t, a, rec, next)
			e.wantStored(t, next)
		}
	})
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

// filled returns a record of which no field is zero, and each is another than
// in a record with another n. It does so by reflection, so that a field that
// is added to the record cannot be forgotten here.
func filled(t *testing.T, key string, n int) driver.Record {
	t.Helper()
	var rec driver.Record
	fill(t, reflect.ValueOf(&rec).Elem(), "Record", n)
	rec.Key, rec.Session = key, fmt.Sprint("Session-", n) // which have a form
	rec.Drift = 1 / float64(n+2)                          // of which no decimal is exact
	rec.Unknown = ""                                      // which is the store's own
	return rec
}

// filled returns a record that may be stored in the given state, and is else
// what the function of that name returns.
func (e *env) filled(t *testing.T, key string, n int, state driver.State) driver.Record {
	t.Helper()
	rec := filled(t, key, n)
	if rec.State = state; state != driver.Held || e.h.NoSessions {
		rec.Session = ""
	}
	if state != driver.Held && state != driver.Alive {
		rec.Bell = ""
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
		t.Fatalf("drivertest cannot fill %s of type %v: teach it", name, typ)
	}
	if v.IsZero() {
		t.Fatalf("drivertest left %s zero", name)
	}
}
