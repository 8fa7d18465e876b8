// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package recordcodec is the one encoding of a record as text, for stores whose
// engine keeps a value for a key, or has an attribute to spare. For SQL stores it also has the row of a
// record, and judges a fencing token by it.
//
// The text is a JSON object, in the order of the fields of [driver.Record],
// without empty fields, so that people can read it where the engine shows it.
// Durations are in Go's format ("15s"), times are RFC 3339 in UTC, to the
// nanosecond; tokens are exact up to [driver.MaxToken], unlike in some other
// JSON readers. Data are base64.
//
// A text that cannot be decoded is an error that matches [driver.ErrUnreadable]: a member that is
// null, of another type, or occurs twice; U+0000 in a string; a time, duration, token or drift out
// of its bounds; text after the object. A damaged value never comes back as zero.
//
// A lock that is held under a session has the state "resting": its beat does not
// change, and a program that does not know of sessions must not read it as a lock
// whose holder is gone. Such a program finds a state that it does not know.
//
// Members of the object that this version does not know come back in
// [driver.Record.Unknown], and are written again with the record. Unknown
// members of a request or a term are kept until it is rewritten.
//
// All functions may be called concurrently.
package recordcodec

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
)

// Encode returns the text of rec. A store that keeps some fields elsewhere clears
// them first, and reads the text with [DecodePart].
func Encode(rec driver.Record) string {
	return string(Append(nil, rec))
}

// Append appends the text of rec to a buffer, for stores that write bytes.
func Append(text []byte, rec driver.Record) []byte {
	w := writer{text: slices.Grow(text, usualText+base64.StdEncoding.EncodedLen(len(rec.Data)))}
	w.begin()
	w.record(&rec)
	if rec.Unknown != "" {
		if r, err := open(rec.Unknown, ""); err == nil { // otherwise it did not come from here
			w.others(r)
		}
	}
	w.end()
	return w.text
}

// resting is the state in the text of a lock that is held under a session.
const resting driver.State = "resting"

// EncodeTerm returns the text of a term, "null" for nil.
func EncodeTerm(t *driver.Term) string {
	if t == nil {
		return "null"
	}
	var w writer
	w.term(t)
	return string(w.text)
}

// Decode returns the record of a complete text: it has all fields that every record has.
func Decode(text string) (driver.Record, error) {
	rec, err := DecodePart(text)
	if err != nil {
		return rec, err
	}
	for _, must := range []struct {
		name string
		ok   bool
	}{
		{"key", rec.Key != ""},
		{"version", rec.Version != ""},
		{"state", rec.State != ""},
		{"owner", rec.Owner != "" || rec.State == driver.Reserved},
		{"token", rec.Token != 0},
		{"lease", rec.Lease != 0},
	} {
		if !must.ok {
			return driver.Record{Key: rec.Key}, unreadable(fmt.Errorf("it has no %s", must.name))
		}
	}
	return rec, nil
}

// DecodePart returns the record of a text that may lack any field. The store sees
// to it that nothing is missing.
func DecodePart(text string) (driver.Record, error) {
	r, err := open(text, "")
	if err != nil {
		return driver.Record{}, unreadable(err)
	}
	rec := r.record()
	if r.err != nil {
		return driver.Record{Key: rec.Key}, unreadable(r.err)
	}
	return rec, nil
}

// DecodeTerm returns the term of a text of [EncodeTerm], nil for "null". It also
// accepts the text of a released record that has an owner and a token: the term is
// the term that ended, as in [driver.Claimed]. So an engine that cannot compute
// can store the record's text as the text of the previous term, also as the member prev
// of the next record.
func DecodeTerm(text string) (*driver.Term, error) {
	if text == "null" {
		return nil, nil //nolint:nilnil // nil is a term: none
	}
	r, err := open(text, "")
	if err != nil {
		return nil, unreadable(err)
	}
	t := r.term()
	if r.err != nil {
		return nil, unreadable(r.err)
	}
	return t, nil
}

func unreadable(err error) error { return fmt.Errorf("%w: %w", driver.ErrUnreadable, err) }

// known are the members of a record's object.
var known = []string{
	"key", "version", "beat", "owner", "token", "lease", "session", "heartbeat", "drift", "bell", "state", "priority",
	"requests", "data", "host", "label", "since", "until", "end", "asked", "prev",
}

