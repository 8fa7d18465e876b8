// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/server/access"
)

// Options are for [New]. Client and Access must be set.
type Options struct {
	// Client reads the locks and asks their holders. It is not closed by the dashboard.
	Client *tenure.Client

	// Access knows the principals.
	Access access.Access

	// Key seals the cookies. It has 32 random bytes or more, and is the same on all replicas
	// and after a restart. If empty, it is made at random, and a visitor signs in again at
	// each process.
	Key []byte

	// Title names the installation on each page, such as "production". It may be empty.
	Title string

	// Authenticate knows a visitor by something else than a token or a cookie, such as a
	// client certificate. It may be nil.
	Authenticate func(*http.Request) (access.Principal, bool)

	// Admit counts a request of a principal, and returns how long it must wait if it makes too
	// many, or if the secret with which it comes may be a guess; "" is one that is known by a
	// cookie or by Authenticate. Wrong counts a secret that is not known. They may be nil.
	Admit func(r *http.Request, p access.Principal, secret string) (wait time.Duration)
	Wrong func(r *http.Request, secret string) (wait time.Duration)

	// Audit is called with each act of a visitor, the refused ones included, and with each
	// sign-in. It may be nil. See [access.Audit].
	Audit func(context.Context, access.Act)

	// ErrorID notes an error of the store, and returns an id by which it is found: visitors
	// without the right admin to all names see that instead of the error. If nil, they see
	// neither. It may be called each second with the same error.
	ErrorID func(error) string

	// Doctor makes the checks of the program for the doctor's page, such as those of its options
	// and of the engine; the page has its own of reads and of what the records show. It is called
	// while somebody looks at that page, once a few seconds at most. It may be nil.
	Doctor func(context.Context) []Finding
}

// via is how an audit line says that an act came this way.
const via = "dashboard"

// check fills in what was left out, and says what is missing.
func (o *Options) check() error {
	if o.Client == nil {
		return errors.New("dashboard: Options.Client is nil: it must be the client whose locks are shown")
	}
	if o.Access == nil {
		return errors.New("dashboard: Options.Access is nil: it must know who may see what")
	}
	if o.Authenticate == nil {
		o.Authenticate = func(*http.Request) (access.Principal, bool) { return access.Principal{}, false }
	}
	if o.Admit == nil {
		o.Admit = func(*http.Request, access.Principal, string) time.Duration { return 0 }
	}
	if o.Wrong == nil {
		o.Wrong = func(*http.Request, string) time.Duration { return 0 }
	}
	if o.Audit == nil {
		o.Audit = access.Audit(nil)
	}
	if o.ErrorID == nil {
		o.ErrorID = func(error) string { return "" }
	}
	if o.Doctor == nil {
		o.Doctor = func(context.Context) []Finding { return nil }
	}
	return nil
}
