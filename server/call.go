// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server/access"
)

// call is one request to the server, on its way through.
type call struct {
	s         *Server
	r         *http.Request
	w         http.ResponseWriter
	out       *recorder
	control   *http.ResponseController
	body      *body            // nil: no body was announced
	route     *route           // nil: no path of the service
	principal access.Principal // zero: no principal
}

// newCall returns a call whose body and answer are bounded in time, whichever handler reads
// or writes them, also if no handler does.
func newCall(s *Server, w http.ResponseWriter, r *http.Request) *call {
	c := &call{s: s, r: r}
	c.out = &recorder{ResponseWriter: w, c: c}
	c.w, c.control = c.out, http.NewResponseController(w)
	// What cannot set deadlines, such as the recorder of a test, or an older wrapper, waits
	// for as long as its server allows.
	if r.ContentLength != 0 && r.Body != nil {
		_ = c.control.SetReadDeadline(time.Now().Add(s.bodyTimeout))
		c.body = &body{ReadCloser: r.Body, c: c}
		c.r = r.WithContext(r.Context()) // net/http reads its own request
		c.r.Body = c.body
	}
	if from, ok := s.forwarded(r); ok {
		c.r = c.r.WithContext(c.r.Context())
		c.r.RemoteAddr = net.JoinHostPort(from, "0")
	}
	return c
}

// body is what a caller has announced, and sends for as long as it likes.
type body struct {
	io.ReadCloser
	c     *call
	ended bool
}

// Read removes the time limit from the connection at the end of the body: it is only for the
// body, and would end a waiting call.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && !b.ended {
		b.ended = true
		_ = b.c.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// leaveBody has an answer go out at once that comes before the end of the body: net/http
// would read that first. The rest has a moment to arrive, so that no reset overtakes the
// answer, and the connection ends. A stream of HTTP/2 ends by itself.
func (c *call) leaveBody() {
	if c.body == nil || c.body.ended || c.r.ProtoMajor > 1 {
		return
	}
	c.w.Header().Set("Connection", "close")
	_ = c.control.SetReadDeadline(time.Now().Add(c.s.lingerTimeout))
}

// serve finds the route, and what the caller may, and hands over to the handler.
func (c *call) serve() error {
	s, r := c.s, c.r
	c.route = s.routes[r.URL.Path]
	if c.route == nil || c.route.who != anyone {
		if err := s.hosts.check(r); err != nil && !(c.open() && byAddress(r)) {
			return c.refused("host", err)
		}
	}
	if err := s.cross.Check(r); err != nil {
		return c.refused("origin", problemf(forbidden, "a browser sent this call from another site: %v; only programs "+
			"and the pages of this service may call it", err))
	}
	switch {
	case c.route == nil:
		return c.page()
	case r.Method == http.MethodOptions && c.open():
		// HAProxy's default check sends this.
	case !c.route.takes(r.Method):
		c.w.Header().Set("Allow", c.route.method)
		return problemf(wrongMethod, "%s takes %s, not %.20q", r.URL.Path, c.route.method, r.Method)
	}
	if err := c.admit(); err != nil {
		return err
	}
	return c.route.serve(c)
}

// open says whether a call needs no token, because its operator has made public what it asks.
func (c *call) open() bool {
	if c.route == nil || c.s.carriesSecret(c.r) {
		return false
	}
	switch c.route.path {
	case metricsPath:
		return c.s.o.PublicMetrics
	case leaderPath:
		return c.s.public(c.r.URL.Query().Get("name"))
	}
	return false
}

// page answers what is no path of the service.
func (c *call) page() error {
	switch pages := c.s.o.Pages; {
	case strings.HasPrefix(c.r.URL.Path, "/v1/"):
		return problemf(notFound, "there is no %.200q: /openapi.json lists all paths", c.r.URL.Path)
	case pages != nil:
		return c.bounded(func() error {
			pages.ServeHTTP(c.w, c.r)
			return nil
		})
	case c.r.URL.Path != "/":
		return problemf(notFound, "there is no %.200q: /openapi.json lists all paths", c.r.URL.Path)
	case c.r.Method != http.MethodGet && c.r.Method != http.MethodHead:
		c.w.Header().Set("Allow", http.MethodGet)
		return problemf(wrongMethod, "/ takes GET, not %.20q", c.r.Method)
	}
	return c.text("This is a Tenure lock service. /openapi.json says how to call it.\n")
}

