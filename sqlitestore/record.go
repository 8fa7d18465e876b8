// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	sqldriver "database/sql/driver"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
)

// timeLayout is RFC 3339 with a fixed number of digits, so that times sort as
// texts and a row keeps its size.
const timeLayout = "2006-01-02T15:04:05.000000000Z07:00"

// encode returns the values of columns. What decode would not understand is an
// error here, before it is in the file.
func encode(rec driver.Record) ([]sqldriver.Value, error) {
	values := []sqldriver.Value{
		rec.Key, string(rec.State), rec.Owner, int64(rec.Token), rec.Version, rec.Beat,
		encodeText(rec.Session), int64(rec.Lease), int64(rec.Heartbeat), rec.Drift, rec.Host, rec.Label,
		encodeText(rec.Notify), encodeTime(rec.Since), encodeTime(rec.Until), string(rec.End),
		int64(rec.Priority), encodeRequests(rec.Requests), encodeRequest(rec.Asked),
	}
	prev := make([]sqldriver.Value, 8)
	if p := rec.Prev; p != nil {
		prev = []sqldriver.Value{
			int64(p.Token), p.Owner, p.Host, p.Label, encodeTime(p.Since), encodeTime(p.Until), string(p.End),
			encodeRequest(p.Asked),
		}
	}
	values = append(append(values, prev...), nil)
	if rec.Data != nil {
		values[len(values)-1] = rec.Data
	}
	if _, err := decode(values); err != nil {
		return nil, fmt.Errorf("write of %q: it could not be read back: %w", rec.Key, err)
	}
	return values, nil
}

// encodeText returns NULL for an empty text.
func encodeText(s string) sqldriver.Value {
	if s == "" {
		return nil
	}
	return s
}

func encodeTime(t time.Time) sqldriver.Value {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(timeLayout)
}

// decode returns the record of a row. Its error matches driver.ErrUnreadable
// and names the column; the record has its key even then.
func decode(values []sqldriver.Value) (driver.Record, error) {
	r := row{values: values}
	rec := driver.Record{
		Key:       r.text(),
		State:     r.state(),
		Owner:     r.text(),
		Token:     uint64(r.number(1)),
		Version:   r.opaque(),
		Beat:      r.text(),
		Session:   r.optional(),
		Lease:     time.Duration(r.number(1)),
		Heartbeat: time.Duration(r.number(0)),
		Drift:     r.drift(),
		Host:      r.text(),
		Label:     r.text(),
		Notify:    r.optional(),
		Since:     r.time(),
		Until:     r.time(),
		End:       driver.EndReason(r.text()),
		Priority:  r.priority(),
		Requests:  r.requests(),
		Asked:     r.request(),
	}
	// The state may have been changed by hand, without the rest.
	if rec.State != driver.Held {
		rec.Session = ""
	}
	if rec.State != driver.Held && rec.State != driver.Alive {
		rec.Notify = ""
	}
	if values[r.next] != nil {
		rec.Prev = &driver.Term{
			Token: uint64(r.number(0)),
			Owner: r.text(),
			Host:  r.text(),
			Label: r.text(),
			Since: r.time(),
			Until: r.time(),
			End:   driver.EndReason(r.text()),
			Asked: r.request(),
		}
	}
	r.next = len(columns) - 1
	rec.Data = r.blob()
	if r.problem != "" {
		return driver.Record{Key: rec.Key}, fmt.Errorf("%w: %q: %s", driver.ErrUnreadable, rec.Key, r.problem)
	}
	return rec, nil
}

// row takes the values of a row one after the other, and remembers the first
// that is not valid for its column. No value is ever converted: a lease of
// "20s" that reads as 0, or 20, would let any process take the lock.
type row struct {
	values  []sqldriver.Value
	next    int
	problem string
}

func (r *row) take() sqldriver.Value {
	r.next++
	return r.values[r.next-1]
}

func (r *row) text() string {
	v := r.take()
	s, ok := v.(string)
	switch {
	case !ok:
		r.bad(v, "a text")
	case !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0:
		r.bad(s, "a text that a record may hold: UTF-8 without U+0000")
	}
	return s
}

// opaque is a text that must not be empty.
func (r *row) opaque() string {
	s := r.text()
	if s == "" {
		r.bad(s, "a text that is not empty")
	}
	return s
}

// optional is a text that may be NULL. An empty text is a mistake: it would
// read as NULL.
func (r *row) optional() string {
	if r.values[r.next] == nil {
		r.next++
		return ""
	}
	return r.opaque()
}

// state is a word. Words that this version does not know are returned as they
// are: a caller that gets one neither claims nor takes over.
func (r *row) state() driver.State {
	s := r.text()
	if s == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz-") != "" {
		r.bad(s, "a state such as "+string(driver.Held))
	}
	return driver.State(s)
}

func (r *row) number(least int64) int64 {
	v := r.take()
	n, ok := v.(int64)
	if !ok || n < least {
		r.bad(v, fmt.Sprintf("a whole number of %d or more", least))
	}
	return n
}

func (r *row) drift() float64 {
	v := r.take()
	d, ok := v.(float64)
	if !ok || d < 0 || d >= 1 {
		r.bad(v, "a number of 0 or more, and less than 1")
	}
	return d
}

func (r *row) priority() int {
	v := r.take()
	n, ok := v.(int64)
	if !ok || int64(int(n)) != n {
		r.bad(v, "a whole number that this machine can hold")
	}
	return int(n)
}

func (r *row) time() time.Time {
	v := r.take()
	if v == nil {
		return time.Time{}
	}
	s, _ := v.(string)
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		r.bad(v, "a time like 2006-01-02T15:04:05Z")
	}
	return t.UTC()
}

func (r *row) blob() []byte {
	switch v := r.take().(type) {
	case nil:
		return nil
	case []byte:
		return append([]byte{}, v...)
	default:
		r.bad(v, "a blob")
		return nil
	}
}

func (r *row) bad(v sqldriver.Value, want string) {
	if r.problem != "" {
		return
	}
	if s, ok := v.(string); ok {
		v = fmt.Sprintf("%.40q", s)
	} else if v == nil {
		v = "NULL"
	}
	r.problem = fmt.Sprintf("column %s holds %v, not %s", columns[r.next-1], v, want)
}
