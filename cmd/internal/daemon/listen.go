// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// listener is one that the service answers on.
type listener struct {
	net.Listener
	url string // for people
}

// listen opens an address. Connections above the limit wait until others end. With a
// config those of TCP are encrypted.
func listen(a address, config *tls.Config, connections int) (listener, error) {
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
	if l = newLimited(l, connections); config != nil {
		l, scheme = tls.NewListener(l, config), "https"
	}
	return listener{l, scheme + "://" + at}, nil
}

// limited accepts so many connections at a time, as netutil.LimitListener does. That hides
// CloseWrite, by which net/http ends an answer to a request that it has not read to its end:
// the client got a reset instead of that end.
type limited struct {
	net.Listener
	open   chan struct{} // has one for each connection, and for each that is waited for
	closed chan struct{}
	close  func() // closes closed, once
}

func newLimited(l net.Listener, most int) *limited {
	closed := make(chan struct{})
	return &limited{l, make(chan struct{}, most), closed, sync.OnceFunc(func() { close(closed) })}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.open <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.open
		return nil, err
	}
	return &limitedConn{streamConn: c.(streamConn), free: sync.OnceFunc(func() { <-l.open })}, nil
}

func (l *limited) Close() error {
	l.close()
	return l.Listener.Close()
}

// streamConn is a connection of TCP or of a socket.
type streamConn interface {
	net.Conn
	CloseWrite() error
}

type limitedConn struct {
	streamConn
	free func()
}

func (c *limitedConn) Close() error {
	defer c.free()
	return c.streamConn.Close()
}

// socketMode lets the user and the group of the socket connect. A token is needed all the
// same.
const socketMode = 0o660

// listenUnix makes a socket. One that a process has left which was killed is removed;
// one that somebody listens on is not.
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
		return fmt.Errorf("%s is there, and is no socket: remove it, or name another path", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("another process listens on %s", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s is there, and whether anybody listens on it is not known: %w", path, err)
	}
	return os.Remove(path)
}
