// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package recordcodec

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// The quick way to write an object. A record is written with each claim, heartbeat and
// release, and encoding/json takes four times as long to find its way through the fields.
// The text is what encoding/json would write, without the escapes for HTML.

// usualText is how long the text of a record is at most, mostly, without its data.
const usualText = 640

// writer writes objects, one within the other, and leaves members out that are empty.
type writer struct {
	text []byte
	more bool // the object that is written has a member
}

// name begins a member.
func (w *writer) name(name string) {
	if w.more {
		w.text = append(w.text, ',')
	}
	w.more = true
	w.text = append(w.text, '"')
	w.text = append(w.text, name...)
	w.text = append(w.text, '"', ':')
}

func (w *writer) string(name, value string) {
	if value != "" {
		w.name(name)
		w.text = appendQuoted(w.text, value)
	}
}

func (w *writer) token(name string, value uint64) {
	if value != 0 {
		w.name(name)
		w.text = strconv.AppendUint(w.text, value, 10)
	}
}

func (w *writer) duration(name string, value time.Duration) {
	if value != 0 {
		w.string(name, value.String())
	}
}

// time leaves an instant out that RFC 3339 cannot express: of a clock that shows such a
// year nothing is known.
func (w *writer) time(name string, value time.Time) {
	if value = value.UTC(); value.IsZero() || value.Year() < 0 || value.Year() > 9999 {
		return
	}
	w.name(name)
	w.text = append(w.text, '"')
	w.text = value.AppendFormat(w.text, time.RFC3339Nano)
	w.text = append(w.text, '"')
}

// begin begins an object, and end ends it, as a value.
func (w *writer) begin() {
	w.text = append(w.text, '{')
	w.more = false
}

func (w *writer) end() {
	w.text = append(w.text, '}')
	w.more = true
}

// record writes the members of a record, except those of Unknown.
func (w *writer) record(rec *driver.Record) {
	w.string("key", rec.Key)
	w.string("version", rec.Version)
	w.string("beat", rec.Beat)
	w.string("owner", rec.Owner)
	w.token("token", rec.Token)
	w.duration("lease", rec.Lease)
	w.string("session", rec.Session)
	w.duration("heartbeat", rec.Heartbeat)
	if rec.Drift != 0 {
		w.name("drift")
		w.text = appendNumber(w.text, rec.Drift)
	}
	w.string("bell", rec.Notify)
	w.string("state", string(stateOf(rec)))
	if rec.Priority != 0 {
		w.name("priority")
		w.text = strconv.AppendInt(w.text, int64(rec.Priority), 10)
	}
	if len(rec.Requests) > 0 {
		w.name("requests")
		w.requests(rec.Requests)
	}
	if len(rec.Data) > 0 {
		w.name("data")
		w.text = append(w.text, '"')
		w.text = base64.StdEncoding.AppendEncode(w.text, rec.Data)
		w.text = append(w.text, '"')
	}
	w.string("host", rec.Host)
	w.string("label", rec.Label)
	w.time("since", rec.Since)
	w.time("until", rec.Until)
	w.string("end", string(rec.End))
	w.asked(rec.Asked)
	if t := rec.Prev; t != nil {
		w.name("prev")
		w.term(t)
	}
}

func (w *writer) asked(q *driver.Request) {
	if q != nil {
		w.name("asked")
		w.request(q)
	}
}

func (w *writer) requests(list []driver.Request) {
	w.text = append(w.text, '[')
	for i := range list {
		if i > 0 {
			w.text = append(w.text, ',')
		}
		w.request(&list[i])
	}
	w.text = append(w.text, ']')
	w.more = true
}

func (w *writer) request(q *driver.Request) {
	w.begin()
	w.string("id", q.ID)
	w.string("kind", string(q.Kind))
	w.string("lock", q.Lock)
	w.token("token", q.Token)
	w.string("by", q.By)
	w.string("reason", q.Reason)
	w.string("to", q.To)
	w.string("to_label", q.ToLabel)
	w.time("at", q.At)
	w.end()
}

func (w *writer) term(t *driver.Term) {
	w.begin()
	w.string("owner", t.Owner)
	w.token("token", t.Token)
	w.string("host", t.Host)
	w.string("label", t.Label)
	w.time("since", t.Since)
	w.time("until", t.Until)
	w.string("end", string(t.End))
	w.asked(t.Asked)
	w.end()
}

// appendQuoted appends a string. One with an escape, or with more than ASCII, is left to
// encoding/json.
func appendQuoted(text []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			return append(text, marshal(s)...)
		}
	}
	text = append(text, '"')
	text = append(text, s...)
	return append(text, '"')
}

// appendNumber appends a number. A number that needs an exponent is left to encoding/json.
func appendNumber(text []byte, x float64) []byte {
	if x >= 1e-6 && x < 1e6 {
		return strconv.AppendFloat(text, x, 'f', -1, 64)
	}
	return append(text, marshal(x)...)
}

// marshal writes what encoding/json can write without an error.
func marshal(v any) string {
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("recordcodec: a value cannot be encoded: " + err.Error()) //nolint:forbidigo // strings and numbers always can
	}
	return strings.TrimSuffix(text.String(), "\n")
}
