// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Cluster is what the URLs of engines with several servers have in common:
//
//	//USER@HOST:PORT,HOST:PORT/PATH?ca=FILE&cert=FILE&key=FILE&password_file=FILE
type Cluster struct {
	Hosts    []string // with their ports
	User     string
	password string // "": that of the file, or of TENURE_STORE_PASSWORD
	// PasswordFile has the password.
	PasswordFile string
	// CA, Cert and Key are PEM files. CA "": those that the system trusts.
	CA, Cert, Key string
}

// PasswordVariable is the environment variable with the password of a store whose URL
// has a user and none.
const PasswordVariable = "TENURE_STORE_PASSWORD"

// clusterParameters are those of every cluster, in the order in which they are written.
var clusterParameters = []string{"ca", "cert", "key", "password_file"}

// readCluster reads what follows the colon. Write says how such a URL looks, port is that
// of a host that has none, and own are the engine's own parameters. Errors quote nothing
// that may be a password.
func readCluster(rest, write, port string, own ...string) (c Cluster, path string, values url.Values, err error) {
	rest, slashes := strings.CutPrefix(rest, "//")
	if !slashes {
		return c, "", nil, errors.New("the hosts are missing: " + write)
	}
	rest, query, _ := strings.Cut(rest, "?")
	if strings.Contains(rest+query, "#") {
		return c, "", nil, errors.New(`it has a "#": write %23 in its place`)
	}
	authority, path, _ := strings.Cut(rest, "/")
	user, password, hosts, ok := cutUser(authority)
	if !ok {
		return c, "", nil, errors.New(`what stands before "@" is no USER, and no USER:PASSWORD with signs such as "/", "@" and "%" written as %2F, %40 and %25`)
	}
	c.User, c.password = user, password
	for _, host := range strings.Split(hosts, ",") {
		whole, err := hostPort(host, port)
		if err != nil {
			return c, "", nil, fmt.Errorf("%w: %s", err, write)
		}
		c.Hosts = append(c.Hosts, whole)
	}
	written := path
	if path, err = url.PathUnescape(path); err != nil {
		return c, "", nil, errors.New(`the path cannot be read: write %25 for "%"`)
	}
	if err = pathParts(written, path); err != nil {
		return c, "", nil, err
	}
	if values, err = readParameters(query, append(slices.Clone(clusterParameters), own...)); err != nil {
		return c, "", nil, err
	}
	c.CA, c.Cert, c.Key, c.PasswordFile = values.Get("ca"), values.Get("cert"), values.Get("key"), values.Get("password_file")
	switch {
	case (c.Cert == "") != (c.Key == ""):
		err = errors.New("cert= and key= go together: the client's certificate, and its key")
	case c.PasswordFile != "" && c.User == "":
		err = errors.New("password_file= is there, and no user: write USER@ before the hosts")
	case c.PasswordFile != "" && c.password != "":
		err = errors.New("there are two passwords: leave out that in the URL, or password_file=")
	default:
		err = absolute(&c.CA, &c.Cert, &c.Key, &c.PasswordFile)
	}
	return c, path, values, err
}

// cutUser cuts USER:PASSWORD@ off, of which there may be nothing, and says whether they can be
// read.
func cutUser(authority string) (user, password, hosts string, ok bool) {
	at := strings.LastIndexByte(authority, '@')
	if at < 0 {
		return "", "", authority, true
	}
	user, password, has := strings.Cut(authority[:at], ":")
	user, err := unescape(user)
	password, err2 := unescape(password)
	return user, password, authority[at+1:], err == nil && err2 == nil && user != "" && (!has || password != "")
}

// unescape does what libpq does, but that a space need not be escaped. It takes no plus for one.
func unescape(text string) (string, error) {
	text, err := url.PathUnescape(text)
	if err == nil && strings.ContainsRune(text, 0) {
		err = errors.New("a zero byte")
	}
	return text, err
}

// hostPort returns a host with its port, as it is dialled: with the zone of an address behind
// its "%".
func hostPort(text, port string) (string, error) {
	if strings.HasPrefix(text, "[") != strings.Contains(text, "]") {
		return "", errors.New("a host cannot be read")
	}
	host, own, err := net.SplitHostPort(text)
	if err != nil {
		host, own = strings.Trim(text, "[]"), port
		if _, err := netip.ParseAddr(withZone(host)); strings.Contains(host, ":") && err != nil {
			return "", errors.New("a host cannot be read")
		}
	}
	if n, err := strconv.ParseUint(own, 10, 16); host != "" && own != "" && (err != nil || n == 0) {
		return "", errors.New("what stands behind a host is no port from 1 to 65535")
	}
	if inside := withZone(host); inside != host && strings.HasPrefix(text, "[") {
		return net.JoinHostPort(inside, own), nil
	}
	if host == "" || own == "" || strings.ContainsAny(host, " /?%") {
		return "", errors.New("a host is missing, or cannot be read")
	}
	return net.JoinHostPort(host, own), nil
}

// zoned is what a URL has in brackets for an IPv6 address with the zone of its link.
var zoned = regexp.MustCompile(`^([0-9A-Fa-f:.]+)%25([A-Za-z0-9._-]+)$`)

// withZone returns an address that a URL has with a zone as it is dialled, and all other text
// as it is.
func withZone(host string) string {
	if m := zoned.FindStringSubmatch(host); m != nil {
		if ip, err := netip.ParseAddr(m[1]); err == nil && ip.Is6() {
			return m[1] + "%" + m[2]
		}
	}
	return host
}

