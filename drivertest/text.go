// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
)

// worstText is what some engine, or some way to quote or to encode for it, cuts,
// folds, unescapes or refuses. The contract allows all of it. Each stands in the middle
// of a string, and alone.
func worstText() []string {
	all := []string{
		// What is no character to some, or begins or ends something.
		"\x7f", "\u00a0", "\u00ad", "\u200b", "\u200d", "\u202e", "\u2028", "\u2029", "\u2066", "\ufeff", "\ue000", "\ufdd0", "\ufffd", "\ufffe", "\uffff",
		"\U0001fffe", "\U000e0001", "\U0010ffff", "\U0001f44b\U0001f3fd", " ", "\r\n",
		// What looks like an escape, a quote, a placeholder or a comment.
		`\`, `\\`, `\"`, `\'`, `\n`, `\0`, `\x00`, `\u0000`, `\\u0000`, `\ud800`, `%00`, `%s`, `%`, `&#0;`, `&amp;`, `'`, `''`, `"`, "`", `$1`, `$$`, `${a}`, `:a`, `?`, `@a`,
		`{{a}}`, `{`, `}`, `[`, `]]>`, `<!--`, `/*`, `--`, `;`, `#`, `|`, "null", "NULL", `\N`, "true", "0", "-0", "1e400", "NaN",
		// What is equal to something else once it is normalised or folded.
		"e\u0301", "\u212b", "\ufb01", "\u0130", "\u1e9e", "\u03c2",
	}
	for c := rune(0x01); c < 0xa0; c++ {
		if c < ' ' || c > '~' {
			all = append(all, string(c))
		}
	}
	return all
}

// testText checks that all text comes back as it went in, or is refused.
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
	rec.Asked, rec.Prev = &asked, &driver.Tenure{Owner: "before", Token: 1, Asked: &before}
	return rec
}

// wantRefusedText fails the test unless the write was refused for what it is: what is
// not certain would be tried again, with every heartbeat.
func wantRefusedText(t *testing.T, what string, now driver.Record, err error) {
	t.Helper()
	wantRefused(t, what, now, err)
	if err != nil && (!errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, driver.ErrPermanent)) {
		t.Errorf("%s: %v; want a refusal for good: call CheckClaim and CheckSwap first", what, err)
	}
}

// fillText puts s into all of a held record that is free text.
func fillText(rec *driver.Record, s string) {
	request := driver.Request{ID: s, Kind: driver.RequestKind(s), Lock: s, By: s, Reason: s, To: s}
	asked, before := request, request
	rec.Owner, rec.Host, rec.Label, rec.Beat, rec.End = s, s, s, s, driver.EndReason(s)
	rec.Requests, rec.Asked = []driver.Request{request, request}, &asked
	rec.Prev = &driver.Tenure{Owner: s, Token: 1, Host: s, Label: s, End: driver.EndReason(s), Asked: &before}
}

// eachText calls do for each field that is text, with what sets it: in the last
// request of a list, and in each record that withRequests returns. The fields are
// found by reflection, so that one that is added to the record is not forgotten.
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
