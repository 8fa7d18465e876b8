// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/pgstore"
)

// postgres has further parameters, which are pgx's, such as sslmode=verify-full. What a URL does
// not say comes from the environment, PGHOST and so on. An empty user and database are pgx's,
// and so is the password that neither the URL nor Tenure's variable has.
func postgres() *engine {
	e := forPgx(
		parameter{name: "table", preset: pgstore.DefaultTable, read: func(_ *place, value string) (string, error) {
			if _, err := pgstore.Schema(value); err != nil {
				return "", errors.New("table= is not a table name: write at most 55 letters, digits and underscores, " +
					"after a schema and a dot if the table has a schema")
			}
			return value, nil
		}},
		parameter{name: "commit", preset: string(pgstore.CommitOn), read: func(_ *place, value string) (string, error) {
			if commit := pgstore.Commit(value); commit != pgstore.CommitOn && commit != pgstore.CommitRemoteApply {
				return "", fmt.Errorf("commit= is neither %s nor %s: a write that is confirmed before it is safe could be lost, "+
					"and its token given twice", pgstore.CommitOn, pgstore.CommitRemoteApply)
			}
			return value, nil
		}},
		// listen= is where the store listens, if that is another address.
		parameter{name: "listen", preset: "auto", read: readListen, shown: func(value string) string {
			if at, err := listenerAt(value); err == nil {
				return at.text(false)
			}
			return value // off
		}},
		parameter{name: "untested", read: func(_ *place, value string) (string, error) {
			if value != "yes" {
				return "", errors.New("untested= is not yes: it admits an engine that is not PostgreSQL, and " +
					"with which Tenure was not tested")
			}
			return value, nil
		}},
		parameter{name: "guard", read: func(_ *place, value string) (string, error) {
			if value != byWatchdog && value != byStandbys {
				return "", errors.New("guard= is neither " + byWatchdog + " nor " + byStandbys)
			}
			return value, nil
		}},
		number("need"), number("of"),
		period("wal_sender_timeout", pgstore.DefaultSenderTimeout),
		period("lease", pgstore.DefaultLease),
		parameter{name: "standbys", read: func(_ *place, value string) (string, error) {
			if value != "accept" {
				return "", errors.New("standbys= is not accept: it admits asynchronous standbys that are never promoted; " +
					"for others write guard=standbys&need=NUMBER")
			}
			return value, nil
		}},
		file("password_file"),
	)
	e.check, e.open = checkPostgres, openPostgres
	return e
}

// The values of guard=.
const (
	byWatchdog = "patroni-watchdog"
	byStandbys = "standbys"
)

// checkPostgres checks the parameters together.
func checkPostgres(p *place) error {
	switch guard := p.values["guard"]; {
	case guard == "" && (p.is("need") || p.is("of") || p.is("wal_sender_timeout") || p.is("lease")):
		return errors.New("need=, of=, wal_sender_timeout= and lease= are about guard=: " +
			"write guard=standbys&need=NUMBER, or leave them out")
	case guard == byStandbys && !p.is("need"):
		return errors.New("guard=standbys lacks need=, the number of standbys")
	case guard == byWatchdog && (p.is("need") || p.is("of") || p.is("wal_sender_timeout")):
		return errors.New("need=, of= and wal_sender_timeout= are about guard=standbys: leave them out")
	}
	return checkPasswords(p)
}

// number is a parameter that is a number of standbys.
func number(name string) parameter {
	return parameter{name: name, read: func(_ *place, value string) (string, error) {
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil || n == 0 {
			return "", errors.New(name + "= is not a number of standbys")
		}
		return strconv.FormatUint(n, 10), nil
	}}
}

// guarded are the options of a guarded store, or nil.
func (p *place) guarded() *pgstore.Guarded {
	lease, _ := time.ParseDuration(p.values["lease"]) // they were read, or are the default: 0
	timeout, _ := time.ParseDuration(p.values["wal_sender_timeout"])
	need, _ := strconv.Atoi(p.values["need"])
	of, _ := strconv.Atoi(cmp.Or(p.values["of"], p.values["need"]))
	switch p.values["guard"] {
	case byWatchdog:
		return &pgstore.Guarded{Watchdog: true, Lease: lease}
	case byStandbys:
		return &pgstore.Guarded{Standbys: of, Need: need, SenderTimeout: timeout, Lease: lease}
	}
	return nil
}

