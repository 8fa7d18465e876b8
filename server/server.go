// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/internal/remote"
)

// Options are the options of a [Server].
type Options struct {
	// Principals are the accepted callers, with their rights. It is required: there is no
	// service without tokens or certificates, because any web page can send requests to
	// 127.0.0.1.
	Principals *Principals

	// Hosts are the names by which clients reach the server, as in the Host header,
	// without a port; an asterisk means any. The loopback names (localhost, 127.0.0.1,
	// [::1]) are always included. A call that names another host is refused, because a web
	// page can point its own name at this server. Calls over a unix socket may name any host.
	Hosts []string

	// Public are prefixes of names for which /v1/leader needs no token, for load balancers.
	// If empty, no name is public.
	Public []string

	// PublicMetrics has /metrics need no token.
	PublicMetrics bool

	// TrustedProxies are the networks of the proxies in front of this server. For a call from
	// one of them, limits and the log use the last address in X-Forwarded-For that is not in
	// these networks. If empty, that header is ignored, because any client can send it.
	TrustedProxies []netip.Prefix

	// Pages answers what is below no path of the service, such as a dashboard at /. If nil,
	// / is a line of text.
	Pages http.Handler

	// Known is called with each request that has a valid token or certificate, before its body
	// is read: a listener may then prefer its connection to others. It must not block. It may
	// be nil.
	Known func(*http.Request)

	// Verified says whether the certificate of a connection would still be verified by the
	// present authorities: for a server that reads them again. Expiry is checked separately.
	// If nil, what was verified at the handshake stays verified.
	Verified func(*http.Request) bool

	// Logger gets a line for each act of an operator, for each refused token (within a
	// limit), and for what goes wrong. If nil, nothing is logged.
	Logger *slog.Logger

	// Limits bound what one caller can use.
	Limits Limits
}

// Limits bound what one caller can use, so that others have the rest. They hold for one
// server: with three replicas a caller has three times as much. Zero means the default.
type Limits struct {
	// Waits is how many calls of one principal may wait at once: acquires with wait_ms,
	// requests to holders, and streams. If zero, it is 1000.
	Waits int
	// Calls is how many calls a second one principal may make, apart from heartbeats and
	// releases; for a moment it may make twice as many. If zero, it is 100. It also bounds,
	// for each address, the calls that need no token.
	Calls float64
	// Beats is how many heartbeats and releases a second one principal may send; for a
	// moment twice as many. They do not count as calls, so that a program that asks too much
	// still keeps its locks. If zero, it is 1000: enough for 3000 locks with a lease of 15 s.
	Beats float64
	// BeatsAtOnce is how many of them may be in progress at once. If zero, it is 500.
	BeatsAtOnce int
	// FailedTokens is how many wrong tokens a minute one address, or network of 64 bits of
	// IPv6, may send before the answer is 429, and the log stays silent. After that many
	// different tokens, a right token is accepted only if its principal has used it from that
	// address within the last hour, because it may be a guess. Programs that share an address
	// with a guesser, or with a program with an old token, keep their locks. If zero, it is 30.
	FailedTokens float64
}

const (
	defaultWaits        = 1000
	defaultCalls        = 100
	defaultBeats        = 1000
	defaultBeatsAtOnce  = 500
	defaultFailedTokens = 30

	// maxWait is the longest wait_ms: shorter than the patience of most proxies.
	maxWait = 20 * time.Second
	// The longest bodies in bytes: of a call with data, which are 256 KiB as base64, and names;
	// of one with names and a reason, which may be escaped; of a batch of heartbeats.
	maxBody      = 1 << 20
	maxShortBody = 16 << 10
	maxBatchBody = maxBatch * 6 << 10
	// maxBodies bounds the bytes of one principal's bodies in progress.
	maxBodies = 32 << 20
	// maxBatch is how many heartbeats one call may have.
	maxBatch = 100
	// bodyTimeout is how long a body may take to arrive, and writeTimeout how long an answer
	// or an event may take to be sent.
	bodyTimeout  = 10 * time.Second
	writeTimeout = 10 * time.Second
	// lingerTimeout is how long the unread rest of a body may take.
	lingerTimeout = time.Second
	// lookTimeout bounds a list of locks.
	lookTimeout = 20 * time.Second
)

func (o Options) withDefaults() Options {
	o.Hosts, o.Public, o.TrustedProxies = slices.Clone(o.Hosts), slices.Clone(o.Public), slices.Clone(o.TrustedProxies)
	if o.Known == nil {
		o.Known = func(*http.Request) {}
	}
	if o.Verified == nil {
		o.Verified = func(*http.Request) bool { return true }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	l := o.Limits
	o.Limits = Limits{
		Waits: cmp.Or(l.Waits, defaultWaits), Calls: cmp.Or(l.Calls, defaultCalls), Beats: cmp.Or(l.Beats, defaultBeats),
		BeatsAtOnce: cmp.Or(l.BeatsAtOnce, defaultBeatsAtOnce), FailedTokens: cmp.Or(l.FailedTokens, defaultFailedTokens),
	}
	return o
}

func (o Options) validate() error {
	var errs []error
	if o.Principals == nil {
		errs = append(errs, errors.New("no principals: give a file of principals, with OpenPrincipals"))
	}
	for _, host := range o.Hosts {
		if err := checkHost(host); err != nil {
			errs = append(errs, err)
		}
	}
	for _, prefix := range o.Public {
		switch {
		case prefix == "":
			errs = append(errs, errors.New("public prefix is empty: that would show the leader of every lock; name prefixes"))
		case strings.HasPrefix(prefix, driver.OwnPrefix):
			errs = append(errs, fmt.Errorf("public prefix %.40q begins with %q: such names are for records of Tenure itself",
				prefix, driver.OwnPrefix))
		default:
			if err := (access.Grant{Right: access.Read, Prefix: prefix}).Validate(); err != nil {
				errs = append(errs, fmt.Errorf("public: %w", err))
			}
		}
	}
	l := o.Limits
	if l.Waits < 0 || l.BeatsAtOnce < 0 || !(l.Calls > 0) || !(l.Beats > 0) || !(l.FailedTokens > 0) {
		errs = append(errs, fmt.Errorf("limits %+v must not be negative", l))
	}
	return errors.Join(errs...)
}

func checkHost(host string) error {
	switch _, _, err := net.SplitHostPort(host); {
	case host == "":
		return errors.New("a host is empty: name hosts as clients do, such as locks.example.com")
	case strings.ContainsAny(host, "/ @") || strings.Contains(host, "*") && host != "*":
		return fmt.Errorf("host %.80q is not a host name: write locks.example.com or 10.0.0.5, or "+
			"only an asterisk for any host", host)
	case err == nil:
		return fmt.Errorf("host %.80q has a port: leave it out; any port is accepted", host)
	}
	return nil
}

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
	sems   kept[semaphore.Semaphore]
	rws    kept[rwlock.Lock]
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
	s.sems.make = func(name string) (*semaphore.Semaphore, error) { return semaphore.New(client, name, 1, nil) }
	s.rws.make = func(name string) (*rwlock.Lock, error) { return rwlock.New(client, name, nil) }
	return s, nil
}

