// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/bell"
	"github.com/tenurelock/tenure/cmd/internal/storeurl"
)

// bellFlags say where this process takes hints of others.
type bellFlags struct {
	Bell *string `placeholder:"[ADVERTISED=]HOST:PORT"`
}

// bellPlan is what the flag says.
type bellPlan struct {
	listen     string         // without a host: at all addresses
	port       string         // of listen
	advertised netip.AddrPort // not valid: the address on the route to the store; port 0: that which is listened at
}

// bellVariable has the value of --bell, if that is not given.
const bellVariable = "TENURE_BELL"

// asked returns what the flag or the environment asks for, nil for no bell.
func (f bellFlags) asked() (*bellPlan, error) {
	text, name := os.Getenv(bellVariable), bellVariable
	if f.Bell != nil {
		text, name = *f.Bell, "--bell"
	}
	if text == "" && f.Bell == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	wrong := func(why string) (*bellPlan, error) {
		return nil, usage("%s %.100q: %s: write IP:PORT, such as 192.0.2.7:4711; :PORT or :0 for the address "+
			"on the route to the store; or ADVERTISED_IP=:PORT", name, text, why)
	}
	shown, listen, given := strings.Cut(text, "=")
	if !given {
		shown, listen = "", text
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return wrong("it has no port")
	}
	p := &bellPlan{port: port}
	number, err := netip.ParseAddrPort("0.0.0.0:" + port)
	switch {
	case err != nil:
		return wrong("the port is no number from 1024 to 65535, or 0")
	case number.Port() != 0 && number.Port() < bell.MinPort:
		return wrong(fmt.Sprintf("port %s is below %d", port, bell.MinPort))
	}
	if host != "" {
		ip, err := netip.ParseAddr(host)
		if err != nil {
			return wrong("the host is no IP address")
		}
		if p.listen = listen; !ip.IsUnspecified() {
			p.advertised = netip.AddrPortFrom(ip, 0)
		}
	}
	if !given {
		return p, nil
	}
	if ip, err := netip.ParseAddr(shown); err == nil {
		p.advertised = netip.AddrPortFrom(ip, 0)
	} else if p.advertised, err = netip.ParseAddrPort(shown); err != nil {
		return wrong("what is advertised is no IP address, and none with a port")
	}
	if ip := p.advertised.Addr(); ip.IsUnspecified() || ip.IsMulticast() {
		return wrong("others do not reach " + ip.String())
	}
	return p, nil
}

// listenAt listens. The store was opened before, so that it is known where it is.
func (p *bellPlan) listenAt(ctx context.Context, at storeurl.Location) (*bell.UDP, error) {
	shown := p.advertised
	if !shown.IsValid() {
		host := at.Host()
		if host == "" {
			return nil, errors.New("it is not known on which host the store is: say what to advertise")
		}
		ip, err := bell.RouteTo(ctx, host)
		if err != nil {
			return nil, fmt.Errorf("%w: say what to advertise", err)
		}
		shown = netip.AddrPortFrom(ip, 0)
	}
	listen := p.listen
	if listen == "" {
		all := netip.IPv4Unspecified()
		if shown.Addr().Is6() {
			all = netip.IPv6Unspecified()
		}
		if listen = net.JoinHostPort(all.String(), p.port); shown.Addr().IsLoopback() {
			listen = net.JoinHostPort(shown.Addr().String(), p.port) // nobody else reaches it there
		}
	}
	return bell.Listen(listen, &bell.Options{Advertise: shown.String()})
}

// open gives the options a bell, if one is asked for. Close is called after the client is
// closed. What is in the way of a bell is in the way of nothing else: it is told, and the
// command goes on without one.
func (p *bellPlan) open(c *console, at storeurl.Location, o *tenure.Options) (closeBell func()) {
	if p == nil {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(context.Background(), routePatience)
	defer cancel()
	udp, err := p.listenAt(ctx, at)
	if err != nil {
		c.warn("no bell, so that others are found by polling: %s", err)
		return func() {}
	}
	o.Bell = udp
	return func() { _ = udp.Close() } // nothing was kept in it
}

// routePatience is how long the name of the store's host is looked up.
const routePatience = 2 * time.Second
