// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
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

// parsePages reads the templates, of HTML and of text. HTML templates escape values by their context; text
// from the store also goes through p or row.
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
	Stands      bool    // it has forms, so it is not reloaded while a visitor types

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
	return refuse(http.StatusForbidden, "Not allowed", "%s may not %s: none of its rights covers the name. %s",
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
	read := "This page shows what was read " + short(time.Since(r.at)) + " ago"
	text := "The store does not answer. " + read + ": " + d.storeError(who, r.err)
	slow := r.good() && errors.Is(r.err, errSlow)
	switch {
	case slow:
		text = "The store is slow. " + read + "."
	case !r.good():
		text = "The store does not answer, so the holders of locks are not known here: " + d.storeError(who, r.err)
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
		return "see the log of this server, under " + id + "."
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

// columns are the headings of an HTML table, each optionally with a class after a colon.
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

const (
	// livePace is how often a stream checks for changes, and liveBeat the time without a change after which it
	// sends a sign of life.
	livePace = time.Second
	liveBeat = 15 * time.Second
	// livePaceOverTook is the pause after a page was made, as a multiple of the time that making it took.
	livePaceOverTook = 20
	// liveLife is how long a stream is open: the page connects again.
	liveLife = 10 * time.Minute
	// liveWrite bounds how long a page may take to read what it is sent.
	liveWrite = 10 * time.Second
)

// live keeps a page up to date: it sends the part of it that changes, whenever it is not as it was.
func (d *Dashboard) live(w http.ResponseWriter, r *http.Request) *problem {
	who, p := d.admitted(w, r)
	if p != nil {
		return p
	}
	name := r.URL.Query().Get("view")
	if d.views[name] == nil {
		return refuse(http.StatusBadRequest, "No such view",
			"view %.40q is not known: use now, lock, sessions, shards or doctor", name)
	}
	ctx, leave, err := d.server.Follow(r, who.Principal)
	if err != nil {
		return refuse(http.StatusServiceUnavailable, "Too many pages", "%v", err)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, liveLife)
	defer cancel()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy that buffers would hold it back
	d.follow(ctx, w, r, name)
	return nil
}

// follow sends what is new until the stream ends, or the page does not read it in time.
func (d *Dashboard) follow(ctx context.Context, w http.ResponseWriter, r *http.Request, name string) {
	control := http.NewResponseController(w)
	defer control.SetWriteDeadline(time.Time{}) //nolint:errcheck // the connection may be used again
	send := func(text string) bool {
		_ = control.SetWriteDeadline(time.Now().Add(liveWrite)) // where there are such limits
		_, err := io.WriteString(w, text)
		return err == nil && control.Flush() == nil
	}
	before, sent, reads := uint64(0), time.Now(), send("retry: 3000\n\n")
	for reads {
		who, ok := d.visitor(r)
		if !ok {
			send("event: out\ndata:\n\n")
			return
		}
		begun := time.Now()
		content, err := d.content(ctx, who, name, r)
		pause := max(livePace, livePaceOverTook*time.Since(begun))
		switch {
		case ctx.Err() != nil || err != nil:
			return
		case hashOf(content) != before:
			before, sent = hashOf(content), time.Now()
			reads = send("event: live\ndata: " + strings.NewReplacer("\r", "", "\n", "\ndata: ").Replace(content) + "\n\n")
		case time.Since(sent) >= liveBeat:
			sent = time.Now()
			reads = send(":\n\n")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// content returns the changing part of a page. Only one stream at a time makes it, so that any number of open
// pages leaves time for the server's other work.
func (d *Dashboard) content(ctx context.Context, who visitor, name string, r *http.Request) (string, error) {
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	var b bytes.Buffer
	p, problem := d.views[name](ctx, who, r.URL.Query())
	if problem != nil {
		alerts := []flash{{status: problem.status, Text: problem.title + ": " + problem.Detail}}
		err := d.pages.ExecuteTemplate(&b, "alerts", alerts)
		return b.String(), err
	}
	err := d.pages.ExecuteTemplate(&b, "live", p)
	return b.String(), err
}

// unquoted takes back what strconv.Quote escapes although it can be seen.
var unquoted = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// printable returns s with what cannot be seen, or turns text around, spelled out as Go would: \n, \x1b,
// \u202e. Any client with write access may have written it. Unlike a log line, a page shows everything
// else unchanged, including backslashes.
func printable(s string) string {
	quoted := strconv.Quote(s)
	return unquoted.Replace(quoted[1 : len(quoted)-1])
}

// short returns a duration as people say it, by its two largest units.
func short(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + short(-d)
	case d > 0 && d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < day:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d d %02d h", int(d/day), int(d.Hours())%24)
	}
}

// seconds returns a duration in full seconds.
func seconds(d time.Duration) string { return short(max(0, d).Truncate(time.Second)) }

// exact returns a duration to its last digit, such as a latency or a limit.
func exact(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

// chosen formats a configured duration, such as a lease.
func chosen(d time.Duration) string {
	if d >= time.Minute && d%time.Second == 0 {
		return short(d)
	}
	return exact(d)
}

// age says how long ago an instant was, by the wall clock of another machine.
type age struct{ Ago, Since string }

func ageOf(since, at time.Time) age {
	switch {
	case since.IsZero():
		return age{}
	case at.Before(since):
		return age{"in the future", clockText(since)}
	}
	return age{seconds(at.Sub(since)), clockText(since)}
}

// Text is the age for the end of a line.
func (a age) Text() string {
	if a.Ago == "" || a.Ago == "in the future" {
		return a.Ago
	}
	return a.Ago + " ago"
}

// clockText formats a time by some wall clock, for people.
func clockText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// counted is a number of things.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(n) + " " + what + "s"
}

// grouped is a number with its thousands set apart.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// hashOf is a number for a name that stays the same.
func hashOf(name string) uint64 {
	h := fnv.New64a()
	io.WriteString(h, name) //nolint:errcheck // a hash takes all
	return h.Sum64()
}

// idOf is an id for what has this name, so that the script finds it again.
func idOf(name string) string { return "r" + strconv.FormatUint(hashOf(name), 36) }

// tail is the query of an address.
func tail(query url.Values) string {
	if len(query) == 0 {
		return ""
	}
	return "?" + query.Encode()
}

func lockLink(name string) string { return "lock?name=" + url.QueryEscape(name) }

func groupLink(name string) string { return "shards?group=" + url.QueryEscape(name) }

// chip is a link in the form of a button that filters a list, for example; Count is the number of items.
type chip struct {
	Text, Class, Link string
	Count             int
	Here              bool
}

// pageSize is how many rows a page shows.
const pageSize = 50

// pager leads to other parts of a list.
type pager struct{ Place, Prev, Next string }

// paged returns where the part of a list of n that begins at from ends. address returns a part's address.
func paged(n, from int, address func(from int) string) (to int, p pager) {
	to = min(n, from+pageSize)
	if from > 0 {
		p.Prev = address(max(0, from-pageSize))
	}
	if to < n {
		p.Next = address(to)
	}
	if n > pageSize && to > from {
		p.Place = fmt.Sprintf("%s to %s of %s", grouped(from+1), grouped(to), grouped(n))
	}
	return to, p
}
