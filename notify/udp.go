// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// UDP is a [github.com/tenurelock/tenure.Notifier] on a socket of its own. All
// methods may be called concurrently.
type UDP struct {
	conn    *net.UDPConn
	address netip.AddrPort // that is advertised
	buffer  chan []byte    // of the one who receives
}

// Options are for [Listen]. Nil means the defaults.
type Options struct {
	// Advertise is the address under which other processes reach this one, if that
	// differs from the listen address: an IP address, and a port, or port 0 for the
	// listen port. It is needed if Listen is a wildcard.
	Advertise string
}

const (
	// MinPort is the lowest port to listen at, and to send to. Ports below it
	// belong to services of the system.
	MinPort = 1024
	// maxMessage is the longest message in bytes.
	maxMessage = 512

	scheme = "udp://"
)

// Listen opens a socket at an IP address and a port: "192.0.2.7:4711", "[2001:db8::7]:0".
// Port 0 takes a free port. The address must be the address at which the other processes
// reach this one: see [RouteTo]. Host names are not resolved.
func Listen(address string, options *Options) (*UDP, error) {
	at, err := parse(address, true)
	if err != nil {
		return nil, fmt.Errorf("notify: listen at %.100q: %w", address, err)
	}
	shown := at
	if options != nil && options.Advertise != "" {
		if shown, err = parse(options.Advertise, true); err != nil {
			return nil, fmt.Errorf("notify: advertise %.100q: %w", options.Advertise, err)
		}
	}
	config := net.ListenConfig{Control: control}
	packet, err := config.ListenPacket(context.Background(), "udp", at.String())
	if err != nil {
		return nil, fmt.Errorf("notify: %w", err)
	}
	u := &UDP{conn: packet.(*net.UDPConn), buffer: make(chan []byte, 1)}
	u.buffer <- make([]byte, maxMessage+1)
	if shown.Port() == 0 {
		shown = netip.AddrPortFrom(shown.Addr(), u.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	}
	if err := reachable(shown); err != nil {
		_ = u.conn.Close()
		return nil, fmt.Errorf("notify: advertise %s: %w", shown, err)
	}
	u.address = shown
	return u, nil
}

// Address returns what is written into records: "udp://192.0.2.7:4711".
func (u *UDP) Address() string { return scheme + u.address.String() }

// Close closes the socket.
func (u *UDP) Close() error { return u.conn.Close() }

// Send sends a datagram to an address of the form that Address returns. It refuses
// multicast, broadcast and unspecified addresses, ports below [MinPort], and, unless it
// listens at a loopback address itself, loopback addresses: a record that names one
// would have this process send to its own host.
func (u *UDP) Send(address string, message []byte) error {
	text, ok := strings.CutPrefix(address, scheme)
	if !ok {
		return fmt.Errorf("notify: address %.100q is not a UDP address: want %sIP:PORT", address, scheme)
	}
	to, err := parse(text, false)
	if err == nil {
		err = reachable(to)
	}
	switch {
	case err != nil:
	case to.Addr().IsLoopback() && !u.address.Addr().IsLoopback():
		err = errors.New("it is a loopback address, and this process does not listen at one")
	case len(message) > maxMessage:
		err = fmt.Errorf("a message of %d bytes: the longest is %d", len(message), maxMessage)
	}
	if err != nil {
		return fmt.Errorf("notify: send to %.100q: %w", address, err)
	}
	_, err = u.conn.WriteToUDPAddrPort(message, to)
	return err
}

// Receive returns the next datagram. It drops a datagram that is too long.
func (u *UDP) Receive(ctx context.Context) ([]byte, error) {
	buffer := <-u.buffer
	defer func() { u.buffer <- buffer }()
	if err := u.conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = u.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		n, _, err := u.conn.ReadFromUDPAddrPort(buffer)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded):
			// The deadline is of an earlier Receive, whose context has ended.
			if err := u.conn.SetReadDeadline(time.Time{}); err != nil {
				return nil, err
			}
			if ctx.Err() != nil { // it may have ended before that
				return nil, ctx.Err()
			}
		case err != nil:
			return nil, err // such as that no process listens where a datagram was sent
		case n <= maxMessage:
			return append([]byte(nil), buffer[:n]...), nil
		}
	}
}

// RouteTo returns the address from which this machine reaches a host: the address
// of its interface on the route there. It resolves a host name, and sends nothing
// to the host.
func RouteTo(ctx context.Context, host string) (netip.Addr, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", net.JoinHostPort(host, "9"))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("notify: route to %.200q: %w", host, err)
	}
	defer func() { _ = conn.Close() }()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone(""), nil
}

// parse reads an address. Port 0 stands for a free port, if free is set.
func parse(text string, free bool) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(text)
	switch {
	case err != nil:
		return a, errors.New("it must be an IP address and a port, such as 192.0.2.7:4711 or [2001:db8::7]:0")
	case a.Addr().Zone() != "":
		return a, errors.New("a zone means nothing to other machines")
	case a.Port() < MinPort && !(free && a.Port() == 0):
		return a, fmt.Errorf("port %d is below %d", a.Port(), MinPort)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// reachable returns an error if no single process can be at the address.
func reachable(a netip.AddrPort) error {
	switch ip := a.Addr(); {
	case ip.IsUnspecified():
		return errors.New("others cannot reach a wildcard: set the address to advertise")
	case ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return errors.New("it is the address of many machines")
	case ip.Is4() && ip.As4()[0] == 0:
		return errors.New("it is not the address of a machine")
	}
	return nil
}
