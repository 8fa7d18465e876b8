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
	"syscall"
	"time"

	"golang.org/x/net/netutil"
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
		return listener{netutil.LimitListener(l, connections), a.String()}, nil
	}
	l, err := net.Listen("tcp", a.where)
	if err != nil {
		return listener{}, err
	}
	scheme := "http"
	at := l.Addr().String() // with the port that was found, if it was 0
	if l = netutil.LimitListener(l, connections); config != nil {
		l, scheme = tls.NewListener(l, config), "https"
	}
	return listener{l, scheme + "://" + at}, nil
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
