// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tenurelock/tenure/cmd/internal/pattern"
	"github.com/tenurelock/tenure/driver"
)

// place is what a URL says.
type place struct {
	*engine
	user, password string // password "": that of the file, or of TENURE_STORE_PASSWORD
	hosts          []server
	name           string            // of a file, a table, a bucket or a namespace
	path           string            // a prefix, a root or a database, without the URL's own slashes
	values         map[string]string // of the parameters, but those that say what is the default
}

func (p place) clone() *place {
	p.values = maps.Clone(p.values)
	return &p
}

// is says that a toggle is on.
func (p *place) is(name string) bool { return p.values[name] != "" }

// A parameter stands behind the question mark of a URL.
type parameter struct {
	name   string
	preset string // the default, which no URL has
	// read returns a value, which is not empty, as all write it. nil: it is any text.
	read func(p *place, value string) (string, error)
	// shown returns the value without what is secret. nil: nothing is.
	shown func(value string) string
}

// file is a parameter whose file gets its whole path.
func file(name string) parameter {
	return parameter{name: name, read: func(_ *place, value string) (string, error) { return filepath.Abs(value) }}
}

// toggle is a parameter that is true or false, also 1 or 0. On is how true is written.
func toggle(name, on string) parameter {
	return parameter{name: name, read: func(_ *place, value string) (string, error) {
		switch value {
		case "true", "1":
			return on, nil
		case "false", "0":
			return "", nil
		}
		return "", fmt.Errorf("%s= is neither true nor false", name)
	}}
}

// parse reads what follows the colon. Net/url would take what is wrong here for a port, or for
// a fragment, and knows one host alone.
func (e *engine) parse(rest string) (place, error) {
	p := place{engine: e, values: map[string]string{}}
	if e.read != nil {
		return p, e.read(&p, rest)
	}
	if e.bare && (rest == "" || rest[0] == '?') {
		rest = "//" + rest
	}
	rest, slashes := strings.CutPrefix(rest, "//")
	switch {
	case !slashes:
		return p, errors.New("the two slashes are missing: " + e.write)
	case strings.Contains(rest, "#"):
		return p, errors.New(`it has a "#": write %23 in its place`)
	}
	authority, query, _ := strings.Cut(rest, "?")
	authority, path, slash := strings.Cut(authority, "/")
	if slash {
		path = "/" + path
	}
	if err := e.begin(&p, authority, path); err != nil {
		return p, err
	}
	if err := p.readParameters(query); err != nil || e.check == nil {
		return p, err
	}
	return p, e.check(&p)
}

var packageName = pattern.Lazy(`^[a-z0-9]+store: `)

// refused says why a store takes no such options, without the name of its package.
func refused(err error) error {
	return errors.New(packageName().ReplaceAllString(err.Error(), ""))
}

// shown returns the beginning of what cannot be read, as far as it is nobody's
// secret: a password stands behind a colon, and parameters have keys in them. What
// stands before an @ is a user, or a password by itself. A list of settings, and
// something escaped, may have one in any place.
func shown(text string) string {
	begin := text
	if i := strings.IndexAny(text, ":?#"); i >= 0 {
		begin = text[:i+1] + "…"
	}
	if strings.Contains(text, "@") || strings.ContainsAny(begin, "=;%") {
		return "…"
	}
	return begin
}

// shownRest is what is shown of what follows the name of a scheme. Without the two
// slashes a password may be all there is.
func shownRest(rest string) string {
	behind, slashes := strings.CutPrefix(rest, "//")
	switch {
	case rest == "":
		return ""
	case slashes:
		return "//" + shown(behind)
	}
	return "…"
}

// invisible refuses control characters anywhere in a text, and white space at its ends.
// Engines would take them as part of a name, and so two hosts would have two stores
// where people read one. The error quotes that character alone.
func invisible(what, text string) error {
	position, trimmed := 0, strings.TrimSpace(text)
	begin := strings.Index(text, trimmed)
	for i, r := range text {
		position++
		outside := i < begin || i >= begin+len(trimmed)
		if outside || unicode.IsControl(r) {
			return fmt.Errorf("%s has %q at position %d of %d: remove it; a Secret is made with echo -n, "+
				"and an env file has no CR at the ends of its lines", what, r, position, utf8.RuneCountInString(text))
		}
	}
	return nil
}

// readPath takes the path behind the host, without its first and its last slash. It refuses one
// that people may take for that of another store. A slash at its beginning, which some engines
// would keep, is written %2F.
func (p *place) readPath(written string) error {
	path, err := url.PathUnescape(strings.TrimPrefix(written, "/"))
	if err != nil {
		return errors.New(`the path cannot be read: write %25 for "%"`)
	}
	if path == "" {
		return nil
	}
	if err := invisible("the path behind the host", path); err != nil {
		return err
	}
	checked := path
	if strings.HasPrefix(written, "//") {
		checked = "/" // for it is doubled
	}
	if err := driver.CheckPrefix(checked, func(string) bool { return false }); err != nil {
		return fmt.Errorf("the path behind the host: %w", err)
	}
	p.path = strings.TrimSuffix(path, "/")
	return nil
}

