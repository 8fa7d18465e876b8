// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tenurelock/tenure/pgstore"
)

// Postgres is what the URL of a store in PostgreSQL says:
//
//	postgres://USER@HOST:PORT,HOST:PORT/DATABASE?table=TABLE&commit=COMMIT&listen=URL&password_file=FILE
//
// with further parameters, which are pgx's, such as sslmode=verify-full. What it does not
// say comes from the environment, PGHOST and so on.
type Postgres struct {
	User     string // "": pgx's
	Database string // "": pgx's
	// PasswordFile has the password.
	PasswordFile string
	// Table is the name of the table, the default one included.
	Table  string
	Commit pgstore.Commit

	password string // "": that of the file, of TENURE_STORE_PASSWORD, or pgx's
	hosts    []pgHost
	more     []pgSetting // pgx's parameters, as they were written
	// listen is where the store listens, if that is another address. "": that of the
	// store, unless it does not listen at all.
	listen    *Postgres
	listenOff bool

	// found has the table with its schema, once the store was opened.
	found *found
}

type pgHost struct{ name, port string }

type pgSetting struct{ name, value string }

const writePostgres = "write postgres://USER@HOST/DATABASE, or postgres://USER@HOST:5432,HOST:5432/DATABASE?sslmode=verify-full"

// pgParameters are those that pgx does not know, in the order in which they are written.
var pgParameters = []string{"table", "commit", "listen", "password_file"}

// pgFiles are those of pgx's parameters that name a file.
var pgFiles = []string{"sslrootcert", "sslcert", "sslkey", "passfile", "servicefile"}

// pgSystemRoots is the value of sslrootcert= that names no file.
const pgSystemRoots = "system"

var pgSettingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

func parsePostgres(rest string) (Location, error) {
	p, own, err := readPostgres(rest)
	if err == nil {
		err = p.set(own)
	}
	if err != nil {
		return Location{}, err
	}
	p.found = new(found)
	return Location{
		current: func() string { return p.located().text(true) },
		shown:   func() string { return p.located().text(false) },
		engine:  p, open: p.open,
	}, nil
}

// readPostgres reads what follows the colon. Own are the parameters that pgx does not know.
// Pgx itself would look at the environment and at files, and it takes a password with a
// "/" for a database. Errors quote nothing that may be a password.
func readPostgres(rest string) (p Postgres, own map[string]string, err error) {
	rest, slashes := strings.CutPrefix(rest, "//")
	if !slashes {
		return p, nil, errors.New("the two slashes are missing: " + writePostgres)
	}
	if strings.Contains(rest, "#") {
		return p, nil, errors.New(`it has a "#": write %23 in its place`)
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	user, password, hosts, ok := cutUser(authority)
	if !ok {
		return p, nil, errors.New(`what stands before "@" is no USER, and no USER:PASSWORD with signs such as "/", "?", "@" and "%" written as %2F, %3F, %40 and %25`)
	}
	p.User, p.password = user, password
	if strings.Contains(path, "@") {
		return p, nil, errors.New(`an "@" follows the hosts: write %2F for "/" in a password, and %40 for "@" in the name of a database`)
	}
	if hosts != "" {
		for _, host := range strings.Split(hosts, ",") {
			h, err := pgHostOf(host)
			if err != nil {
				return p, nil, err
			}
			p.hosts = append(p.hosts, h)
		}
	}
	if p.Database, err = unescape(path); err != nil {
		return p, nil, errors.New(`the database cannot be read: write %25 for "%"`)
	}
	own, err = p.settings(query)
	return p, own, err
}

// pgHostOf reads a host, which may be a folder with a socket, and its port.
func pgHostOf(text string) (h pgHost, err error) {
	name, port := text, ""
	if inside, after, closed := strings.Cut(strings.TrimPrefix(text, "["), "]"); strings.HasPrefix(text, "[") {
		name = inside
		if !closed || net.ParseIP(inside) == nil && withZone(inside) == inside || after != "" && !strings.HasPrefix(after, ":") {
			return h, errors.New("a host cannot be read: " + writePostgres)
		}
		port = strings.TrimPrefix(after, ":")
	} else if i := strings.IndexByte(text, ':'); i >= 0 {
		name, port = text[:i], text[i+1:]
	}
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
		return h, errors.New("what stands behind a host is no port from 1 to 65535: " + writePostgres)
	}
	if name, err = unescape(name); err != nil || strings.ContainsAny(name, " ,@\t\n") {
		return h, errors.New("a host cannot be read: " + writePostgres)
	}
	return pgHost{name, port}, nil
}

