// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package storeurl maps the URL of a store, from --store or TENURE_STORE, to the
// store. A table has the name and the properties of each engine; one reader and
// one writer serve all of them.
package storeurl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tenurelock/tenure/cmd/internal/pattern"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/sqlitestore"
)

// Location is where a store is. It is made by [Parse] or [Default].
type Location struct {
	written place
	// found is what the URL says once the environment has said the rest: a process that gets
	// the URL may have another environment, and the same name elsewhere has other locks.
	found  *atomic.Pointer[place]
	preset bool
}

// engine is a row of the table: how the URLs of a scheme are read, and what they lead to.
type engine struct {
	scheme string
	usage  string // the form of its URLs, in the list of all; "": as for another engine
	write  string // what to write, for messages about one URL

	// read takes what follows the colon, if the URL is not of the form of RFC 3986.
	read func(p *place, rest string) error
	// begin takes what stands between the two slashes and the question mark.
	begin      func(p *place, authority, path string) error
	bare       bool // there may be no slashes, and nothing between them
	parameters []parameter
	pgx        bool                 // pgx reads parameters that are not listed
	check      func(p *place) error // finds what does not fit together; nil: nothing
	probed     bool                 // the store of unasked says which options there cannot be

	// host is as [Location.Host]. nil: the first of the hosts.
	host func(p *place) string
	// open returns the store. With ask its engine is asked whether it can be used. It puts what it
	// finds into the place.
	open func(ctx context.Context, p *place, ask bool) (driver.Store, error)
	// unasked returns the store for what asks its engine nothing. nil: as open, without ask.
	unasked func(p *place) (driver.Store, error)
}

// engines are the engines of this build, in the order in which messages name them. They do not
// register themselves.
func engines() []*engine {
	return []*engine{
		sqlite(), dynamodb(), etcd("etcd"), etcd("etcds"), zookeeper(), postgres(), mysql("mysql"), mysql("mariadb"), redis("redis"), redis("rediss"), kubernetes(), s3(), memory(), preset(),
	}
}