// Shutdown ends all waiting calls, and all streams, with the answer to try another server,
// and refuses new ones in the same way; /readyz fails from then on. It returns when
// they have ended, or when ctx ends, with its error. Heartbeats and releases are served for
// as long as the listeners are open: close those after it, with [http.Server.Shutdown].
func (s *Server) Shutdown(ctx context.Context) error { return s.waits.shut(ctx) }

// Client returns the client through which the server keeps its locks.
func (s *Server) Client() *tenure.Client { return s.client }

// Principals returns the accepted callers.
func (s *Server) Principals() *Principals { return s.o.Principals }

// Audit writes a line about an operator's act into the log.
func (s *Server) Audit(ctx context.Context, act access.Act) { s.audit(ctx, act) }

// Principal returns whose call r is, by its bearer token or client certificate.
func (s *Server) Principal(r *http.Request) (access.Principal, bool) {
	p, err := s.principalOf(r)
	return p, err == nil
}

// Admit counts a request for a page as a call of the principal, and returns how long it must
// wait if it makes too many, or if its secret may be a guess: see [Limits.FailedTokens]. The
// secret is "" for a principal that was authenticated in another way.
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
		// No ReadTimeout and no WriteTimeout, because calls wait and streams last. The handler
		// itself bounds each body, each answer and each event, on every path.
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

// route is one path of the service.
type route struct {
	method, path string
	who          who
	serve        func(*call) error // writes the answer, or returns why it cannot
	most         int64             // the longest body in bytes; 0: no body
}

// who may take a route, and what it counts as.
type who int

const (
	caller who = iota // a principal; it counts as a call
	holder            // a principal; the handler counts its heartbeats
	some              // a principal, or any caller if the handler finds that it is public
	anyone            // any caller, under any host name: it reveals nothing about locks
)

// What can be public has these paths.
const (
	leaderPath  = "/v1/leader"
	metricsPath = "/metrics"
)

// makeRoutes returns the routes of openapi.json, by their paths.
func (s *Server) makeRoutes() map[string]*route {
	routes := map[string]*route{}
	for _, r := range []route{
		{http.MethodPost, "/v1/acquire", caller, (*call).acquire, maxBody},
		{http.MethodPost, "/v1/heartbeat", holder, (*call).heartbeat, maxShortBody},
		{http.MethodPost, "/v1/heartbeats", holder, (*call).heartbeats, maxBatchBody},
		{http.MethodPost, "/v1/release", holder, (*call).release, maxBody},
		{http.MethodPost, "/v1/sessions/open", caller, (*call).openSession, maxSessionBody},
		{http.MethodPost, "/v1/sessions/heartbeat", holder, (*call).heartbeatSession, maxSessionBody},
		{http.MethodPost, "/v1/sessions/close", holder, (*call).closeSession, maxShortBody},
		{http.MethodPost, "/v1/sessions/attach", holder, (*call).attach, maxBatchBody},
		{http.MethodPost, "/v1/sessions/release", holder, (*call).releaseUnder, maxBody},
		{http.MethodPost, "/v1/drain", caller, (*call).drain, maxShortBody},
		{http.MethodPost, "/v1/requests", caller, (*call).ask, maxShortBody},
		{http.MethodPost, "/v1/fence-check", caller, (*call).fenceCheck, maxShortBody},
		{http.MethodGet, "/v1/locks", caller, (*call).locks, 0},
		{http.MethodGet, "/v1/status", caller, (*call).status, 0},
		{http.MethodGet, "/v1/history", caller, (*call).history, 0},
		{http.MethodGet, "/v1/once", caller, (*call).once, 0},
		{http.MethodGet, "/v1/events", caller, (*call).events, 0},
		{http.MethodGet, leaderPath, some, (*call).leader, 0},
		{http.MethodGet, metricsPath, some, (*call).metrics, 0},
		{http.MethodGet, "/healthz", anyone, (*call).healthz, 0},
		{http.MethodGet, "/readyz", anyone, (*call).readyz, 0},
		{http.MethodGet, "/openapi.json", some, (*call).openapi, 0},
	} {
		routes[r.path] = &r
	}
	return routes
}

// takes says whether the route takes the method.
func (r *route) takes(method string) bool {
	return method == r.method || method == http.MethodHead && r.method == http.MethodGet
}
