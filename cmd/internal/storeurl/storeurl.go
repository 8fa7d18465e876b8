// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package storeurl maps the URL of a store, as it stands in --store and
// TENURE_STORE, to the store. The schemes are listed here one by one; none
// registers itself.
package storeurl

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Location is where a store is. It is made by [Parse] or [Default].
type Location struct {
	written engine
	found   *found
	preset  bool
}

// engine is what a URL says of a store.
type engine interface {
	// text returns the URL that says the same: it leaves out what is a default, and has the
	// rest in one order. Without secrets it is for people.
	text(secrets bool) string
	// host is as [Location.Host].
	host() string
	// open returns the store of an engine that answers. It notes what it finds.
	open(ctx context.Context, f *found) (driver.Store, error)
	// connect returns the store without asking its engine whether it can be used.
	connect(ctx context.Context, f *found) (driver.Store, error)
}

// found is what a URL says once the environment has said the rest: a process that gets the
// URL may have another environment, and the same name elsewhere has other locks.
type found struct{ engine atomic.Value }

func (f *found) note(e engine) { f.engine.Store(e) }

func (l Location) now() engine {
	if e, ok := l.found.engine.Load().(engine); ok {
		return e
	}
	return l.written
}

// scheme reads what follows the colon of a URL.
type scheme struct {
	name  string
	usage string // how its URLs look, for messages; "": as those of another one
	read  func(rest string) (engine, error)
}

// schemes are those of this build, in the order in which messages name them.
func schemes() []scheme {
	return []scheme{
		{"sqlite", "sqlite:PATH", readSQLite},
		{"dynamodb", "dynamodb://TABLE?region=REGION", readDynamoDB},
		{"etcd", "etcd://HOST:2379/PREFIX", readEtcd(false)},
		{"etcds", "", readEtcd(true)},
		{"zookeeper", "zookeeper://HOST:2181/ROOT", readZooKeeper},
		{"postgres", "postgres://USER@HOST/DATABASE", readPostgres},
		{"kubernetes", "kubernetes://NAMESPACE", readKubernetes},
		{"s3", "s3://BUCKET/PREFIX", readS3},
		{"postgresql", "", readPostgres},
		{"memory", "memory:", readMemory},
		{"default", "default:", readDefault},
	}
}

// inPrograms are the packages whose stores no command has, by what people may call them.
var inPrograms = map[string]string{
	"gs": "gcsstore", "gcs": "gcsstore",
	"azblob": "azblobstore", "az": "azblobstore", "azure": "azblobstore",
}

// schemeName is what RFC 3986 has for the name of a scheme, but for the dot,
// which paths have.
var schemeName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+-]*$`)

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
	if !colon || len(name) == 1 || !schemeName.MatchString(name) {
		// A path, C:\ included.
		return Location{}, fmt.Errorf("store URL %.60q has no scheme: write %s", shown(url), usage())
	}
	all := schemes()
	i := slices.IndexFunc(all, func(s scheme) bool { return s.name == name })
	if pkg := inPrograms[name]; pkg != "" {
		return Location{}, fmt.Errorf("store scheme %q is for programs alone: package %s keeps locks there, "+
			"and this command does not have it; write %s", name, pkg, usage())
	} else if i < 0 {
		return Location{}, fmt.Errorf("store scheme %q is unknown: write %s", name, usage())
	}
	e, err := all[i].read(rest)
	if err != nil {
		return Location{}, fmt.Errorf("store URL %.60q: %w", name+":"+shownRest(rest), err)
	}
	return Location{written: e, found: new(found), preset: name == "default"}, nil
}

// Default returns the location of who names none: an SQLite file in the user's
// state folder. It creates nothing; see [MakeFolder].
func Default() (Location, error) {
	e, err := readDefault("")
	return Location{written: e, found: new(found), preset: true}, err
}

func usage() string {
	var all []string
	for _, s := range schemes() {
		if s.usage != "" {
			all = append(all, s.usage)
		}
	}
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
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
func (l Location) Host() string { return l.now().host() }

// Private says that no other process can come to the store.
func (l Location) Private() bool { return l.written == memory{} }

// Preset says that the location is the one of who names none, whether or not
// somebody has named it.
func (l Location) Preset() bool { return l.preset }

// File returns the file that the store is kept in, "" if it is in none.
func (l Location) File() string {
	s, _ := l.written.(sqlite)
	return s.file
}

// Scheme returns what the URL begins with, up to the colon.
func (l Location) Scheme() string {
	scheme, _, _ := strings.Cut(l.URL(), ":")
	return scheme
}

// User returns the user of a database that the URL names, "" if it names none.
func (l Location) User() string {
	p, _ := l.written.(postgres)
	return p.user
}

// openPatience bounds the opening of a store, credentials included. The service that hands
// them out to a machine may take seconds.
const openPatience = 7 * time.Second

// Open opens the store. An error of Open is about the store, not the URL.
func (l Location) Open() (driver.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openPatience)
	defer cancel()
	return l.written.open(ctx, l.found)
}

// Connect returns the store without asking its engine whether it can be used: for what must
// work where [Location.Open] fails.
func (l Location) Connect(ctx context.Context) (driver.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	return l.written.connect(ctx, l.found)
}

// Unasked returns the store for what asks its engine nothing, such as [driver.Granter]: it
// needs no credentials.
func (l Location) Unasked(ctx context.Context) (driver.Store, error) {
	if e, ok := l.written.(interface{ unasked() (driver.Store, error) }); ok {
		return e.unasked()
	}
	return l.Connect(ctx)
}

// Diagnose returns what is found of the store's engine, whether it opens or not: see
// [driver.Diagnoser]. What keeps it from being reached [Location.Open] tells.
func (l Location) Diagnose(ctx context.Context, t driver.Timing) []driver.Finding {
	if s, ok := l.written.(sqlite); ok {
		return s.diagnose(ctx)
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
	if _, ok := l.written.(postgres); ok {
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
