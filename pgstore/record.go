// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

// resting is the state in the table of a lock that is held under a session, as in
// package recordcodec: a program that does not know of sessions must not take it
// over.
const resting driver.State = "resting"

// precision is the unit in which timestamptz counts.
const precision = time.Microsecond

// stored returns the record as the table gives it back.
func stored(rec driver.Record) driver.Record {
	rec = rec.Detach()
	cut := func(t *time.Time) { *t = t.Truncate(precision) }
	cut(&rec.Since)
	cut(&rec.Until)
	if rec.Prev != nil {
		cut(&rec.Prev.Since)
		cut(&rec.Prev.Until)
	}
	return rec
}

// encode returns the values of the columns.
func encode(rec driver.Record) ([]any, error) {
	for _, t := range []time.Time{rec.Since, rec.Until} {
		if err := checkTime(rec.Key, t); err != nil {
			return nil, err
		}
	}
	state := rec.State
	if state == driver.Held && rec.Session != "" {
		state = resting
	}
	values := []any{
		rec.Key, int32(tableFormat), string(state), rec.Owner, int64(rec.Token), rec.Version, rec.Beat,
		orNull(rec.Session), int64(rec.Lease), int64(rec.Heartbeat), rec.Drift, rec.Host, rec.Label,
		orNull(rec.Notify), timeOrNull(rec.Since), timeOrNull(rec.Until), string(rec.End),
		int64(rec.Priority), nil, requestOrNull(rec.Asked),
	}
	if len(rec.Requests) > 0 {
		values[18] = []byte(recordcodec.EncodeRequests(rec.Requests))
	}
	prev := make([]any, 8)
	if p := rec.Prev; p != nil {
		for _, t := range []time.Time{p.Since, p.Until} {
			if err := checkTime(rec.Key, t); err != nil {
				return nil, err
			}
		}
		prev = []any{
			int64(p.Token), p.Owner, p.Host, p.Label, timeOrNull(p.Since), timeOrNull(p.Until), string(p.End), requestOrNull(p.Asked),
		}
	}
	values = append(values, prev...)
	if rec.Data == nil {
		return append(values, nil), nil
	}
	return append(values, rec.Data), nil
}

// checkTime refuses what no other engine could give back either: years of RFC 3339 have
// four digits.
func checkTime(key string, t time.Time) error {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return driver.Unsupported(fmt.Errorf("write of %q with a time in year %d: it must be from 1 to 9999", key, y))
	}
	return nil
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

func requestOrNull(q *driver.Request) any {
	if q == nil {
		return nil
	}
	return []byte(recordcodec.EncodeRequest(q))
}

// row is a row of an answer: a flag, and the columns, which are all NULL if the table
// has no row.
type row struct {
	flag                                         bool
	key, state, owner, version, beat, session    pgtype.Text
	host, label, notify, ended                   pgtype.Text
	prevOwner, prevHost, prevLabel, prevEnded    pgtype.Text
	format                                       pgtype.Int4
	token, lease, heartbeat, priority, prevToken pgtype.Int8
	drift                                        pgtype.Float8
	since, until, prevSince, prevUntil           pgtype.Timestamptz
	requests, asked, prevAsked, data             []byte
	problem                                      string
}

// targets are where the columns of an answer go.
func (r *row) targets() []any {
	return []any{
		&r.flag, &r.key, &r.format, &r.state, &r.owner, &r.token, &r.version, &r.beat, &r.session, &r.lease, &r.heartbeat,
		&r.drift, &r.host, &r.label, &r.notify, &r.since, &r.until, &r.ended, &r.priority, &r.requests, &r.asked,
		&r.prevToken, &r.prevOwner, &r.prevHost, &r.prevLabel, &r.prevSince, &r.prevUntil, &r.prevEnded, &r.prevAsked, &r.data,
	}
}

func (r *row) absent() bool { return !r.key.Valid }

