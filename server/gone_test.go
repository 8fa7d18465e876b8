// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
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
		a := w.want(answerOf(w.T, c.Result()), 200, "")
		time.Sleep(time.Second) // whatever is done about the grant is done by then
		h := w.hand(ci, "jobs/a", a)
		w.want(h.heartbeat(h.next()), 200, "")
	})
}

// leaving is the context of a client whose end is known as soon as it is gone.
type leaving struct {
	context.Context
	gone func() bool
}

func (c leaving) Err() error {
	if c.gone() {
		return context.Canceled
	}
	return c.Context.Err()
}

// A client that is gone before its grant is sent has nothing: the lock is free at once, and
// not after a third of the lease, although the sending would not fail.
func TestAClientThatGoesBeforeItsGrantHasNothing(t *testing.T) {
	for _, accept := range []string{"application/json", "text/event-stream"} {
		t.Run(accept, func(t *testing.T) {
			inWorld(t, func(w *world) {
				r := request("POST", "/v1/acquire", ci, object{"name": "jobs/a", "owner": "web-7"})
				r.Header.Set("Accept", accept)
				held := func() bool { return w.Record("jobs/a").State == driver.Held }
				rec := httptest.NewRecorder()
				w.ServeHTTP(rec, r.WithContext(leaving{r.Context(), held}))
				if strings.Contains(rec.Body.String(), `"beat"`) {
					w.Errorf("it is sent %s", rec.Body)
				}
				time.Sleep(time.Second)
				if st := w.get("/v1/status?name=jobs/a", ci); st.string("state") != "released" || st.number("token") != 1 {
					w.Errorf("the lock is %s", st.text)
				}
			})
		})
	}
}