// settings takes what follows the question mark, and returns what is not for pgx.
func (p *Postgres) settings(query string) (own map[string]string, err error) {
	own = map[string]string{}
	if query == "" {
		return own, nil
	}
	seen := map[string]bool{}
	for _, pair := range strings.Split(query, "&") {
		name, value, found := strings.Cut(pair, "=")
		name, err := unescape(name)
		if err == nil {
			value, err = unescape(value)
		}
		switch {
		case err != nil || !found || !pgSettingName.MatchString(name):
			return nil, errors.New(`what follows "?" cannot be read: write NAME=VALUE&NAME=VALUE, with %25 for "%" and %26 for "&"`)
		case strings.Contains(pair, "@") && name != "listen":
			return nil, errors.New(`an "@" follows the "?": write %3F for "?" in a password, and %40 for "@" in a parameter`)
		case seen[name]:
			return nil, fmt.Errorf("%s= is there twice: write it once", name)
		case value == "":
			return nil, fmt.Errorf("%s= has no value: write one, or leave it out", name)
		}
		seen[name] = true
		switch {
		case slices.Contains(pgParameters, name):
			own[name] = value
		case name == "user" && p.User != "":
			return nil, errors.New("there are two users: leave out that before the hosts, or user=")
		case name == "user":
			p.User = value
		case name == "password" && p.password != "":
			return nil, errors.New("there are two passwords: leave out that before the hosts, or password=")
		case name == "password":
			p.password = value
		default:
			if slices.Contains(pgFiles, name) && (name != "sslrootcert" || value != pgSystemRoots) {
				if err := absolute(&value); err != nil {
					return nil, err
				}
			}
			p.more = append(p.more, pgSetting{name, value})
		}
	}
	return own, nil
}

// set takes the store's own parameters.
func (p *Postgres) set(own map[string]string) error {
	if p.Table = own["table"]; p.Table == "" {
		p.Table = pgstore.DefaultTable
	}
	if _, err := pgstore.Schema(p.Table); err != nil {
		return errors.New("table= is no name of a table: write letters, digits and underscores, at most 55, with a schema and a dot before it if need be")
	}
	switch p.Commit = pgstore.Commit(own["commit"]); p.Commit {
	case "":
		p.Commit = pgstore.CommitOn
	case pgstore.CommitOn, pgstore.CommitRemoteApply:
	default:
		return fmt.Errorf("commit= is neither %s nor %s: a write that is answered before it is safe could be lost, and its token given twice", pgstore.CommitOn, pgstore.CommitRemoteApply)
	}
	if err := p.listenAt(own["listen"]); err != nil {
		return err
	}
	p.PasswordFile = own["password_file"]
	switch {
	case p.PasswordFile != "" && p.User == "":
		return errors.New("password_file= is there, and no user: write USER@ before the hosts")
	case p.PasswordFile != "" && p.password != "":
		return errors.New("there are two passwords: leave out that in the URL, or password_file=")
	}
	return absolute(&p.PasswordFile)
}

func (p *Postgres) listenAt(where string) error {
	switch where {
	case "", "auto":
		return nil
	case pgstore.ListenOff:
		p.listenOff = true
		return nil
	}
	scheme, rest, _ := strings.Cut(where, ":")
	if scheme != "postgres" && scheme != "postgresql" {
		return errors.New(`listen= is neither auto nor off, nor a URL: write the server's own, postgres://HOST/DATABASE, with %26 for "&"`)
	}
	at, own, err := readPostgres(rest)
	switch {
	case err != nil:
		return fmt.Errorf("listen=: %w", err)
	case len(own) > 0:
		return errors.New("listen= has parameters of the store itself: " + strings.Join(pgParameters, ", ") + " stand behind the URL alone")
	}
	p.listen = &at
	return nil
}

// located is p with the table that was found. A name that a URL cannot have is left out of it.
func (p Postgres) located() Postgres {
	table := p.found.or(p.Table)
	if _, err := pgstore.Schema(table); err == nil {
		p.Table = table
	}
	return p
}

// text returns the URL, which means the same to pgx but for the store's own parameters.
// Without secrets it is for people.
func (p Postgres) text(secrets bool) string {
	query := p.query(secrets)
	add := func(name, value, preset string) {
		if value != preset {
			query = append(query, name+"="+pgEscape(value))
		}
	}
	add("table", p.Table, pgstore.DefaultTable)
	add("commit", string(p.Commit), string(pgstore.CommitOn))
	switch {
	case p.listenOff:
		add("listen", pgstore.ListenOff, "")
	case p.listen != nil:
		add("listen", p.listen.engineText(secrets), "")
	}
	add("password_file", p.PasswordFile, "")
	return p.place(secrets, query)
}

