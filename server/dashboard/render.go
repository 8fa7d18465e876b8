// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"strings"
	"text/tabwriter"
	texttemplate "text/template"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/server/access"
)

const (
	htmlType = "text/html; charset=utf-8"
	textType = "text/plain; charset=utf-8"
)

//go:embed pages
var pageFiles embed.FS

//go:embed static
var staticFiles embed.FS

// staticTypes are the types of what is in the folder static.
var staticTypes = map[string]string{
	"style.css": "text/css; charset=utf-8",
	"script.js": "text/javascript; charset=utf-8",
	"icon.svg":  "image/svg+xml",
}

// parsePages reads the templates, of HTML and of text. What those of HTML are given is escaped by its place;
// text of the store goes through p or row besides.
func parsePages() (*template.Template, *texttemplate.Template) {
	functions := map[string]any{
		"age": ageOf, "asked": askedText, "asset": asset, "clock": clockText, "columns": columns, "counted": counted,
		"id": idOf, "lockLink": lockLink, "p": printable, "row": row, "seconds": seconds,
	}
	texts := texttemplate.Must(texttemplate.New("").Funcs(functions).ParseFS(pageFiles, "pages/*.txt"))
	functions["sentence"] = func(l *lock) (string, error) {
		var b strings.Builder
		err := texts.ExecuteTemplate(&b, "sentence", l)
		return b.String(), err
	}
	pages := template.New("")
	functions["view"] = func(name string, data any) (template.HTML, error) {
		var b strings.Builder
		err := pages.ExecuteTemplate(&b, name, data)
		return template.HTML(b.String()), err //nolint:gosec // it was escaped by its template
	}
	return template.Must(pages.Funcs(functions).ParseFS(pageFiles, "pages/*.html")), texts
}

// page is what a visitor is shown: what one view knows, and what stands around it.
type page struct {
	View, Title string // View is the name of the templates
	Status      int
	Alerts      []flash // what is wrong with all of it
	Flash       *flash  // what came of an act
	Model       any     // the content, for the templates
	Stands      bool    // it has forms, so that it is not loaded again while somebody writes

	Site, Who    string
	Forms        bool // signed in by a cookie, or known by the connection
	Scripts      bool
	Here, Stream string
}

// problem is why a page cannot be shown.
type problem struct {
	status        int
	title, Detail string
}

func refuse(status int, title, format string, args ...any) *problem {
	return &problem{status, title, fmt.Sprintf(format, args...)}
}

func notAllowed(v visitor, what string) *problem {
	return refuse(http.StatusForbidden, "Not allowed", "%s may not %s: no right that it has covers the name. %s",
		v.Name(), what, v.rights())
}

// invalid says why the store cannot be asked for a name.
func invalid(err error) *problem {
	if errors.Is(err, tenure.ErrInvalid) {
		return refuse(http.StatusBadRequest, "No such name", "%v", err)
	}
	return nil
}

// note says on the page that what it shows is old, or that there is nothing to show, because the store gives
// no answer.
func (d *Dashboard) note(p *page, who visitor, r reading) {
	p.Status = max(p.Status, http.StatusOK)
	if r.err == nil {
		return
	}
	read := "What stands here was read " + short(time.Since(r.at)) + " ago"
	text := "The store gives no answer. " + read + ": " + d.storeError(who, r.err)
	slow := r.good() && errors.Is(r.err, errSlow)
	switch {
	case slow:
		text = "The store is slow. " + read + "."
	case !r.good():
		text = "The store gives no answer, so who holds what is not known here: " + d.storeError(who, r.err)
	}
	if !slow {
		p.Status = http.StatusServiceUnavailable
	}
	if len(p.Alerts) == 0 { // one is enough
		p.Alerts = append(p.Alerts, flash{status: http.StatusServiceUnavailable, Text: text})
	}
}

// storeError is what a visitor sees of an error of the store, which may name its address and its user.
func (d *Dashboard) storeError(who visitor, err error) string {
	if id := d.server.ErrorID(err); !who.all(access.Admin) {
		return "the log of this server has the error, under " + id + "."
	}
	return err.Error()
}

// page serves a view.
func (d *Dashboard) page(name string) handler {
	return func(w http.ResponseWriter, r *http.Request) *problem {
		who, problem := d.admitted(w, r)
		if problem != nil {
			return problem
		}
		query := r.URL.Query()
		p, problem := d.views[name](r.Context(), who, query)
		if problem == nil {
			p.Flash = flashNamed(query.Get("flash"))
			d.show(w, r, who, p, query)
		}
		return problem
	}
}

