// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// The defaults of [Options].
const (
	DefaultPrefix = "tenure"
	DefaultLease  = 15 * time.Second
	DefaultLag    = 3 * time.Second
)

// Options are for one store. Nil means the defaults. All programs that use a store have the same: the
// store remembers with which it was created, and refuses others.
type Options struct {
	// Prefix begins all keys of the store, in braces: "tenure" if empty. Stores with different prefixes have
	// different locks. It is at most 64 letters, digits, dashes, dots, colons and underscores, and no other program may
	// write below it.
	Prefix string

	// Lease is the longest lease of a lock, in whole milliseconds, and at least a second: 15 s if zero. After a failover or a restart of the
	// server no lock is granted for this time and that of Lag, and a dead holder's lock is not taken over
	// sooner. So a longer one costs time.
	Lease time.Duration

	// Replicas is how many replicas the primary has, and all are online while the store works: 0 if it has none.
	// A write is refused unless as many have answered the primary within Lag. So a primary that is cut off stops
	// before another one may grant its locks.
	Replicas int

	// Quorum allows a write if only half of the Replicas, rounded down, are online. Set it only if there
	// is a Sentinel beside each server and nowhere else, a majority of them decides about a failover, and the replicas
	// that are not promoted leave the old primary within Lag and 2 s: see docs/guides/redis.md. It needs 2 replicas.
	Quorum bool

	// Lag is for how long a replica may be silent, in whole seconds: 3 s if zero. It has no meaning without Replicas. After
	// Lag and 2 s without any write the first one is refused until the replicas have answered, within a second.
	Lag time.Duration

	// Single is for one server without replicas that loses nothing: it must have appendonly yes and appendfsync always.
	// Then no lock waits after a restart, and a lease may have any length. All other options but Prefix must be zero.
	Single bool
}

const (
	maxPrefixLen = 64
	maxReplicas  = 100
	// ackPeriod is how often a replica answers its primary, and how far a count of seconds is off: a second each.
	ackPeriod = 2 * time.Second
	// drift is the bound on the rate error of a clock, with some room: the default of clients is 0.09.
	drift = 0.1
)

// settings are the options as the store keeps and compares them.
type settings struct {
	prefix, is       string
	least, most, lag string        // for scripts
	longest, waits   time.Duration // the longest lease, and Waits; 0 for a server that loses nothing
}

func (o *Options) settings() (s settings, err error) {
	var set Options
	if o != nil {
		set = *o
	}
	if set.Prefix == "" {
		set.Prefix = DefaultPrefix
	}
	if len(set.Prefix) > maxPrefixLen || strings.Trim(set.Prefix, prefixCharacters) != "" {
		return s, fmt.Errorf("redisstore: prefix %.80q: it is at most %d letters, digits, dashes, dots, colons and underscores",
			set.Prefix, maxPrefixLen)
	}
	s = settings{prefix: set.Prefix, least: "0", most: "0", lag: "0"}
	if set.Single {
		if set.Lease != 0 || set.Replicas != 0 || set.Quorum || set.Lag != 0 {
			return s, errors.New("redisstore: a single server that loses nothing bounds no lease, and has no replicas: " +
				"leave out Lease, Replicas, Quorum and Lag, or Single")
		}
		s.is = "single"
		return s, nil
	}
	lag := set.Lag
	if set.Lease == 0 {
		set.Lease = DefaultLease
	}
	if set.Lag == 0 {
		set.Lag = DefaultLag
	}
	switch {
	case set.Lease < time.Second || set.Lease%time.Millisecond != 0: // lives that open within a second would share a base
		return s, fmt.Errorf("redisstore: lease %v: it is whole milliseconds, and at least a second", set.Lease)
	case set.Replicas < 0 || set.Replicas > maxReplicas:
		return s, fmt.Errorf("redisstore: %d replicas: 0 to %d are possible", set.Replicas, maxReplicas)
	case set.Lag < time.Second || set.Lag%time.Second != 0:
		return s, fmt.Errorf("redisstore: lag %v: it is whole seconds, at least one", set.Lag)
	case set.Replicas == 0 && (set.Quorum || lag != 0):
		return s, errors.New("redisstore: Quorum and Lag are about replicas: say how many there are")
	case set.Quorum && set.Replicas == 1:
		return s, errors.New("redisstore: Quorum needs 2 replicas: of 2 servers no majority is left when one is cut off")
	}
	least := set.Replicas
	if set.Quorum {
		least /= 2
	}
	s.longest, s.waits = set.Lease, set.Lease
	bound := set.Lag + ackPeriod
	if set.Quorum { // a replica that is not promoted may leave as late as that, and only then its silence begins
		bound *= 2
	}
	if set.Replicas > 0 {
		s.waits += time.Duration((1 + drift) * float64(bound))
	}
	s.least, s.most = strconv.Itoa(least), strconv.Itoa(set.Replicas)
	s.lag = strconv.Itoa(int(set.Lag / time.Second))
	s.is = fmt.Sprintf("lease=%v replicas=%s of %s lag=%ss", set.Lease, s.least, s.most, s.lag)
	return s, nil
}

const prefixCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:"

// Store keeps records in Redis or Valkey. All methods may be called concurrently.
type Store struct {
	settings
	own      *rueidis.ClientOption // nil: the client is the program's
	life     *versioned.Life
	id       atomic.Pointer[string] // of the store, nil before the first answer
	replaced atomic.Bool
	watches  watches
	page     int // how many records List returns at once

	// connecting holds the only token while a call connects or examines the server.
	connecting chan struct{}
	client     atomic.Pointer[rueidis.Client]
	examined   atomic.Bool
}

var (
	_ driver.Store       = (*Store)(nil)
	_ driver.Watcher     = (*Store)(nil)
	_ driver.BatchGetter = (*Store)(nil)
	_ driver.Raiser      = (*Store)(nil)
	_ driver.Guarded     = (*Store)(nil)
	_ driver.Diagnoser   = (*Store)(nil)
	_ driver.Provisioner = (*Store)(nil)
	_ driver.Granter     = (*Store)(nil)
)

// New returns a store on a client of the program's own, which must outlive it. It sends nothing: the
// first call examines the server as [Open] does. Options may be nil.
//
// The client's retries do not matter, since it repeats only reads, and neither does its cache. A client that sends
// reads to replicas does not either: scripts are no reads for it, and a replica refuses them.
func New(client rueidis.Client, options *Options) (*Store, error) {
	if client == nil {
		return nil, errors.New("redisstore: the client is nil")
	}
	s, err := newStore(options)
	if err == nil {
		s.client.Store(&client)
	}
	return s, err
}

func newStore(options *Options) (*Store, error) {
	set, err := options.settings()
	if err != nil {
		return nil, err
	}
	return &Store{
		settings: set, life: versioned.NewLife(), watches: newWatches(), page: pageSize, connecting: make(chan struct{}, 1),
	}, nil
}

// Connect returns a store on a client that it creates from the option with the first call, and that
// [Store.Close] closes. It sends nothing: the first call examines the server as [Open] does. Options may be nil.
//
// The option names one server, Sentinels (with Sentinel.MasterSet), or servers of a cluster: those only if
// ForceSingleClient is false. Set AuthCredentialsFn for credentials that change: it is called for each connection.
// Retries and the cache are switched off, and a connection is made within 3 s, unless the option says otherwise.
func Connect(option rueidis.ClientOption, options *Options) (*Store, error) {
	if len(option.InitAddress) == 0 {
		return nil, errors.New("redisstore: no server is named: set InitAddress")
	}
	s, err := newStore(options)
	if err != nil {
		return nil, err
	}
	option.DisableRetry, option.DisableCache = true, true
	if option.Dialer.Timeout == 0 {
		option.Dialer.Timeout = dialTimeout
	}
	if option.ConnWriteTimeout == 0 {
		option.ConnWriteTimeout = answerTimeout
	}
	if option.Sentinel.MasterSet != "" && option.Sentinel.TopologyRefreshInterval == 0 {
		option.Sentinel.TopologyRefreshInterval = answerTimeout // for a message of a failover may be missed
	}
	if option.ClientSetInfo == nil {
		option.ClientSetInfo = rueidis.DisableClientSetInfo
	}
	s.own = &option
	return s, nil
}

