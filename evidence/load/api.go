// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// web calls a server over HTTP/1.1, on connections that are kept.
type web struct {
	base, token string
	http        *http.Client
}

func newWeb(base, token string) *web {
	return &web{base, token, &http.Client{
		Transport: &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, DisableCompression: true},
	}}
}

// call makes a call, and reads the answer into out unless that is nil. An answer that is none
// of 2xx is an error.
func (w *web) call(ctx context.Context, method, path string, in, out any) (http.Header, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, w.base+path, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	answer, err := w.http.Do(r)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return nil, err
	}
	if answer.StatusCode/100 != 2 {
		return answer.Header, &statusError{path, answer.StatusCode, string(text)}
	}
	if out != nil {
		err = json.Unmarshal(text, out)
	}
	return answer.Header, err
}

type statusError struct {
	path string
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("%s: %d %.300s", e.path, e.code, e.text) }

func (w *web) post(ctx context.Context, path string, in, out any) error {
	_, err := w.call(ctx, http.MethodPost, path, in, out)
	return err
}

// errLost says that a lock which was held is held no more.
var errLost = errors.New("a lock that was held was lost")

// holder is one caller, which holds locks one after the other or many at once. It is used by
// one goroutine at a time.
type holder interface {
	// acquire waits until the caller holds the lock, and returns the number of the tenure.
	acquire(ctx context.Context, name string) (held, uint64, error)
	release(ctx context.Context, h held) error
	// beat shows that the caller lives, for all of these locks, and returns how many of them
	// that was for. errLost: for one it was too late.
	beat(ctx context.Context, all []held) (int, error)
	// beatsForAll says that a call is for all locks, however many they are.
	beatsForAll() bool
}

// held is what a caller knows of a lock that it holds.
type held interface{}

// tenured is a caller of the lock service. It does what a client of it must do.
type tenured struct {
	*web
	owner string
	batch bool // many heartbeats in one call
}

func (t tenured) beatsForAll() bool { return false }

// mostBeats is how many heartbeats one call may have.
const mostBeats = 100

type grant struct {
	name  string
	token uint64
	beat  string
}

func (t tenured) acquire(ctx context.Context, name string) (held, uint64, error) {
	var g struct {
		Token uint64 `json:"token"`
		Beat  string `json:"beat"`
	}
	for {
		err := t.post(ctx, "/v1/acquire", map[string]any{"name": name, "owner": t.owner, "wait_ms": 20_000}, &g)
		var status *statusError
		if errors.As(err, &status) && status.code == http.StatusConflict {
			continue // somebody else has it still
		}
		if err != nil {
			return nil, 0, err
		}
		h := &grant{name, g.Token, g.Beat}
		_, err = t.beat(ctx, []held{h}) // a grant is no lease: it is held from the first heartbeat on
		return h, g.Token, err
	}
}

// next is the beat after a beat.
func next(after string) string {
	base, _, _ := strings.Cut(after, "-")
	return base + "-" + rand.Text()[:13]
}

type beatCall struct {
	Name  string `json:"name"`
	Token uint64 `json:"token"`
	After string `json:"after"`
	Next  string `json:"next,omitempty"`
}

func (t tenured) beat(ctx context.Context, all []held) (int, error) {
	if !t.batch || len(all) == 1 {
		g := all[0].(*grant) //nolint:forcetypeassert // it is its own
		call := beatCall{g.name, g.token, g.beat, next(g.beat)}
		if err := t.post(ctx, "/v1/heartbeat", call, nil); err != nil {
			return 0, lost(err)
		}
		g.beat = call.Next
		return 1, nil
	}
	all = all[:min(len(all), mostBeats)]
	calls := make([]beatCall, len(all))
	for i, h := range all {
		g := h.(*grant) //nolint:forcetypeassert // it is its own
		calls[i] = beatCall{g.name, g.token, g.beat, next(g.beat)}
	}
	var answer struct {
		Results []struct {
			UsableMs *int64          `json:"usable_ms"`
			Problem  json.RawMessage `json:"problem"`
		} `json:"results"`
	}
	if err := t.post(ctx, "/v1/heartbeats", map[string]any{"locks": calls}, &answer); err != nil {
		return 0, err
	}
	if len(answer.Results) != len(all) {
		return 0, fmt.Errorf("%d heartbeats were answered of %d", len(answer.Results), len(all))
	}
	for i, a := range answer.Results {
		if a.UsableMs == nil {
			return i, fmt.Errorf("%w: %s", errLost, a.Problem)
		}
		all[i].(*grant).beat = calls[i].Next //nolint:forcetypeassert // it is its own
	}
	return len(all), nil
}

