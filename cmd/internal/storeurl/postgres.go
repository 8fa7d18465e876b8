// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/pgstore"
)

// postgres is what the URL of a store in PostgreSQL says:
//
//	postgres://USER@HOST:PORT,HOST:PORT/DATABASE?table=TABLE&commit=COMMIT&listen=URL&password_file=FILE
//
// with further parameters, which are pgx's, such as sslmode=verify-full. What it does not
// say comes from the environment, PGHOST and so on. An empty user and database are pgx's, and
// so is the password that neither the URL nor Tenure's variable has.
type postgres struct {
	servers
	database string
	more     []parameter // pgx's, as they were written

	table  string // the default one included
	commit pgstore.Commit
	// listen is where the store listens, if that is another address. nil: that of the
	// store, unless it does not listen at all.
	listen    *postgres
	listenOff bool
}

// pgFiles are those of pgx's parameters that name a file.
var pgFiles = []string{"sslrootcert", "sslcert", "sslkey", "passfile", "servicefile"}

// pgSystemRoots is the value of sslrootcert= that names no file.
const pgSystemRoots = "system"

var pgSettingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

func readPostgres(rest string) (engine, error) {
	p := postgres{table: pgstore.DefaultTable, commit: pgstore.CommitOn}
	if err := p.read(rest, p.parameters(true)); err != nil {
		return nil, err
	}
	return p, p.check()
}

// parameters are those that pgx does not know.
func (p *postgres) parameters(secrets bool) []parameter {
	table, commit, listen := p.table, string(p.commit), ""
	if table == pgstore.DefaultTable {
		table = ""
	}
	if commit == string(pgstore.CommitOn) {
		commit = ""
	}
	switch {
	case p.listenOff:
		listen = pgstore.ListenOff
	case p.listen != nil:
		listen = p.listen.engineText(secrets)
	}
	return append([]parameter{
		{"table", table, func(value string) error {
			if _, err := pgstore.Schema(value); err != nil {
				return errors.New("table= is no name of a table: write letters, digits and underscores, at most 55, " +
					"with a schema and a dot before it if need be")
			}
			p.table = value
			return nil
		}},
		{"commit", commit, func(value string) error {
			if p.commit = pgstore.Commit(value); p.commit != pgstore.CommitOn && p.commit != pgstore.CommitRemoteApply {
				return fmt.Errorf("commit= is neither %s nor %s: a write that is answered before it is safe could be lost, "+
					"and its token given twice", pgstore.CommitOn, pgstore.CommitRemoteApply)
			}
			return nil
		}},
		{"listen", listen, p.listenAt},
	}, p.servers.parameters()...)
}

func (p *postgres) listenAt(where string) error {
	scheme, rest, _ := strings.Cut(where, ":")
	switch {
	case where == "auto":
		return nil
	case where == pgstore.ListenOff:
		p.listenOff = true
		return nil
	case scheme != "postgres" && scheme != "postgresql":
		return errors.New(`listen= is neither auto nor off, nor a URL: ` +
			`write the server's own, postgres://HOST/DATABASE, with %26 for "&"`)
	}
	own := p.parameters(false)
	for i := range own {
		own[i].read = func(string) error {
			return errors.New("these parameters of the store itself stand behind the URL alone: " +
				"table, commit, listen, password_file")
		}
	}
	p.listen = new(postgres)
	if err := p.listen.read(rest, own); err != nil {
		return fmt.Errorf("listen=: %w", err)
	}
	return nil
}

// read reads what follows the colon. Own are the parameters that pgx does not know. Pgx itself
// would look at the environment and at files, and it takes a password with a "/" for a
// database. Errors quote nothing that may be a password.
func (p *postgres) read(rest string, own []parameter) error {
	const write = "write postgres://USER@HOST/DATABASE, " +
		"or postgres://USER@HOST:5432,HOST:5432/DATABASE?sslmode=verify-full"
	authority, path, query, err := cut(rest, write)
	if err != nil {
		return err
	}
	if strings.Contains(path, "@") {
		return errors.New(`an "@" follows the hosts: write %2F for "/" in a password, ` +
			`and %40 for "@" in the name of a database`)
	}
	if p.servers, err = readServers(authority, write); err != nil {
		return err
	}
	if p.database, err = unescape(strings.TrimPrefix(path, "/")); err != nil {
		return errors.New(`the database cannot be read: write %25 for "%"`)
	}
	if err := invisible("the path behind the host", p.database); err != nil {
		return err
	}
	return p.settings(query, append(own, p.once("user", &p.user), p.once("password", &p.password)))
}

// once is a parameter that may stand before the hosts instead.
func (p *postgres) once(name string, to *string) parameter {
	return parameter{name, "", func(value string) error {
		if *to != "" {
			return fmt.Errorf("there are two %ss: leave out that before the hosts, or %s=", name, name)
		}
		*to = value
		return nil
	}}
}