// others writes the members of an object that no field has.
func (w *writer) others(r *reader) {
	for _, m := range r.members {
		if !m.read && !slices.Contains(known, m.name) {
			if w.more {
				w.text = append(w.text, ',')
			}
			w.text = append(append(appendQuoted(w.text, m.name), ':'), m.raw...)
			w.more = true
		}
	}
}

// reader takes members out of an object, and keeps the first error.
type reader struct {
	members []member
	in      string // the member that holds the object, "" for the text itself
	err     error
}

// member is a member of an object: its name, and the text of its value, without spaces
// between its parts.
type member struct {
	name, raw string
	read      bool // by a field
}

// open reads an object without the values of its members.
func open(text, in string) (*reader, error) {
	if !utf8.ValidString(text) {
		return nil, errors.New("it is not UTF-8")
	}
	if members, plain := scan(text); plain {
		return &reader{members: members, in: in}, nil
	}
	return openAny(text, in)
}

// openAny is open for any text of JSON, be it with spaces, escapes, or in error.
func openAny(text, in string) (*reader, error) {
	d := json.NewDecoder(strings.NewReader(text))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil, errors.New("it is not a JSON object")
	}
	r := &reader{in: in}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("it is not a JSON object: %w", err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, fmt.Errorf("it is not a JSON object: %w", err)
		}
		text, ok := name.(string)
		if !ok {
			return nil, errors.New("it is not a JSON object")
		}
		if has(r.members, text) {
			return nil, fmt.Errorf("%s occurs twice", r.name(text))
		}
		var plain bytes.Buffer
		if err := json.Compact(&plain, value); err != nil {
			return nil, fmt.Errorf("it is not a JSON object: %w", err)
		}
		r.members = append(r.members, member{name: text, raw: plain.String()})
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("it is not a JSON object: %w", err)
	}
	if d.InputOffset() != int64(len(text)) {
		return nil, errors.New("there is more text after the JSON object")
	}
	return r, nil
}

func has(members []member, name string) bool {
	return slices.ContainsFunc(members, func(m member) bool { return m.name == name })
}

func (r *reader) name(member string) string {
	if r.in != "" {
		return r.in + "." + member
	}
	return member
}

func (r *reader) fail(member, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s %s", r.name(member), fmt.Sprintf(format, args...))
	}
}

// raw returns the text of a member's value, and whether it exists.
func (r *reader) raw(member, want string) (string, bool) {
	for i := range r.members {
		m := &r.members[i]
		if m.name != member {
			continue
		}
		m.read = true
		if m.raw == "null" {
			r.fail(member, "is null, not %s", want)
			return "", false
		}
		return m.raw, true
	}
	return "", false
}

// value reads a member with a function, and reports whether it exists. The function gets
// valid JSON.
func value[T any](r *reader, member, want string, read func(raw string) (T, error)) (v T, ok bool) {
	raw, found := r.raw(member, want)
	if !found {
		return v, false
	}
	v, err := read(raw)
	if err != nil {
		r.fail(member, "is not %s", want)
		var none T
		return none, false
	}
	return v, true
}

// decoded is a value by the rules of encoding/json.
func decoded[T any](raw string) (v T, err error) {
	err = json.Unmarshal([]byte(raw), &v)
	return v, err
}

// quoted decodes a string. Without an escape it is the text between the quotes.
func quoted(raw string) (string, error) {
	if raw[0] != '"' || strings.IndexByte(raw, '\\') >= 0 {
		return decoded[string](raw)
	}
	return raw[1 : len(raw)-1], nil
}

func (r *reader) text(member string) string {
	s, ok := value(r, member, "a string", quoted)
	if ok && strings.IndexByte(s, 0) >= 0 {
		r.fail(member, "has U+0000, which no store may keep")
		return ""
	}
	return s
}

func (r *reader) token(member string) uint64 {
	const want = "a whole number from 0 to " + "9223372036854775807"
	n, _ := value(r, member, want, func(raw string) (uint64, error) { return strconv.ParseUint(raw, 10, 64) })
	if n > driver.MaxToken {
		r.fail(member, "is not %s", want)
		return 0
	}
	return n
}

