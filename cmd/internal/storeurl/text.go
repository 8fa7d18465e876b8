// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
)

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
			return fmt.Errorf("%s has %q at position %d of %d: remove it; a Secret is made with echo -n, and an env file has no CR at the ends of its lines", what, r, position, utf8.RuneCountInString(text))
		}
	}
	return nil
}

// pathParts refuses a path behind the host that people may take for that of another store.
// A slash at its beginning, which some engines would keep, is written %2F.
func pathParts(written, decoded string) error {
	if written == "" {
		return nil
	}
	if written[0] == '/' {
		decoded = "/" // for it is doubled
	}
	if err := driver.CheckPrefix(decoded, func(string) bool { return false }); err != nil {
		return fmt.Errorf("the path behind the host: %w", err)
	}
	return nil
}

// invisibleEscaped is the same check of what percent-encoding stands for: in the path,
// and in the parameters. A user and a password may have any character. What cannot be
// decoded is left to the scheme, which refuses it.
func invisibleEscaped(rest string) error {
	rest, slashes := strings.CutPrefix(rest, "//")
	if !slashes {
		return nil // a file's name, which has no escapes
	}
	rest, query, _ := strings.Cut(rest, "?")
	_, path, _ := strings.Cut(rest[strings.LastIndexByte(rest, '@')+1:], "/")
	if decoded, err := url.PathUnescape(path); err == nil {
		if err := invisible("the path behind the host", decoded); err != nil {
			return err
		}
	}
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		decoded, err := url.QueryUnescape(value)
		if err != nil || key == "password" {
			continue
		}
		if err := invisible(fmt.Sprintf("the value of parameter %.40q", key), decoded); err != nil {
			return err
		}
	}
	return nil
}