// ownParameters are the parameters of the store itself, which pgx does not know.
var ownParameters = []string{
	"table", "commit", "listen", "untested", "guard", "need", "of", "wal_sender_timeout", "lease", "standbys",
	"password_file",
}

// forPgx is the common part of the addresses of a store and a listener, with more
// parameters.
func forPgx(more ...parameter) *engine {
	return &engine{
		scheme: "postgres", usage: "postgres://USER@HOST/DATABASE", pgx: true,
		write: "write postgres://USER@HOST/DATABASE, or postgres://USER@HOST:5432,HOST:5432/DATABASE?sslmode=verify-full",
		begin: beginPostgres,
		parameters: append([]parameter{
			once("user", func(p *place) *string { return &p.user }),
			once("password", func(p *place) *string { return &p.password }),
			{name: "sslrootcert", read: func(p *place, value string) (string, error) {
				if value == "system" { // that is no file
					return value, nil
				}
				return filepath.Abs(value)
			}},
			file("sslcert"), file("sslkey"), file("passfile"), file("servicefile"),
		}, more...),
	}
}

// once checks a parameter that may be given before the hosts instead.
func once(name string, of func(*place) *string) parameter {
	return parameter{name: name, read: func(p *place, value string) (string, error) {
		to := of(p)
		if *to != "" {
			return "", fmt.Errorf("there are two %ss: leave out either the one before the hosts, or %s=", name, name)
		}
		*to = value
		return "", nil
	}}
}

// beginPostgres handles what pgx itself would look up in the environment and in files; and pgx
// takes a password with a "/" for a database. Errors quote nothing that may be a password.
func beginPostgres(p *place, authority, path string) error {
	if strings.Contains(path, "@") {
		return errors.New(`an "@" follows the hosts: write %2F for "/" in a password, ` +
			`and %40 for "@" in the name of a database`)
	}
	err := p.readServers(authority)
	if err != nil {
		return err
	}
	if p.path, err = unescape(strings.TrimPrefix(path, "/")); err != nil {
		return errors.New(`the database cannot be read: write %25 for "%"`)
	}
	return invisible("the path after the host", p.path)
}

func readListen(_ *place, where string) (string, error) {
	if where == "auto" || where == pgstore.ListenOff {
		return where, nil
	}
	at, err := listenerAt(where)
	if err != nil {
		return "", err
	}
	return at.text(true), nil
}

func listenerAt(where string) (place, error) {
	scheme, rest, _ := strings.Cut(where, ":")
	if scheme != "postgres" && scheme != "postgresql" {
		return place{}, errors.New(`listen= is neither auto nor off, nor a URL: ` +
			`write the server's own, postgres://HOST/DATABASE, with %26 for "&"`)
	}
	var own []parameter
	for _, name := range ownParameters {
		own = append(own, parameter{name: name, read: func(*place, string) (string, error) {
			return "", errors.New("these parameters of the store belong only at the end of the whole URL: " +
				strings.Join(ownParameters, ", "))
		}})
	}
	at, err := forPgx(own...).parse(rest)
	if err != nil {
		return at, fmt.Errorf("listen=: %w", err)
	}
	return at, nil
}

// openPostgres also serves a role that may only read: its writes fail.
func openPostgres(ctx context.Context, p *place, ask bool) (driver.Store, error) {
	text, err := p.pgxText()
	if err != nil {
		return nil, err
	}
	options, err := p.postgresOptions()
	if err != nil {
		return nil, err
	}
	store, err := pgstore.Connect(text, &options)
	if err != nil || !ask {
		return store, briefPostgres(err)
	}
	d, err := store.Inspect(ctx)
	if err == nil {
		d.MayWrite = d.MayWrite || d.MayRead
		err = driver.NotApplied(driver.Permanent(errors.Join(d.Problems()...)))
	}
	if err != nil {
		return nil, briefPostgres(errors.Join(err, store.Close()))
	}
	_, err = pgstore.Schema(store.Table())
	if err == nil && store.Table() != pgstore.DefaultTable { // a URL cannot have each name
		p.values["table"] = store.Table()
	}
	return store, nil
}

