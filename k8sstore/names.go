// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"
	"sync"

	"github.com/tenurelock/tenure/driver"
)

// The names of objects are DNS-1123 subdomains: at most 253 lower-case letters, digits,
// dashes and dots. After the prefix, which ends with a dot, a name has no dot, so that
// the names of one store are never the names of a store with a longer prefix.
const (
	maxObjectName = 253
	// maxPlain is the longest key that is a name without a hash, after the longest prefix.
	maxPlain = 150
	// maxSlug is how much of another key is still to be read in its name.
	maxSlug = 40
	// hashMark precedes the hash of a key. No key that is a name without a hash contains it.
	hashMark = "--"
)

var (
	plainForm     = pattern(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	subdomainForm = pattern(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	noNameForm    = pattern(`[^a-z0-9]+`)
)

// pattern returns a function that compiles the expression at its first call: a program may
// import this store, and use another.
func pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// shared reports whether electors of client-go may contend for the lock of this key.
func (s *Store) shared(key string) bool {
	return s.options.SharedLease && len(key) <= maxObjectName && subdomainForm().MatchString(key) && !strings.HasPrefix(key, s.options.Prefix)
}

// LeaseName returns the name of the Lease of a key, for kubectl.
func (s *Store) LeaseName(key string) string { return s.object(key) }

// object returns the name of the Lease for a key.
func (s *Store) object(key string) string {
	if s.shared(key) {
		return key
	}
	return s.options.Prefix + nameOf(key)
}

// nameOf returns a part of a name for a key: the key itself if it is valid, and
// otherwise its readable part, and 160 bits of its hash.
func nameOf(key string) string {
	if len(key) <= maxPlain && plainForm().MatchString(key) {
		return key
	}
	slug := noNameForm().ReplaceAllString(strings.ToLower(key), "-")
	slug = strings.Trim(slug[:min(len(slug), maxSlug)], "-")
	if slug == "" {
		slug = "key"
	}
	return slug + hashMark + hashOf(key)
}

// hashOf returns 32 letters and digits.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:20]))
}

// Kinds of records, by a label, so that a list of the sessions need not read the history.
const (
	kindLock = "lock"
	kindOwn  = "own"
)

var kindForm = pattern(`^[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?$`)

// kindOf returns the kind of a key: "lock", or the part after OwnPrefix.
func kindOf(key string) string {
	rest, own := strings.CutPrefix(key, driver.OwnPrefix)
	if !own {
		return kindLock
	}
	if kind, _, found := strings.Cut(rest, "/"); found && kindForm().MatchString(kind) {
		return kind
	}
	return kindOwn
}

// kindsOf returns the one kind of all keys that begin with prefix, empty if there may be
// more.
func kindsOf(prefix string) string {
	switch rest, own := strings.CutPrefix(prefix, driver.OwnPrefix); {
	case own && strings.Contains(rest, "/"):
		return kindOf(prefix)
	case own, strings.HasPrefix(driver.OwnPrefix, prefix):
		return ""
	}
	return kindLock
}