// admit finds the principal, and counts the call.
func (c *call) admit() error {
	s := c.s
	if c.route.who == anyone {
		return nil // it costs nothing, and a load balancer must never have to wait
	}
	if c.open() && c.route.path == leaderPath {
		return nil // it is counted when it costs something
	}
	if c.route.who == some && !s.carriesSecret(c.r) {
		if err := s.limits.openCall(addressOf(c.r)); err != nil {
			return c.refused("limit", err)
		}
		return nil
	}
	p, err := s.principalOf(c.r)
	if err != nil {
		return c.refusedToken(err)
	}
	if secretOf(c.r) != "" {
		if err := s.limits.right(addressOf(c.r), p.Name()); err != nil {
			return c.refused("token_limit", err)
		}
	}
	c.principal = p
	s.o.Known(c.r)
	if c.route.who == holder {
		return nil
	}
	if err := s.limits.call(p.Name()); err != nil {
		return c.refused("limit", err)
	}
	return nil
}

// may returns a problem if the principal does not have the right to the name.
func (c *call) may(right access.Right, name string) error {
	switch {
	case name == "":
		return problemf(badRequest, "lock name is empty: it must have 1 to %d bytes", driver.MaxNameLen)
	case strings.HasPrefix(name, driver.OwnPrefix):
		return problemf(badRequest, "lock name %.40q begins with %q: such names are for records of Tenure itself",
			name, driver.OwnPrefix)
	case c.principal.Name() == "":
		return c.refused("token", noToken())
	case c.principal.May(right, name):
		return nil
	}
	p := problemf(forbidden, "principal %q has no right %s to %.200q: an operator can grant it with %s:PREFIX in "+
		"the file of principals", c.principal.Name(), right, name, right)
	if base := access.Base(name); base != name {
		p.Detail = fmt.Sprintf("%s; this name is derived from %.200q, whose rights apply", p.Detail, base)
	}
	return c.refused("right", p)
}

// readsNothing is the problem of a principal that may read no name with the prefix.
func (c *call) readsNothing(prefix string) error {
	return c.refused("right", problemf(forbidden, "principal %q has no right read to any name that begins with %.200q",
		c.principal.Name(), prefix))
}

// refused counts a refusal.
func (c *call) refused(why string, err error) error {
	c.s.meter.refused(why)
	return err
}

