// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"
)

// closing is a client that closes its connection as soon as it has an answer, as curl does.
type closing struct {
	*httptest.ResponseRecorder
	gone context.CancelFunc
}

func (c closing) Write(p []byte) (int, error) {
	defer c.gone()
	return c.ResponseRecorder.Write(p)
}

// A client that has its grant, and is gone, has the lock.
func TestAClientThatClosesAfterItsGrantHasTheLock(t *testing.T) {
	inWorld(t, func(w *world) {
		r := request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-7"})
		ctx, cancel := context.WithCancel(r.Context())
		c := closing{httptest.NewRecorder(), cancel}
		w.ServeHTTP(c, r.WithContext(ctx))
		a := w.want(answerOf(w.T, c.Code, c.Header(), c.Body.Bytes()), 200, "")
		time.Sleep(time.Second) // whatever is done about the grant is done by then
		h := &hand{w: w, secret: ci, name: "jobs/a", token: a.number("token"), beat: a.string("beat")}
		w.want(h.heartbeat(h.next()), 200, "")
	})
}
