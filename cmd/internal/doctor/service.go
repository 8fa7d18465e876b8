// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

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
	"net/url"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Service is a lock service that is examined: tenured, as its clients see it.
type Service struct {
	// URL is where it is: https://HOST, http://HOST:PORT, or unix:PATH.
	URL string
	// Token is sent with the calls. If empty, calls have no token.
	Token string
	// TLS is for https. It may be nil.
	TLS *tls.Config
	// Lock is the name for which the rights of the token are tried. The doctor takes, renews and
	// releases a lock derived from it, and the service deletes that lock's record.
	Lock string
	// Tell is called with each finding.
	Tell func(driver.Finding)

	base   string // of the calls
	client *http.Client
	bad    bool
}

// ErrNoService is returned when the service cannot be reached at all.
var ErrNoService = errors.New("the service cannot be reached")

// protocolVersion is the version of the service that this build knows.
const protocolVersion = "1"

// callPatience bounds one call. A client's own is a tenth of the lease.
const callPatience = 5 * time.Second

// ExamineService makes all checks of a service, and returns whether something is bad. An
// error that matches neither a context's nor [ErrNoService] is about the URL.
func ExamineService(ctx context.Context, s Service) (bad bool, err error) {
	tell := s.Tell
	s.Tell = func(f driver.Finding) {
		s.bad = s.bad || f.Level == driver.LevelBad
		tell(f)
	}
	if err := s.dial(); err != nil {
		return true, err
	}
	defer s.client.CloseIdleConnections()
	for _, f := range clocks(driftOfClients, false) {
		s.Tell(f)
	}
	if err := s.reach(ctx); err != nil {
		return true, errors.Join(ErrNoService, err)
	}
	s.ready(ctx)
	s.version(ctx)
	s.host(ctx)
	s.open(ctx)
	if s.known(ctx) {
		s.trial(ctx)
	}
	return s.bad, context.Cause(ctx)
}

// driftOfClients is what a service takes off for the clocks of its clients, by default.
const driftOfClients = 0.09

// dial makes the client.
func (s *Service) dial() error {
	transport := &http.Transport{TLSClientConfig: s.TLS, ForceAttemptHTTP2: true}
	path, socket := strings.CutPrefix(s.URL, "unix:")
	if socket {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		s.base = "http://localhost"
	} else {
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
			u.RawQuery != "" || u.User != nil || strings.Trim(u.Path, "/") != "" {
			shown := s.URL
			if strings.Contains(shown, "@") {
				shown = "…" // it may have a password
			}
			return fmt.Errorf("server %.80q is not an address of a lock service: write https://HOST, "+
				"http://HOST:PORT or unix:PATH", shown)
		}
		s.base = u.Scheme + "://" + u.Host
	}
	s.client = &http.Client{
		Transport: transport,
		// The token is sent to no other server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return nil
}

// answer is what a call got.
type answer struct {
	status int
	header http.Header
	body   []byte
	tls    *tls.ConnectionState
	took   time.Duration
}

// problem is what the service says when it has not done what it was asked.
type problem struct {
	Type, Title, Detail string
}

func (a answer) problem() (p problem) {
	_ = json.Unmarshal(a.body, &p) // otherwise it is not from tenured, and stays empty
	p.Type = strings.TrimPrefix(p.Type, "urn:tenure:problem:")
	return p
}

// String describes an unexpected answer.
func (a answer) String() string {
	if p := a.problem(); p.Type != "" {
		return fmt.Sprintf("%d %s: %s", a.status, p.Type, p.Detail)
	}
	return fmt.Sprintf("%d %s, which is not an answer of tenured: %.80q", a.status, http.StatusText(a.status), a.body)
}

// get asks with the headers; Host is one.
func (s *Service) get(ctx context.Context, path string, header map[string]string) (answer, error) {
	return s.call(ctx, http.MethodGet, path, header, nil)
}

// post sends an object with the token.
func (s *Service) post(ctx context.Context, path string, body any) (answer, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	return s.call(ctx, http.MethodPost, path, s.credentials(), b)
}

func (s *Service) credentials() map[string]string {
	if s.Token == "" {
		return nil
	}
	return map[string]string{"Authorization": "Bearer " + s.Token}
}

func (s *Service) call(
	ctx context.Context, method, path string, header map[string]string, body []byte,
) (answer, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callPatience)
		defer cancel()
	}
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range header {
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	sent := time.Now()
	res, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return answer{res.StatusCode, res.Header, text, res.TLS, time.Since(sent)}, err
}

// newName ends a name or a beat by chance: 13 letters or digits.
func newName() string { return rand.Text()[:13] }

// numbers says what follows from the lease of the service.
func (s *Service) numbers(lease, heartbeat, usable time.Duration) {
	s.Tell(driver.OK("lease", "lease %v, heartbeat every %v: a client may act for %v after it sent a "+
		"confirmed heartbeat", lease, heartbeat, shown(usable)))
	spare := usable - heartbeat
	f := driver.OK("lease", "the service may be away for %v before a lock is lost", shown(spare))
	if spare < 2*heartbeat {
		f.Level, f.Advice = driver.LevelWarn, "start tenured with a longer --lease, or a shorter --heartbeat"
	}
	s.Tell(f)
}

// judgeHeartbeats compares the latency of heartbeats with what a client allows for one.
func judgeHeartbeats(l latency, lease time.Duration) driver.Finding {
	limit := max(lease/10, leastPatience)
	f := driver.OK("latency", "heartbeats take %v; a client tries again after %v", l, shown(limit))
	return l.judge(f, limit, 10, "most heartbeats would be retried", "slow heartbeats would lose locks",
		"run tenure doctor on the server, whose store may be slow, or start tenured with")
}

// leastPatience is the least that a client allows for a heartbeat.
const leastPatience = 250 * time.Millisecond
