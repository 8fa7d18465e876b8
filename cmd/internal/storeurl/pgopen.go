// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/pgstore"
)

// open opens the store. A role that may only read gets one, too, whose writes fail.
func (p Postgres) open() (driver.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openPatience)
	defer cancel()
	text, err := p.whole()
	if err != nil {
		return nil, err
	}
	options, err := p.Options()
	if err != nil {
		return nil, err
	}
	store, err := pgstore.Open(ctx, text, &options)
	if err == nil {
		p.keep(store)
		return store, nil
	}
	var connect *pgconn.ConnectError // a second attempt with a wrong password would be one too many
	if !errors.As(err, &connect) {
		if reader := p.reader(ctx); reader != nil {
			return reader, nil
		}
	}
	return nil, BriefPostgres(err)
}

// keep has the URL name the table that a store has found, so that a command which gets that
// URL has the same one.
func (p Postgres) keep(store *pgstore.Store) {
	table := store.Table()
	p.found.Store(&table)
}

// Pool returns a pool of so many connections at most for the database, which its store need
// not be in. It sends nothing.
func (p Postgres) Pool(ctx context.Context, conns int32) (*pgxpool.Pool, error) {
	text, err := p.whole()
	if err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, BriefPostgres(driver.Permanent(err))
	}
	refresh, password := pgstore.Refresh(config.ConnConfig), p.beforeConnect("")
	config.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		return errors.Join(refresh(ctx, c), password(ctx, c))
	}
	pgstore.Configure(config)
	config.MaxConns = conns
	return pgxpool.NewWithConfig(ctx, config)
}

// readerConns are enough for a command that looks.
const readerConns = 4

// readOnly is a store whose role may read the table, and not write it.
type readOnly struct {
	*pgstore.Store
	pool *pgxpool.Pool
}

func (r readOnly) Close() error {
	err := r.Store.Close()
	r.pool.Close()
	return err
}

// reader returns nil if there is more in the way of a store than the right to write.
func (p Postgres) reader(ctx context.Context) driver.Store {
	pool, err := p.Pool(ctx, readerConns)
	if err != nil {
		return nil
	}
	options, err := p.Options()
	if err == nil {
		var store *pgstore.Store
		if store, err = pgstore.New(pool, &options); err == nil {
			d, err := store.Describe(ctx)
			if err == nil && d.MayRead && !d.MayWrite {
				d.MayWrite = true
				if len(d.Problems()) == 0 {
					p.keep(store)
					return readOnly{store, pool}
				}
			}
			_ = store.Close() // it has done nothing
		}
	}
	pool.Close()
	return nil
}

// BriefPostgres returns an error of the engine in one line, without what pgx repeats for
// each address, and says what to do if nobody has answered.
func BriefPostgres(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	var parse *pgconn.ParseConfigError
	var connect *pgconn.ConnectError
	var answered *pgconn.PgError
	switch {
	case errors.As(err, &parse):
		// What it quotes has no backtick, since pgEscape escapes it.
		before, after, _ := strings.Cut(text, "cannot parse `")
		_, why, _ := strings.Cut(after, "`: ")
		text = before + "the URL, or a variable PG..., cannot be used: " + why
	case errors.As(err, &connect):
		why := connectLines(connect.Unwrap().Error())
		before, _, _ := strings.Cut(text, connect.Error())
		switch {
		case errors.As(err, &answered):
		case strings.Contains(why, "tls error: "):
			before += "no encrypted connection: see sslmode= in the URL, and the server's certificate: "
		default:
			before += "no server can be reached: see that it runs, and that the address is right: "
		}
		text = before + why
	}
	return &briefError{strings.Join(strings.Fields(text), " "), err}
}

// connectLines has each line once. With sslmode=prefer an address is tried twice, and then
// it is no matter that the first time was refused.
func connectLines(text string) string {
	const refused = "tls error: server refused TLS connection"
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	all = slices.DeleteFunc(all, func(line string) bool {
		address, is := strings.CutSuffix(line, refused)
		return is && slices.ContainsFunc(all, func(other string) bool { return other != line && strings.HasPrefix(other, address) })
	})
	return strings.Join(all, "; ")
}
