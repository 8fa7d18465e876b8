// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tenurelock/tenure/driver"
)

// failed returns the error of a request, marked with what is certain.
func (s *Store) failed(err error) error {
	if s.life.Ended() {
		return fmt.Errorf("%w (%w)", driver.ErrClosed, err)
	}
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) {
		s.calls.drop() // there was no answer
	}
	return fmt.Errorf("kubernetes: %w", s.sorted(err))
}

// sorted marks an error of a request. What the API server is not known to have refused may
// have been carried out: it answers 500, 503 and 504 for that, too.
func (s *Store) sorted(err error) error {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return unsent(err)
	}
	switch status.Status().Code {
	case http.StatusUnauthorized:
		return refused("the API server does not know these credentials: log in again, or give the pod a service account", err)
	case http.StatusForbidden:
		if strings.Contains(err.Error(), " cannot ") { // RBAC says so; others forbid for reasons of their own
			err = fmt.Errorf("grant the role that k8sstore.Policy and tenure table policy print, in namespace %s: %w", s.namespace, err)
		}
		return driver.NotApplied(driver.Permanent(err))
	case http.StatusNotFound:
		return refused("is there a namespace "+s.namespace+"?", err)
	case http.StatusTooManyRequests:
		return driver.NotApplied(driver.Throttled(err))
	case http.StatusRequestEntityTooLarge:
		return driver.NotApplied(err)
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return driver.NotApplied(driver.Permanent(err))
	}
	return err
}

func refused(do string, err error) error {
	return driver.NotApplied(driver.Permanent(fmt.Errorf("%s: %w", do, err)))
}

// unsent marks what no request was sent for.
func unsent(err error) error {
	if certificate := (*tls.CertificateVerificationError)(nil); errors.As(err, &certificate) {
		return driver.NotApplied(driver.Permanent(err))
	}
	if plugin := (*pluginError)(nil); errors.As(err, &plugin) {
		return driver.NotApplied(err)
	}
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" && !errors.Is(err, context.Canceled) {
		return driver.NotApplied(err)
	}
	return err
}

// mismatch reports whether the API server has said that the object is not in the state
// that the write names.
func mismatch(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}
