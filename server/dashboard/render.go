// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tenurelock/tenure"
)

const (
	htmlType = "text/html; charset=utf-8"
	textType = "text/plain; charset=utf-8"
	// worthPacking is the size in bytes from which on an answer is compressed.
	worthPacking = 1400
)

// page is what one view shows.
type page struct {
	View, Title string
	Status      int
	Alerts      []alert // what is wrong with all of it
	Said        *alert  // what came of an act
	Model       model
	// StandStill says that the page has forms, so that it is not loaded anew by itself
	// while somebody writes.
	StandStill bool
}

// model is the content of a page.
type model interface {
	// text writes it for those without a browser. Cells of a table end with a tab.
	text(w io.Writer)
}

// alert is a line above the content.
type alert struct{ Class, Text string }

// problem is why a page cannot be shown.
type problem struct {
	status        int
	title, detail string
}

func notAllowed(v visitor, what string) *problem {
	return &problem{http.StatusForbidden, "Not allowed", fmt.Sprintf("%s may not %s: no right that it has covers the name. %s", v.Name(), what, rightsOf(v))}
}

// rightsOf says what a visitor may do.
func rightsOf(v visitor) string {
	var all []string
	for _, g := range v.Grants() {
		if g.Prefix == "" {
			all = append(all, string(g.Right)+" all")
		} else {
			all = append(all, fmt.Sprintf("%s %s…", g.Right, g.Prefix))
		}
	}
	if len(all) == 0 {
		return "It has no rights at all."
	}
	return "Its rights: " + strings.Join(all, ", ") + "."
}

// storeAlert says that what is shown is old, or that there is nothing to show, because the
// store gives no answer.
func (d *Dashboard) storeAlert(who visitor, err error, good bool, at time.Time) alert {
	text := "The store gives no answer, so who holds what is not known here: " + d.storeError(who, err)
	if good {
		text = fmt.Sprintf("The store gives no answer. What stands here was read %s ago: %s", short(time.Since(at)), d.storeError(who, err))
	}
	if errors.Is(err, errSlow) && good {
		text = fmt.Sprintf("The store is slow. What stands here was read %s ago.", short(time.Since(at)))
	}
	return alert{"bad", text}
}

// storeError is what a visitor sees of an error of the store, which may name its address and
// its user.
func (d *Dashboard) storeError(who visitor, err error) string {
	id := d.options.ErrorID(err)
	switch {
	case who.admin():
		return err.Error()
	case id == "":
		return "an operator sees the error."
	}
	return "the log of this server has the error, under " + id + "."
}

// storeStatus is the status of a page whose store has given an error.
func storeStatus(err error, good bool) int {
	if err == nil || good && errors.Is(err, errSlow) {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// page serves a view.
func (d *Dashboard) page(v view) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, ok := d.admitted(w, r)
		if !ok {
			return
		}
		p, problem := v.look(r.Context(), who, r.URL.Query())
		if problem != nil {
			d.failed(w, r, problem)
			return
		}
		if said, ok := sayings[r.URL.Query().Get("said")]; ok {
			p.Said = &said
		}
		d.show(w, r, who, v, p, r.URL.Query())
	}
}

// show answers with a page, as HTML or as text.
func (d *Dashboard) show(w http.ResponseWriter, r *http.Request, who visitor, v view, p *page, query url.Values) {
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	if wantsText(r) {
		d.write(w, r, p.Status, textType, p.plain())
		return
	}
	live, err := d.fragment(p)
	if err != nil {
		d.failed(w, r, &problem{http.StatusInternalServerError, "This page cannot be shown", err.Error()})
		return
	}
	query.Del("said")
	chrome := chrome{page: p, Live: live, Who: who.Name(), Forms: who.form, Here: v.path() + tail(query), Stands: p.StandStill}
	if query.Get("refresh") != "" {
		chrome.Stands = false
	}
	query.Set("view", v.name)
	chrome.Stream = "live" + tail(query)
	d.render(w, r, p.Status, "page", chrome)
}

// tail is the query of an address.
func tail(query url.Values) string {
	if len(query) == 0 {
		return ""
	}
	return "?" + query.Encode()
}

