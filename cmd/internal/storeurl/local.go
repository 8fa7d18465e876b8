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
	"runtime"
	"strconv"
	"strings"

	"github.com/tenurelock/tenure/cmd/internal/pattern"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/sqlitestore"
)

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
			return fmt.Errorf("the default store has no place: %w: name one with --store or TENURE_STORE", err)
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
		return errors.New("records in memory exclude no other process: write memory: if that is what you want")
	case strings.HasPrefix(path, "~"):
		return errors.New(`nobody has made a folder of the "~": a shell does so at the beginning of a word alone; ` +
			`write the whole path, or sqlite:$HOME/... for a shell (sqlite:./~ if it is called so)`)
	case path[0] == '$' && unexpanded().MatchString(path):
		return errors.New(`nobody has put in the value for the "$": a shell does so, and a crontab's or a unit's ` +
			`variables do not; write the whole path (sqlite:./$ if it is called so)`)
	case strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///"):
		return errors.New("there is no host: write sqlite:PATH, with the path right behind the colon")
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
			"or ?mode=0600 behind a path that ends like this one", parts[1])
	}
	n, err := strconv.ParseUint(parts[2], 8, 32)
	if err != nil || n&0o600 != 0o600 || n&^0o666 != 0 {
		return "", "", fmt.Errorf("mode %.20q is not valid: write mode=0600 for its user alone, or mode=0660 for a group",
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
