// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/server/access"
)

// Principals are the callers that a server accepts, with their secrets and rights. All methods
// may be called concurrently.
//
// A file has a line for each:
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
// without a gap. Empty lines, and text after a # at the beginning of a word, are
// comments.
type Principals struct {
	path string // empty: not from a file
	log  *slog.Logger
	now  atomic.Pointer[principalSet]

	mu     sync.Mutex // of looking at the file
	looked time.Time
	mark   os.FileInfo // of the file that was read last, good or bad
}

// reloadPeriod is the shortest time between checks of the file.
const reloadPeriod = time.Second

// maxPrincipalsFile is the longest file in bytes.
const maxPrincipalsFile = 4 << 20

// OpenPrincipals reads the principals from a file. It reads the file again when it has
// changed, at a call and at most once a second. If the changed file is not valid, the
// principals stay as they were, and the logger says why. The logger may be nil.
//
// The error names each bad line, but no secret.
func OpenPrincipals(path string, logger *slog.Logger) (*Principals, error) {
	p := &Principals{path: path, log: cmp.Or(logger, slog.New(slog.DiscardHandler)), looked: time.Now()}
	if _, err := p.load(); err != nil {
		return nil, err
	}
	return p, nil
}

// ParsePrincipals returns principals from the text of such a file, without a file.
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

// BySum returns the current principal whose secret has this SHA-256: for a caller that was
// authenticated with that secret before, such as a browser with an encrypted cookie. A sum that a
// client can send must not authenticate it.
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
// URIs and DNS names, or its common name if it has neither, that the file has with the word
// cert. The caller has verified the certificate.
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
	if p.path != "" && p.mu.TryLock() { // other calls use the present principals
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
	before := p.now.Load()
	r, err := p.load()
	if err != nil {
		p.log.Error("tenure: the file of principals is not valid: the previous principals stay",
			"file", p.path, "error", err)
		return
	}
	p.log.Info("tenure: the file of principals was read again", "file", p.path,
		"principals", len(r.names), "before", len(before.names))
}

// load reads the file, and goes by it if it is good.
func (p *Principals) load() (r *principalSet, err error) {
	if r, p.mark, err = readPrincipalSet(p.path); err != nil {
		return nil, err
	}
	p.now.Store(r)
	if p.mark != nil && p.mark.Mode().Perm()&0o004 != 0 && r.plain && os.PathSeparator == '/' {
		p.log.Warn("tenure: the file of principals has secrets, but every user can read it: "+
			"chmod 600, or write sha256 sums", "file", p.path)
	}
	return r, nil
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
		return nil, mark, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("longer than %d bytes: this is not a file "+
			"of principals", maxPrincipalsFile)}
	}
	r, err := parsePrincipalSet(path, string(text))
	return r, mark, err
}

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

// Limits of a secret. The shortest one still takes more guesses than an attacker can make, if
// it was made at random.
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
		return errors.New("word 1 is not a principal name: it must have at most 200 bytes, all printable, and no @")
	}
	name := principal.Name()
	if known, again := r.names[name]; again && !slices.Equal(known.Grants(), grants) {
		return fmt.Errorf("the same name as in line %d, with other rights: a second line adds another secret, and "+
			"must repeat the rights", first[name])
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
			return fmt.Errorf("word 2 is not %sHEX: it must have %d hexadecimal digits", sumPrefix, 2*len(sum))
		}
		copy(sum[:], raw)
	case len(secret) < minSecret || len(secret) > maxSecret:
		return fmt.Errorf("the secret has %d bytes: it must have %d to %d; make one with: openssl rand -hex 32",
			len(secret), minSecret, maxSecret)
	case guessable(secret) != "":
		return fmt.Errorf("the secret %s, so it can be guessed; make one with: openssl rand -hex 32", guessable(secret))
	default:
		r.plain = true
	}
	if i := slices.IndexFunc(r.tokens, func(t token) bool { return t.sum == sum }); i >= 0 {
		return fmt.Errorf("the same secret as in line %d: give each line its own secret", r.tokens[i].line)
	}
	r.tokens = append(r.tokens, token{sum, principal, n})
	return nil
}

// guessed are words that attackers try first.
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
	// minRest is how many characters a secret must have in addition to guessed words.
	minRest = 4
)

// guessable says why a secret was not made at random, as far as one can see that; "" if not.
func guessable(secret string) string {
	distinct := map[rune]bool{}
	for _, c := range secret {
		distinct[c] = true
	}
	// A repeated part makes a secret contain itself, shifted by that part.
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
		return "is made of words that attackers try first"
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
			return nil, errors.New("unknown right: " + want)
		}
		g := access.Grant{Right: access.Right(right), Prefix: prefix}
		if err := g.Validate(); err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
	return grants, nil
}

func noToken() *problem {
	return problemf(unauthenticated, "no token: send Authorization: Bearer SECRET with the secret of a principal, "+
		"or a client certificate over TLS")
}

// errWrongToken is the error of an unknown token or certificate, as opposed to a missing one.
var errWrongToken = errors.New("not known")