// chrome is what stands around each page.
type chrome struct {
	*page
	Live         template.HTML // the part that is kept up to date, rendered
	Who          string
	Forms        bool // signed in by a cookie, or known by the connection
	Stands       bool // it is not loaded anew by itself without JavaScript
	Here, Stream string
}

// fragment renders the part of a page that is kept up to date.
func (d *Dashboard) fragment(p *page) (template.HTML, error) {
	var b bytes.Buffer
	if err := d.pages.ExecuteTemplate(&b, "alerts", p.Alerts); err != nil {
		return "", fmt.Errorf("dashboard: %w", err)
	}
	if err := d.pages.ExecuteTemplate(&b, p.View+".live", p.Model); err != nil {
		return "", fmt.Errorf("dashboard: %w", err)
	}
	return template.HTML(b.String()), nil //nolint:gosec // it was escaped by its template
}

// render answers with a template.
func (d *Dashboard) render(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	var b bytes.Buffer
	err := d.pages.ExecuteTemplate(&b, name, struct {
		Title string
		Data  any
	}{d.options.Title, data})
	if err != nil {
		d.write(w, r, http.StatusInternalServerError, textType, []byte("tenure: this page cannot be shown: "+err.Error()+"\n"))
		return
	}
	d.write(w, r, status, htmlType, b.Bytes())
}

// plain is the page as text.
func (p *page) plain() []byte {
	var b bytes.Buffer
	for _, a := range p.Alerts {
		fmt.Fprintln(&b, strings.ToUpper(a.Class)+": "+a.Text)
	}
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	p.Model.text(tw)
	tw.Flush() //nolint:errcheck // into memory
	var lines bytes.Buffer
	for line := range bytes.Lines(b.Bytes()) {
		lines.Write(bytes.TrimRight(line, " \n"))
		lines.WriteByte('\n')
	}
	return lines.Bytes()
}

// cells writes one line of a table of text.
func cells(w io.Writer, of ...string) {
	for i, c := range of {
		if of[i] = printable(c); c == "" {
			of[i] = "-"
		}
	}
	fmt.Fprintln(w, strings.Join(of, "\t"))
}

// failed answers with a problem.
func (d *Dashboard) failed(w http.ResponseWriter, r *http.Request, p *problem) {
	if wantsText(r) {
		d.write(w, r, p.status, textType, []byte("tenure: "+printable(p.detail)+"\n"))
		return
	}
	who, signedIn := d.visitor(r)
	d.render(w, r, p.status, "problem", struct {
		Title, Detail, Who string
		Forms              bool
	}{p.title, p.detail, who.Name(), signedIn && who.form})
}

// noMethod answers for a method that a page has not.
func (d *Dashboard) noMethod(allow string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allow)
		d.failed(w, r, &problem{http.StatusMethodNotAllowed, "Not allowed", fmt.Sprintf("this page takes %s, not %.20q", allow, r.Method)})
	}
}

// noPage answers for a path that there is not.
func (d *Dashboard) noPage(w http.ResponseWriter, r *http.Request) {
	d.failed(w, r, &problem{http.StatusNotFound, "No such page", "there is no page here: begin at the first one"})
}

// crossSite answers a request that a page of another site has made.
func (d *Dashboard) crossSite(w http.ResponseWriter, r *http.Request) {
	d.write(w, r, http.StatusForbidden, textType, []byte("tenure: refused: this request comes from a page of another site\n"))
}

// wantsText says that the client is no browser.
func wantsText(r *http.Request) bool {
	return !strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/html")
}

// write answers, compressed if the client takes that and it is worth it.
func (d *Dashboard) write(w http.ResponseWriter, r *http.Request, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Add("Vary", "Accept, Accept-Encoding, Authorization, Cookie")
	if len(body) >= worthPacking && packs(r) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(body) //nolint:errcheck // into memory
		z.Close()     //nolint:errcheck // into memory
		body = b.Bytes()
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(body) //nolint:errcheck // the client has gone
	}
}

func packs(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// lookProblem says why the record of a lock cannot be asked for.
func lookProblem(err error) *problem {
	if errors.Is(err, tenure.ErrInvalid) {
		return &problem{http.StatusBadRequest, "No such name", err.Error()}
	}
	return nil
}

// bounded is a context for what must not take long.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}