func lost(err error) error {
	var status *statusError
	if errors.As(err, &status) && status.code == http.StatusGone {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}

func (t tenured) release(ctx context.Context, h held) error {
	g := h.(*grant) //nolint:forcetypeassert // it is its own
	return t.post(ctx, "/v1/release", beatCall{Name: g.name, Token: g.token, After: g.beat}, nil)
}

// etcd is a caller of etcd's gateway. With own it has a lease for each lock, as each lock of
// the service has; otherwise one for all that it holds, which is its own.
type etcd struct {
	*web
	lease string
	ttl   int
	own   bool
}

func newEtcd(ctx context.Context, w *web, ttl time.Duration, own bool) (*etcd, error) {
	e := &etcd{web: w, ttl: int(ttl.Seconds()), own: own}
	var err error
	if !own {
		e.lease, err = e.grant(ctx)
	}
	return e, err
}

func (e *etcd) grant(ctx context.Context) (string, error) {
	var answer struct{ ID string }
	err := e.post(ctx, "/v3/lease/grant", map[string]any{"TTL": e.ttl}, &answer)
	return answer.ID, err
}

type etcdLock struct{ key, lease string }

func (e *etcd) acquire(ctx context.Context, name string) (held, uint64, error) {
	lease := e.lease
	if e.own {
		var err error
		if lease, err = e.grant(ctx); err != nil {
			return nil, 0, err
		}
	}
	var answer struct {
		Key    string
		Header struct{ Revision string }
	}
	err := e.post(ctx, "/v3/lock/lock", map[string]any{"name": base64.StdEncoding.EncodeToString([]byte(name)), "lease": lease}, &answer)
	if err != nil {
		return nil, 0, err
	}
	revision, err := strconv.ParseUint(answer.Header.Revision, 10, 64)
	return &etcdLock{answer.Key, lease}, revision, err
}

func (e *etcd) beat(ctx context.Context, all []held) (int, error) {
	n, lease := len(all), e.lease
	if e.own {
		n, lease = 1, all[0].(*etcdLock).lease //nolint:forcetypeassert // it is its own
	}
	var answer struct{ Result struct{ TTL string } }
	if err := e.post(ctx, "/v3/lease/keepalive", map[string]any{"ID": lease}, &answer); err != nil {
		return 0, err
	}
	if ttl, _ := strconv.Atoi(answer.Result.TTL); ttl <= 0 {
		return 0, errLost
	}
	return n, nil
}

func (e *etcd) beatsForAll() bool { return !e.own }

func (e *etcd) release(ctx context.Context, h held) error {
	l := h.(*etcdLock) //nolint:forcetypeassert // it is its own
	if e.own {         // which frees the lock as well
		return e.post(ctx, "/v3/lease/revoke", map[string]any{"ID": l.lease}, nil)
	}
	return e.post(ctx, "/v3/lock/unlock", map[string]any{"key": l.key}, nil)
}

// consul is a caller of Consul's HTTP interface, with a session for all that it holds.
type consul struct {
	*web
	session string
}

func newConsul(ctx context.Context, w *web, ttl time.Duration) (*consul, error) {
	var answer struct{ ID string }
	_, err := w.call(ctx, http.MethodPut, "/v1/session/create", map[string]any{"TTL": ttl.String(), "LockDelay": "0s"}, &answer)
	return &consul{w, answer.ID}, err
}

func (c *consul) acquire(ctx context.Context, name string) (held, uint64, error) {
	path := "/v1/kv/load/" + url.PathEscape(name)
	index := "0"
	for {
		var got bool
		if _, err := c.call(ctx, http.MethodPut, path+"?acquire="+c.session, c.session, &got); err != nil {
			return nil, 0, err
		}
		if got {
			return path, 0, nil // LockIndex is another call
		}
		header, err := c.call(ctx, http.MethodGet, path+"?wait=20s&index="+index, nil, nil)
		if err != nil {
			return nil, 0, err
		}
		index = header.Get("X-Consul-Index")
	}
}

func (c *consul) beat(ctx context.Context, all []held) (int, error) {
	_, err := c.call(ctx, http.MethodPut, "/v1/session/renew/"+c.session, nil, nil)
	return len(all), lostIn(err)
}

func (c *consul) beatsForAll() bool { return true }

func lostIn(err error) error {
	var status *statusError
	if errors.As(err, &status) && status.code == http.StatusNotFound {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}

func (c *consul) release(ctx context.Context, h held) error {
	var done bool
	_, err := c.call(ctx, http.MethodPut, h.(string)+"?release="+c.session, c.session, &done) //nolint:forcetypeassert // it is its own
	if err == nil && !done {
		err = errLost
	}
	return err
}
