// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

const (
	// LockHeader names the lock that a request is made under. Its value is the
	// name of the lock; every byte of it that is a percent sign, a comma, a
	// space or not visible ASCII is percent-encoded, so that it comes through
	// proxies as it is.
	LockHeader = "Tenure-Lock"

	// TokenHeader carries the fencing token, in decimal digits.
	TokenHeader = "Tenure-Token"

	// RefusedHeader is in each answer by which [Handler] refuses a request, and
	// distinguishes it from the answers of next: see [Refusal].
	RefusedHeader = "Tenure-Refused"
)

// SetHeader sets the headers that carry the grant. [NewTransport] does that,
// and checks the lease; this is for requests that are built by hand.
func SetHeader(h http.Header, grant Grant) {
	h.Set(LockHeader, escape(grant.Name()))
	h.Set(TokenHeader, fmt.Sprint(grant.Token()))
}

// ParseHeader returns the grant that the headers carry. The error matches
// [ErrNoToken] if one of them is missing, repeated, or unreadable.
func ParseHeader(h http.Header) (Grant, error) {
	text, err := single(h, LockHeader)
	if err != nil {
		return nil, err
	}
	lock, err := unescape(text)
	if err != nil {
		return nil, err
	}
	if text, err = single(h, TokenHeader); err != nil {
		return nil, err
	}
	token, err := parseToken(text)
	if err != nil {
		return nil, fmt.Errorf("header %s: %w", TokenHeader, err)
	}
	return Fixed(lock, token), nil
}

// single returns the only value of the header. With several, a proxy before
// us and a handler behind us may use different ones.
func single(h http.Header, name string) (string, error) {
	values := h.Values(name)
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", &missingError{name}
	case len(values) > 1:
		return "", fmt.Errorf("header %s: %w: it occurs %d times: send it once", name, ErrNoToken, len(values))
	}
	return values[0], nil
}

// missingError is the error of a missing header. It matches ErrNoToken.
type missingError struct{ header string }

func (e *missingError) Error() string {
	return fmt.Sprintf("%v: header %s is missing: send %s and %s of the lease that the request is made under, as fence.NewTransport does",
		ErrNoToken, e.header, LockHeader, TokenHeader)
}

func (e *missingError) Is(target error) bool { return target == ErrNoToken }

// escape returns the name of a lock as the value of a header.
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; plain(c) && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func unescape(value string) (string, error) {
	for i := range len(value) {
		if !plain(value[i]) {
			return "", fmt.Errorf("header %s: %w: %.40q has a comma, a space, or a character that is not ASCII: percent-encode it", LockHeader, ErrNoToken, value)
		}
	}
	name, err := url.PathUnescape(value)
	if err != nil {
		return "", fmt.Errorf("header %s: %w: %w: write %%25 for a percent sign", LockHeader, ErrNoToken, err)
	}
	return name, checkResource(name)
}

// plain reports whether the byte needs no escape in a header. A comma does: a
// proxy may join two headers of one name with it.
func plain(c byte) bool { return c > ' ' && c < 0x7f && c != ',' }
