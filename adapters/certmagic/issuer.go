// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenurecertmagic

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/caddyserver/certmagic"
)

// Issuer returns an issuer whose orders end with the lease of their lock: the context of
// Issue is cancelled at the deadline, before another process can begin. Give it to
// certmagic.Config.Issuers beside this storage:
//
//	config.Issuers = []certmagic.Issuer{storage.Issuer(certmagic.NewACMEIssuer(config, acme))}
//
// An order without the lock that certmagic takes for it, "issue_cert_" and the name, is an
// error that matches [ErrNotLocked].
//
// certmagic knows its own issuers by their type in two places, which do not see this one: the
// helpers certmagic.HTTPS and Listen, which set up the HTTP challenge, and the renewal
// information (ARI) of the certificate authority.
func (s *Storage) Issuer(issuer certmagic.Issuer) certmagic.Issuer {
	return &guarded{issuer, s}
}

type guarded struct {
	certmagic.Issuer
	storage *Storage
}

var (
	_ certmagic.PreChecker = (*guarded)(nil)
	_ certmagic.Revoker    = (*guarded)(nil)
)

func (g *guarded) Issue(ctx context.Context, request *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	lease, err := g.storage.Lease("issue_cert_" + subject(request))
	if err != nil {
		return nil, err
	}
	if err := lease.Check(); err != nil {
		return nil, err
	}
	bound, stop := lease.Bind(ctx)
	defer stop()
	issued, err := g.Issuer.Issue(bound, request)
	if err != nil && bound.Err() != nil && ctx.Err() == nil {
		// Not what the issuer says, which certmagic would take for the end of ctx, and so of
		// all tries.
		return nil, fmt.Errorf("%w: %v", context.Cause(bound), err) //nolint:errorlint // see above
	}
	return issued, err
}

// subject is the name that certmagic orders a certificate for: one a request.
func subject(request *x509.CertificateRequest) string {
	switch {
	case len(request.DNSNames) > 0:
		return request.DNSNames[0]
	case len(request.IPAddresses) > 0:
		return request.IPAddresses[0].String()
	case len(request.EmailAddresses) > 0:
		return request.EmailAddresses[0]
	case len(request.URIs) > 0:
		return request.URIs[0].String()
	}
	return request.Subject.CommonName
}

// PreCheck does what the issuer's does, if it has one.
func (g *guarded) PreCheck(ctx context.Context, names []string, interactive bool) error {
	if p, ok := g.Issuer.(certmagic.PreChecker); ok {
		return p.PreCheck(ctx, names, interactive)
	}
	return nil
}

// Revoke does what the issuer's does; it is an error if it has none.
func (g *guarded) Revoke(ctx context.Context, cert certmagic.CertificateResource, reason int) error {
	if r, ok := g.Issuer.(certmagic.Revoker); ok {
		return r.Revoke(ctx, cert, reason)
	}
	return fmt.Errorf("issuer %s: revoke: %w", g.IssuerKey(), errors.ErrUnsupported)
}
