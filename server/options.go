// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server/access"
)

// Options are those of a [Server].
type Options struct {
	// Principals are those who may call, with their rights. It is needed: there is no
	// service without tokens or certificates, because any web page can send requests to
	// 127.0.0.1.
	Principals *Principals

	// Hosts are the names by which clients reach the server, as the Host header has them,
	// without a port; an asterisk means any. The loopback names (localhost, 127.0.0.1,
	// [::1]) are always among them. A call that names another host is refused, because a web
	// page can point a name of its own at this server. Calls by a unix socket may name any.
	Hosts []string

	// Public are prefixes of names for which /v1/leader needs no token, for load balancers.
	// If empty, there are none.
	Public []string

	// PublicMetrics has /metrics need no token.
	PublicMetrics bool

	// TrustedProxies are the networks of the proxies before this server. Of a call that comes
	// from one of them, limits and the log have the last address in X-Forwarded-For that is
	// none of theirs. If empty, that header says nothing: anybody can send it.
	TrustedProxies []netip.Prefix

	// Pages answers what is below no path of the service, such as a dashboard at /. If nil,
	// / is a line of text.
	Pages http.Handler

	// Known is called with each request that has shown a good token or certificate, before
	// its body is read: a listener may keep its connection rather than others. It must not
	// block. If nil, nobody is told.
	Known func(*http.Request)

	// Verified says whether the certificate that a connection has shown would be verified now,
	// by the authorities of now: for a server that reads them again. Expiry is looked at
	// besides. If nil, what was verified at the handshake stays so.
	Verified func(*http.Request) bool

	// Logger gets a line for each act of an operator, for each refused token (within a
	// limit), and for what goes wrong. If nil, nothing is logged.
	Logger *slog.Logger

	// Limits bound what one caller can use.
	Limits Limits
}

// Limits bound what one caller can use, so that others have the rest. They hold for one
// server: with three replicas a caller has three times as much. Zero means the default.
type Limits struct {
	// Waits is how many calls of one principal may wait at once: acquires with wait_ms,
	// requests to holders, and streams. If zero, it is 1000.
	Waits int
	// Calls is how many calls a second one principal may make, besides heartbeats and
	// releases; for a moment it may make twice as many. If zero, it is 100. It also bounds,
	// for each address, the calls that need no token.
	Calls float64
	// Beats is how many heartbeats and releases a second one principal may send; for a
	// moment twice as many. They do not count as calls, so that a program that asks too much
	// still keeps its locks. If zero, it is 1000: enough for 3000 locks with a lease of 15 s.
	Beats float64
	// BeatsAtOnce is how many of them may be under way at once. If zero, it is 500.
	BeatsAtOnce int
	// FailedTokens is how many wrong tokens a minute one address, or network of 64 bits of
	// IPv6, may send before the answer is 429, and the log says no more. When so many different
	// ones have come, a right token is let in only if its principal has shown it from that
	// address within the last hour: it may be a guess. Those who share an address with a
	// guesser, or with a program that has an old token, keep their locks. If zero, it is 30.
	FailedTokens float64
}

const (
	defaultWaits        = 1000
	defaultCalls        = 100
	defaultBeats        = 1000
	defaultBeatsAtOnce  = 500
	defaultFailedTokens = 30

	// maxWait is the longest wait_ms: shorter than the patience of most proxies.
	maxWait = 20 * time.Second
	// The longest bodies in bytes: of a call with data, which are 256 KiB as base64, and names;
	// of one with names and a reason, which may be escaped; of a batch of heartbeats.
	maxBody      = 1 << 20
	maxShortBody = 16 << 10
	maxBatchBody = maxBatch * 6 << 10
	// maxBodies is how many bytes the bodies of one principal have that are under way.
	maxBodies = 32 << 20
	// maxBatch is how many heartbeats one call may have.
	maxBatch = 100
	// bodyTimeout is how long a body may take to arrive, and writeTimeout how long an answer
	// or an event may take to be sent.
	bodyTimeout  = 10 * time.Second
	writeTimeout = 10 * time.Second
	// lingerTimeout is how long the rest of a body may take that nobody reads.
	lingerTimeout = time.Second
	// lookTimeout bounds a list of locks.
	lookTimeout = 20 * time.Second
)

func (o Options) withDefaults() Options {
	o.Hosts, o.Public, o.TrustedProxies = slices.Clone(o.Hosts), slices.Clone(o.Public), slices.Clone(o.TrustedProxies)
	if o.Known == nil {
		o.Known = func(*http.Request) {}
	}
	if o.Verified == nil {
		o.Verified = func(*http.Request) bool { return true }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &o.Limits
	for _, f := range []struct {
		of       *float64
		standard float64
	}{{&l.Calls, defaultCalls}, {&l.Beats, defaultBeats}, {&l.FailedTokens, defaultFailedTokens}} {
		if *f.of == 0 {
			*f.of = f.standard
		}
	}
	if l.Waits == 0 {
		l.Waits = defaultWaits
	}
	if l.BeatsAtOnce == 0 {
		l.BeatsAtOnce = defaultBeatsAtOnce
	}
	return o
}

func (o Options) validate() error {
	var errs []error
	if o.Principals == nil {
		errs = append(errs, errors.New("no principals: give a file of them, with OpenPrincipals"))
	}
	for _, host := range o.Hosts {
		if err := checkHost(host); err != nil {
			errs = append(errs, err)
		}
	}
	for _, prefix := range o.Public {
		switch {
		case prefix == "":
			errs = append(errs, errors.New("public prefix is empty: that would show who leads every lock; name prefixes"))
		case strings.HasPrefix(prefix, driver.OwnPrefix):
			errs = append(errs, fmt.Errorf("public prefix %.40q begins with %q: such names are for records of Tenure itself",
				prefix, driver.OwnPrefix))
		default:
			if err := (access.Grant{Right: access.Read, Prefix: prefix}).Validate(); err != nil {
				errs = append(errs, fmt.Errorf("public: %w", err))
			}
		}
	}
	l := o.Limits
	if l.Waits < 0 || l.BeatsAtOnce < 0 || !(l.Calls > 0) || !(l.Beats > 0) || !(l.FailedTokens > 0) {
		errs = append(errs, fmt.Errorf("limits %+v must not be negative", l))
	}
	return errors.Join(errs...)
}

func checkHost(host string) error {
	switch _, _, err := net.SplitHostPort(host); {
	case host == "":
		return errors.New("a host is empty: name hosts as clients do, such as locks.example.com")
	case strings.ContainsAny(host, "/ @") || strings.Contains(host, "*") && host != "*":
		return fmt.Errorf("host %.80q is no name of a host: write locks.example.com or 10.0.0.5, or "+
			"an asterisk alone for any", host)
	case err == nil:
		return fmt.Errorf("host %.80q has a port: leave it out, any port will do", host)
	}
	return nil
}
