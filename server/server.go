// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/internal/remote"
)

// Server is the lock service as an [http.Handler]. It keeps nothing that matters: any number
// of servers on one store serve the same clients. All methods may be called concurrently.
type Server struct {
	client *tenure.Client
	remote *remote.Client
	o      Options
	hosts  hosts
	cross  *http.CrossOriginProtection
	routes map[string]*route // by path
	limits *limiter
	waits  *gate
	feeds  *feeds
	ready  recent[tenure.Status]
	leads  *leaders
	errors errorLog
	meter  *meter
	audit  func(context.Context, access.Act)

	writeTimeout, bodyTimeout, lingerTimeout time.Duration
}

// New returns a server that keeps locks through the client, which stays the caller's to
// close: after [Server.Shutdown], and when the listeners are closed. The client's options
// decide the lease of all locks. The error names each option that breaks a rule.
func New(client *tenure.Client, options Options) (*Server, error) {
	if client == nil {
		return nil, errors.New("server: no client: make one with tenure.New")
	}
	o := options.withDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s := &Server{
		client: client, remote: remote.New(client), o: o, hosts: newHosts(o.Hosts), cross: http.NewCrossOriginProtection(),
		limits: newLimiter(o.Limits), waits: newGate(), audit: access.Audit(o.Logger),
		writeTimeout: writeTimeout, bodyTimeout: bodyTimeout, lingerTimeout: lingerTimeout,
	}
	s.routes = s.makeRoutes()
	s.meter = newMeter(s.routes)
	s.feeds = newFeeds(client)
	s.leads = &leaders{client: client}
	return s, nil
}

// Shutdown has all calls that wait, and all streams, end with the answer to ask another
// server, and refuses new ones the same way; /readyz fails from then on. It returns when
// they have ended, or when ctx ends, with its error. Heartbeats and releases are served for
// as long as the listeners are open: close those after it, with [http.Server.Shutdown].
func (s *Server) Shutdown(ctx context.Context) error { return s.waits.shut(ctx) }

// Client returns the client through which the server keeps its locks.
func (s *Server) Client() *tenure.Client { return s.client }

// Principals returns those who may call.
func (s *Server) Principals() *Principals { return s.o.Principals }

// Audit writes a line about an operator's act into the log.
func (s *Server) Audit(ctx context.Context, act access.Act) { s.audit(ctx, act) }

// Principal returns whose call r is, by its bearer token or client certificate.
func (s *Server) Principal(r *http.Request) (access.Principal, bool) {
	p, err := s.principalOf(r)
	return p, err == nil
}

// Admit counts a request for a page as a call of the principal, and returns how long it must
// wait if it makes too many, or if the secret that it has shown may be a guess: see
// [Limits.FailedTokens]. The secret is "" for a principal that is known by something else.
func (s *Server) Admit(r *http.Request, p access.Principal, secret string) (wait time.Duration) {
	var err error
	if secret != "" {
		err = s.limits.right(addressOf(r), p.Name())
	}
	if err == nil {
		s.o.Known(r)
		err = s.limits.call(p.Name())
	}
	if err != nil {
		s.meter.refused("limit")
		return problemOf(err).retryAfter
	}
	return 0
}

// Follow lets a page be kept up to date, as a stream of events, until leave is called: it is one
// of the [Limits.Waits] of the principal, and its context ends when the server shuts down.
func (s *Server) Follow(r *http.Request, p access.Principal) (ctx context.Context, leave func(), err error) {
	return s.wait(r.Context(), p, "events")
}

// WrongToken counts a token that a page was sent and that is not known, as the calls do, and
// returns how long its address must wait if there are too many.
func (s *Server) WrongToken(r *http.Request, secret string) (wait time.Duration) {
	if err := s.limits.failed(addressOf(r), secret); err != nil {
		s.meter.refused("token_limit")
		return problemOf(err).retryAfter
	}
	s.meter.refused("token")
	return 0
}

// HTTPServer returns an http.Server with this handler, and with time limits that a server
// needs which clients reach that may be slow on purpose. The caller may change it before it
// serves.
func (s *Server) HTTPServer() *http.Server {
	return &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		// No ReadTimeout and no WriteTimeout: calls wait, and streams go on. The handler
		// bounds each body, each answer and each event by itself, on every path.
	}
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := newCall(s, w, r)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.TLS != nil {
		h.Set("Strict-Transport-Security", "max-age=31536000") // a browser that was here sends no token without TLS
	}
	if s.waits.closed() {
		h.Set("Connection", "close") // the client's next call goes to another server; HTTP/2 says GOAWAY for it
	}
	begun := time.Now()
	defer func() { s.meter.answered(c.label(), c.out.code(), time.Since(begun)) }()
	defer c.recover()
	if err := c.serve(); err != nil {
		c.fail(err)
	}
}

//go:embed openapi.json
var document []byte

// Document returns the OpenAPI document of the service, as /openapi.json has it.
func Document() []byte { return append([]byte(nil), document...) }
