// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server/access"
)

// read reads the body into a value. It bounds its length; newCall has bounded the time.
func (c *call) read(into any) error {
	media, params, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	charset := cmp.Or(params["charset"], "utf-8")
	if err != nil || media != "application/json" || !strings.EqualFold(charset, "utf-8") {
		return problemf(wrongType, "Content-Type %.100q is not application/json: a call that decides something is "+
			"never a form, which any page can send", c.r.Header.Get("Content-Type"))
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
	if !strings.HasPrefix(is, "number ") { // which has the number behind
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

// unclear says what in a valid body encoding/json takes for something else than another reader
// would, or its writer means: a name that is there twice or in another case, which a proxy may
// have read otherwise; half of a surrogate pair, of which all become one character; null, which
// a client sends that lacks a value by mistake, and which would be the default.
func unclear(text []byte, into any) string {
	if half := halfPair(text); half != "" {
		return fmt.Sprintf("has %s alone, which is half of a character: send Unicode text", half)
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
			return "has null: leave out a field that has no value"
		case token == json.Delim('}') || token == json.Delim(']'):
			in = in[:len(in)-1]
			continue
		case top.names == nil || top.value || !isText:
			top.value = false
		case top.names[name]:
			return fmt.Sprintf("has %.40q twice: give it once", name)
		case !names[name]:
			return fmt.Sprintf("has %.40q, which is a field in another case: write it as /openapi.json does", name)
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
// parentheses, those of half a pair.
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

// query returns the query of a call. Each parameter is one that is known, and is there once.
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
		return 0, problemf(badRequest, "wait_ms is %d: it must be from 0 to %d; to wait longer, ask again", ms, most)
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