// fail answers with the problem that the error is.
func (c *call) fail(err error) {
	p := c.told(err)
	if c.out.status != 0 {
		return // the answer has begun
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/problem+json")
	if p.retryAfter > 0 {
		h.Set("Retry-After", retryAfter(p.retryAfter))
	}
	if p.kind == unauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="tenure"`)
		if verified(c.r) {
			h.Set("Connection", "close") // a new one has a new handshake; HTTP/2 says GOAWAY for it
		}
	}
	_ = c.send(int(p.Status), p.Problem)
}

func retryAfter(d time.Duration) string {
	return strconv.Itoa(int(max(1, math.Ceil(d.Seconds()))))
}

// answer answers with JSON. The error says that it was not sent.
func (c *call) answer(body any) error {
	c.w.Header().Set("Content-Type", "application/json")
	return c.send(http.StatusOK, body)
}

func (c *call) text(body string) error {
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	return c.sendBytes(http.StatusOK, []byte(body))
}

func (c *call) send(status int, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("answer of %s: %w", c.r.URL.Path, err)
	}
	return c.sendBytes(status, append(text, '\n'))
}

// sendBytes sends an answer as a whole, in bounded time: a client that does not read holds
// up nothing.
func (c *call) sendBytes(status int, body []byte) error {
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(status)
	return c.bounded(func() error {
		if c.r.Method == http.MethodHead {
			return nil
		}
		_, err := c.w.Write(body)
		return err
	})
}

// bounded writes and flushes, in bounded time.
func (c *call) bounded(write func() error) error {
	err := write()
	if flushed := c.out.FlushError(); !errors.Is(flushed, http.ErrNotSupported) {
		err = errors.Join(err, flushed)
	}
	if err == nil {
		_ = c.control.SetWriteDeadline(time.Time{})
	}
	return err
}

// recover answers a call whose handler has panicked, and logs it.
func (c *call) recover() {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v) //nolint:forbidigo // it is how a handler asks net/http to cut the connection
	}
	c.s.o.Logger.LogAttrs(context.Background(), slog.LevelError, "tenure: a call panicked",
		slog.String("path", c.label()), slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
	c.fail(problemf(unknown, "the server failed while handling the call; see its log. What the call did is not "+
		"known; send the same call again"))
}

// label names the route in metrics and logs.
func (c *call) label() string {
	switch {
	case c.route != nil:
		return c.route.path
	case c.s.o.Pages != nil && !strings.HasPrefix(c.r.URL.Path, "/v1/"):
		return "pages"
	}
	return "other"
}

// recorder notes the status of an answer, and bounds the time for each part of it, also for
// a page.
type recorder struct {
	http.ResponseWriter
	c      *call
	status int // 0: no status yet
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
		w.c.leaveBody()
	}
	w.bound()
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.bound()
	return w.ResponseWriter.Write(b)
}

// bound says until when what is written next must have been taken.
func (w *recorder) bound() { _ = w.c.control.SetWriteDeadline(time.Now().Add(w.c.s.writeTimeout)) }

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// FlushError is for http.ResponseController, which would take the error from Unwrap if there
// were no Flush.
func (w *recorder) FlushError() error {
	w.bound()
	return w.c.control.Flush()
}

// Flush is for pages that look for an http.Flusher.
func (w *recorder) Flush() { _ = w.FlushError() }

func (w *recorder) code() int {
	if w.status == 0 {
		return http.StatusOK // net/http's own
	}
	return w.status
}

// read reads the body into a value. It bounds its length; newCall has bounded the time.
func (c *call) read(into any) error {
	media, params, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	charset := cmp.Or(params["charset"], "utf-8")
	if err != nil || media != "application/json" || !strings.EqualFold(charset, "utf-8") {
		return problemf(wrongType, "Content-Type %.100q is not application/json: send JSON, because any page "+
			"can send a form", c.r.Header.Get("Content-Type"))
	}
	if coding := c.r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return problemf(wrongType, "Content-Encoding %.40q: send the body as it is", coding)
	}
	most := c.route.most
	if len(c.principal.Prefixes(access.Hold, "")) == 0 {
		most = min(most, maxShortBody) // it has no data to send
	}
	if c.r.ContentLength > most {
		return tooLong(most)
	}
	size := most
	if c.r.ContentLength >= 0 {
		size = c.r.ContentLength
	}
	done, err := c.s.limits.body(c.principal.Name(), size)
	if err != nil {
		return c.refused("limit", err)
	}
	defer done()
	text, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, most))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return tooLong(most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problemf(badRequest, "the body was not complete after %v, and nothing was done", c.s.bodyTimeout)
	case err != nil:
		return problemf(badRequest, "the body was cut off, and nothing was done: %v", err)
	case !utf8.Valid(text):
		return problemf(badRequest, "the body is not valid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return problemf(badRequest, "the body cannot be read: %s; /openapi.json has what %s takes",
			unread(err), c.r.URL.Path)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return problemf(badRequest, "the body has more than one value: send one object")
	}
	if why := unclear(text, into); why != "" {
		return problemf(badRequest, "the body %s", why)
	}
	return nil
}

func tooLong(most int64) error {
	return problemf(tooLarge, "the body is longer than %d bytes, and nothing was done", most)
}

// unread says in the words of JSON why a body is not what a call takes.
func unread(err error) string {
	var other *json.UnmarshalTypeError
	if !errors.As(err, &other) {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	field, is := other.Field, other.Value
	if field == "" {
		field = "it"
	}
	if !strings.HasPrefix(is, "number ") { // followed by the number
		is = article(is)
	}
	return fmt.Sprintf("%s is %s: want %s", field, is, jsonType(other.Type))
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// jsonType is what a type of ours is in JSON.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonType(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string in base64"
		}
		return "an array"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// unclear says what in a valid body encoding/json reads differently from another reader, or
// from what its writer means: a name that occurs twice or in another case, which a proxy may
// read differently; half of a surrogate pair, which always becomes the same character; null,
// which a client may send when it lacks a value by mistake, and which would be the default.
func unclear(text []byte, into any) string {
	if half := halfPair(text); half != "" {
		return fmt.Sprintf("has %s on its own, half of a character: send Unicode text", half)
	}
	names := map[string]bool{}
	fieldNames(reflect.TypeOf(into), names)
	type level struct {
		names map[string]bool // that were there; nil: in an array
		value bool            // a value is next, not a name
	}
	var in []level
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		token, err := decoder.Token()
		if err != nil { // the end
			return ""
		}
		top := &level{}
		if len(in) > 0 {
			top = &in[len(in)-1]
		}
		name, isText := token.(string)
		switch {
		case token == nil:
			return "contains null: leave out a field without a value"
		case token == json.Delim('}') || token == json.Delim(']'):
			in = in[:len(in)-1]
			continue
		case top.names == nil || top.value || !isText:
			top.value = false
		case top.names[name]:
			return fmt.Sprintf("has %.40q twice: give it once", name)
		case !names[name]:
			return fmt.Sprintf("has %.40q, a field in the wrong case: write it as in /openapi.json", name)
		default:
			top.names[name], top.value = true, true
		}
		switch token {
		case json.Delim('{'):
			in = append(in, level{names: map[string]bool{}})
		case json.Delim('['):
			in = append(in, level{})
		}
	}
}

// fieldNames adds the names of all fields that a type has in JSON.
func fieldNames(t reflect.Type, names map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		fieldNames(t.Elem(), names)
	case reflect.Struct:
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			names[name] = true
			fieldNames(f.Type, names)
		}
	}
}

// surrogates finds the escapes of backslashes and of surrogate pairs in valid JSON and, in
// a group, the escapes of half a pair.
var surrogates = regexp.MustCompile(`\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)`)

// halfPair returns the first escape in valid JSON that is half of a surrogate pair and has no
// other half, or "".
func halfPair(text []byte) string {
	for _, escape := range surrogates.FindAllSubmatch(text, -1) {
		if escape[1] != nil {
			return string(escape[1])
		}
	}
	return ""
}

// query returns the query of a call. It refuses unknown and repeated parameters.
func (c *call) query(known ...string) (url.Values, error) {
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, problemf(badRequest, "the query cannot be read: %v", err)
	}
	for name, values := range q {
		switch {
		case !slices.Contains(known, name):
			return nil, problemf(badRequest, "parameter %.40q is not known: %s takes %s",
				name, c.r.URL.Path, strings.Join(known, ", "))
		case len(values) > 1:
			return nil, problemf(badRequest, "parameter %s is there %d times: give it once", name, len(values))
		case !utf8.ValidString(values[0]):
			return nil, problemf(badRequest, "parameter %s is %.40q, which is not valid UTF-8", name, values[0])
		}
	}
	return q, nil
}

// checkLen refuses a parameter that is longer than any name or owner.
func checkLen(q url.Values, name string) error {
	if n := len(q.Get(name)); n > driver.MaxNameLen {
		return problemf(badRequest, "parameter %s has %d bytes: at most %d are allowed", name, n, driver.MaxNameLen)
	}
	return nil
}

// number reads a parameter that is a whole number from least to most, if it is there.
func number(q url.Values, name string, standard, least, most uint64) (uint64, error) {
	text := q.Get(name)
	if !q.Has(name) {
		return standard, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, problemf(badRequest, "parameter %s is %.40q: it must be a whole number from %d to %d",
			name, text, least, most)
	}
	return n, nil
}

// waitOf reads a wait_ms.
func waitOf(ms int64) (time.Duration, error) {
	if most := maxWait.Milliseconds(); ms < 0 || ms > most {
		return 0, problemf(badRequest, "wait_ms is %d: it must be from 0 to %d; to wait longer, send the call again", ms, most)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// accepts says whether the caller wants that media type, by name.
func (c *call) accepts(media string) bool {
	for part := range strings.SplitSeq(strings.Join(c.r.Header.Values("Accept"), ","), ",") {
		if m, params, err := mime.ParseMediaType(part); err == nil && m == media && params["q"] != "0" {
			return true
		}
	}
	return false
}
