// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/pgstore"
)

// open opens the store. A role that may only read gets one, too, whose writes fail.
func (p Postgres) open() (driver.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openPatience)
	defer cancel()
	store, err := p.store()
	if err != nil {
		return nil, err
	}
	d, err := store.Inspect(ctx)
	if err == nil {
		d.MayWrite = d.MayWrite || d.MayRead
		err = driver.NotApplied(driver.Permanent(errors.Join(d.Problems()...)))
	}
	if err != nil {
		return nil, BriefPostgres(errors.Join(err, store.Close()))
	}
	// A command that gets the URL of this store has the same table.
	p.found.note(store.Table())
	return store, nil
}

func (p Postgres) connect(context.Context) (driver.Store, error) { return p.store() }

func (p Postgres) store() (*pgstore.Store, error) {
	text, err := p.whole()
	if err != nil {
		return nil, err
	}
	options, err := p.Options()
	if err != nil {
		return nil, err
	}
	store, err := pgstore.Connect(text, &options)
	return store, BriefPostgres(err)
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
