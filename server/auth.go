// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tenurelock/tenure/server/access"
)

func noToken() *problem {
	return problemf(unauthenticated, "no token: send Authorization: Bearer SECRET with the secret of a principal, "+
		"or a client certificate over TLS")
}

// errWrongToken is the error of a token or certificate that is not known, as opposed to one
// that is missing.
var errWrongToken = errors.New("not known")

// carriesSecret says whether a call claims to be a principal's.
func (s *Server) carriesSecret(r *http.Request) bool {
	return r.Header.Get("Authorization") != "" || verified(r)
}

// secretOf returns the token that a call carries, "" if it has none.
func secretOf(r *http.Request) string {
	_, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(secret)
}

// verified says whether the connection has a client certificate that the TLS configuration
// has verified. One that was merely sent proves nothing.
func verified(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }

// principalOf returns whose call it is. A token goes before a certificate: whoever sends one
// means it.
func (s *Server) principalOf(r *http.Request) (access.Principal, error) {
	switch headers := r.Header.Values("Authorization"); {
	case len(headers) > 1:
		return access.Principal{}, problemf(unauthenticated, "%d Authorization headers: send one", len(headers))
	case len(headers) == 1:
		scheme, secret, _ := strings.Cut(headers[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return access.Principal{}, problemf(unauthenticated, "the Authorization header is none of the scheme Bearer: "+
				"send Authorization: Bearer SECRET")
		}
		if p, found := s.o.Principals.ByToken(strings.TrimSpace(secret)); found {
			return p, nil
		}
		return access.Principal{}, errWrongToken
	case verified(r):
		if err := s.stillVerified(r); err != nil {
			return access.Principal{}, err
		}
		if p, found := s.o.Principals.ByCertificate(r.TLS.VerifiedChains[0][0]); found {
			return p, nil
		}
		return access.Principal{}, errWrongToken
	}
	return access.Principal{}, noToken()
}

// stillVerified returns a problem if the certificate of a connection would not be verified now:
// the handshake may be days ago.
func (s *Server) stillVerified(r *http.Request) error {
	now := time.Now()
	for _, cert := range r.TLS.VerifiedChains[0] {
		if now.After(cert.NotAfter) {
			return problemf(unauthenticated, "the client certificate of this connection, or one that has signed it, has "+
				"expired: connect with a new one")
		}
	}
	if !s.o.Verified(r) {
		return problemf(unauthenticated, "the authorities of client certificates have changed since this connection "+
			"was made: connect again")
	}
	return nil
}

// refusedToken says why a call has no principal. A token that is not known is logged,
// without it, and counted for the address that it came from.
func (c *call) refusedToken(err error) error {
	if !errors.Is(err, errWrongToken) {
		return c.refused("token", err)
	}
	from := addressOf(c.r)
	if err := c.s.limits.failed(from, secretOf(c.r)); err != nil {
		return c.refused("token_limit", err)
	}
	c.s.o.Logger.Warn("tenure: a token or certificate that is not known",
		"path", c.label(), "address", access.Printable(from))
	return c.refused("token", problemf(unauthenticated, "the token or certificate is not known: take the secret of "+
		"a principal, as its operator has it"))
}
