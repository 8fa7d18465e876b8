// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode"

	"github.com/tenurelock/tenure/cmd/internal/flags"
	"github.com/tenurelock/tenure/cmd/internal/tokenfile"
	"github.com/tenurelock/tenure/server"
)

// tokenCmd is tenured token.
type tokenCmd struct {
	Tokens *string
	Name   string   `arg:"" optional:""`
	Rights []string `arg:"" optional:"" sep:"none"`
}

// Run prints a token.
func (f *tokenCmd) Run(c *console) error {
	secret, err := f.secret()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.stdout, secret)
	return err
}

func (f *tokenCmd) secret() (string, error) {
	switch {
	case f.Name != "" && f.Tokens == nil:
		return "", flags.Usage("no file named for the new token: write --tokens FILE, with the file that tenured uses")
	case f.Name != "" && len(f.Rights) == 0:
		return "", flags.Usage("no right given for %q: write RIGHT:PREFIX, such as hold:jobs/", f.Name)
	case f.Name != "":
		return addToken(*f.Tokens, f.Name, f.Rights)
	case f.Tokens != nil:
		return "", flags.Usage("no name given: a tokens file has only hashes of tokens, so tenured cannot print " +
			"them; write NAME RIGHT:PREFIX to make a token")
	}
	path, err := tokenfile.Own()
	if err != nil {
		return "", err
	}
	if _, err := tokenfile.MakeOwn(path); err != nil {
		return "", err
	}
	return tokenfile.Secret(path)
}

// addToken makes a token for a principal with the rights, each RIGHT[,RIGHT]:PREFIX, and adds a
// line with its hash to the file, which is made if it is not there. It returns the token.
// A name that is there already must have the same rights: it has two tokens then.
func addToken(path, name string, rights []string) (secret string, err error) {
	for _, word := range append([]string{name}, rights...) {
		if strings.ContainsFunc(word, unicode.IsSpace) || strings.HasPrefix(word, "#") {
			return "", flags.Usage("%.40q has a space in it, or begins with #, which a tokens file does not allow",
				word)
		}
	}
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	secret = rand.Text()
	sum := sha256.Sum256([]byte(secret))
	line := strings.Join(append([]string{name, "sha256:" + hex.EncodeToString(sum[:])}, rights...), " ") + "\n"
	if n := len(before); n > 0 && before[n-1] != '\n' {
		line = "\n" + line
	}
	// With the eyes of the server, before anything is written.
	if _, err := server.ParsePrincipals(line); err != nil {
		return "", flags.Usage("the line for %q would not be valid: %w", name, err)
	}
	if _, err := server.ParsePrincipals(string(before) + line); err != nil {
		return "", flags.Usage("%s with a line for %q would not be valid: %w", path, name, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(line)
	return secret, errors.Join(err, f.Close())
}
