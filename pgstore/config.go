// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// How soon a connection whose peer is gone is detected: the silence before the first
// test, the pause between tests, and the number of tests. On Linux unacknowledged data
// also end it, after the sum of these.
const (
	keepAlive      = 5 * time.Second
	keepAliveCount = 3
)

// connectTimeout bounds a connection attempt to one host, if the URL does not.
const connectTimeout = 10 * time.Second

// Configure sets in a pool's config what the store relies on, for a pool that is then
// passed to [New]:
//
//   - The engine is never asked to cancel a statement. A commit that waits for a
//     synchronous standby would become visible without it. So statements on these
//     connections may go on after their context; use another pool for other work, unless
//     that is acceptable there.
//   - No ping before a statement on an idle connection: it would double the round trips
//     of a heartbeat. TCP detects connections whose peer is gone, within 20 s.
//   - The store gets the warning that a standby has not confirmed a commit.
//   - Of several hosts the primary is used, unless target_session_attrs says otherwise.
//   - An attempt to connect takes 10 s at most, unless connect_timeout says otherwise.
func Configure(config *pgxpool.Config) {
	c := config.ConnConfig
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	if c.ValidateConnect == nil && slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != c.Host || f.Port != c.Port }) {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	c.DialFunc = dial
	notice := c.OnNotice
	c.OnNotice = func(pg *pgconn.PgConn, n *pgconn.Notice) {
		if n.Routine == "SyncRepWaitForLSN" {
			pg.CustomData()[unconfirmedKey] = true
		}
		if notice != nil {
			notice(pg, n)
		}
	}
	config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	before := config.BeforeConnect
	config.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		if before != nil {
			if err := before(ctx, c); err != nil {
				return err
			}
		}
		neverCancel(&c.Config)
		return nil
	}
}

// Refresh returns a BeforeConnect for a pool, which reads, for each new connection, the
// files that the connection string of its config or the environment names: passfile,
// sslcert, sslkey and sslrootcert, which may have been renewed. If a file cannot be read,
// its last content stays in use. It replaces Password, TLSConfig and Fallbacks, also values
// that the program has set. It may be called concurrently, and never returns an error.
func Refresh(config *pgx.ConnConfig) func(context.Context, *pgx.ConnConfig) error {
	var mu sync.Mutex
	last := config.Copy()
	return func(_ context.Context, c *pgx.ConnConfig) error {
		fresh, err := pgx.ParseConfig(config.ConnString())
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			if fresh.Password == "" { // a passfile that is gone is no error
				fresh.Password = last.Password
			}
			last = fresh
		}
		now := last.Copy()
		c.Password, c.TLSConfig, c.Fallbacks = now.Password, now.TLSConfig, now.Fallbacks
		return nil
	}
}

// refresh is Refresh, and after it what the options want.
func (o *Options) refresh(config *pgx.ConnConfig) func(context.Context, *pgx.ConnConfig) error {
	refresh := Refresh(config)
	if o.BeforeConnect == nil {
		return refresh
	}
	return func(ctx context.Context, c *pgx.ConnConfig) error {
		return errors.Join(refresh(ctx, c), o.BeforeConnect(ctx, c))
	}
}

var errNoCancel = errors.New("pgstore: a statement is never cancelled")

// neverCancel forbids an established connection to dial: pgx would dial to send a
// request to cancel, when the connection breaks.
func neverCancel(c *pgconn.Config) {
	var stands atomic.Bool
	dial, after := c.DialFunc, c.AfterConnect
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if stands.Load() {
			return nil, errNoCancel
		}
		return dial(ctx, network, address)
	}
	c.AfterConnect = func(ctx context.Context, pg *pgconn.PgConn) error {
		stands.Store(true)
		if after == nil {
			return nil
		}
		return after(ctx, pg)
	}
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive, Count: keepAliveCount},
		Control:         limitUnacknowledged,
	}
	return d.DialContext(ctx, network, address)
}
