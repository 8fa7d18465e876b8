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
			Advise("see its log, and check that this is the address of tenured"))
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
		return "trust the authority that signed its certificate with --ca-file, and use a host name that is " +
			"in the certificate"
	case strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return "it does not use TLS: write http://, or start tenured with --tls-cert and --tls-key"
	case strings.Contains(text, "no such host"):
		return "check the host name in the URL"
	}
	return "check that tenured runs, and where it listens: its log shows that at the start"
}

// soon is how long before its end a certificate is reported.
const soon = 14 * 24 * time.Hour

func (s *Service) encrypted(state *tls.ConnectionState) {
	if state != nil && len(state.PeerCertificates) > 0 {
		left := time.Until(state.PeerCertificates[0].NotAfter)
		f := driver.OK("tls", "%s, with a certificate that is valid for %d days", tls.VersionName(state.Version),
			int(left.Hours()/24))
		if left < soon {
			f.Level, f.Advice = driver.LevelWarn, "renew it; tenured reads the new file without a restart"
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
	s.Tell(driver.Warn("tls", "the connection has no TLS: anyone on the network path can read the token, and take locks with it").
		Advise("use https: start tenured with --tls-cert and --tls-key, or put a proxy in front of it"))
}

// skewed is how far apart two wall clocks may be without a finding.
const skewed = time.Minute

// dated compares the wall clocks, which decide nothing.
func (s *Service) dated(a answer) {
	there, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		return
	}
	apart := time.Since(there).Abs()
	if apart > skewed {
		s.Tell(driver.Warn("clock", "the server's clock differs from this machine's by %v", apart.Round(time.Second)).
			Advise("leases do not depend on it, but times in status and history do: run a time service on both"))
	}
}

func (s *Service) ready(ctx context.Context) {
	switch a, err := s.get(ctx, "/readyz", nil); {
	case err != nil:
		s.Tell(driver.Bad("ready", "no answer: %v", err).Advise("try again"))
	case a.status == http.StatusOK:
		s.Tell(driver.OK("ready", "its store answers"))
	default:
		s.Tell(driver.Bad("ready", "it is not ready: %v", a).
			Advise("see its log: it cannot use its store, or it is shutting down"))
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
		s.Tell(driver.Bad("version", "its /openapi.json cannot be read").
			Advise("check that this is the address of tenured"))
	case version != protocolVersion:
		s.Tell(driver.Warn("version", "it has version %.20s of the protocol, this program has %s", version, protocolVersion).
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
		s.Tell(driver.Warn("host", "a call with a wrong Host header got no answer: %v", err).Advise("try again"))
	case a.problem().Type == "misdirected" || a.problem().Type == "" && a.status/100 == 4: // the latter: a proxy's
		s.Tell(driver.OK("host", "a call with a wrong Host header is refused"))
	default:
		s.Tell(driver.Warn("host", "a call with a wrong Host header is not refused").
			Advise("leave out --allow-host '*'; if there is a proxy, have it refuse unknown hosts " +
				"and pass the Host header on"))
	}
}

// open asks without a token.
func (s *Service) open(ctx context.Context) {
	a, err := s.get(ctx, "/v1/locks?limit=1", nil)
	switch {
	case err != nil:
		s.Tell(driver.Bad("token", "a call without a token got no answer: %v", err).Advise("try again"))
	case a.status == http.StatusUnauthorized:
		s.Tell(driver.OK("token", "a call without a token is refused"))
	default:
		s.Tell(driver.Bad("token", "a call without a token is not refused as unauthenticated: %v", a).
			Advise("check whether a proxy adds a token: then anyone who reaches the proxy may take locks"))
	}
}

// known asks whether the token is known.
func (s *Service) known(ctx context.Context) bool {
	if s.Token == "" && s.TLS == nil {
		s.Tell(driver.Warn("token", "no token was given, so no lock was tried").Advise("write --token-file FILE"))
		return false
	}
	a, err := s.get(ctx, "/v1/locks?limit=1", s.credentials())
	switch {
	case err != nil:
		s.Tell(driver.Bad("token", "a call with the token got no answer: %v", err).Advise("try again"))
		return false
	case a.status == http.StatusUnauthorized:
		s.Tell(driver.Bad("token", "the token is not known: %v", a).
			Advise("add a line for it to the file of --tokens; tenured token makes such a line"))
		return false
	case a.status == http.StatusForbidden || a.status == http.StatusOK:
		s.Tell(driver.OK("token", "the token is known"))
		return true
	}
	s.Tell(driver.Bad("token", "a call with the token failed: %v", a).Advise("see the log of tenured"))
	return false
}