// engineText is what pgx gets.
func (p Postgres) engineText(secrets bool) string { return p.place(secrets, p.query(secrets)) }

func (p Postgres) query(secrets bool) (query []string) {
	if p.User == "" && p.password != "" && secrets {
		query = append(query, "password="+pgEscape(p.password))
	}
	for _, s := range p.more {
		if secrets || !secret(s.name) {
			query = append(query, s.name+"="+pgEscape(s.value))
		}
	}
	return query
}

// secret reports whether the value of a parameter is none for people: password,
// sslpassword, and what somebody may have written for them.
func secret(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "pass") && name != "passfile"
}

func (p Postgres) place(secrets bool, query []string) string {
	var b strings.Builder
	b.WriteString("postgres://")
	if p.User != "" {
		b.WriteString(pgEscapeAll(p.User))
		if p.password != "" && secrets {
			b.WriteString(":" + pgEscapeAll(p.password))
		}
		b.WriteString("@")
	}
	for i, h := range p.hosts {
		if i > 0 {
			b.WriteString(",")
		}
		name := url.PathEscape(h.name)
		if strings.Contains(h.name, ":") {
			name = "[" + zoneEscaped(h.name) + "]"
		}
		b.WriteString(name)
		if h.port != "" {
			b.WriteString(":" + h.port)
		}
	}
	if p.Database != "" {
		b.WriteString("/" + pgEscapeAll(p.Database))
	}
	if len(query) > 0 {
		b.WriteString("?" + strings.Join(query, "&"))
	}
	return b.String()
}

// pgEscape escapes what has a meaning in the parameters of a URL of pgx.
func pgEscape(text string) string {
	return strings.NewReplacer("%2F", "/", "&", "%26", "=", "%3D", "@", "%40", "+", "%2B").Replace(url.PathEscape(text))
}

// pgEscapeAll escapes what has a meaning before them, too.
func pgEscapeAll(text string) string {
	return strings.NewReplacer("/", "%2F", ":", "%3A").Replace(pgEscape(text))
}

// Password returns that of the user, "" if it is pgx that may know it: of the URL, of the
// file, or of the environment.
func (p Postgres) Password() (string, error) { return passwordOf(p.User, p.password, p.PasswordFile) }

// Options returns the store's, with the passwords that pgx does not find by itself. It
// reads the file that the URL names.
func (p Postgres) Options() (o pgstore.Options, err error) {
	o = pgstore.Options{Table: p.Table, Commit: p.Commit}
	except := "" // the listener's address, if that has another password
	switch {
	case p.listenOff:
		o.Listen = pgstore.ListenOff
	case p.listen != nil:
		at := *p.listen
		if at.User == "" {
			at.User = p.User
		}
		if at.User == p.User && at.password == "" {
			at.password, err = p.Password()
			o.Listen = at.engineText(true)
		} else {
			at.password, err = at.Password()
			o.Listen = at.engineText(true)
			except = o.Listen
		}
	}
	o.BeforeConnect = p.beforeConnect(except)
	return o, err
}

// beforeConnect returns what gives a new connection the password that the file has by now,
// but to the address except. Where the file cannot be read, or is empty, it is the last one.
func (p Postgres) beforeConnect(except string) func(context.Context, *pgx.ConnConfig) error {
	first, _ := p.Password() // whoever opens the store is told
	password := reread(first, func() (string, error) {
		now, err := passwordIn(p.PasswordFile)
		if now == "" && err == nil {
			err = errors.New("it is empty")
		}
		return now, err
	})
	return func(_ context.Context, c *pgx.ConnConfig) error {
		if p.PasswordFile != "" && c.ConnString() != except {
			c.Password, _ = password()
		}
		return nil
	}
}

// whole is the URL for pgx, with the password.
func (p Postgres) whole() (string, error) {
	password, err := p.Password()
	if err != nil {
		return "", err
	}
	p.password = password
	if len(p.hosts) > 1 && !p.has("connect_timeout") && os.Getenv("PGCONNECT_TIMEOUT") == "" {
		p.more = append(slices.Clone(p.more), pgSetting{"connect_timeout", pgHostPatience})
	}
	return p.engineText(true), nil
}

// pgHostPatience is the connect_timeout, in seconds, of each of several hosts: those after
// one that does not answer must have their turn before openPatience ends.
const pgHostPatience = "2"

func (p Postgres) has(setting string) bool {
	return slices.ContainsFunc(p.more, func(s pgSetting) bool { return s.name == setting })
}
