// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// checkText returns an error if some engine cannot keep a string of the record.
// Such a string in a request, say, would fail every heartbeat that carries it, on
// the engines that refuse it.
func (r *Record) checkText() error {
	for _, field := range [...]struct{ name, text string }{
		{"Key", r.Key},
		{"Version", r.Version},
		{"Beat", r.Beat},
		{"Owner", r.Owner},
		{"Session", r.Session},
		{"Notify", r.Notify},
		{"State", string(r.State)},
		{"Host", r.Host},
		{"Label", r.Label},
		{"End", string(r.End)},
		{"Life", r.Life},
		{"Opens.Life", r.Opens.Life},
	} {
		if !isText(field.text) {
			return r.noText(field.name, field.text)
		}
	}
	if strings.ContainsFunc(r.Notify, unicode.IsControl) {
		return fmt.Errorf("write of %q with an address for notifications that has control characters", r.Key)
	}
	for i := range r.Requests {
		if err := r.checkRequest("Requests", &r.Requests[i]); err != nil {
			return err
		}
	}
	if err := r.checkRequest("Asked", r.Asked); err != nil || r.Prev == nil {
		return err
	}
	for _, field := range [...]struct{ name, text string }{
		{"Prev.Owner", r.Prev.Owner},
		{"Prev.Host", r.Prev.Host},
		{"Prev.Label", r.Prev.Label},
		{"Prev.End", string(r.Prev.End)},
	} {
		if !isText(field.text) {
			return r.noText(field.name, field.text)
		}
	}
	return r.checkRequest("Prev.Asked", r.Prev.Asked)
}

func (r *Record) checkRequest(where string, q *Request) error {
	if q == nil {
		return nil
	}
	for _, field := range [...]struct{ name, text string }{
		{"ID", q.ID},
		{"Kind", string(q.Kind)},
		{"Lock", q.Lock},
		{"By", q.By},
		{"Reason", q.Reason},
		{"To", q.To},
		{"ToLabel", q.ToLabel},
	} {
		if !isText(field.text) {
			return r.noText(where+"."+field.name, field.text)
		}
	}
	return nil
}

// isText reports whether s is valid UTF-8 without U+0000.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

func (r *Record) noText(name, text string) error {
	return fmt.Errorf("write of %q with %s %.200q: text must be valid UTF-8 without U+0000", r.Key, name, text)
}
