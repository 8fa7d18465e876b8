// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package tokenfile makes and reads the file of tokens of tenured: a line for each
// principal, NAME SECRET RIGHT:PREFIX... What the lines mean is package server's.
package tokenfile

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/server/access"
)

// ownPrincipal has the token that is made where no file of tokens is named.
const ownPrincipal = "local"

// Own returns the file of this user, which is the default. It does not create the file.
func Own() (string, error) {
	folder, err := storeurl.StateFolder()
	if err != nil {
		return "", fmt.Errorf("there is no folder for the token: %w: name a file with --tokens", err)
	}
	return filepath.Join(folder, "tenured.tokens"), nil
}

// MakeOwn makes that file with one token, unless it exists, readable only for this user.
func MakeOwn(path string) (made bool, err error) {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return false, err
	}
	text := "# Made by tenured for this user on this machine: NAME SECRET RIGHT:PREFIX\n" +
		ownPrincipal + " " + rand.Text() + " " + string(access.Admin) + ":\n"
	// Two processes that start at once make one file: the second one uses it.
	f, err := os.CreateTemp(filepath.Dir(path), ".tenured.tokens-*") // with mode 0600
	if err != nil {
		return false, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return false, err
	}
	err = os.Link(f.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// Secret returns the token that is in that file.
func Secret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == ownPrincipal {
			return words[1], nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("%s has no line of %q: remove the file, and start tenured again", path, ownPrincipal)
}
