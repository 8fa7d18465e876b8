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

// caller holds locks, one after the other or many at once. It is used by one goroutine at a
// time.
type caller interface {
	// acquire waits until the caller holds the lock.
	acquire(ctx context.Context, name string) (*heldLock, error)
	release(ctx context.Context, l *heldLock) error
	// beat shows that the caller lives, for the first of these locks or for more, and returns
	// for how many. errLost: for one it was too late.
	beat(ctx context.Context, all []*heldLock) (int, error)
}

// heldLock is what a caller knows of a lock that it holds.
type heldLock struct {
	name   string // or the key, as the server has it
	number uint64 // of the tenure; zero if it is not told
	beat   string // the latest heartbeat, of the lock service
	lease  string // of etcd
}

// errLost says that a lock which was held is held no more.
var errLost = errors.New("a lock that was held was lost")

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

// statusError is an answer that is none of 2xx.
type statusError struct {
	path string
	code int
	text string
}

func (e *statusError) Error() string { return fmt.Sprintf("%s: %d %.300s", e.path, e.code, e.text) }

func hasStatus(err error, code int) bool {
	var status *statusError
	return errors.As(err, &status) && status.code == code
}

// lostIf makes errLost of an answer with a code.
func lostIf(err error, code int) error {
	if hasStatus(err, code) {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}

// call makes a call, and reads the answer into out unless that is nil.
func (w *web) call(ctx context.Context, method, path string, in, out any) (http.Header, error) {
	body := []byte(nil)
	var err error
	if in != nil {
		if body, err = json.Marshal(in); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, w.base+path, bytes.NewReader(body))
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

func (w *web) post(ctx context.Context, path string, in, out any) error {
	_, err := w.call(ctx, http.MethodPost, path, in, out)
	return err
}

// tenured is a caller of the lock service. It does what a client of it must do.
type tenured struct {
	*web
	batch bool // many heartbeats in one call
}

// mostBeats is how many heartbeats one call may have.
const mostBeats = 100

func (t tenured) acquire(ctx context.Context, name string) (*heldLock, error) {
	var g struct {
		Token uint64 `json:"token"`
		Beat  string `json:"beat"`
	}
	for {
		err := t.post(ctx, "/v1/acquire", map[string]any{"name": name, "owner": "bench", "wait_ms": 20_000}, &g)
		if hasStatus(err, http.StatusConflict) {
			continue // somebody else has it still
		}
		if err != nil {
			return nil, err
		}
		l := &heldLock{name: name, number: g.Token, beat: g.Beat}
		_, err = t.beat(ctx, []*heldLock{l}) // a grant is no lease: it is held from the first heartbeat on
		return l, err
	}
}

type beatCall struct {
	Name  string `json:"name"`
	Token uint64 `json:"token"`
	After string `json:"after"`
	Next  string `json:"next,omitempty"`
}

func (t tenured) beat(ctx context.Context, all []*heldLock) (int, error) {
	most := 1
	if t.batch {
		most = mostBeats
	}
	all = all[:min(len(all), most)]
	calls := make([]beatCall, len(all))
	for i, l := range all {
		base, _, _ := strings.Cut(l.beat, "-")
		calls[i] = beatCall{l.name, l.number, l.beat, base + "-" + rand.Text()[:13]}
	}
	if len(all) == 1 {
		if err := t.post(ctx, "/v1/heartbeat", calls[0], nil); err != nil {
			return 0, lostIf(err, http.StatusGone)
		}
		all[0].beat = calls[0].Next
		return 1, nil
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
		all[i].beat = calls[i].Next
	}
	return len(all), nil
}

func (t tenured) release(ctx context.Context, l *heldLock) error {
	return t.post(ctx, "/v1/release", beatCall{Name: l.name, Token: l.number, After: l.beat}, nil)
}

// etcd is a caller of etcd's gateway. With a lease it has that one for all that it holds;
// otherwise one for each lock, as each lock of the service has.
type etcd struct {
	*web
	ttl   time.Duration
	lease string
}

func newEtcd(ctx context.Context, w *web, ttl time.Duration, one bool) (e *etcd, err error) {
	e = &etcd{web: w, ttl: ttl}
	if one {
		e.lease, err = e.grant(ctx)
	}
	return e, err
}

func (e *etcd) grant(ctx context.Context) (string, error) {
	var answer struct{ ID string }
	err := e.post(ctx, "/v3/lease/grant", map[string]any{"TTL": int(e.ttl.Seconds())}, &answer)
	return answer.ID, err
}

func (e *etcd) acquire(ctx context.Context, name string) (*heldLock, error) {
	lease := e.lease
	if lease == "" {
		var err error
		if lease, err = e.grant(ctx); err != nil {
			return nil, err
		}
	}
	var answer struct {
		Key    string
		Header struct{ Revision string }
	}
	ask := map[string]any{"name": base64.StdEncoding.EncodeToString([]byte(name)), "lease": lease}
	err := e.post(ctx, "/v3/lock/lock", ask, &answer)
	if err != nil {
		return nil, err
	}
	revision, err := strconv.ParseUint(answer.Header.Revision, 10, 64)
	return &heldLock{name: answer.Key, number: revision, lease: lease}, err
}

func (e *etcd) beat(ctx context.Context, all []*heldLock) (int, error) {
	var answer struct{ Result struct{ TTL string } }
	if err := e.post(ctx, "/v3/lease/keepalive", map[string]any{"ID": all[0].lease}, &answer); err != nil {
		return 0, err
	}
	if ttl, _ := strconv.Atoi(answer.Result.TTL); ttl <= 0 {
		return 0, errLost
	}
	if e.lease == "" {
		return 1, nil
	}
	return len(all), nil
}

func (e *etcd) release(ctx context.Context, l *heldLock) error {
	if e.lease == "" { // which frees the lock as well
		return e.post(ctx, "/v3/lease/revoke", map[string]any{"ID": l.lease}, nil)
	}
	return e.post(ctx, "/v3/lock/unlock", map[string]any{"key": l.name}, nil)
}

// consul is a caller of Consul's HTTP interface, with a session for all that it holds.
type consul struct {
	*web
	session string
}

func newConsul(ctx context.Context, w *web, ttl time.Duration) (*consul, error) {
	var answer struct{ ID string }
	ask := map[string]any{"TTL": ttl.String(), "LockDelay": "0s"}
	_, err := w.call(ctx, http.MethodPut, "/v1/session/create", ask, &answer)
	return &consul{w, answer.ID}, err
}

func (c *consul) acquire(ctx context.Context, name string) (*heldLock, error) {
	path, index := "/v1/kv/bench/"+url.PathEscape(name), "0"
	for {
		var got bool
		if _, err := c.call(ctx, http.MethodPut, path+"?acquire="+c.session, c.session, &got); err != nil {
			return nil, err
		}
		if got {
			return &heldLock{name: path}, nil // its number, LockIndex, is another call
		}
		header, err := c.call(ctx, http.MethodGet, path+"?wait=20s&index="+index, nil, nil)
		if err != nil {
			return nil, err
		}
		index = header.Get("X-Consul-Index")
	}
}

func (c *consul) beat(ctx context.Context, all []*heldLock) (int, error) {
	_, err := c.call(ctx, http.MethodPut, "/v1/session/renew/"+c.session, nil, nil)
	return len(all), lostIf(err, http.StatusNotFound)
}

func (c *consul) release(ctx context.Context, l *heldLock) error {
	var done bool
	_, err := c.call(ctx, http.MethodPut, l.name+"?release="+c.session, c.session, &done)
	if err == nil && !done {
		err = errLost
	}
	return err
}
