// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package storeurl maps the URL of a store, as it stands in --store and
// TENURE_STORE, to the store. What each engine has, and is called, says the
// table of its engines; one reader and one writer serve all of them.
package storeurl

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/driver"
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
	usage  string // how its URLs look, in the list of all; "": as those of another one
	write  string // what to write, for messages about one URL

	// read takes what follows the colon, of a URL that is none of RFC 3986.
	read func(p *place, rest string) error
	// begin takes what stands between the two slashes and the question mark.
	begin      func(p *place, authority, path string) error
	bare       bool // there may be no slashes, and nothing between them
	parameters []parameter
	pgx        bool                 // pgx reads parameters that are not listed
	check      func(p *place) error // finds what does not fit together

	// host is as [Location.Host]. nil: the first of the hosts.
	host func(p *place) string
	// open returns the store. With ask its engine is asked whether it can be used. It puts what it
	// finds into the place.
	open func(ctx context.Context, p *place, ask bool) (driver.Store, error)
	// unasked returns the store for what asks its engine nothing. nil: as open, without ask.
	unasked func(p *place) (driver.Store, error)
}

// engines are those of this build, in the order in which messages name them. None registers
// itself.
func engines() []*engine {
	return []*engine{
		sqlite(), dynamodb(), etcd("etcd"), etcd("etcds"), zookeeper(), postgres(), kubernetes(), s3(), memory(), preset(),
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
// text; an error is the fault of whoever wrote it. It refuses control characters
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
		return Location{}, fmt.Errorf("store scheme %q is for programs alone: package %s keeps locks there, "+
			"and this command does not have it; write %s", name, pkg, usage())
	} else if i < 0 {
		return Location{}, fmt.Errorf("store scheme %q is unknown: write %s", name, usage())
	}
	p, err := all[i].parse(rest)
	if err != nil {
		return Location{}, fmt.Errorf("store URL %.60q: %w", name+":"+shownRest(rest), err)
	}
	return Location{p, new(atomic.Pointer[place]), all[i].scheme == "default"}, nil
}

// Default returns the location of who names none: an SQLite file in the user's
// state folder. It creates nothing; see [MakeFolder].
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
// means the same to a process in another folder. Once the store was opened, it also has what
// the environment has named: the region and the endpoint of AWS, the namespace and the
// context of a cluster of Kubernetes, and the schema of a table of PostgreSQL. A command may
// have another environment. It may have a password in it: see [Location.Shown].
func (l Location) URL() string { return l.now().text(true) }

// Shown returns the URL for people and for logs: a password in it is left out.
func (l Location) Shown() string { return l.now().text(false) }

// Host returns the host on which the store is, the first one of several, without a port:
// for whoever wants to know by which of its addresses this machine reaches it. It is the
// loopback for a store of this machine, and empty if nobody can tell. Once a store on
// DynamoDB was opened its region is known, too.
func (l Location) Host() string {
	if p := l.now(); p.host != nil {
		return p.host(p)
	}
	return l.now().firstHost()
}

// Private says that no other process can come to the store.
func (l Location) Private() bool { return l.Scheme() == "memory" }

// Preset says that the location is the one of who names none, whether or not
// somebody has named it.
func (l Location) Preset() bool { return l.preset }

// File returns the file that the store is kept in, "" if it is in none.
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
	if l.written.pgx {
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

// Diagnose returns what is found of the store's engine, whether it opens or not: see
// [driver.Diagnoser]. What keeps it from being reached [Location.Open] tells.
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

// briefError leaves out what an engine's client says about what the user has never heard of.
type briefError struct {
	text string
	err  error
}

func (e *briefError) Error() string { return e.text }
func (e *briefError) Unwrap() error { return e.err }
