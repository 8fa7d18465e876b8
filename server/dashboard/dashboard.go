// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/shard"
)

// Dashboard is the handler of the pages. All methods may be called concurrently.
type Dashboard struct {
	options   Options
	client    *tenure.Client
	handler   http.Handler
	pages     *template.Template
	sealer    *sealer
	failures  *failures
	signedOut *signedOut
	streams   *streams
	clock     *clockWatch
	work      *work

	censuses  *memo[census]
	rows      *memo[[]lock]
	locks     *memo[lockSeen]
	histories *memo[[]tenure.Tenure]
	sessions  *memo[[]tenure.SessionStatus]
	groups    *memo[shard.Status]
	findings  *memo[[]Finding]
}

// New returns the pages. Close them before the client. The error says which of the options
// is missing or wrong.
func New(options Options) (*Dashboard, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	sealer, err := newSealer(options.Key)
	if err != nil {
		return nil, err
	}
	d := &Dashboard{
		options: options, client: options.Client, sealer: sealer, pages: parsePages(),
		failures: newFailures(), signedOut: newSignedOut(), streams: newStreams(), clock: newClockWatch(options.Client), work: newWork(),
	}
	d.censuses = newMemo(d.work, lookPace, d.readCensus)
	d.rows = newMemo(d.work, lookPace, d.readRows)
	d.locks = newMemo(d.work, lookPace, d.readLock)
	d.histories = newMemo(d.work, historyPace, d.readHistory)
	d.sessions = newMemo(d.work, lookPace, d.readSessions)
	d.groups = newMemo(d.work, lookPace, d.readGroup)
	d.findings = newMemo(d.work, doctorPace, d.examine)
	d.handler = d.route()
	return d, nil
}

// ServeHTTP answers one request.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// Shutdown ends the streams by which open pages stay up to date. The pages connect again,
// to another replica. Call it when the server begins to shut down: a server waits for
// streams that are open.
func (d *Dashboard) Shutdown() { d.streams.close() }

// Close ends the streams, and the questions to the store and the acts that are under way,
// and waits for them. An act that has been laid into a record stays there.
func (d *Dashboard) Close() {
	d.Shutdown()
	d.work.close()
}

// view is one page: its name is its path, but for the first one, and that of its template.
type view struct {
	name string
	look func(context.Context, visitor, url.Values) (*page, *problem)
}

// views are all pages, by their names.
func (d *Dashboard) views() map[string]view {
	all := map[string]view{}
	for _, v := range []view{
		{"now", d.now}, {"lock", d.lock}, {"sessions", d.sessionsPage}, {"shards", d.shards}, {"doctor", d.doctor},
	} {
		all[v.name] = v
	}
	return all
}

// path is where the view is, relative to all others.
func (v view) path() string {
	if v.name == "now" {
		return "./"
	}
	return v.name
}

func (d *Dashboard) route() http.Handler {
	mux := http.NewServeMux()
	handle := func(path, allow string, handlers ...http.HandlerFunc) {
		for i, method := range strings.Split(strings.Replace(allow, "GET, HEAD", "GET", 1), ", ") {
			mux.HandleFunc(method+" "+path, handlers[i])
		}
		mux.HandleFunc(path, d.noMethod(allow))
	}
	const read = "GET, HEAD"
	for name, v := range d.views() {
		path := "/" + name
		if name == "now" {
			path = "/{$}"
		}
		handle(path, read, d.page(v))
	}
	handle("/live", "GET", d.live)
	handle("/login", read+", POST", d.loginPage, d.login)
	handle("/logout", "POST", d.logout)
	handle("/act", "POST", d.act)
	handle("/measure", "POST", d.measure)
	for name := range staticTypes {
		handle("/"+name, read, d.static)
	}
	mux.HandleFunc("/", d.noPage)

	// A page of another site must not act with the cookie of a visitor.
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(d.crossSite))
	guarded := cross.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protect(w.Header())
		guarded.ServeHTTP(w, r)
	})
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
}
