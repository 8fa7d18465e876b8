// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

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
	return problemf(misdirected, "host %.200q is none of this server's: name it as its operator has named it, or "+
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

// byAddress says whether a call names this server by no name that somebody could point at it:
// by an address, or not at all, as load balancers do.
func byAddress(r *http.Request) bool {
	host := bareHost(r.Host)
	_, err := netip.ParseAddr(host)
	return host == "" || err == nil
}

// forwarded returns the address for which a proxy that is trusted has made a call: the last one
// in X-Forwarded-For that is none of a proxy's. What stands before it, anybody can have written.
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
