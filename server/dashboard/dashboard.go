// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	texttemplate "text/template"

	"github.com/tenurelock/tenure"
)

// Dashboard is the handler of the pages. All methods may be called concurrently.
type Dashboard struct {
	options   Options
	client    *tenure.Client
	handler   http.Handler
	views     map[string]view
	pages     *template.Template
	texts     *texttemplate.Template
	sealer    *sealer
	guesses   *deadlines // when the wrong tokens of an address are forgotten
	signedOut *deadlines // when a cookie that was signed out is over
	streams   *streams
	work      *work
	cache     *cache

	mu     sync.Mutex
	writes *Finding // how long writes took when that was measured last
}

// view makes one page. Its name is the page's path, but for the first one, and that of its templates.
type view func(context.Context, visitor, url.Values) (*page, *problem)

// New returns the pages. Close them before the client. The error says which of the options is missing or
// wrong.
func New(options Options) (*Dashboard, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	sealer, err := newSealer(options.Key)
	if err != nil {
		return nil, err
	}
	work := newWork()
	d := &Dashboard{
		options: options, client: options.Client, sealer: sealer, guesses: newDeadlines(), signedOut: newDeadlines(),
		streams: newStreams(), work: work, cache: newCache(work),
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

// Shutdown ends the streams by which open pages stay up to date. The pages connect again, to another replica.
// Call it when the server begins to shut down: a server waits for streams that are open.
func (d *Dashboard) Shutdown() { d.streams.close() }

// Close ends the streams, and the questions to the store and the acts that are under way, and waits for them.
// An act that has been written into a record stays there.
func (d *Dashboard) Close() {
	d.Shutdown()
	d.work.close()
}

// pathOf is where a view is, relative to all others.
func pathOf(name string) string {
	if name == "now" {
		return "./"
	}
	return name
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
	for name := range d.views {
		path := "/" + name
		if name == "now" {
			path = "/{$}"
		}
		handle(path, read, d.page(name))
	}
	handle("/live", "GET", d.live)
	handle("/login", read+", POST", d.loginPage, d.login)
	handle("/logout", "POST", d.logout)
	handle("/act", "POST", d.act)
	handle("/measure", "POST", d.measure)
	for name := range staticTypes {
		handle("/"+name, read, d.static)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		d.failed(w, r, refuse(http.StatusNotFound, "No such page", "there is no page here: begin at the first one"))
	})

	// A page of another site must not act with the cookie of a visitor.
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.write(w, r, http.StatusForbidden, textType,
			[]byte("tenure: refused: this request comes from a page of another site\n"))
	}))
	guarded := cross.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protect(w.Header())
		guarded.ServeHTTP(w, r)
	})
}

// noMethod answers for a method that a page has not.
func (d *Dashboard) noMethod(allow string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		d.failed(w, r, refuse(http.StatusMethodNotAllowed, "Not allowed", "this page takes %s, not %.20q", allow, r.Method))
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
}
