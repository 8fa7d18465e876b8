// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurelock/tenure/driver"
)

const (
	// The pause before the listener connects again grows from the first to the last.
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
	// testPeriod is how often a silent listener asks whether it still listens at the
	// primary.
	testPeriod = 30 * time.Second
	// echoPatience is how long a notification of the store's own may take to arrive. If
	// none does, LISTEN gets no notifications: there is a transaction pooler.
	echoPatience = 2 * time.Second
	// silentPeriod is how long a listener without notifications is not tried again.
	silentPeriod = time.Minute
	// echoMark begins the payload of a notification without a key.
	echoMark = "\x01echo "
)

// errListenOff is the error of Watch if Options.Listen is off.
var errListenOff = driver.Unsupported(errors.New("postgres: listen=off: changes are not reported"))

// errNoNotify is the error of Watch with an engine that may not have LISTEN.
var errNoNotify = driver.Unsupported(errors.New("postgres: the engine is not PostgreSQL: changes are not reported"))

var errNoListen = errors.New("LISTEN gets no notifications here, as behind a transaction pooler: give the server's own URL in listen=, or listen=off")

// listener is the one connection on which a store receives notifications. It exists from
// the first watch on.
type listener struct {
	store  *Store
	config *pgx.ConnConfig                              // nil: that of the pool
	before func(context.Context, *pgx.ConnConfig) error // of config
	off    bool
	wake   chan struct{} // a watch has come
	done   sync.WaitGroup

	mu      sync.Mutex
	started bool
	stands  bool
	watches map[string]map[*watch]bool // by key
	ended   bool
}

// watch is one caller's.
type watch struct {
	hint   func()
	stands chan error // the result of the set-up, sent once
	told   bool
}

func newListener(s *Store, o Options) (*listener, error) {
	l := &listener{store: s, wake: make(chan struct{}, 1), watches: map[string]map[*watch]bool{}}
	switch o.Listen {
	case "":
	case ListenOff:
		l.off = true
	default:
		config, err := pgx.ParseConfig(o.Listen)
		if err != nil {
			return nil, fmt.Errorf("pgstore: listen: %w", err)
		}
		config.DialFunc = dial
		if config.ConnectTimeout == 0 {
			config.ConnectTimeout = connectTimeout
		}
		l.config, l.before = config, o.refresh(config)
	}
	return l, nil
}

// Watch has hint called after each change of key that [driver.Watcher] names. All watches
// of a store share one connection, which is made with the first.
func (s *Store) Watch(ctx context.Context, key string, hint func()) (stop func(), err error) {
	if hint == nil {
		panic("pgstore: Watch with a nil hint") //nolint:forbidigo // a programmer's error
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	l := s.listen
	if l.off {
		return nil, errListenOff
	}
	switch at, err := s.at(ctx); {
	case err != nil:
		return nil, err
	case at.foreign:
		return nil, errNoNotify
	}
	w := &watch{hint: hint, stands: make(chan error, 1)}
	if !l.add(key, w) {
		return nil, driver.ErrClosed
	}
	select {
	case err = <-w.stands:
	case <-ctx.Done():
		err = ctx.Err()
	}
	stop = func() { l.remove(key, w) }
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func (l *listener) add(key string, w *watch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	if l.watches[key] == nil {
		l.watches[key] = map[*watch]bool{}
	}
	l.watches[key][w] = true
	if l.stands {
		w.told = true
		w.stands <- nil
		return true
	}
	if !l.started {
		l.started = true
		l.done.Go(l.keep)
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return true
}

func (l *listener) remove(key string, w *watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.watches[key], w)
	if len(l.watches[key]) == 0 {
		delete(l.watches, key)
	}
}

func (l *listener) end() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.done.Wait()
	l.fell(driver.ErrClosed)
}

// stood reports to pending watches that they are set, and hints the others: changes of
// the meantime are unknown.
func (l *listener) stood() {
	l.mu.Lock()
	var hints []func()
	l.stands = true
	for _, watches := range l.watches {
		for w := range watches {
			if w.told {
				hints = append(hints, w.hint)
			} else {
				w.told = true
				w.stands <- nil
			}
		}
	}
	l.mu.Unlock()
	for _, hint := range hints {
		hint()
	}
}

// fell reports to pending watches that they cannot be set.
func (l *listener) fell(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stands = false
	for _, watches := range l.watches {
		for w := range watches {
			if !w.told {
				w.told = true
				w.stands <- err
			}
		}
	}
}

// hear hints the watches of a key.
func (l *listener) hear(key string) {
	l.mu.Lock()
	hints := make([]func(), 0, len(l.watches[key]))
	for w := range l.watches[key] {
		hints = append(hints, w.hint)
	}
	l.mu.Unlock()
	for _, hint := range hints {
		hint()
	}
}

func (l *listener) wanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.watches) > 0
}

