// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	sqldriver "database/sql/driver"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

// Requests are JSON in the file, as in the records of other stores, for people in a shell.

// encodeRequests returns NULL for a record without requests.
func encodeRequests(list []driver.Request) sqldriver.Value {
	if len(list) == 0 {
		return nil
	}
	return recordcodec.EncodeRequests(list)
}

func encodeRequest(q *driver.Request) sqldriver.Value {
	if q == nil {
		return nil
	}
	return recordcodec.EncodeRequest(q)
}

func (r *row) requests() []driver.Request { return r.list("a JSON array of requests", "", "") }

func (r *row) request() *driver.Request {
	const want = "a request in JSON"
	value := r.values[r.next]
	list := r.list(want, "[", "]")
	if len(list) == 1 {
		return &list[0]
	}
	if value != nil {
		r.bad(value, want)
	}
	return nil
}

// list reads a column that holds NULL or requests, as an array between the brackets.
func (r *row) list(want, left, right string) []driver.Request {
	value := r.take()
	if value == nil {
		return nil
	}
	text, ok := value.(string)
	list, err := recordcodec.DecodeRequests(left + text + right)
	if !ok || err != nil {
		r.bad(value, want)
	}
	return list
}
