// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/tenurelock/tenure/driver"
)

// servers is what the URLs of engines with users and several servers have in common:
//
//	//USER:PASSWORD@HOST:PORT,HOST:PORT/
type servers struct {
	user         string
	password     string // "": that of the file, or of TENURE_STORE_PASSWORD
	passwordFile string
	hosts        []server
}

// server has the zone of an IPv6 address behind its "%". Port is empty if the URL has none.
type server struct{ name, port string }

// PasswordVariable is the environment variable with the password of a store whose URL
// has a user and none.
const PasswordVariable = "TENURE_STORE_PASSWORD"

// readServers reads what stands before the path. Errors quote nothing that may be a password.
func readServers(authority, write string) (s servers, err error) {
	hosts := authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, password, has := strings.Cut(authority[:at], ":")
		hosts = authority[at+1:]
		var err2 error
		s.user, err = unescape(user)
		s.password, err2 = unescape(password)
		if err != nil || err2 != nil || user == "" || has && password == "" {
			return s, errors.New(`what stands before "@" is no USER, and no USER:PASSWORD with signs such as ` +
				`"/", "?", "@" and "%" written as %2F, %3F, %40 and %25`)
		}
	}
	for _, host := range strings.Split(hosts, ",") {
		h, err := readServer(host)
		if err != nil {
			return s, fmt.Errorf("%w: %s", err, write)
		}
		s.hosts = append(s.hosts, h)
	}
	return s, nil
}

func readServer(text string) (h server, err error) {
	unreadable := errors.New("a host is missing, or cannot be read")
	switch inside, bracket := strings.CutPrefix(text, "["); {
	case bracket:
		inside, behind, closed := strings.Cut(inside, "]")
		if h.name = withZone(inside); !closed || h.name == inside && net.ParseIP(inside) == nil {
			return h, unreadable
		}
		var colon bool
		if h.port, colon = strings.CutPrefix(behind, ":"); !colon && behind != "" {
			return h, unreadable
		}
	case strings.Count(text, ":") > 1:
		return h, errors.New("a host has more than one colon: an IPv6 address stands in brackets, as [2001:db8::1]")
	default:
		h.name, h.port, _ = strings.Cut(text, ":")
		if h.name, err = unescape(h.name); err != nil || strings.ContainsAny(h.name, " ,?%@\t\n") {
			return h, unreadable
		}
	}
	if n, err := strconv.ParseUint(h.port, 10, 16); h.port != "" && (err != nil || n == 0) {
		return h, errors.New("what stands behind a host is no port from 1 to 65535")
	}
	return h, nil
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

// parameters are those of the password.
func (s *servers) parameters() []parameter {
	return []parameter{file("password_file", &s.passwordFile)}
}

func (s servers) check() error {
	switch {
	case s.passwordFile != "" && s.user == "":
		return errors.New("password_file= is there, and no user: write USER@ before the hosts")
	case s.passwordFile != "" && s.password != "":
		return errors.New("there are two passwords: leave out that in the URL, or password_file=")
	}
	return nil
}

// authority returns what stands before the path.
func (s servers) authority(secrets bool) string {
	var b strings.Builder
	if s.user != "" {
		b.WriteString(escapeAll(s.user))
		if s.password != "" && secrets {
			b.WriteString(":" + escapeAll(s.password))
		}
		b.WriteByte('@')
	}
	for i, h := range s.hosts {
		if i > 0 {
			b.WriteByte(',')
		}
		if strings.Contains(h.name, ":") {
			b.WriteString("[" + zoneEscaped(h.name) + "]")
		} else {
			b.WriteString(escapeAll(h.name))
		}
		if h.port != "" {
			b.WriteString(":" + h.port)
		}
	}
	return b.String()
}

func (s servers) host() string {
	if len(s.hosts) == 0 || s.hosts[0].name == "" || filepath.IsAbs(s.hosts[0].name) {
		return here // a socket of this machine
	}
	return s.hosts[0].name
}

// knownPassword returns that of the user: of the URL, of the file, or of the environment.
func (s servers) knownPassword() (string, error) {
	switch {
	case s.user == "" || s.password != "":
		return s.password, nil
	case s.passwordFile == "":
		return strings.TrimRight(os.Getenv(PasswordVariable), "\r\n"), nil
	}
	return passwordIn(s.passwordFile)
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
