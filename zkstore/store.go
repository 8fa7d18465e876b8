// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
	"github.com/tenurelock/tenure/zkstore/internal/wire"
)

const (
	// DefaultRoot is the root of a store whose options name no root.
	DefaultRoot = "/tenure"
	// DefaultSession is the session timeout of a store whose options name none.
	DefaultSession = 10 * time.Second
)

// Options are for one store. Nil means the defaults.
type Options struct {
	// Root is the node that contains the records: "/tenure" if empty. It is created if it is
	// missing. Stores with different roots have different locks. It begins with a slash, does
	// not end with one, and follows the rules of [driver.CheckPrefix]. Only its first part may
	// be 00 to 3f, the folders of a store. No other program may write below it, and it is not
	// below /zookeeper.
	Root string

	// Session is after how long without an answer a connection is given up, nearly: it is
	// tested at a third of it, and given up at two thirds. If zero, it is 10 s. The server
	// may raise or lower it. No lease depends on it.
	Session time.Duration

	// User and Password are for ZooKeeper's digest scheme. With a user, nodes are
	// created for this user alone; without one, for everyone.
	User, Password string

	// TLS encrypts the connections, if it is not nil. If it names no server, the
	// certificate of each host must be for that host.
	TLS *tls.Config

	// Dial makes each connection to one of the servers, "HOST:PORT", and encrypts it if
	// needed: with files that are read again, say, or through a proxy. If nil, it is TCP,
	// with TLS if that is set. Set at most one of Dial and TLS.
	Dial func(ctx context.Context, host string) (net.Conn, error)
}

func (o *Options) resolve() (Options, error) {
	out := Options{}
	if o != nil {
		out = *o
	}
	if out.Root == "" {
		out.Root = DefaultRoot
	}
	if out.Session == 0 {
		out.Session = DefaultSession
	}
	odd := driver.CheckPrefix(out.Root, isFolder)
	switch {
	case !strings.HasPrefix(out.Root, "/") || strings.HasSuffix(out.Root, "/"):
		return out, fmt.Errorf("zkstore: root %.60q: it must begin with a slash, such as /tenure, and not end with one", out.Root)
	case odd != nil:
		return out, fmt.Errorf("zkstore: root %.60q: %w", out.Root, odd)
	case out.Root == "/zookeeper" || strings.HasPrefix(out.Root, "/zookeeper/"):
		return out, fmt.Errorf("zkstore: root %.60q: nodes below /zookeeper are ZooKeeper's own; take another root, such as /tenure", out.Root)
	case out.Session < time.Second || out.Session > time.Hour:
		return out, fmt.Errorf("zkstore: session timeout %v: it must be from 1s to 1h", out.Session)
	case out.TLS != nil && out.Dial != nil:
		return out, errors.New("zkstore: TLS and Dial are both set: have Dial encrypt the connection, and leave out TLS")
	case out.User == "" && out.Password != "":
		return out, errors.New("zkstore: there is a password, but no user")
	case strings.Contains(out.User, ":"):
		return out, errors.New("zkstore: the user has a colon: ZooKeeper takes what follows it for the password")
	}
	return out, nil
}

// Store keeps records in ZooKeeper. All methods may be called concurrently.
type Store struct {
	client *wire.Client
	hosts  []string
	user   string // "": no user
	secure bool   // connections are encrypted
	root   string
	acl    wire.ACL
	writer versioned.Writer[state]
	known  versioned.Memory[state]
	life   *versioned.Life
	page   int // how many records List returns at once

	mu      sync.Mutex
	watches map[string]*watch // by path
}

var (
	_ driver.Store       = (*Store)(nil)
	_ driver.Watcher     = (*Store)(nil)
	_ driver.BatchGetter = (*Store)(nil)
	_ driver.Raiser      = (*Store)(nil)
	_ driver.Diagnoser   = (*Store)(nil)
)

// New returns a store on the servers, "HOST:PORT" each, which connects in the background,
// now and after each lost connection. Options may be nil.
func New(hosts []string, options *Options) (*Store, error) {
	o, err := options.resolve()
	if err != nil {
		return nil, err
	}
	if len(hosts) == 0 {
		return nil, errors.New("zkstore: no server is named")
	}
	for _, host := range hosts {
		if _, _, err := net.SplitHostPort(host); err != nil {
			return nil, fmt.Errorf("zkstore: server %.60q: write HOST:PORT", host)
		}
	}
	s := &Store{
		hosts: hosts, user: o.User, secure: o.TLS != nil || o.Dial != nil, root: o.Root,
		acl:  wire.ACL{Perms: wire.PermAll, Scheme: "world", ID: "anyone"},
		life: versioned.NewLife(), page: pageSize, watches: map[string]*watch{},
	}
	digest := ""
	if o.User != "" {
		digest = o.User + ":" + o.Password
		s.acl = wire.ACL{Perms: wire.PermAll, Scheme: "auth"}
	}
	s.writer = versioned.Writer[state]{
		Known: &s.known,
		Ready: s.life.Ready,
		Read:  func(ctx context.Context, key string) (state, error) { return s.read(ctx, key, driver.Strong) },
		Write: s.write,
	}
	// The client calls back from its first connection on.
	s.mu.Lock()
	defer s.mu.Unlock()
	s.client = wire.NewClient(wire.Options{
		Hosts: hosts, Session: o.Session, TLS: o.TLS, Dial: o.Dial, Digest: digest, Event: s.fired, Connected: s.connected,
	})
	return s, nil
}

// Open is [New] for a program that wants to know at once whether that works. It reads
// once, so that it reports a wrong address or a missing permission.
func Open(ctx context.Context, hosts []string, options *Options) (*Store, error) {
	s, err := New(hosts, options)
	if err != nil {
		return nil, err
	}
	if _, err := s.List(ctx, driver.OwnPrefix+"open", ""); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the watches of the store, and its connection. Calls that are under way end
// with an unknown outcome, unless they were not sent.
func (s *Store) Close() error {
	s.life.End()
	s.client.Close()
	return nil
}

// String names the store by its root.
func (s *Store) String() string { return "zookeeper root " + s.root }
