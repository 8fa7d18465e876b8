// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/sqlitestore"
)

// parseSQLite takes PATH or PATH?mode=0660. A path is not escaped, so a question
// mark in it is its own, unless something like a parameter comes after the last
// one.
func parseSQLite(rest string) (Location, error) {
	path, mode, err := cutMode(rest)
	if err != nil {
		return Location{}, err
	}
	switch {
	case path == "":
		return Location{}, errors.New("the path is empty: write sqlite:PATH")
	case path == ":memory:":
		return Location{}, errors.New("records in memory exclude no other process: write memory: if that is what you want")
	case strings.HasPrefix(path, "~"):
		return Location{}, errors.New(`nobody has made a folder of the "~": a shell does so at the beginning of a word alone; write the whole path, or sqlite:$HOME/... for a shell (sqlite:./~ if it is called so)`)
	case unexpanded.MatchString(path):
		return Location{}, errors.New(`nobody has put in the value for the "$": a shell does so, and a crontab's or a unit's variables do not; write the whole path (sqlite:./$ if it is called so)`)
	case strings.HasPrefix(path, "//") && !strings.HasPrefix(path, "///"):
		return Location{}, errors.New("there is no host: write sqlite:PATH, with the path right behind the colon")
	case strings.ContainsRune(path, 0):
		return Location{}, errors.New("the path has a zero byte")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return Location{}, err
	}
	return sqliteAt(abs, mode), nil
}

// unexpanded is a path that begins with a variable.
var unexpanded = regexp.MustCompile(`^\$\{?[A-Za-z_]`)

// parameter is what follows the last question mark of a path with parameters.
var parameter = regexp.MustCompile(`^[a-z_]+=`)

// cutMode returns the permissions of the files that are made, 0 if the URL does
// not say.
func cutMode(rest string) (path string, mode fs.FileMode, err error) {
	i := strings.LastIndexByte(rest, '?')
	if i < 0 || !parameter.MatchString(rest[i+1:]) {
		return rest, 0, nil
	}
	name, text, _ := strings.Cut(rest[i+1:], "=")
	if name != "mode" {
		return "", 0, fmt.Errorf("parameter %q is unknown: write sqlite:PATH?mode=0660, or ?mode=0600 behind a path that ends like this one", name)
	}
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n&0o600 != 0o600 || n&^0o666 != 0 {
		return "", 0, fmt.Errorf("mode %.20q is none of a database: write mode=0600 for its user alone, or mode=0660 for a group", shown(text))
	}
	return rest[:i], fs.FileMode(n), nil
}

func sqliteAt(file string, mode fs.FileMode) Location {
	url := "sqlite:" + file
	if _, again, err := cutMode(file); mode != 0 || again != 0 || err != nil {
		url += fmt.Sprintf("?mode=%#o", uint32(max(mode, 0o600)))
	}
	return Location{url: url, file: file, open: func() (driver.Store, error) {
		store, err := sqlitestore.Open(file, &sqlitestore.Options{Mode: mode})
		if err != nil {
			return nil, err // not the nil *Store in an interface
		}
		return store, nil
	}}
}