// keep listens until the store ends, and connects again as long as there is a watch.
func (l *listener) keep() {
	ctx := l.store.ctx
	pause := firstPause
	for ctx.Err() == nil {
		if !l.wanted() {
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
			continue
		}
		err := l.listenOnce(ctx, func() {
			pause = firstPause
			l.stood()
		})
		if ctx.Err() != nil {
			return // end tells
		}
		rest := pause
		if errors.Is(err, errNoListen) {
			rest = silentPeriod
		}
		l.fell(l.store.failed(err))
		pause = min(2*pause, lastPause)
		l.rest(ctx, rest, err)
	}
}

// rest waits before the next attempt. New watches get the error of the last attempt at
// once, if it was a matter of configuration.
func (l *listener) rest(ctx context.Context, rest time.Duration, why error) {
	over := time.NewTimer(rest)
	defer over.Stop()
	for {
		select {
		case <-over.C:
			return
		case <-ctx.Done():
			return
		case <-l.wake:
			if !errors.Is(why, errNoListen) {
				return // a watch waits for an attempt
			}
			l.fell(l.store.failed(why))
		}
	}
}

// listenOnce listens until the connection ends. It calls standing when the server has
// confirmed LISTEN, and has sent one notification.
func (l *listener) listenOnce(ctx context.Context, standing func()) error {
	// The context ends with the store alone; and nothing that waits for a standby runs here.
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channelOf(l.store.table)}.Sanitize(), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	if err := l.echo(ctx, conn); err != nil {
		return err
	}
	standing()
	for {
		waiting, cancel := context.WithTimeout(ctx, testPeriod)
		n, err := conn.WaitForNotification(waiting)
		cancel()
		switch {
		case err == nil:
			l.hear(n.Payload)
		case ctx.Err() != nil:
			return err
		case pgconn.Timeout(err):
			if err := test(ctx, conn); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	config, before := l.config, l.before
	if config == nil {
		pool := l.store.pool.Config()
		config, before = pool.ConnConfig, pool.BeforeConnect
	}
	config = config.Copy()
	if before != nil {
		if err := before(ctx, config); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, config)
}

// echo has another connection notify this one. If one does not hear the other, something
// that pools transactions is between, or they lead to different databases.
func (l *listener) echo(ctx context.Context, conn *pgx.Conn) error {
	payload := echoMark + rand.Text()
	hearing, cancel := context.WithTimeout(ctx, echoPatience)
	defer cancel()
	if _, err := l.store.notify(hearing, []string{payload}); err != nil {
		return err
	}
	for {
		heard, err := conn.WaitForNotification(hearing)
		switch {
		case err != nil && hearing.Err() != nil && ctx.Err() == nil:
			return errNoListen
		case err != nil:
			return err
		case heard.Payload == payload:
			return nil
		}
	}
}

// test returns an error if the server of a listener does not answer, or is a standby by
// now: then no notification arrives here any more.
func test(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, testPeriod)
	defer cancel()
	var standby bool
	err := conn.QueryRow(ctx, "SELECT pg_is_in_recovery()", pgx.QueryExecModeSimpleProtocol).Scan(&standby)
	if err == nil && standby {
		err = errStandby
	}
	return err
}
