// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/fence"
	"github.com/tenurelock/tenure/memstore"
)

// wire records sent requests.
type wire struct{ sent []*http.Request }

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.sent = append(w.sent, r)
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
}

// closing notes that it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// send sends a request through a transport, without the client's own rules.
func send(ctx context.Context, t *testing.T, transport http.RoundTripper, header ...string) error {
	t.Helper()
	body := &closing{Reader: strings.NewReader("x")}
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://ledger.test/", body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	had := len(r.Header)
	_, err = transport.RoundTrip(r)
	if len(r.Header) != had {
		t.Error("the caller's request was changed")
	}
	if err != nil && !body.closed {
		t.Error("the body of a request that was not sent is open")
	}
	return err
}

func TestTransportCarriesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		client, err := tenure.New(memstore.New(), &tenure.Options{Clock: tenure.MonotonicClock()})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(ctx)
		w := &wire{}
		transport := fence.NewTransport(w, nil)
		if err := send(ctx, t, transport); !errors.Is(err, fence.ErrNoToken) || !strings.Contains(err.Error(), "Lease.Bind") {
			t.Errorf("without a lease: %v", err)
		}
		lease, err := client.Acquire(ctx, "reports/daily sums", nil)
		if err != nil {
			t.Fatal(err)
		}
		bound, stop := lease.Bind(ctx)
		defer stop()
		if err := send(bound, t, transport); err != nil {
			t.Fatal(err)
		}
		if h := w.sent[0].Header; h.Get(fence.LockHeader) != "reports/daily%20sums" || h.Get(fence.TokenHeader) != "1" {
			t.Errorf("sent %v", h)
		}
		// Equal headers pass, different ones do not.
		if err := send(bound, t, transport, fence.TokenHeader, "1"); err != nil {
			t.Error(err)
		}
		if err := send(bound, t, transport, fence.TokenHeader, "2"); err == nil || !strings.Contains(err.Error(), fence.TokenHeader) {
			t.Errorf("with another token: %v", err)
		}
		if err := send(bound, t, transport, fence.LockHeader, "other"); err == nil {
			t.Error("with another lock: sent")
		}
		if err := lease.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if err := send(bound, t, transport); !errors.Is(err, tenure.ErrReleased) {
			t.Errorf("after the release: %v", err)
		}
		if len(w.sent) != 2 {
			t.Errorf("%d requests were sent, want 2", len(w.sent))
		}
	})
}

// A lease that ran out sends nothing, although its store said nothing.
func TestTransportSendsNothingAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		client, err := tenure.New(memstore.New(), &tenure.Options{Clock: tenure.MonotonicClock(), ManualHeartbeat: true})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(ctx)
		lease, err := client.Acquire(ctx, "ledger", nil)
		if err != nil {
			t.Fatal(err)
		}
		w := &wire{}
		transport := fence.NewTransport(w, &fence.TransportOptions{Grant: lease})
		if err := send(ctx, t, transport); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // of the bubble
		if err := send(ctx, t, transport); !errors.Is(err, tenure.ErrExpired) || len(w.sent) != 1 {
			t.Errorf("got %v, %d requests were sent", err, len(w.sent))
		}
		_ = lease.Release(ctx)
	})
}

func TestFixedGrants(t *testing.T) {
	w := &wire{}
	for _, grant := range []fence.Grant{fence.Fixed("ledger", 0), fence.Fixed("", 3)} {
		if err := send(t.Context(), t, fence.NewTransport(w, &fence.TransportOptions{Grant: grant})); !errors.Is(err, fence.ErrNoToken) || len(w.sent) > 0 {
			t.Errorf("%v: %v", grant, err)
		}
	}
	for _, c := range []struct {
		lock, token string
		ok          bool
	}{{"ledger", "12", true}, {"", "12", false}, {"ledger", "", false}, {"ledger", "0", false}, {"ledger", "twelve", false}} {
		t.Setenv("TENURE_LOCK", c.lock)
		t.Setenv("TENURE_TOKEN", c.token)
		grant, err := fence.Environment()
		switch {
		case c.ok && (err != nil || grant.Name() != "ledger" || grant.Token() != 12 || grant.Check() != nil):
			t.Errorf("%v: %v, %v", c, grant, err)
		case !c.ok && !errors.Is(err, fence.ErrNoToken):
			t.Errorf("%v: %v", c, err)
		}
	}
}