// show answers with the page of a view, as HTML or as text.
func (d *Dashboard) show(w http.ResponseWriter, r *http.Request, who visitor, p *page, query url.Values) {
	query.Del("flash")
	p.Site, p.Who, p.Forms, p.Scripts, p.Here = d.options.Title, who.Name(), who.form, true, pathOf(p.View)+tail(query)
	p.Stands = p.Stands && query.Get("refresh") == ""
	query.Set("view", p.View)
	p.Stream = "live" + tail(query)
	d.render(w, r, p)
}

// failed answers with a problem.
func (d *Dashboard) failed(w http.ResponseWriter, r *http.Request, problem *problem) {
	if problem == notSignedIn {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tenure"`)
		if !wantsText(r) {
			d.askWho(w, r)
			return
		}
	}
	p := &page{View: "problem", Title: problem.title, Status: problem.status, Site: d.options.Title, Model: problem}
	if who, ok := d.visitor(r); ok {
		p.Who, p.Forms = who.Name(), who.form
	}
	d.render(w, r, p)
}

// render answers with a page, as HTML or as text.
func (d *Dashboard) render(w http.ResponseWriter, r *http.Request, p *page) {
	if wantsText(r) {
		d.text(w, p)
	} else {
		d.html(w, p.Status, "page", p)
	}
}

// html answers with a template of HTML.
func (d *Dashboard) html(w http.ResponseWriter, status int, name string, data any) {
	var b bytes.Buffer
	err := d.pages.ExecuteTemplate(&b, name, data)
	answerWhole(w, status, htmlType, b.Bytes(), err)
}

// text answers with a page as text: a table in columns, without blanks at the ends of lines.
func (d *Dashboard) text(w http.ResponseWriter, p *page) {
	var b, trimmed bytes.Buffer
	for _, a := range p.Alerts {
		fmt.Fprintln(&b, strings.ToUpper(a.Class())+": "+printable(a.Text))
	}
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	err := d.texts.ExecuteTemplate(tw, p.View, p.Model)
	tw.Flush() //nolint:errcheck // into memory
	for line := range bytes.Lines(b.Bytes()) {
		trimmed.Write(bytes.TrimRight(line, " \n"))
		trimmed.WriteByte('\n')
	}
	answerWhole(w, p.Status, textType, trimmed.Bytes(), err)
}

// answerWhole answers with what a template has rendered, or with its error: a mistake in it, or in what it was
// given.
func answerWhole(w http.ResponseWriter, status int, contentType string, body []byte, err error) {
	if err != nil {
		status, contentType = http.StatusInternalServerError, textType
		body = []byte("tenure: this page cannot be shown: " + printable(err.Error()) + "\n")
	}
	answer(w, status, contentType, body)
}

// columns are the headings of a table of HTML, each maybe with a class behind a colon.
func columns(headings ...string) (all []chip) {
	for _, heading := range headings {
		text, class, _ := strings.Cut(heading, ":")
		all = append(all, chip{Text: text, Class: class})
	}
	return all
}

// row is one line of a table of text.
func row(of ...any) string {
	words := make([]string, len(of))
	for i, c := range of {
		if words[i] = printable(fmt.Sprint(c)); words[i] == "" {
			words[i] = "-"
		}
	}
	return strings.Join(words, "\t")
}

// wantsText says that the client is no browser.
func wantsText(r *http.Request) bool {
	return !strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/html")
}

// answer answers with all of a page.
func answer(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	again := map[int]string{http.StatusTooManyRequests: "60", http.StatusServiceUnavailable: "5"}[status]
	if again != "" && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", again)
	}
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the client has gone
}

// compressed has pages and streams compressed, if the client takes that; not what answers a form, which may have
// no body.
func compressed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			z := gzip.NewWriter(w)
			defer z.Close() //nolint:errcheck // the client has gone
			w.Header().Set("Content-Encoding", "gzip")
			w = compressor{w, z}
		}
		h.ServeHTTP(w, r)
	})
}

type compressor struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (c compressor) Write(b []byte) (int, error) { return c.z.Write(b) }

// FlushError and Unwrap are for http.ResponseController.
func (c compressor) FlushError() error {
	return errors.Join(c.z.Flush(), http.NewResponseController(c.ResponseWriter).Flush())
}

func (c compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// static serves the style, the script and the icon: for ever under an address that names their content.
func static(w http.ResponseWriter, r *http.Request) *problem {
	name := path.Base(r.URL.Path)
	w.Header().Set("Cache-Control", "no-cache")
	if name+"?v="+r.URL.Query().Get("v") == asset(name) {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	answer(w, http.StatusOK, staticTypes[name], staticFile(name))
	return nil
}

// asset is the address of a file of the folder static.
func asset(name string) string {
	sum := sha256.Sum256(staticFile(name))
	return name + "?v=" + hex.EncodeToString(sum[:6])
}

func staticFile(name string) []byte {
	content, _ := staticFiles.ReadFile("static/" + name) // one of staticTypes
	return content
}
