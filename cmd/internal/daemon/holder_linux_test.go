// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// caller sends calls to the service.
type caller struct {
	token, base string
	http        *http.Client
}

// newCaller returns one for an address such as tenured logs it: http://HOST:PORT or unix:PATH.
func newCaller(token string, config *tls.Config, at string) *caller {
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64}
	if path, ok := strings.CutPrefix(at, "unix:"); ok {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		at = "http://localhost"
	}
	return &caller{token: token, base: at, http: &http.Client{Transport: transport}}
}

// reply is the answer to a call.
type reply struct {
	Status int
	Proto  string
	Body   []byte
}

// kind returns the kind of the problem, "" if the reply is not a problem.
func (r reply) kind() string {
	var p struct{ Type string }
	_ = json.Unmarshal(r.Body, &p)
	return strings.TrimPrefix(p.Type, "urn:tenure:problem:")
}

func (c *caller) call(ctx context.Context, method, path string, body any) (reply, error) {
	text, ok := body.(string)
	if !ok && body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return reply{}, err
		}
		text = string(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(text))
	if err != nil {
		return reply{}, err
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Proto, bytes.TrimSpace(b)}, err
}

// held is a lock that a program holds through the service, by the rules for clients.
type held struct {
	c     *caller
	Name  string
	Token uint64
	// after was confirmed last, next was sent last.
	after, next string
	lease       time.Duration
	beat        time.Duration // the period of heartbeats
	deadline    time.Time
	first       time.Time // of the heartbeat that is under way
}

var errLost = errors.New("lost")

// acquire asks until the lock is granted, and its first heartbeat confirmed.
func (c *caller) acquire(ctx context.Context, name, owner string, wait time.Duration) (*held, error) {
	for {
		r, err := c.call(ctx, http.MethodPost, "/v1/acquire",
			map[string]any{"name": name, "owner": owner, "wait_ms": wait.Milliseconds()})
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err == nil && r.Status == http.StatusOK:
			var g struct {
				Token     uint64
				Beat      string
				Lease     int64 `json:"lease_ms"`
				Heartbeat int64 `json:"heartbeat_ms"`
			}
			if err := json.Unmarshal(r.Body, &g); err != nil {
				return nil, err
			}
			h := &held{
				c: c, Name: name, Token: g.Token, after: g.Beat,
				lease: time.Duration(g.Lease) * time.Millisecond, beat: time.Duration(g.Heartbeat) * time.Millisecond,
			}
			return h, h.renew(ctx)
		case err == nil && r.Status == http.StatusConflict && wait == 0:
			return nil, errors.New("held by another")
		case err == nil && r.Status/100 == 4 && r.Status != http.StatusConflict && r.Status != http.StatusTooManyRequests:
			return nil, fmt.Errorf("%d: %s", r.Status, r.Body)
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// pause waits, in real time: the services are processes.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// renew sends one heartbeat until it is answered.
func (h *held) renew(ctx context.Context) error {
	h.first = time.Now()
	h.next = h.after[:strings.LastIndexByte(h.after, '-')+1] + rand.Text()[:13]
	backoff := 50 * time.Millisecond
	for {
		if !h.deadline.IsZero() && !time.Now().Before(h.deadline) {
			return errors.New("expired")
		}
		r, err := h.try(ctx)
		var got struct {
			Usable int64 `json:"usable_ms"`
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && r.Status == http.StatusOK && json.Unmarshal(r.Body, &got) == nil:
			h.deadline, h.after = h.first.Add(time.Duration(got.Usable)*time.Millisecond), h.next
			return nil
		case err == nil && r.kind() == "lost":
			return errLost
		}
		pause(ctx, backoff)
		backoff = min(2*backoff, time.Second)
	}
}

func (h *held) try(ctx context.Context) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, max(h.lease/10, 250*time.Millisecond))
	defer cancel()
	return h.c.call(ctx, http.MethodPost, "/v1/heartbeat",
		map[string]any{"name": h.Name, "token": h.Token, "after": h.after, "next": h.next})
}

// keep renews the lease until stop ends, and returns why it could not. A heartbeat that is
// under way is awaited: only its own repetition could follow it.
func (h *held) keep(ctx, stop context.Context) error {
	for {
		pause(stop, time.Until(h.first.Add(h.beat)))
		if stop.Err() != nil {
			return nil
		}
		if err := h.renew(ctx); err != nil {
			return err
		}
	}
}

// release ends the term.
func (h *held) release(ctx context.Context) error {
	for _, after := range []string{h.next, h.after} {
		r, err := h.c.call(ctx, http.MethodPost, "/v1/release",
			map[string]any{"name": h.Name, "token": h.Token, "after": after})
		switch {
		case err != nil:
			return err
		case r.Status == http.StatusOK:
			return nil
		case r.kind() != "lost":
			return fmt.Errorf("%d: %s", r.Status, r.Body)
		}
	}
	return errLost
}