func (r *reader) duration(member string) time.Duration {
	s, ok := value(r, member, "a Go duration", quoted)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		r.fail(member, "is %q, not a duration above 0", s)
		return 0
	}
	return d
}

func (r *reader) time(member string) time.Time {
	s, ok := value(r, member, "a time", quoted)
	if !ok {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if t = t.UTC(); err != nil || t.IsZero() || t.Year() < 0 || t.Year() > 9999 {
		r.fail(member, "is %q, not an RFC 3339 time", s)
		return time.Time{}
	}
	return t
}

func (r *reader) record() driver.Record {
	rec := driver.Record{
		Key: r.text("key"), Version: r.text("version"), Beat: r.text("beat"), Owner: r.text("owner"), Token: r.token("token"),
		Lease: r.duration("lease"), Session: r.text("session"), Heartbeat: r.duration("heartbeat"), Notify: r.text("bell"),
		State: driver.State(r.text("state")), Host: r.text("host"), Label: r.text("label"),
		Since: r.time("since"), Until: r.time("until"), End: driver.EndReason(r.text("end")), Asked: r.asked(),
	}
	switch {
	case rec.State == resting && rec.Session == "":
		r.fail("state", "is %q without a session", resting)
	case rec.State == resting:
		rec.State = driver.Held
	case rec.State == driver.Held && rec.Session != "":
		r.fail("state", "is %q under a session, not %q", driver.Held, resting)
	}
	drift, ok := value(r, "drift", "a number", func(raw string) (float64, error) { return strconv.ParseFloat(raw, 64) })
	// Not a negative zero: it would be written, and read as no drift.
	if rec.Drift = drift; ok && !(drift >= 0 && drift < 1 && !math.Signbit(drift)) {
		r.fail("drift", "is %v, not a number of at least 0 and below 1", drift)
	}
	rec.Priority, _ = value(r, "priority", "a whole number", strconv.Atoi)
	rec.Data, _ = value(r, "data", "base64", decoded[[]byte])
	rec.Requests = r.requests()
	if raw, found := r.raw("prev", "an object"); found {
		if inner := r.object("prev", raw); inner != nil {
			rec.Prev = inner.term()
			r.from(inner)
		}
	}
	rec.Unknown = r.unknown()
	return rec
}

// unknown returns the members that no field has, as an object.
func (r *reader) unknown() string {
	var w writer
	w.others(r)
	if !w.more {
		return ""
	}
	return "{" + string(w.text) + "}"
}

// object opens the object that is the value of a member, nil if the value is not an object.
func (r *reader) object(member, raw string) *reader {
	inner, err := open(raw, r.name(member))
	if err != nil {
		r.fail(member, "cannot be read: %v", err)
		return nil
	}
	return inner
}

func (r *reader) from(inner *reader) {
	if r.err == nil {
		r.err = inner.err
	}
}

func (r *reader) asked() *driver.Request {
	raw, found := r.raw("asked", "an object")
	if !found {
		return nil
	}
	return r.request("asked", raw)
}

func (r *reader) requests() (out []driver.Request) {
	list, _ := value(r, "requests", "a list", decoded[[]json.RawMessage])
	for _, raw := range list {
		if q := r.request("requests", string(raw)); q != nil {
			out = append(out, *q)
		}
	}
	return out
}

func (r *reader) request(member, raw string) *driver.Request {
	q := r.object(member, raw)
	if q == nil {
		return nil
	}
	request := &driver.Request{
		ID: q.text("id"), Kind: driver.RequestKind(q.text("kind")), Lock: q.text("lock"), Token: q.token("token"),
		By: q.text("by"), Reason: q.text("reason"), To: q.text("to"), ToLabel: q.text("to_label"), At: q.time("at"),
	}
	r.from(q)
	return request
}

func (r *reader) term() *driver.Term {
	t := &driver.Term{
		Owner: r.text("owner"), Token: r.token("token"), Host: r.text("host"), Label: r.text("label"),
		Since: r.time("since"), Until: r.time("until"), End: driver.EndReason(r.text("end")), Asked: r.asked(),
	}
	if r.text("state") != string(driver.Released) {
		return t
	}
	if t.End == "" {
		t.End = driver.EndReleased
	}
	return t.Shorten()
}
