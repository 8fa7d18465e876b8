// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	texttemplate "text/template"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server"
)

// Options are for [New]. Server must be set.
type Options struct {
	// Server has the locks that are shown: its client reads them and asks their holders. It knows
	// the principals, counts their requests and the tokens that are wrong, and has the log. The
	// pages need not be those of the server.
	Server *server.Server

	// Key seals the cookies. It has 32 random bytes or more, and is the same on all replicas
	// and after a restart. If empty, it is made at random, and a visitor signs in again at
	// each process.
	Key []byte

	// Title names the installation on each page, such as "production". It may be empty.
	Title string

	// Doctor makes the checks of the program for the doctor's page, such as those of its options
	// and of the engine; the page itself measures how long the store takes to answer. It is called
	// while somebody looks at that page, once a minute at most. What it finds bad is shown to those
	// with the right admin to all names alone. It may be nil.
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

// view makes one page. Its name is the page's path, but for the first one, and that of its templates.
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

// Close ends the questions to the store and the acts that are under way, and waits for them. An act that has
// been written into a record stays there. The streams by which open pages stay up to date end with
// [server.Server.Shutdown]; the pages connect again, to another replica.
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
	serve("/login", read+", POST", d.loginPage, d.login)
	serve("/logout", "POST", d.logout)
	serve("/act", "POST", d.act)
	serve("/measure", "POST", d.measure)
	for name := range staticTypes {
		serve("/"+name, read, static)
	}
	handle("/", func(http.ResponseWriter, *http.Request) *problem {
		return refuse(http.StatusNotFound, "No such page", "there is no page here: begin at the first one")
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
