// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// A body is as long as the call may need, and as the rights of its principal allow; and all
// bodies of one principal have a bound together.
func TestBodiesHaveTheirSize(t *testing.T) {
	inWorld(t, func(w *world) {
		body := func(n int) string { return `{"name":"` + strings.Repeat("x", n-11) + `"}` }
		for _, c := range []struct {
			path, secret string
			most         int
		}{
			{"/v1/heartbeat", alice, 16 << 10},
			{"/v1/requests", alice, 16 << 10},
			{"/v1/fence-check", alice, 16 << 10},
			{"/v1/heartbeats", alice, 600 << 10},
			{"/v1/acquire", alice, 1 << 20},
			{"/v1/release", alice, 1 << 20},
			{"/v1/acquire", ops, 16 << 10},
			{"/v1/release", ops, 16 << 10},
			{"/v1/heartbeats", ops, 16 << 10},
		} {
			for _, told := range []bool{true, false} {
				call := func(n int) answer {
					r := request("POST", c.path, c.secret, body(n))
					if !told {
						r.ContentLength = -1
					}
					return w.do(r)
				}
				if a := call(c.most); a.kind() == "too-large" {
					w.Errorf("%s: %d bytes: %s", c.path, c.most, a.text)
				}
				w.want(call(c.most+1), 413, "too-large")
			}
		}
		// Bodies that come slowly.
		var pipes []*io.PipeWriter
		var all []*stream
		for range 32 {
			reader, writer := io.Pipe()
			r := request("POST", "/v1/acquire", ci, nil)
			r.Body, r.ContentLength = reader, 1<<20
			pipes, all = append(pipes, writer), append(all, w.open(r))
		}
		time.Sleep(time.Second)
		w.want(w.post("/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-7"}), 429, "limited")
		w.want(w.post("/v1/acquire", alice, object{"name": "jobs/a", "owner": "web-7"}), 200, "")
		for i, s := range all {
			_ = pipes[i].Close()
			w.want(s.answer(), 400, "bad-request")
		}
		w.want(w.post("/v1/acquire", ci, object{"name": "jobs/b", "owner": "web-7"}), 200, "")
	})
}

// A heartbeat above the budget is refused before its body is read.
func TestABudgetComesBeforeTheBody(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 2000 {
			w.post("/v1/heartbeat", ci, fmt.Sprintf(`{"name":"jobs/%d"}`, i))
		}
		never, out := io.Pipe()
		defer func() { _ = out.Close() }()
		r := request("POST", "/v1/heartbeat", ci, nil)
		r.Body, r.ContentLength = never, -1
		w.want(w.do(r), 429, "limited")
	})
}
