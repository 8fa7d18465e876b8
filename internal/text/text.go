// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package text has the rules for text in records that people read: names of locks and of
// the kinds built on them, owners, reasons, errors.
package text

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
)

// ErrInvalid is matched by all errors of this package: tenure.ErrInvalid of the API.
var ErrInvalid = errors.New("invalid argument")

// invalidError says which rule an argument breaks.
type invalidError struct{ text string }

// Invalid returns an error that matches [ErrInvalid].
func Invalid(format string, a ...any) error  { return &invalidError{fmt.Sprintf(format, a...)} }
func (e *invalidError) Error() string        { return e.text }
func (e *invalidError) Is(target error) bool { return target == ErrInvalid }

// CheckName returns what is wrong with a name that becomes the name of a lock, or the
// beginning of one. what says what it names, such as "semaphore name".
func CheckName(what, name string, most int) error {
	return cmp.Or(CheckKey(what, name, most), Check(what, name, most), CheckEnds(what, name))
}

// CheckEnds returns an error if the name has a leading or trailing space: people would
// read it as the name of another lock.
func CheckEnds(what, name string) error {
	trimmed := strings.TrimSpace(name)
	if trimmed == name {
		return nil
	}
	at := 0
	if strings.HasPrefix(name, trimmed) {
		at = len(trimmed)
	}
	return Invalid("%s %.200q has a space at byte %d, at one of its ends: remove it, because it would make another name", what, name, at)
}

// CheckKey is less strict: a lock that another client has written may have an unprintable
// name, and must still be readable and releasable. A name that is not UTF-8 is refused,
// because a store may read another key instead.
func CheckKey(what, name string, most int) error {
	if strings.HasPrefix(name, driver.OwnPrefix) {
		return Invalid("%s %.40q begins with %q: such names are for records of Tenure itself", what, name, driver.OwnPrefix)
	}
	return cmp.Or(CheckNotEmpty(what, name, most), CheckForm(what, name, most))
}

// CheckNotEmpty returns an error if the text is empty.
func CheckNotEmpty(what, s string, most int) error {
	if s == "" {
		return Invalid("%s is empty: it must have 1 to %d bytes", what, most)
	}
	return nil
}

// Check returns what is wrong with text that may be empty: each rune must be printable by
// itself. Invisible characters make two names look alike, and control characters can
// change what a terminal shows.
func Check(what, s string, most int) error {
	if err := CheckForm(what, s, most); err != nil {
		return err
	}
	for i, r := range s {
		if !unicode.IsPrint(r) {
			return Invalid("%s %.200q has %U at byte %d: only printable characters and the ordinary space are allowed", what, s, r, i)
		}
	}
	return nil
}

// CheckReason returns what is wrong with the reason of a request.
func CheckReason(reason string) error {
	if reason == "" {
		return Invalid("the reason is empty: say why, for those who read the history")
	}
	return Check("reason", reason, driver.MaxOwnerLen)
}

// CheckForm returns why a store cannot keep the text.
func CheckForm(what, s string, most int) error {
	switch {
	case len(s) > most:
		return Invalid("%s %.20q... has %d bytes: at most %d are allowed", what, s, len(s), most)
	case !utf8.ValidString(s):
		return Invalid("%s %.200q is not valid UTF-8", what, s)
	}
	return nil
}

// Line returns s as one line that passes [Check], except for its length: white space becomes
// a space, and unprintable characters are left out.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}

// Failure returns the text of an error as the reason of a request.
func Failure(s string) string {
	line := strings.TrimSpace(Line(s))
	if line == "" {
		return "the work has failed"
	}
	if len(line) > driver.MaxReasonLen {
		line = strings.ToValidUTF8(line[:driver.MaxReasonLen], "") // not a part of a character
	}
	return line
}

// OfLossyStore returns an error that matches [errors.ErrUnsupported] if the store may lose writes,
// and what is made of several of its records.
func OfLossyStore(lossy bool, what string) error {
	if !lossy {
		return nil
	}
	return fmt.Errorf("%w: %s needs a store that keeps what it has answered, and this one may lose writes in a failover: "+
		"use locks, sessions or elections here, or another store", errors.ErrUnsupported, what)
}
