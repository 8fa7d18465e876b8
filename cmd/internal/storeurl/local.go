// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/sqlitestore"
)

// here is the host of a store of this machine.
const here = "127.0.0.1"

// memory is a store that no other process can come to.
type memory struct{}

func readMemory(rest string) (engine, error) {
	if rest != "" {
		return nil, errors.New("nothing follows the colon")
	}
	return memory{}, nil
}

func (memory) text(bool) string                                      { return "memory:" }
func (memory) host() string                                          { return here }
func (memory) open(context.Context, *found) (driver.Store, error)    { return memstore.New(), nil }
func (memory) connect(context.Context, *found) (driver.Store, error) { return memstore.New(), nil }

// sqlite is a file. Mode are its permissions, 0 if the URL does not say.
type sqlite struct {
	file string
	mode fs.FileMode
}

// unexpanded is a path that begins with a variable.
var unexpanded = regexp.MustCompile(`^\$\{?[A-Za-z_]`)

// readSQLite reads PATH or PATH?mode=0660. A path is not escaped, so a question
// mark in it is its own, unless something like a parameter comes after the last
// one.
func readSQLite(rest string) (engine, error) {
	path, mode, err := cutMode(rest)
	switch {
	case err != nil:
		return nil, err
	case path == "":
		return nil, errors.New("the path is empty: write sqlite:PATH")
	case path == ":memory:":
		return nil, errors.New("records in memory exclude no other process: write memory: if that is what you want")
	case strings.HasPrefix(path, "~"):
		return nil, errors.New(`nobody has made a folder of the "~": a shell does so at the beginning of a word alone; ` +
			`write the whole path, or sqlite:$HOME/... for a shell (sqlite:./~ if it is called so)`)
	case unexpanded.MatchString(path):
		return nil, errors.New(`nobody has put in the value for the "$": a shell does so, and a crontab's or a unit's ` +
			`variables do not; write the whole path (sqlite:./$ if it is called so)`)
	case strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///"):
		return nil, errors.New("there is no host: write sqlite:PATH, with the path right behind the colon")
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	return sqlite{path, mode}, nil
}

// mode is what follows the last question mark of a path with parameters.
var modeForm = regexp.MustCompile(`^([a-z_]+)=(.*)$`)

// cutMode returns the permissions of the files that are made, 0 if the URL does
// not say.
func cutMode(rest string) (path string, mode fs.FileMode, err error) {
	i := strings.LastIndexByte(rest, '?')
	if i < 0 {
		return rest, 0, nil
	}
	parts := modeForm.FindStringSubmatch(rest[i+1:])
	switch {
	case parts == nil:
		return rest, 0, nil
	case parts[1] != "mode":
		return "", 0, fmt.Errorf("parameter %q is unknown: write sqlite:PATH?mode=0660, "+
			"or ?mode=0600 behind a path that ends like this one", parts[1])
	}
	n, err := strconv.ParseUint(parts[2], 8, 32)
	if err != nil || n&0o600 != 0o600 || n&^0o666 != 0 {
		return "", 0, fmt.Errorf("mode %.20q is not valid: write mode=0600 for its user alone, or mode=0660 for a group",
			shown(parts[2]))
	}
	return rest[:i], fs.FileMode(n), nil
}

func (s sqlite) text(bool) string {
	text := "sqlite:" + s.file
	if _, again, err := cutMode(s.file); s.mode != 0 || again != 0 || err != nil {
		text += fmt.Sprintf("?mode=%#o", uint32(max(s.mode, 0o600)))
	}
	return text
}

func (s sqlite) host() string { return here }

func (s sqlite) open(context.Context, *found) (driver.Store, error) {
	store, err := sqlitestore.Open(s.file, &sqlitestore.Options{Mode: s.mode})
	if err != nil {
		return nil, err // not the nil *Store in an interface
	}
	return store, nil
}

func (s sqlite) connect(ctx context.Context, f *found) (driver.Store, error) { return s.open(ctx, f) }

func (s sqlite) diagnose(ctx context.Context) []driver.Finding {
	return sqlitestore.Diagnose(ctx, s.file)
}

// readDefault is also for callers that ask for the default: in a crontab, say,
// where an unnamed store is refused.
func readDefault(rest string) (engine, error) {
	if rest != "" {
		return nil, errors.New("nothing follows the colon")
	}
	folder, err := StateFolder()
	if err != nil {
		return nil, fmt.Errorf("the default store has no place: %w: name one with --store or TENURE_STORE", err)
	}
	return sqlite{file: filepath.Join(folder, "locks.db")}, nil
}

// StateFolder returns where Tenure keeps what it makes for this user. It creates
// nothing. It follows the XDG Base Directory Specification, by which a relative
// XDG_STATE_HOME is ignored.
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
// The folder of a location that was named is its owner's to create: a path
// that is mistyped must not become a store of its own.
func MakeFolder(l Location) error { return os.MkdirAll(filepath.Dir(l.File()), 0o700) }
