// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenurelock/tenure/server/access"
)

// principalSet is what one state of a file of principals says. It does not change.
type principalSet struct {
	tokens []token
	names  map[string]access.Principal
	certs  map[string]access.Principal
	plain  bool // it has secrets themselves
}

// token is a principal's secret, by its sum.
type token struct {
	sum       [sha256.Size]byte
	principal access.Principal
	line      int
}

// Limits of a secret. The shortest one still takes more guesses than anybody can make, if it was
// made at random.
const (
	minSecret = 16
	maxSecret = 512

	sumPrefix = "sha256:"
	certWord  = "cert"
)

// parsePrincipalSet reads the text of a file. Its errors name the file and the line, and show no
// word that could be a secret in a wrong place.
func parsePrincipalSet(file, text string) (*principalSet, error) {
	r := &principalSet{names: map[string]access.Principal{}, certs: map[string]access.Principal{}}
	first := map[string]int{} // the line of each name
	var errs []error
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		n++
		words := wordsOf(line)
		if len(words) == 0 {
			continue
		}
		if err := r.add(n, words, first); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", file, n, err))
		}
	}
	if len(errs) == 0 && len(r.names) == 0 {
		errs = append(errs, fmt.Errorf("%s: no principals: write lines of NAME SECRET RIGHT[,RIGHT]:PREFIX", file))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

// wordsOf returns the words of a line without its comment.
func wordsOf(line string) []string {
	words := strings.Fields(line)
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "#") }); i >= 0 {
		words = words[:i]
	}
	return words
}

// add adds a line.
func (r *principalSet) add(n int, words []string, first map[string]int) error {
	if len(words) < 3 {
		return errors.New("too few words: write NAME SECRET RIGHT[,RIGHT]:PREFIX, such as ci SECRET hold:jobs/")
	}
	var grants []access.Grant
	for i, word := range words[2:] {
		g, err := parseGrants(word)
		if err != nil {
			return fmt.Errorf("word %d: %w", i+3, err)
		}
		grants = append(grants, g...)
	}
	principal, err := access.NewPrincipal(words[0], grants...)
	if err != nil {
		return errors.New("word 1 is no name of a principal: it has at most 200 bytes, all printable, and no @")
	}
	name := principal.Name()
	if known, again := r.names[name]; again && !slices.Equal(known.Grants(), grants) {
		return fmt.Errorf("the same name as in line %d, with other rights: a second line is for another secret, and "+
			"repeats the rights", first[name])
	}
	if err := r.addSecret(n, words[1], principal); err != nil {
		return err
	}
	if _, again := r.names[name]; !again {
		r.names[name], first[name] = principal, n
	}
	return nil
}

func (r *principalSet) addSecret(n int, secret string, principal access.Principal) error {
	if secret == certWord {
		r.certs[principal.Name()] = principal
		return nil
	}
	sum := sha256.Sum256([]byte(secret))
	switch digits, summed := strings.CutPrefix(secret, sumPrefix); {
	case summed:
		raw, err := hex.DecodeString(digits)
		if err != nil || len(raw) != len(sum) {
			return fmt.Errorf("word 2 is no %sHEX: it must have %d hexadecimal digits", sumPrefix, 2*len(sum))
		}
		copy(sum[:], raw)
	case len(secret) < minSecret || len(secret) > maxSecret:
		return fmt.Errorf("the secret has %d bytes: it must have %d to %d; make one with: openssl rand -hex 32",
			len(secret), minSecret, maxSecret)
	case guessable(secret) != "":
		return fmt.Errorf("the secret %s: others guess it; make one with: openssl rand -hex 32", guessable(secret))
	default:
		r.plain = true
	}
	if i := slices.IndexFunc(r.tokens, func(t token) bool { return t.sum == sum }); i >= 0 {
		return fmt.Errorf("the same secret as in line %d: give each line one of its own", r.tokens[i].line)
	}
	r.tokens = append(r.tokens, token{sum, principal, n})
	return nil
}

// guessed are words that those try first who guess secrets.
var guessed = []string{
	"changeme", "password", "passwort", "passwd", "administrator", "admin", "secret", "letmein",
	"welcome", "default", "example", "token", "test", "root", "user", "qwertyuiop", "qwerty", "asdfghjkl",
	"abcdefghijklmnopqrstuvwxyz", "01234567890", "1234567890", "123456789", "12345678", "1234567",
	"123456", "12345", "1234", "123",
}

const (
	// minDistinct is how many different characters a secret has at least. One of 16 random
	// hexadecimal digits has fewer than six once in some millions.
	minDistinct = 6
	// minRest is how many characters a secret has besides guessed words.
	minRest = 4
)

// guessable says why a secret was not made at random, as far as one can see that; "" if not.
func guessable(secret string) string {
	distinct := map[rune]bool{}
	for _, c := range secret {
		distinct[c] = true
	}
	// One that is made of a part again and again is found in itself, moved by that part.
	if i := strings.Index((secret + secret)[1:], secret) + 1; i <= len(secret)/2 {
		return "repeats its beginning"
	}
	if len(distinct) < minDistinct {
		return fmt.Sprintf("has %d different characters", len(distinct))
	}
	rest := strings.ToLower(secret)
	for _, word := range guessed {
		rest = strings.ReplaceAll(rest, word, "")
	}
	if len(rest) < minRest {
		return "is made of words that everybody tries"
	}
	return ""
}

// parseGrants reads RIGHT[,RIGHT]:PREFIX.
func parseGrants(word string) ([]access.Grant, error) {
	const want = "write RIGHT[,RIGHT]:PREFIX, with the rights read, hold, ask, revoke and admin"
	rights, prefix, found := strings.Cut(word, ":")
	if !found {
		return nil, errors.New("no right: " + want)
	}
	var grants []access.Grant
	for right := range strings.SplitSeq(rights, ",") {
		if !slices.Contains(access.Rights(), access.Right(right)) {
			return nil, errors.New("a right that is not known: " + want)
		}
		g := access.Grant{Right: access.Right(right), Prefix: prefix}
		if err := g.Validate(); err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
	return grants, nil
}