// settings takes what follows the question mark. What is not known is for pgx.
func (p *postgres) settings(query string, known []parameter) error {
	if query == "" {
		return nil
	}
	times := map[string]int{}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, equals := strings.Cut(pair, "=")
		name, err := unescape(name)
		value, err2 := unescape(value)
		switch {
		case err != nil || err2 != nil || !equals || !pgSettingName.MatchString(name):
			return errors.New(`what follows "?" cannot be read: write NAME=VALUE&NAME=VALUE, with %25 for "%" and %26 for "&"`)
		case strings.Contains(pair, "@") && name != "listen":
			return errors.New(`an "@" follows the "?": write %3F for "?" in a password, and %40 for "@" in a parameter`)
		}
		times[name]++
		if err := checkValue(name, value, times[name]); err != nil {
			return err
		}
		i := slices.IndexFunc(known, func(p parameter) bool { return p.name == name })
		if i >= 0 {
			if err := known[i].read(value); err != nil {
				return err
			}
			continue
		}
		if slices.Contains(pgFiles, name) && (name != "sslrootcert" || value != pgSystemRoots) {
			if value, err = filepath.Abs(value); err != nil {
				return err
			}
		}
		p.more = append(p.more, parameter{name: name, text: value})
	}
	return nil
}

// text returns the URL, which means the same to pgx but for the store's own parameters.
func (p postgres) text(secrets bool) string {
	return p.place(secrets, append(p.forEngine(secrets), p.parameters(secrets)...))
}

// engineText is what pgx gets.
func (p postgres) engineText(secrets bool) string { return p.place(secrets, p.forEngine(secrets)) }

func (p postgres) place(secrets bool, all []parameter) string {
	text := "postgres://" + p.authority(secrets)
	if p.database != "" {
		text += "/" + escapeAll(p.database)
	}
	return withParameters(text, all)
}

// forEngine are pgx's parameters.
func (p postgres) forEngine(secrets bool) (all []parameter) {
	if p.user == "" {
		all = append(all, parameter{name: "password", text: p.password})
	}
	all = append(all, p.more...)
	if secrets {
		return all
	}
	return slices.DeleteFunc(all, func(q parameter) bool { // sslpassword, too, and what is mistyped
		name := strings.ToLower(q.name)
		return strings.Contains(name, "pass") && name != "passfile"
	})
}

// open also serves a role that may only read: its writes fail.
func (p postgres) open(ctx context.Context, f *found) (driver.Store, error) {
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
		return nil, briefPostgres(errors.Join(err, store.Close()))
	}
	if _, err := pgstore.Schema(store.Table()); err == nil { // a URL cannot have each name
		p.table = store.Table()
	}
	f.note(p)
	return store, nil
}

func (p postgres) connect(context.Context, *found) (driver.Store, error) { return p.store() }

func (p postgres) store() (*pgstore.Store, error) {
	text, err := p.whole()
	if err != nil {
		return nil, err
	}
	options, err := p.options()
	if err != nil {
		return nil, err
	}
	store, err := pgstore.Connect(text, &options)
	return store, briefPostgres(err)
}

// briefPostgres returns an error of the engine in one line, without what pgx repeats for
// each address, and says what to do if nobody has answered.
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
		return is && slices.ContainsFunc(all, func(other string) bool {
			return other != line && strings.HasPrefix(other, address)
		})
	})
	return strings.Join(all, "; ")
}

// options returns the store's, with the passwords that pgx does not find by itself. It
// reads the file that the URL names.
func (p postgres) options() (o pgstore.Options, err error) {
	o = pgstore.Options{Table: p.table, Commit: p.commit}
	except := "" // the listener's address, if that has another password
	switch {
	case p.listenOff:
		o.Listen = pgstore.ListenOff
	case p.listen != nil:
		at := *p.listen
		if at.user == "" {
			at.user = p.user
		}
		if at.user == p.user && at.password == "" {
			at.password, err = p.knownPassword()
			o.Listen = at.engineText(true)
		} else {
			at.password, err = at.knownPassword()
			o.Listen = at.engineText(true)
			except = o.Listen
		}
	}
	o.BeforeConnect = p.beforeConnect(except)
	return o, err
}

// beforeConnect returns what gives a new connection the password that the file has by now,
// but to the address except. Where the file cannot be read, or is empty, it is the last one.
func (p postgres) beforeConnect(except string) func(context.Context, *pgx.ConnConfig) error {
	first, _ := p.knownPassword() // whoever opens the store is told
	password := reread(first, func() (string, error) {
		now, err := passwordIn(p.passwordFile)
		if now == "" && err == nil {
			err = errors.New("it is empty")
		}
		return now, err
	})
	return func(_ context.Context, c *pgx.ConnConfig) error {
		if p.passwordFile != "" && c.ConnString() != except {
			c.Password, _ = password()
		}
		return nil
	}
}

// whole is the URL for pgx, with the password.
func (p postgres) whole() (string, error) {
	password, err := p.knownPassword()
	if err != nil {
		return "", err
	}
	p.password = password
	has := slices.ContainsFunc(p.more, func(q parameter) bool { return q.name == "connect_timeout" })
	if len(p.hosts) > 1 && !has && os.Getenv("PGCONNECT_TIMEOUT") == "" {
		p.more = append(slices.Clone(p.more), parameter{name: "connect_timeout", text: pgHostPatience})
	}
	return p.engineText(true), nil
}

// pgHostPatience is the connect_timeout, in seconds, of each of several hosts: those after
// one that does not answer must have their turn before openPatience ends.
const pgHostPatience = "2"
