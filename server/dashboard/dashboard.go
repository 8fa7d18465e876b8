// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package dashboard shows people who holds which lock, who led when, and what is in doubt,
// and lets them ask holders to make way: web pages that a program mounts, beside the lock
// service of package server.
//
//	pages, err := dashboard.New(dashboard.Options{Server: service, Key: key})
//	...
//	defer pages.Close()
//	mux.Handle("/", pages)
//
// The pages are: all locks now; one lock, with its terms as a timeline; the
// sessions; the groups of package shard as grids; and the findings of a doctor. Each page
// works without JavaScript. With it, a page stays up to date by itself. A client without
// a browser, such as curl, gets the same as plain text.
//
// All links are relative. Below a prefix, mount it with [http.StripPrefix] and a slash at
// the end of the prefix.
//
// # Who sees what
//
// A program sends a bearer token with each request. A browser cannot, so a form takes the
// token once, and answers with a cookie for an hour. It contains only the hash of the token
// and its expiry, encrypted with [Options.Key], and opens only these pages. The rights of the
// principal are checked for each page, each row and each act, so a right that was taken away
// is gone at once. Replacing a token ends its cookies.
//
// A page shows only the locks that its visitor may read, and does not count others. It shows
// the sessions of these locks, or all sessions to a visitor who may read all locks.
//
// # What it keeps
//
// No state that matters: the store's last answers, to show them to several visitors, and
// while the store is away. Any replica with the same key serves any page. The pages ask the
// store only while they have visitors; with a large or slow store, they ask it at most a
// fifth of the time for all visitors together.
//
// # What is not guaranteed
//
// What a page shows was so when the store was read. Only the client of a holder knows how
// long it may act. Times of day are by the wall clocks of the holders.
//
// A browser sends a cookie to all ports of a host. On a loopback address without TLS, any
// program that listens on that address can see it: it can read these pages for an hour, and
// sign the visitor out. It cannot change anything else, because there each form that acts also
// sends the visitor's token, which no page contains. A script keeps the token in the tab.
package dashboard

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	texttemplate "text/template"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server"
)

// Options are for [New]. Server must be set.
type Options struct {
	// Server has the locks that are shown: its client reads them and asks their holders. It knows
	// the principals, counts their requests and wrong tokens, and has the log. The server need
	// not serve the pages itself.
	Server *server.Server

	// Key seals the cookies. It has 32 random bytes or more, and is the same on all replicas
	// and after a restart. If empty, it is made at random, and a visitor signs in again at
	// each process.
	Key []byte

	// Title names the installation on each page, such as "production". It may be empty.
	Title string

	// Doctor makes the checks of the program for the doctor's page, such as those of its options
	// and of the engine; the page itself measures how long the store takes to answer. It is called
	// while that page has visitors, once a minute at most. Only visitors with the right admin to
	// all names see its bad findings. It may be nil.
	Doctor func(context.Context) []driver.Finding
}

// Dashboard is the handler of the pages. All methods may be called concurrently.
type Dashboard struct {
	options Options
	server  *server.Server
	client  *tenure.Client
	handler http.Handler
	views   map[string]view
	pages   *template.Template
	texts   *texttemplate.Template
	cookies *cookies
	cache   *cache
	turn    chan struct{}           // held by the stream that makes its page
	writes  atomic.Pointer[finding] // how long writes took when that was measured last
}

// view makes one page. Its name is the name of its templates and, except for the first page, its path.
type view func(context.Context, visitor, url.Values) (*page, *problem)

// handler answers a request, or says why not.
type handler func(http.ResponseWriter, *http.Request) *problem

// New returns the pages. Close them before the client. The error says which of the options is missing or
// wrong.
func New(options Options) (*Dashboard, error) {
	if options.Doctor == nil {
		options.Doctor = func(context.Context) []driver.Finding { return nil }
	}
	if options.Server == nil {
		return nil, errors.New("dashboard: Options.Server is nil: it must be the service whose locks are shown")
	}
	cookies, err := newCookies(options.Key)
	if err != nil {
		return nil, err
	}
	d := &Dashboard{
		options: options, server: options.Server, client: options.Server.Client(), cookies: cookies, cache: newCache(),
		turn: make(chan struct{}, 1),
	}
	d.pages, d.texts = parsePages()
	d.views = map[string]view{
		"now": d.now, "lock": d.lock, "sessions": d.sessions, "shards": d.shards, "doctor": d.doctor,
	}
	d.handler = d.route()
	return d, nil
}

// ServeHTTP answers one request.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// Close ends the running questions to the store and acts, and waits for them. An act that was written into
// a record stays there. The streams that keep open pages up to date end with [server.Server.Shutdown]; the
// pages then connect to another replica.
func (d *Dashboard) Close() { d.cache.close() }

// pathOf is where a view is, relative to all others.
func pathOf(name string) string {
	if name == "now" {
		return "./"
	}
	return name
}

