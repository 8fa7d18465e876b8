// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package storeurl maps the URL of a store, as it stands in --store and
// TENURE_STORE, to the store. The schemes are listed here one by one; none
// registers itself.
package storeurl

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
)

// Location is where a store is. It is made by [Parse] or [Default].
type Location struct {
	url     string
	file    string // of an SQLite store
	private bool
	preset  bool          // the file is that of who names none
	engine  engine        // of a store that is neither in a file nor in memory
	shown   func() string // the URL for people, if it may have a password
	current func() string // the URL, if opening the store adds to it
	open    func() (driver.Store, error)
}

// scheme makes a location of what follows the colon of a URL.
type scheme struct {
	name  string
	usage string // how its URLs look, for messages; "": as those of another one
	parse func(rest string) (Location, error)
}

// schemes are those of this build, in the order in which messages name them.
func schemes() []scheme {
	return []scheme{
		{"sqlite", "sqlite:PATH", parseSQLite},
		{"dynamodb", "dynamodb://TABLE?region=REGION", parseDynamoDB},
		{"etcd", "etcd://HOST:2379/PREFIX", parseEtcd},
		{"etcds", "", parseEtcds},
		{"zookeeper", "zookeeper://HOST:2181/ROOT", parseZooKeeper},
		{"postgres", "postgres://USER@HOST/DATABASE", parsePostgres},
		{"kubernetes", "kubernetes://NAMESPACE", parseKubernetes},
		{"s3", "s3://BUCKET/PREFIX", parseS3},
		{"postgresql", "", parsePostgres},
		{"memory", "memory:", parseMemory},
		{"default", "default:", parseDefault},
	}
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
	name, rest, found := strings.Cut(url, ":")
	if !found || len(name) == 1 || !schemeName.MatchString(name) {
		// A path, C:\ included.
		return Location{}, fmt.Errorf("store URL %.60q has no scheme: write %s", shown(url), usage())
	}
	for _, s := range schemes() {
		if s.name == name {
			var l Location
			var err error
			if name != "sqlite" { // a file's name has no escapes
				err = invisibleEscaped(rest)
			}
			if err == nil {
				l, err = s.parse(rest)
			}
			if err != nil {
				return Location{}, fmt.Errorf("store URL %.60q: %w", name+":"+shownRest(rest), err)
			}
			return l, nil
		}
	}
	if pkg := inPrograms[name]; pkg != "" {
		return Location{}, fmt.Errorf("store scheme %q is for programs alone: package %s keeps locks there, and this command does not have it; write %s", name, pkg, usage())
	}
	return Location{}, fmt.Errorf("store scheme %q is unknown: write %s", name, usage())
}

// inPrograms are the packages whose stores no command has, by what people may call them.
var inPrograms = map[string]string{
	"gs": "gcsstore", "gcs": "gcsstore",
	"azblob": "azblobstore", "az": "azblobstore", "azure": "azblobstore",
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

// absolute makes the names of files absolute, but for those that are empty.
func absolute(files ...*string) error {
	for _, file := range files {
		if *file == "" {
			continue
		}
		abs, err := filepath.Abs(*file)
		if err != nil {
			return err
		}
		*file = abs
	}
	return nil
}

// schemeName is what RFC 3986 has for the name of a scheme, but for the dot,
// which paths have.
var schemeName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+-]*$`)

// shown returns the beginning of what cannot be read, as far as it is nobody's
// secret: a password stands behind a colon, and parameters have keys in them. What
// stands before an @ is a user, or a password by itself. A list of settings, and
// something escaped, may have one in any place.
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

// parseDefault is for callers that ask for the default: in a crontab, say,
// where an unnamed store is refused.
func parseDefault(rest string) (Location, error) {
	if rest != "" {
		return Location{}, errors.New("nothing follows the colon")
	}
	return Default()
}

func parseMemory(rest string) (Location, error) {
	if rest != "" {
		return Location{}, errors.New("nothing follows the colon")
	}
	return Location{url: "memory:", private: true, open: func() (driver.Store, error) {
		return memstore.New(), nil
	}}, nil
}

// URL returns the URL of the location, in which the path of every file is absolute: it
// means the same to a process in another folder. Once a store on DynamoDB was opened, it
// has the region and the endpoint, too, that the environment has named: a
// command may have another environment, and a table elsewhere has other locks.
// Likewise it has the region and the endpoint of a bucket, the namespace and the
// context of a cluster of Kubernetes, and the schema of a table of PostgreSQL. It may have a password in it: see [Location.Shown].
func (l Location) URL() string {
	if l.current != nil {
		return l.current()
	}
	return l.url
}

// Shown returns the URL for people and for logs: a password in it is left out.
func (l Location) Shown() string {
	if l.shown != nil {
		return l.shown()
	}
	return l.URL()
}

// Private says that no other process can come to the store.
func (l Location) Private() bool { return l.private }

// Preset says that the location is the one of who names none, whether or not
// somebody has named it.
func (l Location) Preset() bool { return l.preset }

// File returns the file that the store is kept in, "" if it is in none.
func (l Location) File() string { return l.file }

// Scheme returns what the URL begins with, up to the colon.
func (l Location) Scheme() string {
	scheme, _, _ := strings.Cut(l.URL(), ":")
	return scheme
}

// Open opens the store. An error of Open is about the store, not the URL.
func (l Location) Open() (driver.Store, error) { return l.open() }