// carriesSecret says whether a call claims to be a principal's.
func (s *Server) carriesSecret(r *http.Request) bool {
	return r.Header.Get("Authorization") != "" || verified(r)
}

// secretOf returns the token of a call, "" without a token.
func secretOf(r *http.Request) string {
	_, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(secret)
}

// verified says whether the connection has a client certificate that the TLS configuration
// has verified. A certificate that was only sent proves nothing.
func verified(r *http.Request) bool { return r.TLS != nil && len(r.TLS.VerifiedChains) > 0 }

// principalOf returns the principal of a call. A token takes precedence over a certificate:
// a client that sends a token means it.
func (s *Server) principalOf(r *http.Request) (access.Principal, error) {
	switch headers := r.Header.Values("Authorization"); {
	case len(headers) > 1:
		return access.Principal{}, problemf(unauthenticated, "%d Authorization headers: send one", len(headers))
	case len(headers) == 1:
		scheme, secret, _ := strings.Cut(headers[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return access.Principal{}, problemf(unauthenticated, "the Authorization header does not have the scheme Bearer: "+
				"send Authorization: Bearer SECRET")
		}
		if p, found := s.o.Principals.ByToken(strings.TrimSpace(secret)); found {
			return p, nil
		}
		return access.Principal{}, errWrongToken
	case verified(r):
		if err := s.stillVerified(r); err != nil {
			return access.Principal{}, err
		}
		if p, found := s.o.Principals.ByCertificate(r.TLS.VerifiedChains[0][0]); found {
			return p, nil
		}
		return access.Principal{}, errWrongToken
	}
	return access.Principal{}, noToken()
}

// stillVerified returns a problem if the certificate of a connection would not be verified now:
// the handshake may be days ago.
func (s *Server) stillVerified(r *http.Request) error {
	now := time.Now()
	for _, cert := range r.TLS.VerifiedChains[0] {
		if now.After(cert.NotAfter) {
			return problemf(unauthenticated, "the client certificate of this connection, or a certificate of its issuers, has "+
				"expired: connect with a new one")
		}
	}
	if !s.o.Verified(r) {
		return problemf(unauthenticated, "the authorities of client certificates have changed since this connection "+
			"was made: connect again")
	}
	return nil
}

// refusedToken says why a call has no principal. A token that is not known is logged,
// without it, and counted for the address that it came from.
func (c *call) refusedToken(err error) error {
	if !errors.Is(err, errWrongToken) {
		return c.refused("token", err)
	}
	from := addressOf(c.r)
	if err := c.s.limits.failed(from, secretOf(c.r)); err != nil {
		return c.refused("token_limit", err)
	}
	c.s.o.Logger.Warn("tenure: unknown token or certificate",
		"path", c.label(), "address", access.Printable(from))
	return c.refused("token", problemf(unauthenticated, "the token or certificate is not known: send the secret of "+
		"a principal that the operator gave you"))
}

// hosts are the names by which clients may call the server.
type hosts struct {
	any   bool
	names []string
}

func newHosts(names []string) hosts {
	h := hosts{names: []string{"localhost", "127.0.0.1", "::1"}}
	for _, name := range names {
		h.any = h.any || name == "*"
		h.names = append(h.names, bareHost(name))
	}
	return h
}

// check returns a problem if the call names a host that is not ours: a name, say, that a web
// page has pointed at this server so that a browser lets it read the answers.
func (h hosts) check(r *http.Request) error {
	if h.any || slices.Contains(h.names, bareHost(r.Host)) || byUnixSocket(r) {
		return nil
	}
	return problemf(misdirected, "host %.200q is not a host of this server: use the name that its operator gave it, or "+
		"have the operator add this name to the hosts", r.Host)
}

// bareHost returns a host without its port, brackets, and last dot, in lower case.
func bareHost(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func byUnixSocket(r *http.Request) bool {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && a.Network() == "unix"
}

// byAddress says whether a call names this server by an address, or not at all, as load
// balancers do: not by a name that an attacker could point at it.
func byAddress(r *http.Request) bool {
	host := bareHost(r.Host)
	_, err := netip.ParseAddr(host)
	return host == "" || err == nil
}

// forwarded returns the address for which a trusted proxy has made a call: the last one in
// X-Forwarded-For that is not a trusted proxy's. Any client can have written what precedes it.
func (s *Server) forwarded(r *http.Request) (address string, ok bool) {
	if !s.proxied(addressOf(r)) {
		return "", false
	}
	all := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, text := range slices.Backward(all) {
		hop, err := netip.ParseAddr(strings.TrimSpace(text))
		if err != nil {
			break
		}
		address, ok = hop.Unmap().String(), true
		if !s.proxied(address) {
			break
		}
	}
	return address, ok
}

// proxied says whether an address is one of a proxy that is trusted.
func (s *Server) proxied(address string) bool {
	ip, err := netip.ParseAddr(address)
	ip = ip.Unmap().WithZone("")
	return err == nil && slices.ContainsFunc(s.o.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// addressOf returns the address that a call comes from, without the port.
func addressOf(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}
