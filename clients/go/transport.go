// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/tenurelock/tenure/internal/text"
)

const (
	maxAnswer = 4 << 20 // bytes
	idleConns = 64      // that are kept to one server
	idleTime  = 90 * time.Second
	minLimit  = 250 * time.Millisecond // of one try of a call for a lock
	minPause  = 50 * time.Millisecond
	maxPause  = time.Second
)

// fields are the body of a call.
type fields map[string]any

// address is one server of the service.
type address struct {
	shown string // for people
	base  string // of URLs
	http.RoundTripper
}

// newServers reads the addresses.
func newServers(listed []string, config *tls.Config) ([]address, error) {
	if len(listed) == 0 {
		return nil, text.Invalid("no server: give at least one address, such as http://127.0.0.1:8368")
	}
	var all []address
	plain := newTransport("", config)
	for _, one := range listed {
		u, err := url.Parse(one)
		good := err == nil && u.RawQuery == "" && u.Fragment == "" && u.User == nil
		switch {
		case good && u.Scheme == "unix" && u.Host == "" && path.IsAbs(u.Path):
			all = append(all, address{one, "http://localhost", newTransport(u.Path, nil)})
		case good && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "":
			all = append(all, address{one, strings.TrimRight(one, "/"), plain})
		default:
			return nil, text.Invalid("server %.200q: want http://HOST:PORT, https://HOST:PORT or unix:/PATH", one)
		}
	}
	return all, nil
}

// newTransport returns a transport to a unix socket, or to any host if socket is empty. It speaks HTTP/1.1
// alone: a connection of HTTP/2 that is dead stays the one for all calls, and all of them would run out
// of time. There a call that does ends its connection.
func newTransport(socket string, config *tls.Config) *http.Transport {
	t := &http.Transport{
		TLSClientConfig: config.Clone(), Protocols: new(http.Protocols),
		MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleTime, TLSHandshakeTimeout: callMargin,
	}
	t.Protocols.SetHTTP1(true)
	if socket != "" {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	return t
}

// credentials are the bearer token, or a file that has it and is read again for each call.
type credentials struct {
	token atomic.Pointer[string]
	file  string
}

// load reads the file, or takes the token if no file is named.
func (c *credentials) load(token, file string) error {
	switch c.file = file; {
	case token != "" && file != "":
		return text.Invalid("Token and TokenFile: give one of them")
	case file != "":
		return c.read()
	}
	c.token.Store(&token)
	return fitToken("Token", token)
}

func (c *credentials) read() error {
	b, err := os.ReadFile(c.file)
	token := strings.TrimSpace(string(b))
	if err == nil && token == "" {
		err = text.Invalid("%s is empty: want a token", c.file)
	}
	if err = errors.Join(err, fitToken(c.file, token)); err == nil {
		c.token.Store(&token)
	}
	return err
}

func fitToken(where, token string) error {
	unfit := func(r rune) bool { return r <= ' ' || r > unicode.MaxASCII || !unicode.IsPrint(r) }
	if strings.ContainsFunc(token, unfit) {
		return text.Invalid("%s: a token is one word of printable ASCII", where)
	}
	return nil
}

// now returns the token. A file that cannot be read leaves it as it was: perhaps it is written just now.
func (c *credentials) now() string {
	if c.file != "" {
		_ = c.read()
	}
	return *c.token.Load()
}

// caller makes calls, one at a time. After one without an answer the next goes to another server.
type caller struct {
	c  *Client
	at int
}

func (c *Client) caller() *caller { return &caller{c, int(c.server.Load())} }

// call makes a call once, within the limit, and reads its answer.
func call[A any](
	ctx context.Context, to *caller, limit time.Duration, path string, body fields, read func(reply) (A, *problem),
) (A, *problem) {
	return follow(ctx, to, limit, path, body, nil, read)
}

// follow is call, with an answer that may come as a stream if met is not nil.
func follow[A any](
	ctx context.Context, to *caller, limit time.Duration, path string, body fields, met func(HeldError),
	read func(reply) (A, *problem),
) (a A, p *problem) {
	asked := ctx
	ctx, stop := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer stop()
	r, err := to.send(ctx, path, body, met)
	if err == nil {
		a, p = read(r)
	} else {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		p = unknownf("%s: %v", to.c.servers[to.at].shown, err)
		p.permanent = permanent(err)
	}
	if p != nil && p.moves() && asked.Err() == nil {
		to.at = (to.at + 1) % len(to.c.servers)
		to.c.server.Store(int64(to.at)) // where the next caller begins
	}
	return a, p
}

// errPlain says that a server wants https.
var errPlain = errors.New("use https")

func (to *caller) send(ctx context.Context, path string, body fields, met func(HeldError)) (reply, error) {
	server := to.c.servers[to.at]
	content, err := json.Marshal(body)
	if err != nil {
		return reply{}, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, server.base+path, bytes.NewReader(content))
	if err != nil {
		return reply{}, err
	}
	q.Header.Set("Content-Type", jsonType)
	q.Header.Set("Accept", jsonType+", "+problemType)
	if met != nil {
		q.Header.Set("Accept", streamType+", "+jsonType+", "+problemType)
	}
	if token := to.c.credentials.now(); token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	// Not through an http.Client, which follows redirects: they are no answer of the service.
	answer, err := server.RoundTrip(q)
	if err != nil {
		return reply{}, err
	}
	defer answer.Body.Close()
	if met != nil && answer.StatusCode == http.StatusOK && mediaType(answer.Header.Get("Content-Type")) == streamType {
		return readEvents(answer.Body, met)
	}
	said, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return reply{}, err
	}
	if answer.StatusCode == http.StatusBadRequest && bytes.Contains(said[:min(len(said), 1000)], []byte("HTTPS")) {
		return reply{}, fmt.Errorf("%w: the server says: %.100q", errPlain, said)
	}
	h := answer.Header
	return reply{answer.StatusCode, h.Get("Content-Type"), said, h.Get("Retry-After")}, nil
}

// permanent says whether a certificate is refused, here or there, or only one side speaks TLS.
func permanent(err error) bool {
	var (
		refused   *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		record    tls.RecordHeaderError
		remote    *net.OpError
	)
	switch {
	case errors.Is(err, errPlain), errors.Is(err, http.ErrSchemeMismatch):
		return true
	case errors.As(err, &refused), errors.As(err, &authority), errors.As(err, &record):
		return true
	}
	return errors.As(err, &remote) && remote.Op == "remote error" && strings.Contains(remote.Error(), "certificate")
}

// backoff has growing pauses with jitter.
type backoff struct{ pause time.Duration }

func (b *backoff) next() time.Duration {
	b.pause = min(max(2*b.pause, minPause), maxPause)
	return jitter(b.pause/2, b.pause)
}

// jitter returns a random time from least to most.
func jitter(least, most time.Duration) time.Duration { return least + rand.N(most-least+1) }

// sleep waits, for no longer than ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
