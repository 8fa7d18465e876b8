// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/server/access"
)

// Principals are those who may call a server, with their secrets and rights. All methods may be
// called concurrently.
//
// They stand in a file, a line for each:
//
//	# NAME   SECRET                  RIGHT[,RIGHT]:PREFIX ...
//	ci       3q7...                  hold:jobs/ read:
//	web      sha256:9f86d081...      hold,ask:web/
//	alice    sha256:60303ae2...      admin:
//	batch    cert                    hold:batch/
//
// NAME is for people: the record of a lock, the history and the log show it. SECRET is the
// bearer token itself, of 16 to 512 characters without a space and made at random, or its SHA-256 in
// hexadecimal digits (printf %s "$SECRET" | sha256sum). With the word cert the principal has no
// token, but a client certificate whose name is NAME: a URI or DNS name among its
// alternative names or, if it has none, its common name.
//
// A right is read, hold, ask, revoke or admin, and is for all names that begin with PREFIX;
// an empty one is for all names. See [access.Right]. A second line of the same NAME has
// the same rights and another secret, so that a secret can be replaced by another one
// without a gap. Empty lines, and what stands behind # at the beginning of a word, are
// comments.
type Principals struct {
	path string // empty: they stand in no file
	log  *slog.Logger
	now  atomic.Pointer[principalSet]

	mu     sync.Mutex // of looking at the file
	looked time.Time
	mark   os.FileInfo // of the file that was read last, good or bad
}

// reloadPeriod is how often the file is looked at, at most.
const reloadPeriod = time.Second

// maxPrincipalsFile is the longest file in bytes.
const maxPrincipalsFile = 4 << 20

// OpenPrincipals reads the principals from a file. It reads the file again when it has
// changed, at most once a second and when somebody calls. If it has become bad, the
// principals stay as they were, and the logger says why. The logger may be nil.
//
// The error names each bad line, and no secret.
func OpenPrincipals(path string, logger *slog.Logger) (*Principals, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	p := &Principals{path: path, log: logger, looked: time.Now()}
	r, mark, err := readPrincipalSet(path)
	if err != nil {
		return nil, err
	}
	p.mark = mark
	p.now.Store(r)
	p.warnOf(r)
	return p, nil
}

// ParsePrincipals returns principals that stand in no file, from the same text.
func ParsePrincipals(text string) (*Principals, error) {
	r, err := parsePrincipalSet("principals", text)
	if err != nil {
		return nil, err
	}
	p := &Principals{log: slog.New(slog.DiscardHandler)}
	p.now.Store(r)
	return p, nil
}

// ByToken returns the principal that has the secret. It takes as long for a wrong secret as for
// a right one.
func (p *Principals) ByToken(secret string) (access.Principal, bool) {
	principal, found := p.BySum(sha256.Sum256([]byte(secret)))
	if secret == "" {
		return access.Principal{}, false
	}
	return principal, found
}

// BySum returns the principal that has the secret of this SHA-256, as it is now: for whoever has
// been known by that secret before, such as a browser with an encrypted cookie. Whoever can send
// a sum must not be let in by it.
func (p *Principals) BySum(sum [sha256.Size]byte) (access.Principal, bool) {
	r := p.set()
	found := -1
	for i := range r.tokens { // all of them, whatever was found
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], r.tokens[i].sum[:]), i, found)
	}
	if found < 0 {
		return access.Principal{}, false
	}
	return r.tokens[found].principal, true
}

// ByCertificate returns the principal that a client certificate names: the first of its
// URIs and DNS names, or its common name if it has neither of them, that stands in the file
// with the word cert. The caller has verified the certificate.
func (p *Principals) ByCertificate(cert *x509.Certificate) (access.Principal, bool) {
	var names []string
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	names = append(names, cert.DNSNames...)
	if len(names) == 0 && cert.Subject.CommonName != "" {
		names = []string{cert.Subject.CommonName}
	}
	r := p.set()
	for _, name := range names {
		if principal, found := r.certs[name]; found {
			return principal, true
		}
	}
	return access.Principal{}, false
}

// set returns the principals as the file has them now.
func (p *Principals) set() *principalSet {
	if p.path != "" && p.mu.TryLock() { // others go on with what there is
		defer p.mu.Unlock()
		if now := time.Now(); now.Sub(p.looked) >= reloadPeriod {
			p.looked = now
			p.reload()
		}
	}
	return p.now.Load()
}

// reload reads the file if it has changed. The caller holds the mutex.
func (p *Principals) reload() {
	mark, err := os.Stat(p.path)
	if err == nil && p.mark != nil && os.SameFile(mark, p.mark) && mark.ModTime().Equal(p.mark.ModTime()) &&
		mark.Size() == p.mark.Size() {
		return
	}
	if err != nil && p.mark == nil {
		return // said before
	}
	r, mark, err := readPrincipalSet(p.path)
	p.mark = mark
	if err != nil {
		p.log.Error("tenure: the file of principals is bad, and those that were read before stay",
			"file", p.path, "error", err)
		return
	}
	before := p.now.Swap(r)
	p.log.Info("tenure: the file of principals was read again", "file", p.path,
		"principals", len(r.names), "before", len(before.names))
	p.warnOf(r)
}

func (p *Principals) warnOf(r *principalSet) {
	if p.mark != nil && p.mark.Mode().Perm()&0o004 != 0 && r.plain && os.PathSeparator == '/' {
		p.log.Warn("tenure: the file of principals has secrets and can be read by everybody: "+
			"chmod 600, or write sha256 sums", "file", p.path)
	}
}

// readPrincipalSet reads a file, and returns what marks this state of it.
func readPrincipalSet(path string) (*principalSet, os.FileInfo, error) {
	mark, err := os.Stat(path) // before it is read: a change meanwhile is seen next time
	if err != nil {
		return nil, nil, fmt.Errorf("file of principals: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, mark, fmt.Errorf("file of principals: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxPrincipalsFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, mark, fmt.Errorf("file of principals: %w", err)
	}
	if len(text) > maxPrincipalsFile {
		return nil, mark, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("longer than %d bytes: this is no file "+
			"of principals", maxPrincipalsFile)}
	}
	r, err := parsePrincipalSet(path, string(text))
	return r, mark, err
}