// inPrograms are the packages whose stores no command has, by what people may call them.
var inPrograms = map[string]string{
	"gs": "gcsstore", "gcs": "gcsstore",
	"azblob": "azblobstore", "az": "azblobstore", "azure": "azblobstore",
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// isScheme says that a text can be the name of a scheme: what RFC 3986 has for that, but for
// the dot, which paths have, and for a single letter, which is a drive.
func isScheme(name string) bool {
	return len(name) > 1 && strings.ContainsAny(name[:1], letters) && strings.Trim(name, letters+"0123456789+-") == ""
}

// Parse returns the location that a URL names. It looks at nothing but the
// text; an error means that the text is wrong. It refuses control characters
// anywhere, and white space at the ends of the URL, its path and its parameters.
// Errors never quote what may hold a password.
func Parse(url string) (Location, error) {
	if url == "" {
		return Location{}, fmt.Errorf("store URL is empty: write %s", usage())
	}
	if err := invisible("store URL", url); err != nil {
		return Location{}, err
	}
	name, rest, colon := strings.Cut(url, ":")
	if !colon || !isScheme(name) { // a path
		return Location{}, fmt.Errorf("store URL %.60q has no scheme: write %s", shown(url), usage())
	}
	all := engines()
	i := slices.IndexFunc(all, func(e *engine) bool {
		return e.scheme == name || e.scheme == "postgres" && name == "postgresql"
	})
	if pkg := inPrograms[name]; pkg != "" {
		return Location{}, fmt.Errorf("store scheme %q is only for programs: package %s keeps locks there, "+
			"and this command does not include it; write %s", name, pkg, usage())
	} else if i < 0 {
		return Location{}, fmt.Errorf("store scheme %q is unknown: write %s", name, usage())
	}
	p, err := all[i].parse(rest)
	if err != nil {
		return Location{}, fmt.Errorf("store URL %.60q: %w", name+":"+shownRest(rest), err)
	}
	return Location{p, new(atomic.Pointer[place]), all[i].scheme == "default"}, nil
}

// Default returns the default location: an SQLite file in the user's state folder.
// It does not create the file or the folder; see [MakeFolder].
func Default() (Location, error) {
	p, err := preset().parse("")
	return Location{p, new(atomic.Pointer[place]), true}, err
}

func usage() string {
	var all []string
	for _, e := range engines() {
		if e.usage != "" {
			all = append(all, e.usage)
		}
	}
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

func (l Location) now() *place {
	if p := l.found.Load(); p != nil {
		return p
	}
	return &l.written
}

// URL returns the URL of the location, in which the path of every file is absolute: it
// means the same to a process in another folder. After the store was opened, it also has what
// the environment named: the region and the endpoint of AWS, the namespace and the context
// of a Kubernetes cluster, and the schema of a PostgreSQL table, because a command may have
// another environment. It may contain a password: see [Location.Shown].
func (l Location) URL() string { return l.now().text(true) }

// Shown returns the URL for people and for logs: a password in it is left out.
func (l Location) Shown() string { return l.now().text(false) }

// Host returns the store's host, the first one of several, without a port: a caller finds
// with it the address by which this machine reaches the store. It is the loopback for a store
// on this machine, and empty if the host is not known. Once a store on
// DynamoDB was opened its region is known, too.
func (l Location) Host() string {
	if p := l.now(); p.host != nil {
		return p.host(p)
	}
	return l.now().firstHost()
}

// Private says that no other process can reach the store.
func (l Location) Private() bool { return l.Scheme() == "memory" }

// Preset says that the location is the default, whether or not the user has named it.
func (l Location) Preset() bool { return l.preset }

// File returns the file that contains the store, "" if it is not in a file.
func (l Location) File() string {
	if l.Scheme() == "sqlite" {
		return l.written.name
	}
	return ""
}

// Scheme returns what the URL begins with, up to the colon.
func (l Location) Scheme() string { return l.written.scheme }

// User returns the user of a database that the URL names, "" if it names none.
func (l Location) User() string {
	if l.written.pgx || IsRedis(l.Scheme()) || IsMySQL(l.Scheme()) {
		return l.written.user
	}
	return ""
}

// openPatience bounds the opening of a store, credentials included. The service that hands
// them out to a machine may take seconds.
const openPatience = 7 * time.Second

// Open opens the store. An error of Open is about the store, not the URL.
func (l Location) Open() (driver.Store, error) { return l.open(context.Background(), true) }

// Connect returns the store without asking its engine whether it can be used: for what must
// work where [Location.Open] fails.
func (l Location) Connect(ctx context.Context) (driver.Store, error) { return l.open(ctx, false) }

func (l Location) open(ctx context.Context, ask bool) (driver.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	at := l.written.clone()
	store, err := at.open(ctx, at, ask)
	if ask && err == nil {
		l.found.Store(at)
	} else {
		l.found.CompareAndSwap(nil, at) // it may lack what an engine has said
	}
	if err != nil {
		return nil, err // not a nil pointer in an interface
	}
	return store, nil
}

// Unasked returns the store for what asks its engine nothing, such as [driver.Granter]: it
// needs no credentials.
func (l Location) Unasked(ctx context.Context) (driver.Store, error) {
	if l.written.unasked != nil {
		return l.written.unasked(l.written.clone())
	}
	return l.Connect(ctx)
}

// Diagnose returns findings about the store's engine, whether the store opens or not: see
// [driver.Diagnoser]. [Location.Open] reports why it cannot be reached.
func (l Location) Diagnose(ctx context.Context, t driver.Timing) []driver.Finding {
	if file := l.File(); file != "" {
		return sqlitestore.Diagnose(ctx, file)
	}
	store, err := l.Connect(ctx)
	if err != nil {
		return nil
	}
	defer store.Close() //nolint:errcheck // nothing was kept in it
	if d, ok := store.(driver.Diagnoser); ok {
		return d.Diagnose(ctx, t)
	}
	return nil
}

// Brief returns an error of the store in one line, with what to do.
func (l Location) Brief(err error) error {
	if l.written.pgx {
		return briefPostgres(err)
	}
	return err
}

// briefError leaves out what an engine's client says about things that are unknown to the user.
type briefError struct {
	text string
	err  error
}

func (e *briefError) Error() string { return e.text }
func (e *briefError) Unwrap() error { return e.err }

// place is what a URL says.
type place struct {
	*engine
	user, password string // password "": from the file, or from TENURE_STORE_PASSWORD
	hosts          []server
	name           string            // of a file, a table, a bucket or a namespace
	path           string            // a prefix, a root or a database, without the URL's own slashes
	values         map[string]string // of the parameters, without those that have their default
}

func (p place) clone() *place {
	p.values = maps.Clone(p.values)
	return &p
}

// is says that a toggle is on.
func (p *place) is(name string) bool { return p.values[name] != "" }

// A parameter follows the question mark of a URL.
type parameter struct {
	name   string
	preset string // the default, which no URL has
	// read returns a value, which is not empty, as all write it. nil: it is any text.
	read func(p *place, value string) (string, error)
	// shown returns the value without what is secret. nil: nothing is.
	shown func(value string) string
}

// file is a parameter whose file gets its whole path.
func file(name string) parameter {
	return parameter{name: name, read: func(_ *place, value string) (string, error) { return filepath.Abs(value) }}
}

// toggle is a parameter that is true or false, also 1 or 0. On is how true is written.
func toggle(name, on string) parameter {
	return parameter{name: name, read: func(_ *place, value string) (string, error) {
		switch value {
		case "true", "1":
			return on, nil
		case "false", "0":
			return "", nil
		}
		return "", fmt.Errorf("%s= is neither true nor false", name)
	}}
}

// parse reads what follows the colon. Net/url would take some errors for a port or a fragment,
// and supports only one host.
func (e *engine) parse(rest string) (place, error) {
	p := place{engine: e, values: map[string]string{}}
	if e.read != nil {
		return p, e.read(&p, rest)
	}
	if e.bare && (rest == "" || rest[0] == '?') {
		rest = "//" + rest
	}
	rest, slashes := strings.CutPrefix(rest, "//")
	switch {
	case !slashes:
		return p, errors.New("the two slashes are missing: " + e.write)
	case strings.Contains(rest, "#"):
		return p, errors.New(`it contains a "#": write %23 instead`)
	}
	authority, query, _ := strings.Cut(rest, "?")
	authority, path, slash := strings.Cut(authority, "/")
	if slash {
		path = "/" + path
	}
	if err := e.begin(&p, authority, path); err != nil {
		return p, err
	}
	err := p.readParameters(query)
	if err == nil && e.check != nil {
		err = e.check(&p)
	}
	if err != nil || !e.probed {
		return p, err
	}
	store, err := e.unasked(&p)
	if err != nil {
		return p, refused(err)
	}
	return p, store.Close()
}

var packageName = pattern.Lazy(`^[a-z0-9]+store: `)

// refused says why a store takes no such options, without the name of its package.
func refused(err error) error {
	return errors.New(packageName().ReplaceAllString(err.Error(), ""))
}

// shown returns the beginning of an unreadable text that cannot be a secret: a password
// follows a colon, and parameters may contain keys. The text before an @ is a user, or
// a password. A list of settings, or an escaped text, may contain a password anywhere.
func shown(text string) string {
	begin := text
	if i := strings.IndexAny(text, ":?#"); i >= 0 {
		begin = text[:i+1] + "…"
	}
	if strings.Contains(text, "@") || strings.ContainsAny(begin, "=;%") {
		return "…"
	}
	return begin
}

// shownRest is what is shown of what follows the name of a scheme. Without the two
// slashes a password may be all there is.
func shownRest(rest string) string {
	behind, slashes := strings.CutPrefix(rest, "//")
	switch {
	case rest == "":
		return ""
	case slashes:
		return "//" + shown(behind)
	}
	return "…"
}

// invisible refuses control characters anywhere in a text, and white space at its ends.
// Engines would take them as part of a name, so two hosts would use two stores under
// names that look the same. The error quotes only that character.
func invisible(what, text string) error {
	position, trimmed := 0, strings.TrimSpace(text)
	begin := strings.Index(text, trimmed)
	for i, r := range text {
		position++
		outside := i < begin || i >= begin+len(trimmed)
		if outside || unicode.IsControl(r) {
			return fmt.Errorf("%s has %q at position %d of %d: remove it; use echo -n to make a Secret, "+
				"and leave no CR at the end of a line in an env file", what, r, position, utf8.RuneCountInString(text))
		}
	}
	return nil
}

// readPath takes the path after the host, without its first and its last slash. It refuses a
// path that people may take for the path of another store. A slash at its beginning, which
// some engines would keep, is written %2F.
func (p *place) readPath(written string) error {
	path, err := url.PathUnescape(strings.TrimPrefix(written, "/"))
	if err != nil {
		return errors.New(`the path cannot be read: write %25 for "%"`)
	}
	if path == "" {
		return nil
	}
	if err := invisible("the path after the host", path); err != nil {
		return err
	}
	checked := path
	if strings.HasPrefix(written, "//") {
		checked = "/" // for it is doubled
	}
	if err := driver.CheckPrefix(checked, func(string) bool { return false }); err != nil {
		return fmt.Errorf("the path after the host: %w", err)
	}
	p.path = strings.TrimSuffix(path, "/")
	return nil
}

// unescape does what libpq does, but that a space need not be escaped. It takes no plus for one.
func unescape(text string) (string, error) {
	text, err := url.PathUnescape(text)
	if err == nil && strings.ContainsRune(text, 0) {
		err = errors.New("a zero byte")
	}
	return text, err
}

// escapeAll escapes what has a meaning anywhere in a URL.
func escapeAll(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

// escape is escapeAll, and leaves paths and URLs legible.
func escape(text string) string {
	return strings.NewReplacer("%3A", ":", "%2F", "/").Replace(escapeAll(text))
}

var (
	parameterName = pattern.Lazy(`^[A-Za-z][A-Za-z_-]*$`)
	pgxName       = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_.]*$`)
)

// readParameters reads what follows the question mark. It refuses repeated and unknown
// parameters.
func (p *place) readParameters(query string) error {
	if query == "" {
		return nil
	}
	unreadable := errors.New(`what follows "?" cannot be read: ` +
		`write NAME=VALUE&NAME=VALUE, with %25 for "%", %26 for "&" and %3B for ";"`)
	decode := url.QueryUnescape
	if p.pgx {
		decode = unescape
	} else if strings.Contains(query, ";") {
		return unreadable
	}
	var names []string
	for _, known := range p.parameters {
		names = append(names, known.name)
	}
	times := map[string]int{}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, equals := strings.Cut(pair, "=")
		value, err := decode(value)
		if p.pgx && err == nil {
			name, err = decode(name)
		}
		i := slices.Index(names, name)
		times[name]++
		switch {
		case err != nil, p.pgx && (!equals || !pgxName().MatchString(name)):
			return unreadable
		case p.pgx && strings.Contains(pair, "@") && name != "listen":
			return errors.New(`an "@" follows the "?": write %3F for "?" in a password, and %40 for "@" in a parameter`)
		case p.pgx || i >= 0:
		case !parameterName().MatchString(name) || strings.Contains(query, "@"):
			return errors.New("a parameter is unknown: the parameters are " + strings.Join(names, ", "))
		default:
			return fmt.Errorf("parameter %.40q is unknown: the parameters are %s", name, strings.Join(names, ", "))
		}
		if err := checkValue(name, value, times[name]); err != nil {
			return err
		}
		if i >= 0 && p.parameters[i].read != nil {
			if value, err = p.parameters[i].read(p, value); err != nil {
				return err
			}
		}
		if value != "" && (i < 0 || value != p.parameters[i].preset) {
			p.values[name] = value
		}
	}
	return nil
}

// checkValue refuses what no parameter may be.
func checkValue(name, value string, times int) error {
	switch {
	case times > 1:
		return fmt.Errorf("%s= is given twice: write it once", name)
	case value == "":
		return fmt.Errorf("%s= has no value: write one, or leave it out", name)
	case name == "password": // may have any character
		return nil
	}
	return invisible(fmt.Sprintf("the value of parameter %.40q", name), value)
}

// text returns the URL that says the same: it leaves out what is a default, and has the rest in
// one order. Without secrets it is for people.
func (p *place) text(secrets bool) string {
	begin := p.scheme + ":"
	if p.read != nil {
		return begin + p.fileText()
	}
	if authority := p.authority(secrets); authority != "" || !p.bare {
		begin += "//" + authority
	}
	switch behind, slash := strings.CutPrefix(p.path, "/"); {
	case p.pgx && p.path != "":
		begin += "/" + escapeAll(p.path)
	case slash: // it is the prefix's own
		begin += "/%2F" + escape(behind)
	case p.path != "":
		begin += "/" + escape(p.path)
	}
	var all []string
	if p.user == "" && p.password != "" && secrets {
		all = append(all, "password="+escape(p.password))
	}
	values := maps.Clone(p.values)
	for _, known := range p.parameters {
		delete(values, known.name)
	}
	for _, name := range slices.Sorted(maps.Keys(values)) { // they are pgx's: sslpassword, and what is mistyped
		if secrets || !strings.Contains(strings.ToLower(name), "pass") {
			all = append(all, name+"="+escape(values[name]))
		}
	}
	for _, known := range p.parameters {
		value := p.values[known.name]
		if value != "" && known.shown != nil && !secrets {
			value = known.shown(value)
		}
		if value != "" {
			all = append(all, known.name+"="+escape(value))
		}
	}
	if len(all) == 0 {
		return begin
	}
	return begin + "?" + strings.Join(all, "&")
}

const here = "127.0.0.1" // the host of a store of this machine

func memory() *engine {
	return &engine{
		scheme: "memory", usage: "memory:",
		read: func(_ *place, rest string) error { return nothing(rest) },
		open: func(context.Context, *place, bool) (driver.Store, error) { return memstore.New(), nil },
	}
}

func nothing(rest string) error {
	if rest != "" {
		return errors.New("nothing follows the colon")
	}
	return nil
}

// preset is also for callers that ask for the default: in a crontab, say,
// where an unnamed store is refused.
func preset() *engine {
	return &engine{scheme: "default", usage: "default:", read: func(p *place, rest string) error {
		if err := nothing(rest); err != nil {
			return err
		}
		folder, err := StateFolder()
		if err != nil {
			return fmt.Errorf("there is no folder for the default store: %w: name a store with --store or TENURE_STORE", err)
		}
		p.engine, p.name = sqlite(), filepath.Join(folder, "locks.db")
		return nil
	}}
}

// sqlite is a file: PATH or PATH?mode=0660. A path is not escaped, so a question
// mark in it is its own, unless something like a parameter comes after the last
// one.
func sqlite() *engine {
	return &engine{
		scheme: "sqlite", usage: "sqlite:PATH", read: readSQLite,
		open: func(_ context.Context, p *place, _ bool) (driver.Store, error) {
			mode, _ := strconv.ParseUint(p.values["mode"], 8, 32) // it was read, or is the default: 0
			return sqlitestore.Open(p.name, &sqlitestore.Options{Mode: fs.FileMode(mode)})
		},
	}
}

// unexpanded is a path that begins with a variable.
var unexpanded = pattern.Lazy(`^\$\{?[A-Za-z_]`)

func readSQLite(p *place, rest string) error {
	path, mode, err := cutMode(rest)
	switch {
	case err != nil:
		return err
	case path == "":
		return errors.New("the path is empty: write sqlite:PATH")
	case path == ":memory:":
		return errors.New("an SQLite file in memory does not exclude other processes: write memory: if that is what you want")
	case strings.HasPrefix(path, "~"):
		return errors.New(`the shell did not replace the "~": it does so only at the beginning of a word; ` +
			`write the whole path, or sqlite:$HOME/... for a shell (sqlite:./~ if that is its name)`)
	case path[0] == '$' && unexpanded().MatchString(path):
		return errors.New(`the "$" was not replaced by a value: a shell does that, but a crontab's or a unit's ` +
			`variables do not; write the whole path (sqlite:./$ if that is its name)`)
	case strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///"):
		return errors.New("sqlite: has no host: write sqlite:PATH, with the path right after the colon")
	}
	if mode != "" {
		p.values["mode"] = mode
	}
	p.name, err = filepath.Abs(path)
	return err
}

// modeForm is what follows the last question mark of a path with parameters.
var modeForm = pattern.Lazy(`^([a-z_]+)=(.*)$`)

// cutMode returns the permissions of the files that are made, "" if the URL does
// not say.
func cutMode(rest string) (path, mode string, err error) {
	i := strings.LastIndexByte(rest, '?')
	if i < 0 {
		return rest, "", nil
	}
	parts := modeForm().FindStringSubmatch(rest[i+1:])
	switch {
	case parts == nil:
		return rest, "", nil
	case parts[1] != "mode":
		return "", "", fmt.Errorf("parameter %q is unknown: write sqlite:PATH?mode=0660, "+
			"or ?mode=0600 after a path that ends like this one", parts[1])
	}
	n, err := strconv.ParseUint(parts[2], 8, 32)
	if err != nil || n&0o600 != 0o600 || n&^0o666 != 0 {
		return "", "", fmt.Errorf("mode %.20q is not valid: write mode=0600 for its owner only, or mode=0660 for a group",
			shown(parts[2]))
	}
	return rest[:i], fmt.Sprintf("%#o", n), nil
}

// fileText is what follows the colon of a URL that names a file, or nothing.
func (p *place) fileText() string {
	mode := p.values["mode"]
	if _, again, err := cutMode(p.name); mode == "" && (again != "" || err != nil) {
		mode = "0600"
	}
	if mode != "" {
		return p.name + "?mode=" + mode
	}
	return p.name
}

// StateFolder returns the folder for Tenure's files of this user. It does not create it. It
// follows the XDG Base Directory Specification, by which a relative XDG_STATE_HOME is ignored.
func StateFolder() (string, error) {
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "tenure"), nil
	}
	if runtime.GOOS == "windows" {
		folder, err := os.UserCacheDir() // %LocalAppData%
		return filepath.Join(folder, "tenure"), err
	}
	home, err := os.UserHomeDir()
	if err == nil && !filepath.IsAbs(home) {
		err = errors.New("the home folder is unknown")
	}
	return filepath.Join(home, ".local", "state", "tenure"), err
}

// MakeFolder creates the folder of a default location, for this user alone.
// The user must create the folder of a named location: a mistyped path must not
// become a store.
func MakeFolder(l Location) error { return os.MkdirAll(filepath.Dir(l.File()), 0o700) }
