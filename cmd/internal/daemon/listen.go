// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/server/access"
)

// listener is a listener that the service answers on.
type listener struct {
	net.Listener
	url string // for people
}

// listen opens an address, for a limited number of connections: see limited. With a config
// TCP connections are encrypted.
func listen(a address, config *tls.Config, connections int, proxies ...netip.Prefix) (listener, error) {
	if a.network == "unix" {
		l, err := listenUnix(a.where)
		if err != nil {
			return listener{}, err
		}
		return listener{newLimited(l, connections), a.String()}, nil
	}
	l, err := net.Listen("tcp", a.where)
	if err != nil {
		return listener{}, err
	}
	scheme := "http"
	at := l.Addr().String() // with the port that was found, if it was 0
	if l = newLimited(l, connections, proxies...); config != nil {
		l, scheme = tls.NewListener(l, config), "https"
	}
	return listener{l, scheme + "://" + at}, nil
}

// limited accepts a limited number of connections at a time. At the limit a new connection
// replaces the oldest one without a valid token, and then an idle one, of the address that
// has the most; it waits only when all of them have calls in progress. So a client that opens
// connections and sends nothing does not keep others out.
//
// Unlike netutil.LimitListener it does not hide CloseWrite, with which net/http ends an answer
// to a request that it has not read completely: otherwise the client gets a reset.
type limited struct {
	net.Listener
	most, strangers int            // in all; of one address without a good token
	proxies         []netip.Prefix // through which many come: they have all

	mu     sync.Mutex
	closed bool
	room   *sync.Cond     // of mu: fewer than before, or closed
	all    []*limitedConn // the oldest first
}

// strangersPart is the part of all connections that one address may have without a good token.
const strangersPart = 4

func newLimited(l net.Listener, most int, proxies ...netip.Prefix) *limited {
	lim := &limited{Listener: l, most: most, strangers: max(1, most/strangersPart), proxies: proxies}
	lim.room = sync.NewCond(&lim.mu)
	return lim
}

func (l *limited) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limitedConn{streamConn: accepted.(streamConn), of: l, from: l.network(accepted.RemoteAddr())}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.from != "" && l.count(func(o *limitedConn) bool { return o.from == c.from && !o.known }) >= l.strangers {
		l.drop(func(o *limitedConn) bool { return o.from == c.from && !o.known })
	}
	for len(l.all) >= l.most && !l.closed {
		if !l.drop(func(o *limitedConn) bool { return !o.known }) && !l.drop(l.idleOfMost()) {
			l.room.Wait()
		}
	}
	if l.closed {
		_ = accepted.Close()
		return nil, net.ErrClosed
	}
	l.all = append(l.all, c)
	return c, nil
}

func (l *limited) count(which func(*limitedConn) bool) (n int) {
	for _, c := range l.all {
		if which(c) {
			n++
		}
	}
	return n
}

// drop closes the oldest of such connections, and says whether there was one. The caller
// holds the mutex.
func (l *limited) drop(which func(*limitedConn) bool) bool {
	i := slices.IndexFunc(l.all, which)
	if i < 0 {
		return false
	}
	c := l.all[i]
	l.all = slices.Delete(l.all, i, i+1)
	_ = c.streamConn.Close()
	return true
}

// idleOfMost says whether a connection is idle, and belongs to the address with the most idle
// connections. The caller holds the mutex.
func (l *limited) idleOfMost() func(*limitedConn) bool {
	idle := map[string]int{}
	most := ""
	for _, c := range l.all {
		if c.idle {
			if idle[c.from]++; idle[c.from] > idle[most] {
				most = c.from
			}
		}
	}
	return func(c *limitedConn) bool { return c.idle && c.from == most }
}

func (l *limited) Close() error {
	l.mu.Lock()
	l.closed = true
	l.room.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

// network returns the address or network that a connection comes from; "" for a socket, and for a proxy.
func (l *limited) network(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return ""
	}
	ip := tcp.AddrPort().Addr().Unmap()
	if slices.ContainsFunc(l.proxies, func(p netip.Prefix) bool { return p.Contains(ip.WithZone("")) }) {
		return ""
	}
	return access.Network(ip.String())
}

// streamConn is a connection of TCP or of a socket.
type streamConn interface {
	net.Conn
	CloseWrite() error
}

// limitedConn is a connection. What is known of it is guarded by the mutex of the listener.
type limitedConn struct {
	streamConn
	of    *limited
	from  string // "": of no address
	known bool   // it has shown a good token
	idle  bool   // no call is in progress

	authorities atomic.Pointer[x509.CertPool] // that verified a client certificate; nil: no certificate
}

func (c *limitedConn) Close() error {
	err := c.streamConn.Close()
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if i := slices.Index(c.of.all, c); i >= 0 {
		c.of.all = slices.Delete(c.of.all, i, i+1)
	}
	c.of.room.Signal()
	return err
}

// limitedOf returns the connection below TLS, nil for other connections.
func limitedOf(c net.Conn) *limitedConn {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	l, _ := c.(*limitedConn)
	return l
}

// connKey is under what a call has its connection.
type connKey struct{}

// withConn lets a call know its connection.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, limitedOf(c))
}

// knownConn notes that the connection of a call has shown a good token.
func knownConn(r *http.Request) {
	if c, _ := r.Context().Value(connKey{}).(*limitedConn); c != nil {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.known = true
	}
}

// connState notes whether calls are in progress.
func connState(conn net.Conn, state http.ConnState) {
	if c := limitedOf(conn); c != nil && (state == http.StateIdle || state == http.StateActive) {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		if c.idle = state == http.StateIdle; c.idle {
			c.of.room.Signal() // it may be dropped
		}
	}
}

// socketMode lets the user and the group of the socket connect. A token is needed all the
// same.
const socketMode = 0o660

// listenUnix makes a socket. It removes a socket that a killed process has left, but not a
// socket that a process listens on.
func listenUnix(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err := removeStale(path); err != nil {
			return nil, err
		}
		l, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists, but is not a socket: remove it, or name another path", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("another process listens on %s", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s exists, but it is not known whether a process listens on it: %w", path, err)
	}
	return os.Remove(path)
}
