// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"fmt"
	"net/http"

	"github.com/tenurelock/tenure"
)

// TransportOptions are for one transport. Nil means the defaults.
type TransportOptions struct {
	// Grant is what every request is made under. If nil, it is the lease that
	// the request's context lives under: see [tenure.FromContext].
	Grant Grant
}

// NewTransport returns a transport that has each request carry the lock and
// the token of the lease that it is made under. It sends through base, or
// through http.DefaultTransport if that is nil. Options may be nil.
//
// Right before it sends, it checks the lease, and sends nothing if the lease
// has ended: the error is the error of [tenure.Lease.Check]. Without a lease
// the error matches [ErrNoToken]. A request whose headers already contradict
// the lease is not sent either, because one of the two is wrong.
//
// It does not end a request that is under way when the lease ends: the context
// of [tenure.Lease.Bind] does. It returns the answer to a stale request as it
// is; [Refusal] turns it into an error.
func NewTransport(base http.RoundTripper, options *TransportOptions) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	t := &transport{base: base}
	if options != nil {
		t.grant = options.Grant
	}
	return t
}

type transport struct {
	base  http.RoundTripper
	grant Grant
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	marked, err := t.mark(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as http.RoundTripper asks for
		}
		return nil, err
	}
	return t.base.RoundTrip(marked)
}

// mark returns a copy of the request with the headers.
func (t *transport) mark(r *http.Request) (*http.Request, error) {
	grant := t.grant
	if grant == nil {
		lease, ok := tenure.FromContext(r.Context())
		if !ok {
			return nil, fmt.Errorf("fence: %w: the request's context is not that of a lease: make it with the context of Client.Run or Lease.Bind, or set TransportOptions.Grant", ErrNoToken)
		}
		grant = lease
	}
	if grant.Token() == 0 || grant.Name() == "" {
		return nil, fmt.Errorf("fence: %w: the grant has lock %q and token %d", ErrNoToken, shown(grant.Name()), grant.Token())
	}
	marked := r.Clone(r.Context())
	if marked.Header == nil {
		marked.Header = http.Header{}
	}
	SetHeader(marked.Header, grant)
	for _, name := range []string{LockHeader, TokenHeader} {
		for _, was := range r.Header.Values(name) {
			if is := marked.Header.Get(name); was != is {
				return nil, fmt.Errorf("fence: header %s is %.40q already, and %.40q under the lease: remove it", name, was, is)
			}
		}
	}
	if err := grant.Check(); err != nil { // last, right before it is sent
		return nil, err
	}
	return marked, nil
}
