// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"bytes"
	sqldriver "database/sql/driver"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// request is a driver.Request as people read it in a column. ID and Kind are
// always there; a text without them is no request.
type request struct {
	ID     *string `json:"id"`
	Kind   *string `json:"kind"`
	Lock   string  `json:"lock,omitempty"`
	Token  uint64  `json:"token,omitempty"`
	By     string  `json:"by,omitempty"`
	Reason string  `json:"reason,omitempty"`
	To     string  `json:"to,omitempty"`
	Label  string  `json:"to_label,omitempty"`
	At     string  `json:"at,omitempty"`
}

// encodeRequests returns NULL if there are none.
func encodeRequests(list []driver.Request) (sqldriver.Value, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make([]request, len(list))
	for i, q := range list {
		out[i] = toJSON(q)
	}
	return encodeJSON(out)
}

// encodeRequest returns NULL for nil.
func encodeRequest(q *driver.Request) (sqldriver.Value, error) {
	if q == nil {
		return nil, nil
	}
	return encodeJSON(toJSON(*q))
}

func toJSON(q driver.Request) request {
	out := request{ID: &q.ID, Kind: (*string)(&q.Kind), Lock: q.Lock, Token: q.Token, By: q.By, Reason: q.Reason, To: q.To, Label: q.ToLabel}
	if !q.At.IsZero() {
		out.At = q.At.UTC().Format(timeLayout)
	}
	return out
}

func encodeJSON(v any) (sqldriver.Value, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // it is for people in a shell
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return strings.TrimSuffix(text.String(), "\n"), nil
}

// requests is a JSON array.
func (r *row) requests() []driver.Request {
	var list []*request
	if !r.json(&list, "a JSON array of requests") {
		return nil
	}
	var out []driver.Request
	for _, q := range list {
		if request := r.fromJSON(q, "a JSON array of requests"); request != nil {
			out = append(out, *request)
		}
	}
	return out
}

// request is a JSON object.
func (r *row) request() *driver.Request {
	var q *request
	if !r.json(&q, "a request in JSON") {
		return nil
	}
	return r.fromJSON(q, "a request in JSON")
}

// json decodes the next value, and returns false if it is NULL or nonsense.
// Names that this version does not know are passed over.
func (r *row) json(v any, want string) bool {
	value := r.take()
	if value == nil {
		return false
	}
	text, ok := value.(string)
	if !ok || strings.TrimSpace(text) == "null" {
		r.bad(value, want)
		return false
	}
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(v); err != nil {
		r.bad(value, want)
		return false
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		r.bad(value, want)
		return false
	}
	return true
}

// fromJSON returns nil for what is no request.
func (r *row) fromJSON(q *request, want string) *driver.Request {
	if q == nil || q.ID == nil || q.Kind == nil {
		r.bad(r.values[r.next-1], want+", each with its id and kind")
		return nil
	}
	if strings.ContainsRune(*q.ID+*q.Kind+q.Lock+q.By+q.Reason+q.To+q.Label, 0) {
		r.bad(r.values[r.next-1], want+" without U+0000")
		return nil
	}
	out := driver.Request{
		ID: *q.ID, Kind: driver.RequestKind(*q.Kind), Lock: q.Lock, Token: q.Token, By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.Label,
	}
	if q.At != "" {
		at, err := time.Parse(time.RFC3339Nano, q.At)
		if err != nil {
			r.bad(r.values[r.next-1], want+" with a time like 2006-01-02T15:04:05Z")
			return nil
		}
		out.At = at.UTC()
	}
	return &out
}