// record returns the record of a row. Its error matches driver.ErrUnreadable and names the
// column; the record has its key even then.
func (r *row) record() (driver.Record, error) {
	if r.format.Int32 != tableFormat {
		return driver.Record{Key: r.key.String}, fmt.Errorf(
			"%w: %q: the row has format %d, of another version of Tenure; this one knows %d: upgrade this program", driver.ErrUnreadable, r.key.String, r.format.Int32, tableFormat)
	}
	rec := driver.Record{
		Key:       r.key.String,
		State:     r.word(),
		Owner:     r.owner.String,
		Token:     r.number("token", r.token, 1),
		Version:   r.version.String,
		Beat:      r.beat.String,
		Session:   r.session.String,
		Lease:     time.Duration(r.number("lease_ns", r.lease, 1)),
		Heartbeat: time.Duration(r.number("heartbeat_ns", r.heartbeat, 0)),
		Drift:     r.drift.Float64,
		Host:      r.host.String,
		Label:     r.label.String,
		Notify:    r.notify.String,
		Since:     r.time("since", r.since),
		Until:     r.time("until", r.until),
		End:       driver.EndReason(r.ended.String),
		Priority:  int(r.priority.Int64),
		Requests:  r.list(),
		Asked:     r.request("asked", r.asked),
		Data:      r.data,
	}
	switch {
	case rec.State == resting && rec.Session != "":
		rec.State = driver.Held
	case rec.State == resting:
		r.bad("session", "is empty in state "+string(resting))
	case rec.State == driver.Held && rec.Session != "":
		r.bad("state", "is held under a session, not "+string(resting))
	}
	// The state may have been changed by hand, without the rest.
	if rec.State != driver.Held {
		rec.Session = ""
	}
	if rec.State != driver.Held && rec.State != driver.Alive {
		rec.Notify = ""
	}
	if rec.Version == "" {
		r.bad("version", "is empty")
	}
	if !(rec.Drift >= 0 && rec.Drift < 1) { // NaN as well
		r.bad("drift", fmt.Sprintf("is %v, not from 0 to less than 1", rec.Drift))
	}
	if int64(rec.Priority) != r.priority.Int64 {
		r.bad("priority", "is more than this machine can hold")
	}
	if r.prevToken.Valid {
		rec.Prev = &driver.Term{
			Token: r.number("prev_token", r.prevToken, 0),
			Owner: r.prevOwner.String,
			Host:  r.prevHost.String,
			Label: r.prevLabel.String,
			Since: r.time("prev_since", r.prevSince),
			Until: r.time("prev_until", r.prevUntil),
			End:   driver.EndReason(r.prevEnded.String),
			Asked: r.request("prev_asked", r.prevAsked),
		}
	}
	if r.problem != "" {
		return driver.Record{Key: rec.Key}, fmt.Errorf("%w: %q: %s", driver.ErrUnreadable, rec.Key, r.problem)
	}
	return rec, nil
}

// word is a state. Words that this version does not know are handed out as they are.
func (r *row) word() driver.State {
	s := r.state.String
	if s == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz-") != "" {
		r.bad("state", fmt.Sprintf("holds %.40q, not a state such as %s", s, driver.Held))
	}
	return driver.State(s)
}

// number returns a number of at least least. A table that others have created may lack
// constraints.
func (r *row) number(column string, n pgtype.Int8, least int64) uint64 {
	if !n.Valid || n.Int64 < least {
		r.bad(column, fmt.Sprintf("is NULL or less than %d", least))
	}
	return uint64(n.Int64)
}

func (r *row) time(column string, t pgtype.Timestamptz) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	if t.InfinityModifier != pgtype.Finite {
		r.bad(column, "is infinite")
	}
	return t.Time.UTC()
}

func (r *row) list() []driver.Request {
	if r.requests == nil {
		return nil
	}
	list, err := recordcodec.DecodeRequests(string(r.requests))
	if err != nil {
		r.bad("requests", "cannot be read: "+err.Error())
	}
	return list
}

func (r *row) request(column string, text []byte) *driver.Request {
	if text == nil {
		return nil
	}
	q, err := recordcodec.DecodeRequest(string(text))
	if err != nil {
		r.bad(column, "cannot be read: "+err.Error())
	}
	return q
}

func (r *row) bad(column, what string) {
	if r.problem == "" {
		r.problem = "column " + column + " " + what
	}
}