// pgxText is the URL for pgx, with the password.
func (p *place) pgxText() (_ string, err error) {
	at := p.clone()
	if at.password, err = p.knownPassword(); err != nil {
		return "", err
	}
	for _, name := range ownParameters {
		delete(at.values, name)
	}
	if len(p.hosts) > 1 && !p.is("connect_timeout") && os.Getenv("PGCONNECT_TIMEOUT") == "" {
		at.values["connect_timeout"] = pgHostPatience
	}
	return at.text(true), nil
}

// pgHostPatience is the connect_timeout, in seconds, of each of several hosts: the hosts after
// a host that does not answer must be tried before openPatience ends.
const pgHostPatience = "2"

// postgresOptions returns the store's, with the passwords that pgx does not find by itself. It
// reads the file that the URL names.
func (p *place) postgresOptions() (o pgstore.Options, err error) {
	o = pgstore.Options{
		Table:  cmp.Or(p.values["table"], pgstore.DefaultTable),
		Commit: cmp.Or(pgstore.Commit(p.values["commit"]), pgstore.CommitOn), Untested: p.values["untested"] == "yes",
		Guarded: p.guarded(), AcceptStandbys: p.is("standbys"),
	}
	except := "" // the listener's address, if that has another password
	switch listen := p.values["listen"]; listen {
	case "":
	case pgstore.ListenOff:
		o.Listen = listen
	default:
		at, err := listenerAt(listen)
		if err != nil {
			return o, err
		}
		at.user = cmp.Or(at.user, p.user)
		same := at.user == p.user && at.password == ""
		if same {
			at.password, err = p.knownPassword()
		} else {
			at.password, err = at.knownPassword()
		}
		if err != nil {
			return o, err
		}
		if o.Listen = at.text(true); !same {
			except = o.Listen
		}
	}
	o.BeforeConnect = p.beforeConnect(except)
	return o, nil
}

// beforeConnect returns what gives a new connection the password that the file has by now,
// but to the address except. Where the file cannot be read, or is empty, it is the last one.
func (p *place) beforeConnect(except string) func(context.Context, *pgx.ConnConfig) error {
	file := p.values["password_file"]
	first, _ := p.knownPassword() // an error is reported when the store is opened
	password := reread(first, func() (string, error) {
		now, err := passwordIn(file)
		if now == "" && err == nil {
			err = errors.New("it is empty")
		}
		return now, err
	})
	return func(_ context.Context, c *pgx.ConnConfig) error {
		if file != "" && c.ConnString() != except {
			c.Password, _ = password()
		}
		return nil
	}
}

// briefPostgres returns an error of the engine in one line, without the parts that pgx repeats
// for each address, and says what to do if no server has answered.
func briefPostgres(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	var parse *pgconn.ParseConfigError
	var connect *pgconn.ConnectError
	var answered *pgconn.PgError
	switch {
	case errors.As(err, &parse):
		// What it quotes has no backtick, since escape escapes it.
		before, after, _ := strings.Cut(text, "cannot parse `")
		_, why, _ := strings.Cut(after, "`: ")
		text = before + "the URL, or a variable PG..., cannot be used: " + why
	case errors.As(err, &connect):
		why := connectLines(connect.Unwrap().Error())
		before, _, _ := strings.Cut(text, connect.Error())
		switch {
		case errors.As(err, &answered):
		case strings.Contains(why, "tls error: "):
			before += "no encrypted connection: check sslmode= in the URL, and the server's certificate: "
		default:
			before += "no server can be reached: check that it runs, and that the address is right: "
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
		return is && slices.ContainsFunc(all, func(other string) bool {
			return other != line && strings.HasPrefix(other, address)
		})
	})
	return strings.Join(all, "; ")
}