const (
	dialTimeout = 3 * time.Second
	// answerTimeout is how long a connection may be without any answer to what was sent, before it is given up.
	answerTimeout = 5 * time.Second
)

// Open is [Connect] for a program that wants to know at once whether that works. It examines the server, and
// refuses, with an error that matches [driver.ErrPermanent]:
//
//   - a server that is neither Redis nor Valkey, or is Redis before 7.0;
//   - a store that does not exist, or was created with other options;
//   - more replicas than the options say: one of them might stay with a primary that was cut off;
//   - maxmemory-policy allkeys-*, which would remove locks, and replica-read-only no;
//   - with Options.Single a server that may lose writes, or that does not say.
func Open(ctx context.Context, option rueidis.ClientOption, options *Options) (*Store, error) {
	s, err := Connect(option, options)
	if err != nil {
		return nil, err
	}
	if _, err := s.Get(ctx, driver.OwnPrefix+"open", driver.Strong); err != nil && !errors.Is(err, driver.ErrNotFound) {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// connected returns the client. If examined, the server has been examined, too.
func (s *Store) connected(ctx context.Context, examined bool) (rueidis.Client, error) {
	if client := s.client.Load(); client != nil && (s.examined.Load() || !examined) {
		return *client, nil
	}
	select {
	case s.connecting <- struct{}{}:
		defer func() { <-s.connecting }()
	case <-ctx.Done():
		return nil, driver.NotApplied(ctx.Err())
	}
	client := s.client.Load()
	if client == nil {
		made, err := rueidis.NewClient(*s.own)
		if err == nil && s.life.Ended() {
			err = driver.ErrClosed
		}
		if err != nil {
			if made != nil { // a client without a connection
				made.Close()
			}
			return nil, s.unsent(ctx, err)
		}
		client = &made
		s.client.Store(client)
	}
	if !examined || s.examined.Load() {
		return *client, nil
	}
	server, err := s.look(ctx, *client)
	if err == nil {
		err = server.refused(&s.settings)
	}
	if err != nil {
		return nil, s.unsent(ctx, err)
	}
	s.examined.Store(true)
	return *client, nil
}

// unsent returns the error of a call that has sent nothing of its own.
func (s *Store) unsent(ctx context.Context, err error) error {
	return sortedError{driver.NotApplied(s.failed(ctx, err))}
}

// Close ends the watches of the store, and the client unless it is the program's. Calls that are under way
// end with an unknown outcome.
func (s *Store) Close() error {
	if !s.life.End() || s.own == nil {
		return nil
	}
	s.connecting <- struct{}{} // a connection that is being made is bounded
	defer func() { <-s.connecting }()
	if client := s.client.Load(); client != nil {
		(*client).Close()
	}
	return nil
}

// Waits returns how long a contender waits: see [driver.Guarded]. It is the longest lease, and with replicas 1.1 times
// the Lag and 2 s, which count twice with a Quorum: 15 s, 20.5 s and 26 s by default. With Options.Single it is 0.
func (s *Store) Waits() time.Duration { return s.waits }

// String names the store by its prefix.
func (s *Store) String() string { return "redis prefix " + s.prefix }

func (s *Store) key(of string) string { return "{" + s.prefix + "}:" + of }

func (s *Store) recordKey(key string) string { return s.key("r:" + key) }

// keys are the keys of a script about a record.
func (s *Store) keys(key string) []string {
	return []string{s.key("life"), s.recordKey(key), s.key("names")}
}
