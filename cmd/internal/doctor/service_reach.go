// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// reach asks whether the service is there at all, and how the way to it is.
func (s *Service) reach(ctx context.Context) error {
	a, err := s.get(ctx, "/healthz", nil)
	if err != nil {
		s.Tell(driver.Bad("server", "cannot be reached: %v", err).Advise("%s", s.unreachable(err)))
		return err
	}
	switch {
	case a.status == http.StatusMisdirectedRequest:
		s.Tell(driver.Bad("server", "refuses this name: %v", a).
			Advise("start tenured with --allow-host and the host of this URL"))
	case a.status != http.StatusOK:
		s.Tell(driver.Bad("server", "is not healthy: %v", a).
			Advise("see its log, and whether this is the address of tenured"))
	default:
		s.Tell(driver.OK("server", "answers in %v", shown(a.took)))
	}
	s.encrypted(a.tls)
	s.dated(a)
	return nil
}

// unreachable says what to do about an error of the way.
func (s *Service) unreachable(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "x509"):
		return "trust the authority that signed its certificate: --ca-file; and call it by a name that is " +
			"in the certificate"
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return "it does not encrypt: write http://, or start tenured with --tls-cert and --tls-key"
	case strings.Contains(text, "no such host"):
		return "see the name in the URL"
	}
	return "see whether tenured runs, and where it listens: its log says so at the start"
}

// soon is how long before its end a certificate is told of.
const soon = 14 * 24 * time.Hour

func (s *Service) encrypted(state *tls.ConnectionState) {
	if state != nil && len(state.PeerCertificates) > 0 {
		left := time.Until(state.PeerCertificates[0].NotAfter)
		f := driver.OK("tls", "%s, with a certificate that is good for %d days", tls.VersionName(state.Version),
			int(left.Hours()/24))
		if left < soon {
			f.Level, f.Advice = driver.LevelWarn, "renew it; tenured reads the file again by itself"
		}
		s.Tell(f)
		return
	}
	u, err := url.Parse(s.base)
	if strings.HasPrefix(s.URL, "unix:") || err != nil {
		return
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsLoopback() || u.Hostname() == "localhost" {
		return
	}
	s.Tell(driver.Warn("tls", "there is none: whoever is on the way can read the token, and take locks with it").
		Advise("use https: --tls-cert and --tls-key of tenured, or a proxy beside it"))
}

// skewed is how far apart two wall clocks may be before it is told.
const skewed = time.Minute

// dated compares the wall clocks, which decide nothing.
func (s *Service) dated(a answer) {
	there, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		return
	}
	apart := time.Since(there).Abs()
	if apart > skewed {
		s.Tell(driver.Warn("clock", "the clock of the server is %v away from the one here", apart.Round(time.Second)).
			Advise("no lease depends on it; times in status and history do: run a time service on both"))
	}
}

func (s *Service) ready(ctx context.Context) {
	switch a, err := s.get(ctx, "/readyz", nil); {
	case err != nil:
		s.Tell(driver.Bad("ready", "no answer: %v", err).Advise("ask again"))
	case a.status == http.StatusOK:
		s.Tell(driver.OK("ready", "its store answers"))
	default:
		s.Tell(driver.Bad("ready", "it is not: %v", a).
			Advise("see its log: its store cannot be used, or it is shutting down"))
	}
}

func (s *Service) version(ctx context.Context) {
	a, err := s.get(ctx, "/openapi.json", nil)
	var document struct{ Info struct{ Version string } }
	if err == nil {
		err = json.Unmarshal(a.body, &document)
	}
	switch version := document.Info.Version; {
	case err != nil || version == "":
		s.Tell(driver.Bad("version", "the document of its protocol cannot be read").
			Advise("see whether this is the address of tenured"))
	case version != protocolVersion:
		s.Tell(driver.Warn("version", "it has version %.20s of the protocol, this program %s", version, protocolVersion).
			Advise("update the older one"))
	default:
		s.Tell(driver.OK("version", "version %s of the protocol", version))
	}
}

// host asks by a name that no server has: a page on the web can have its own name lead to
// any address, and read the answers.
func (s *Service) host(ctx context.Context) {
	if strings.HasPrefix(s.URL, "unix:") {
		return
	}
	a, err := s.get(ctx, "/v1/locks?limit=1", map[string]string{"Host": "tenure-doctor.invalid"})
	switch {
	case err != nil:
		s.Tell(driver.Warn("host", "a call with another Host got no answer: %v", err).Advise("ask again"))
	case a.problem().Type == "misdirected" || a.problem().Type == "" && a.status/100 == 4: // the latter: a proxy's
		s.Tell(driver.OK("host", "a call with another Host is refused"))
	default:
		s.Tell(driver.Warn("host", "a call with another Host is not refused for that").
			Advise("leave out --allow-host '*'; if a proxy is between, have it refuse hosts that it does " +
				"not know, and pass the Host on"))
	}
}

// open asks without a token.
func (s *Service) open(ctx context.Context) {
	a, err := s.get(ctx, "/v1/locks?limit=1", nil)
	switch {
	case err != nil:
		s.Tell(driver.Bad("token", "a call without one got no answer: %v", err).Advise("ask again"))
	case a.status == http.StatusUnauthorized:
		s.Tell(driver.OK("token", "a call without one is refused"))
	default:
		s.Tell(driver.Bad("token", "a call without one is not refused as such: %v", a).
			Advise("see whether a proxy adds one: then whoever reaches the proxy may take locks"))
	}
}

// known asks whether the token is known.
func (s *Service) known(ctx context.Context) bool {
	if s.Token == "" && s.TLS == nil {
		s.Tell(driver.Warn("token", "none was given, so that no lock is tried").Advise("write --token-file FILE"))
		return false
	}
	a, err := s.get(ctx, "/v1/locks?limit=1", s.credentials())
	switch {
	case err != nil:
		s.Tell(driver.Bad("token", "a call with it got no answer: %v", err).Advise("ask again"))
		return false
	case a.status == http.StatusUnauthorized:
		s.Tell(driver.Bad("token", "it is not known: %v", a).
			Advise("add a line for it to the file of --tokens; tenured token makes one"))
		return false
	case a.status == http.StatusForbidden || a.status == http.StatusOK:
		s.Tell(driver.OK("token", "it is known"))
		return true
	}
	s.Tell(driver.Bad("token", "a call with it failed: %v", a).Advise("see the log of tenured"))
	return false
}
