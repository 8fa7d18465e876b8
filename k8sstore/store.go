// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"k8s.io/client-go/rest"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// DefaultPrefix begins the names of the objects of a store whose options name no other
// prefix.
const DefaultPrefix = "tenure."

// Options are for one store. Nil means the defaults.
type Options struct {
	// Prefix begins the names of all objects of the store: "tenure." if empty. Stores
	// with different prefixes know nothing of each other's locks. It consists of
	// lower-case letters, digits and dashes, in parts that end with a dot, and is at most
	// 60 bytes long.
	Prefix string

	// SharedLease uses the name of a lock as the name of its Lease, so that electors of
	// client-go contend for the same Lease, while a fleet migrates for example. It
	// applies to locks whose name is a DNS-1123 subdomain and does not begin with the
	// prefix; no elector can name the others, which are kept as without SharedLease.
	//
	// A Lease that another client has written is read as a lock of that client: held for
	// its own duration, or free. Electors read the locks of Tenure in the same way, each
	// with its duration in whole seconds, rounded up. Set it in all processes of Tenure
	// that use these locks.
	//
	// Sessions, and locks under them, are refused: such a lock is not renewed itself,
	// and an elector would take it. List shows all Leases of the namespace that no
	// other store has written.
	SharedLease bool
}

// maxPrefixLen is the longest prefix in bytes: a label has room for 63.
const maxPrefixLen = 60

var prefixForm = pattern(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)+$`)

func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	if r.Prefix == "" {
		r.Prefix = DefaultPrefix
	}
	if p := r.Prefix; len(p) > maxPrefixLen || !prefixForm().MatchString(p) {
		return r, fmt.Errorf("k8sstore: prefix %.80q: it must end with a dot, and be at most %d lower-case letters, digits, dashes and dots, as in %q", p, maxPrefixLen, DefaultPrefix)
	}
	return r, nil
}

// Store keeps records in Leases. It implements [driver.Store], [driver.Watcher] and
// [driver.Raiser]. All methods may be called concurrently.
type Store struct {
	calls     *client // by HTTP/1.1, each on a connection that no other waits for
	watches   *client
	server    *url.URL
	unchecked bool // the server's certificate is not checked
	namespace string
	options   Options
	writer    versioned.Writer[state]
	known     versioned.Memory[state]
	life      *versioned.Life
	page      int // how many records List returns at once
}

var (
	_ driver.Store   = (*Store)(nil)
	_ driver.Watcher = (*Store)(nil)
	_ driver.Raiser  = (*Store)(nil)
	_ driver.Sharer  = (*Store)(nil)

	_ driver.Diagnoser = (*Store)(nil)
	_ driver.Granter   = (*Store)(nil)
)

// New returns a store in a namespace, and sends nothing. Options may be nil.
//
// The config is copied. Settings that delay, repeat or end a request are not used: the
// limit of requests a second, the time-out, and the retries of client-go. The contexts of
// the calls bound them, including the wait for an exec plugin that returns credentials.
// Unless the config has a Transport, calls use HTTP/1.1: when a connection has died, no
// other call waits for it.
func New(config *rest.Config, namespace string, options *Options) (*Store, error) {
	if config == nil {
		return nil, errors.New("k8sstore: the config is nil")
	}
	if namespace == "" {
		return nil, errors.New("k8sstore: the namespace has no name")
	}
	o, err := options.resolve()
	if err != nil {
		return nil, err
	}
	watches := rest.CopyConfig(config)
	watches.Timeout, watches.QPS, watches.RateLimiter = 0, -1, nil
	watches.WarningHandler, watches.WarningHandlerWithContext = rest.NoWarnings{}, nil
	calls := rest.CopyConfig(watches)
	if calls.Transport == nil {
		calls.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	s := &Store{namespace: namespace, options: o, life: versioned.NewLife(), page: pageSize}
	s.unchecked = config.Insecure
	if s.server, _, err = rest.DefaultServerUrlFor(config); err == nil {
		s.calls, err = newClient(calls)
	}
	if err == nil {
		s.watches, err = newClient(watches)
	}
	if err != nil {
		return nil, fmt.Errorf("k8sstore: %w", driver.NotApplied(driver.Permanent(err)))
	}
	s.writer = versioned.Writer[state]{
		Known:     &s.known,
		Ready:     s.life.Ready,
		Read:      func(ctx context.Context, key string) (state, error) { return s.read(ctx, key, driver.Strong) },
		Write:     s.write,
		Usable:    func(is state) bool { return is.parts == (parts{}) },
		Refuse:    s.refuse,
		LookFirst: true,
	}
	return s, nil
}

// Open is [New] for a cluster that must be reachable: it reads once, so that it reports a
// wrong address, wrong credentials or a missing permission. Options may be nil.
func Open(ctx context.Context, config *rest.Config, namespace string, options *Options) (*Store, error) {
	s, err := New(config, namespace, options)
	if err != nil {
		return nil, err
	}
	if _, err := s.Get(ctx, driver.OwnPrefix+"open", driver.Strong); err != nil && !errors.Is(err, driver.ErrNotFound) {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the watches of the store. Calls that are under way end with their contexts,
// or with an unknown outcome.
func (s *Store) Close() error {
	if !s.life.End() {
		return nil
	}
	s.calls.drop()
	s.watches.drop()
	return nil
}

// SharesLocks implements [driver.Sharer]: electors of client-go may hold the locks.
func (s *Store) SharesLocks() bool { return s.options.SharedLease }

// String names the store by its namespace and prefix.
func (s *Store) String() string {
	return "Kubernetes namespace " + s.namespace + " prefix " + s.options.Prefix
}