// zoneEscaped is for a URL what withZone is for a dialler.
func zoneEscaped(host string) string { return strings.Replace(host, "%", "%25", 1) }

// readParameters reads what follows the question mark: each parameter once, and none that
// is not known.
func readParameters(query string, known []string) (url.Values, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New(`what follows "?" cannot be read: write NAME=VALUE&NAME=VALUE, with %25 for "%" and %3B for ";"`)
	}
	for name, all := range values {
		switch {
		case !slices.Contains(known, name):
			if !parameterName.MatchString(name) || strings.Contains(query, "@") {
				return nil, errors.New("a parameter is unknown: the parameters are " + strings.Join(known, ", "))
			}
			return nil, fmt.Errorf("parameter %.40q is unknown: the parameters are %s", name, strings.Join(known, ", "))
		case len(all) > 1:
			return nil, fmt.Errorf("%s= is there %d times: write it once", name, len(all))
		case all[0] == "":
			return nil, fmt.Errorf("%s= has no value: write one, or leave it out", name)
		}
	}
	return values, nil
}

// text returns the URL with the password, or without one. More are the engine's own
// parameters.
func (c Cluster) text(scheme, path, password string, more ...string) string {
	var b strings.Builder
	b.WriteString(scheme + "://")
	if c.User != "" {
		b.WriteString(url.PathEscape(c.User))
		if password != "" {
			b.WriteString(":" + url.PathEscape(password))
		}
		b.WriteString("@")
	}
	for i, host := range c.Hosts {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(zoneEscaped(host))
	}
	if path = strings.TrimSuffix(path, "/"); path != "" {
		b.WriteByte('/')
		if behind, slash := strings.CutPrefix(path, "/"); slash { // it is the prefix's own
			b.WriteString("%2F")
			path = behind
		}
		b.WriteString(strings.ReplaceAll(url.PathEscape(path), "%2F", "/"))
	}
	var query []string
	for i, value := range []string{c.CA, c.Cert, c.Key, c.PasswordFile} {
		if value != "" {
			query = append(query, clusterParameters[i]+"="+strings.ReplaceAll(url.QueryEscape(value), "%2F", "/"))
		}
	}
	if query = append(query, more...); len(query) > 0 {
		b.WriteString("?" + strings.Join(query, "&"))
	}
	return b.String()
}

// dialed returns why no host takes a connection, one that is encrypted if there is a config
// for that. The clients of some engines try on and on, and do not tell.
func dialed(ctx context.Context, hosts []string, config *tls.Config) error {
	var first error
	refused := false
	for _, host := range hosts {
		dialing, cancel := context.WithTimeout(ctx, openPatience/time.Duration(len(hosts)+1))
		conn, err := dial(dialing, host, config)
		cancel()
		if err == nil {
			_ = conn.Close() // it has served
			return nil
		}
		refused = refused || errors.As(err, new(*tls.CertificateVerificationError))
		first = errors.Join(first, err)
	}
	what, see := "none of the hosts can be reached", "see that the engine runs, and that the addresses are right"
	if len(hosts) == 1 {
		what, see = hosts[0]+" cannot be reached", "see that the engine runs, and that the address is right"
	}
	if refused {
		see = "its certificate is not good for this client"
	}
	return fmt.Errorf("%s: %s: %w", what, see, first)
}

// dial makes a connection, encrypted if there is a config for that.
func dial(ctx context.Context, host string, config *tls.Config) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil || config == nil {
		return conn, err
	}
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(host)
		config.ServerName, _, _ = strings.Cut(config.ServerName, "%") // a certificate has no zone
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // nothing was sent that matters
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return secure, nil
}

// Password returns that of the user: of the URL, of the file, or of the environment.
func (c Cluster) Password() (string, error) { return passwordOf(c.User, c.password, c.PasswordFile) }

func passwordOf(user, inURL, file string) (string, error) {
	switch {
	case user == "" || inURL != "":
		return inURL, nil
	case file == "":
		return strings.TrimRight(os.Getenv(PasswordVariable), "\r\n"), nil
	}
	return passwordIn(file)
}

// passwordIn returns the password that a file has.
func passwordIn(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", driver.Permanent(fmt.Errorf("password_file=: %w", err))
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// reread returns a function that reads again, for what may be renewed while a store is
// open. Where it cannot read, it returns what there was last, and why.
func reread[T any](last T, read func() (T, error)) func() (T, error) {
	var mu sync.Mutex
	return func() (T, error) {
		mu.Lock()
		defer mu.Unlock()
		now, err := read()
		if err == nil {
			last = now
		}
		return last, err
	}
}

// Encryption returns how the client checks the servers, and shows who it is itself; nil if
// neither the scheme nor a file asks for that.
func (c Cluster) Encryption(asked bool) (*tls.Config, error) {
	if !asked && c.CA == "" && c.Cert == "" {
		return nil, nil //nolint:nilnil // as in the configurations of the engines
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		text, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, driver.Permanent(fmt.Errorf("ca=: %w", err))
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, driver.Permanent(fmt.Errorf("ca=%s has no certificate in the form of PEM", c.CA))
		}
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, driver.Permanent(fmt.Errorf("cert=, key=: %w", err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
