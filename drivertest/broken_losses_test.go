// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// copy returns a copy of a record for the other side of the interface.
func (h *handle) copy(r driver.Record) driver.Record {
	c := r.Clone()
	switch h.db.bug {
	case "memory shared":
		return r
	case "requests shared":
		c.Requests = r.Requests
	case "asked shared":
		c.Asked = r.Asked
	case "asked of the former tenure shared":
		if r.Prev != nil {
			c.Prev.Asked = r.Prev.Asked
		}
	}
	return c
}

// keep returns what a broken store keeps of a record.
func (h *handle) keep(r driver.Record) driver.Record {
	r = h.copy(r)
	if lose := losses[h.db.bug]; lose != nil {
		r = r.Clone()
		lose(&r)
	}
	r.Since, r.Until = r.Since.Truncate(time.Millisecond), r.Until.Truncate(time.Millisecond)
	return r
}

// losses are what a store may fail to keep.
var losses = map[string]func(r *driver.Record){
	"lease in seconds": func(r *driver.Record) { r.Lease = r.Lease.Truncate(time.Second) },
	"times in seconds": func(r *driver.Record) { r.Since = r.Since.Truncate(time.Second) },
	"text cut":         func(r *driver.Record) { r.Host, _, _ = strings.Cut(r.Host, "\x1a") },
	"text unescaped":   func(r *driver.Record) { r.Label = strings.ReplaceAll(r.Label, `\n`, "\n") },
	"text folded":      func(r *driver.Record) { r.Owner = strings.ReplaceAll(r.Owner, "\u212b", "\u00c5") },
	"text of a request without what is no character": ofRequests(func(request *driver.Request) {
		request.Reason = strings.ReplaceAll(request.Reason, "\uffff", "\ufffd")
	}),
	"label dropped":              func(r *driver.Record) { r.Label = "" },
	"priority dropped":           func(r *driver.Record) { r.Priority = 0 },
	"priority a byte":            func(r *driver.Record) { r.Priority = int(int8(r.Priority)) },
	"requests dropped":           func(r *driver.Record) { r.Requests = nil },
	"asked dropped":              func(r *driver.Record) { r.Asked = nil },
	"token a float":              func(r *driver.Record) { r.Token = uint64(float64(r.Token)) },
	"one request kept":           func(r *driver.Record) { r.Requests = r.Requests[:min(1, len(r.Requests))] },
	"session dropped":            func(r *driver.Record) { r.Session = "" },
	"session in lower case":      func(r *driver.Record) { r.Session = strings.ToLower(r.Session) },
	"long session cut":           func(r *driver.Record) { r.Session = r.Session[:min(len(r.Session), 36)] },
	"lock of a request dropped":  ofRequests(func(request *driver.Request) { request.Lock = "" }),
	"token of a request dropped": ofRequests(func(request *driver.Request) { request.Token = 0 }),
	"token of a request a float": ofRequests(func(request *driver.Request) {
		request.Token = uint64(float64(request.Token))
	}),
	"time of a request dropped": ofRequests(func(request *driver.Request) { request.At = time.Time{} }),
	"reason cut": ofRequests(func(request *driver.Request) {
		request.Reason = request.Reason[:min(len(request.Reason), 255)]
	}),
	"requests turned round":              func(r *driver.Record) { slices.Reverse(r.Requests) },
	"label of the former tenure dropped": ofPrev(func(prev *driver.Term) { prev.Label = "" }),
	"asked of the former tenure dropped": ofPrev(func(prev *driver.Term) { prev.Asked = nil }),
	"requests bounded in bytes": func(r *driver.Record) {
		const most = 32 << 10
		n, size := 0, 0
		for ; n < len(r.Requests) && size < most; n++ {
			size += len(r.Requests[n].Reason) + len(r.Requests[n].Lock)
		}
		r.Requests = r.Requests[:n]
	},
	"request prolongs": func(r *driver.Record) {
		if len(r.Requests) > 0 {
			r.Beat = r.Version
		}
	},
}

func ofRequests(lose func(*driver.Request)) func(*driver.Record) {
	return func(r *driver.Record) {
		for i := range r.Requests {
			lose(&r.Requests[i])
		}
	}
}

func ofPrev(lose func(*driver.Term)) func(*driver.Record) {
	return func(r *driver.Record) {
		if r.Prev != nil {
			lose(r.Prev)
		}
	}
}

func (h *handle) conflict(r driver.Record, found bool, key string) error {
	switch h.db.bug {
	case "conflict without record":
		return &driver.ConflictError{Key: key}
	case "conflict a plain error":
		return driver.NotApplied(driver.Permanent(errors.New("condition failed")))
	case "conflict without Absent":
		return &driver.ConflictError{Key: key, Current: r}
	case "conflict without requests":
		r.Requests = nil
	}
	return &driver.ConflictError{Key: key, Current: h.copy(r), Absent: !found}
}
