// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// DefaultPrefix begins the keys of a store whose options name no other prefix.
const DefaultPrefix = "tenure/"

// Options are for one store. Nil means the defaults.
type Options struct {
	// Prefix begins all keys of the store in etcd: "tenure/" if empty. Stores with
	// different prefixes have different locks. It ends with a slash, is at most 512
	// bytes of valid UTF-8, follows the rules of [driver.CheckPrefix], and no other
	// program may write below it. Only its first part may be r, w or d.
	Prefix string

	// Password returns the current password of the config's user. [Open] has it called when
	// etcd refuses the password that it accepted last, so that a password can change while
	// the store is open; [New] does not. It may be called concurrently. If nil, the
	// config's password is the only one.
	Password func(context.Context) (string, error)
}

// maxPrefixLen is the longest prefix in bytes.
const maxPrefixLen = 512

func (o *Options) prefix() (string, error) {
	if o == nil || o.Prefix == "" {
		return DefaultPrefix, nil
	}
	if p := o.Prefix; !strings.HasSuffix(p, "/") || len(p) > maxPrefixLen || !utf8.ValidString(p) {
		return "", fmt.Errorf("etcdstore: prefix %.60q: it must end with a slash, and be at most %d bytes of UTF-8", p, maxPrefixLen)
	}
	if err := driver.CheckPrefix(o.Prefix, func(part string) bool { return part == "r" || part == "w" || part == "d" }); err != nil {
		return "", fmt.Errorf("etcdstore: prefix %.60q: %w", o.Prefix, err)
	}
	return o.Prefix, nil
}

// Store keeps records in etcd. All methods may be called concurrently.
type Store struct {
	client *clientv3.Client
	own    bool // the client was made by Open
	prefix string
	writer versioned.Writer[state]
	known  versioned.Memory[state]
	life   *versioned.Life
	heard  *heard
	page   int64 // how many records List returns at once
}

var (
	_ driver.Store       = (*Store)(nil)
	_ driver.Watcher     = (*Store)(nil)
	_ driver.BatchGetter = (*Store)(nil)
	_ driver.Raiser      = (*Store)(nil)
	_ driver.Diagnoser   = (*Store)(nil)
)

// New returns a store on a client of the program's own, which must outlive it. It sends
// nothing. Options may be nil.
//
// No setting of the client matters to the store's guarantees, its retries included: it sends
// a transaction again only if it had not been sent. DialKeepAliveTime should be set, or a
// dead member is noticed after minutes. Until then the client gives it its share of the
// requests, which all time out; a client that [Open] makes does not.
func New(client *clientv3.Client, options *Options) (*Store, error) {
	if client == nil {
		return nil, errors.New("etcdstore: the client is nil")
	}
	prefix, err := options.prefix()
	if err != nil {
		return nil, err
	}
	s := &Store{client: client, prefix: prefix, life: versioned.NewLife(), heard: &heard{}, page: pageSize}
	s.writer = versioned.Writer[state]{
		Known:  &s.known,
		Ready:  s.life.Ready,
		Read:   func(ctx context.Context, key string) (state, error) { return s.read(ctx, key, driver.Strong) },
		Write:  s.write,
		Usable: func(is state) bool { return !is.apart },
	}
	return s, nil
}

const (
	// keepAliveTime is how long a connection may be silent before it is tested. The
	// client raises less to this, and the server refuses a client that asks more often than
	// every 5 s.
	keepAliveTime = 10 * time.Second
	// keepAliveTimeout is how long the test may take.
	keepAliveTimeout = 3 * time.Second
)

// Connect returns a store on a client that it creates from the config, and that
// [Store.Close] closes. By default the client tests silent connections after 10 s, and logs
// nothing. After a timeout a member gets no requests for 13 s, while others answer; that is
// in gRPC's service config, which the config's DialOptions may replace. It uses no proxy
// from the environment: a program that needs one sets grpc.WithContextDialer there. It
// sends nothing, unless the config has a password. Options may be nil.
func Connect(config clientv3.Config, options *Options) (*Store, error) {
	if config.Logger == nil && config.LogConfig == nil {
		config.Logger = zap.NewNop()
	}
	if config.DialKeepAliveTime == 0 {
		config.DialKeepAliveTime, config.DialKeepAliveTimeout = keepAliveTime, keepAliveTimeout
	}
	h := &heard{}
	// gRPC would follow HTTPS_PROXY for every member, also for one without encryption.
	config.DialOptions = append(append(answeringMembers(), grpc.WithNoProxy(), grpc.WithChainUnaryInterceptor(h.note)), config.DialOptions...)
	if _, err := options.prefix(); err != nil {
		return nil, err
	}
	if options != nil && options.Password != nil {
		config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(authenticate(config.Password, options.Password)))
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", driver.NotApplied(h.behind(sorted(err))))
	}
	s, err := New(client, options)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	s.own, s.heard = true, h
	return s, nil
}

// Open is [Connect] for a program that wants to know at once whether that works. It reads once,
// so that it reports a wrong address, a wrong password or a missing permission.
func Open(ctx context.Context, config clientv3.Config, options *Options) (*Store, error) {
	s, err := Connect(config, options)
	if err != nil {
		return nil, err
	}
	if _, err := s.Get(ctx, driver.OwnPrefix+"open", driver.Strong); err != nil && !errors.Is(err, driver.ErrNotFound) {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the watches of the store, and the client if [Open] has made it. Calls that
// are under way end with their contexts, or with an unknown outcome.
func (s *Store) Close() error {
	if !s.life.End() || !s.own {
		return nil
	}
	if err := s.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("etcdstore: close: %w", err)
	}
	return nil
}

// String names the store by its prefix.
func (s *Store) String() string { return "etcd prefix " + s.prefix }
