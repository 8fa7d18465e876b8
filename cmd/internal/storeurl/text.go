// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
)

// cut cuts what follows the colon of a URL: path begins with its slash. Net/url would take
// what is wrong here for a port, or for a fragment, and knows one host alone.
func cut(rest, write string) (authority, path, query string, err error) {
	rest, slashes := strings.CutPrefix(rest, "//")
	switch {
	case !slashes:
		return "", "", "", errors.New("the two slashes are missing: " + write)
	case strings.Contains(rest, "#"):
		return "", "", "", errors.New(`it has a "#": write %23 in its place`)
	}
	rest, query, _ = strings.Cut(rest, "?")
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[:i], rest[i:], query, nil
	}
	return rest, "", query, nil
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

// readPath returns what the path behind the host stands for, without its first slash. It
// refuses one that people may take for that of another store. A slash at its beginning,
// which some engines would keep, is written %2F.
func readPath(written string) (string, error) {
	path, err := url.PathUnescape(strings.TrimPrefix(written, "/"))
	if err != nil {
		return "", errors.New(`the path cannot be read: write %25 for "%"`)
	}
	if path == "" {
		return "", nil
	}
	err = invisible("the path behind the host", path)
	if err == nil {
		checked := path
		if strings.HasPrefix(written, "//") {
			checked = "/" // for it is doubled
		}
		if err = driver.CheckPrefix(checked, func(string) bool { return false }); err != nil {
			err = fmt.Errorf("the path behind the host: %w", err)
		}
	}
	return path, err
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

// A parameter stands behind the question mark of a URL.
type parameter struct {
	name string
	text string                   // the value that is written; "": the parameter is left out
	read func(value string) error // takes a value, which is not empty
}

func word(name string, to *string) parameter {
	return parameter{name, *to, func(value string) error {
		*to = value
		return nil
	}}
}

// file is a parameter whose file gets its whole path.
func file(name string, to *string) parameter {
	return parameter{name, *to, func(value string) (err error) {
		*to, err = filepath.Abs(value)
		return err
	}}
}

// toggle is a parameter that is true or false, also 1 or 0. On is how true is written.
func toggle(name, on string, to *bool) parameter {
	text := ""
	if *to {
		text = on
	}
	return parameter{name, text, func(value string) error {
		switch *to = value == "true" || value == "1"; {
		case *to, value == "false", value == "0":
			return nil
		}
		return fmt.Errorf("%s= is neither true nor false", name)
	}}
}

var parameterName = regexp.MustCompile(`^[A-Za-z][A-Za-z_-]*$`)

// readParameters reads what follows the question mark: each parameter once, and none that
// is not known.
func readParameters(query string, known []parameter) error {
	if query == "" {
		return nil
	}
	const unreadable = `what follows "?" cannot be read: write NAME=VALUE&NAME=VALUE, with %25 for "%" and %3B for ";"`
	if strings.Contains(query, ";") {
		return errors.New(unreadable)
	}
	var names []string
	for _, p := range known {
		names = append(names, p.name)
	}
	times := map[string]int{}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		value, err := url.QueryUnescape(value)
		i := slices.Index(names, name)
		times[name]++
		switch {
		case err != nil:
			return errors.New(unreadable)
		case i < 0 && (!parameterName.MatchString(name) || strings.Contains(query, "@")):
			return errors.New("a parameter is unknown: the parameters are " + strings.Join(names, ", "))
		case i < 0:
			return fmt.Errorf("parameter %.40q is unknown: the parameters are %s", name, strings.Join(names, ", "))
		}
		if err := checkValue(name, value, times[name]); err != nil {
			return err
		}
		if err := known[i].read(value); err != nil {
			return err
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

// withParameters returns a URL with the parameters that have a text.
func withParameters(text string, all []parameter) string {
	separator := "?"
	for _, p := range all {
		if p.text != "" {
			text += separator + p.name + "=" + escape(p.text)
			separator = "&"
		}
	}
	return text
}