// unescape does what libpq does, but that a space need not be escaped. It takes no plus for one.
func unescape(text string) (string, error) {
	text, err := url.PathUnescape(text)
	if err == nil && strings.ContainsRune(text, 0) {
		err = errors.New("a zero byte")
	}
	return text, err
}

// escapeAll escapes what has a meaning anywhere in a URL.
func escapeAll(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

// escape is escapeAll, and leaves paths and URLs legible.
func escape(text string) string {
	return strings.NewReplacer("%3A", ":", "%2F", "/").Replace(escapeAll(text))
}

var (
	parameterName = pattern.Lazy(`^[A-Za-z][A-Za-z_-]*$`)
	pgxName       = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_.]*$`)
)

// readParameters reads what follows the question mark: each parameter once, and none that
// is not known.
func (p *place) readParameters(query string) error {
	if query == "" {
		return nil
	}
	unreadable := errors.New(`what follows "?" cannot be read: ` +
		`write NAME=VALUE&NAME=VALUE, with %25 for "%", %26 for "&" and %3B for ";"`)
	decode := url.QueryUnescape
	if p.pgx {
		decode = unescape
	} else if strings.Contains(query, ";") {
		return unreadable
	}
	var names []string
	for _, known := range p.parameters {
		names = append(names, known.name)
	}
	times := map[string]int{}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, equals := strings.Cut(pair, "=")
		value, err := decode(value)
		if p.pgx && err == nil {
			name, err = decode(name)
		}
		i := slices.Index(names, name)
		times[name]++
		switch {
		case err != nil, p.pgx && (!equals || !pgxName().MatchString(name)):
			return unreadable
		case p.pgx && strings.Contains(pair, "@") && name != "listen":
			return errors.New(`an "@" follows the "?": write %3F for "?" in a password, and %40 for "@" in a parameter`)
		case p.pgx || i >= 0:
		case !parameterName().MatchString(name) || strings.Contains(query, "@"):
			return errors.New("a parameter is unknown: the parameters are " + strings.Join(names, ", "))
		default:
			return fmt.Errorf("parameter %.40q is unknown: the parameters are %s", name, strings.Join(names, ", "))
		}
		if err := checkValue(name, value, times[name]); err != nil {
			return err
		}
		if i >= 0 && p.parameters[i].read != nil {
			if value, err = p.parameters[i].read(p, value); err != nil {
				return err
			}
		}
		if value != "" && (i < 0 || value != p.parameters[i].preset) {
			p.values[name] = value
		}
	}
	return nil
}

// checkValue refuses what no parameter may be.
func checkValue(name, value string, times int) error {
	switch {
	case times > 1:
		return fmt.Errorf("%s= is there twice: write it once", name)
	case value == "":
		return fmt.Errorf("%s= has no value: write one, or leave it out", name)
	case name == "password": // may have any character
		return nil
	}
	return invisible(fmt.Sprintf("the value of parameter %.40q", name), value)
}

// text returns the URL that says the same: it leaves out what is a default, and has the rest in
// one order. Without secrets it is for people.
func (p *place) text(secrets bool) string {
	begin := p.scheme + ":"
	if p.read != nil {
		return begin + p.fileText()
	}
	if authority := p.authority(secrets); authority != "" || !p.bare {
		begin += "//" + authority
	}
	switch behind, slash := strings.CutPrefix(p.path, "/"); {
	case p.pgx && p.path != "":
		begin += "/" + escapeAll(p.path)
	case slash: // it is the prefix's own
		begin += "/%2F" + escape(behind)
	case p.path != "":
		begin += "/" + escape(p.path)
	}
	var all []string
	if p.user == "" && p.password != "" && secrets {
		all = append(all, "password="+escape(p.password))
	}
	values := maps.Clone(p.values)
	for _, known := range p.parameters {
		delete(values, known.name)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) { // they are pgx's: sslpassword, and what is mistyped
		if secrets || !strings.Contains(strings.ToLower(name), "pass") {
			all = append(all, name+"="+escape(values[name]))
		}
	}
	for _, known := range p.parameters {
		value := p.values[known.name]
		if value != "" && known.shown != nil && !secrets {
			value = known.shown(value)
		}
		if value != "" {
			all = append(all, known.name+"="+escape(value))
		}
	}
	if len(all) == 0 {
		return begin
	}
	return begin + "?" + strings.Join(all, "&")
}