func (d *Dashboard) route() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if p := h(w, r); p != nil {
				d.failed(w, r, p)
			}
		})
	}
	serve := func(path, allow string, handlers ...handler) {
		for i, method := range strings.Split(strings.Replace(allow, "GET, HEAD", "GET", 1), ", ") {
			handle(method+" "+path, handlers[i])
		}
		handle(path, noMethod(allow)) // any other
	}
	const read = "GET, HEAD"
	for name := range d.views {
		serve("/"+strings.Replace(name, "now", "{$}", 1), read, d.page(name))
	}
	serve("/live", "GET", d.live)
	handle("HEAD /live", noMethod("GET")) // it has no end
	serve("/login", read+", POST", func(w http.ResponseWriter, r *http.Request) *problem {
		return d.signIn(w, r, http.StatusOK, r.URL.Query().Get("next"), "")
	}, d.login)
	serve("/logout", "POST", d.logout)
	serve("/act", "POST", d.act)
	serve("/measure", "POST", d.measure)
	for name := range staticTypes {
		serve("/"+name, read, static)
	}
	handle("/", func(http.ResponseWriter, *http.Request) *problem {
		return refuse(http.StatusNotFound, "No such page", "there is no page at this address: start at the first page")
	})

	// A page of another site must not act with the cookie of a visitor.
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		const text = "tenure: refused: this request comes from a page of another site\n"
		answer(w, http.StatusForbidden, textType, []byte(text))
	}))
	guarded := compressed(cross.Handler(mux))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protect(w.Header())
		guarded.ServeHTTP(w, r)
	})
}

// noMethod answers for a method that a page has not.
func noMethod(allow string) handler {
	return func(w http.ResponseWriter, r *http.Request) *problem {
		w.Header().Set("Allow", allow)
		return refuse(http.StatusMethodNotAllowed, "Not allowed", "this page takes %s, not %.20q", allow, r.Method)
	}
}

// protect sets what all answers have.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept, Accept-Encoding, Authorization, Cookie")
}

const (
	// lookPace is for how long an answer is shown before the store is asked again, farPace the same where that
	// takes many reads, and paceOverTook for how many times as long as it took: a store is asked for a fifth of
	// the time at most.
	lookPace     = time.Second
	farPace      = 5 * time.Second
	paceOverTook = 5
	mostPace     = time.Minute
	// loadTimeout bounds a question to the store. A visitor waits for its answer for patience, and for
	// oldPatience where there is an older one to show.
	loadTimeout = 30 * time.Second
	patience    = 10 * time.Second
	oldPatience = 2 * time.Second
	// maxEntries bounds how many answers are kept, and maxRunning how much runs at once in the background.
	maxEntries = 512
	maxRunning = 256
)

var (
	// errSlow says that the store has not answered for as long as a visitor waits.
	errSlow = errors.New("the store has not answered yet")
	// errClosed says that the dashboard was shut down.
	errClosed = errors.New("the server is shutting down")
)

// cache asks the store for all visitors together: while an answer is fresh it is not asked for again, and
// all visitors wait for the same running question. It keeps the last good answer, to show it while the
// store is away. Acts that outlast their request run in it, too. All methods may be called concurrently.
type cache struct {
	ctx  context.Context
	stop context.CancelFunc
	all  sync.WaitGroup

	mu      sync.Mutex
	running int
	entries map[string]*entry
}

func newCache() *cache {
	c := &cache{entries: map[string]*entry{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// entry is what is known of one question.
type entry struct {
	reading
	value any
	fresh time.Time
	done  chan struct{} // closed when the current question is answered; nil without a question
}

// reading says how an answer was come by.
type reading struct {
	at  time.Time // when the last good one was given; zero: never
	err error     // of a later question: the answer is old
}

// good says that there is an answer.
func (r reading) good() bool { return !r.at.IsZero() }

// ask returns the answer to the question that key stands for, a fresh answer if the store gives it in
// time. load asks the store.
func ask[T any](
	ctx context.Context, c *cache, pace time.Duration, key string, load func(context.Context) (T, error),
) (T, reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry(key)
	if e.done == nil && !time.Now().Before(e.fresh) {
		e.done = make(chan struct{})
		if !c.start(func(ctx context.Context) {
			c.load(ctx, e, pace, func(ctx context.Context) (any, error) { return load(ctx) })
		}) {
			e.done, e.err = nil, errClosed
		}
	}
	var late error
	if done := e.done; done != nil {
		wait := patience
		if e.good() {
			wait = oldPatience
		}
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, wait)
		select {
		case <-done:
		case <-ctx.Done():
			late = errSlow
		}
		cancel()
		c.mu.Lock()
	}
	value, _ := e.value.(T)
	return value, reading{e.at, cmp.Or(e.err, late)}
}

// entry returns the entry of a question. The caller holds the mutex.
func (c *cache) entry(key string) *entry {
	e := c.entries[key]
	if e == nil {
		if len(c.entries) >= maxEntries {
			clear(c.entries) // all, rather than no bound
		}
		e = &entry{}
		c.entries[key] = e
	}
	return e
}

// load asks the store.
func (c *cache) load(ctx context.Context, e *entry, pace time.Duration, ask func(context.Context) (any, error)) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	asked := time.Now()
	value, err := ask(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if e.err = err; err == nil {
		e.value, e.at = value, now
	}
	close(e.done)
	e.fresh, e.done = now.Add(min(max(pace, paceOverTook*now.Sub(asked)), mostPace)), nil
}

// stale has the store asked again by the next visitor: something was done.
func (c *cache) stale() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.entries {
		if key != programKey {
			e.fresh = time.Time{}
		}
	}
}

// run runs f in a goroutine, unless there is too much already, or the end has come. The context ends with the
// cache.
func (c *cache) run(f func(context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start(f)
}

// start is run for a caller that holds the mutex.
func (c *cache) start(f func(context.Context)) bool {
	if c.ctx.Err() != nil || c.running >= maxRunning {
		return false
	}
	c.running++
	c.all.Go(func() {
		f(c.ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running--
	})
	return true
}

// close ends it all, and waits for that.
func (c *cache) close() {
	c.mu.Lock()
	c.stop()
	c.mu.Unlock()
	c.all.Wait()
}
