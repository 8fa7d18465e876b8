// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// defaultListen can be reached only from this machine. No well-known service has the port:
// the keys 8368 of a telephone have the letters TENU.
const defaultListen = "127.0.0.1:8368"

// address is where the service listens.
type address struct {
	network string // tcp or unix
	where   string // HOST:PORT, or the path of the socket
	host    string // of tcp
}

// parseAddress reads a value of --listen: HOST:PORT, or unix:PATH.
func parseAddress(text string) (address, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if path == "" {
			return address{}, errors.New("unix: needs the path of a socket, such as unix:/run/tenured/tenured.sock")
		}
		return address{network: "unix", where: path}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return address{}, fmt.Errorf("%.60q is not an address: write HOST:PORT, such as %s, or unix:PATH", text, defaultListen)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return address{}, fmt.Errorf("%.60q: port %.20q is not a number from 0 to 65535", text, port)
	}
	return address{network: "tcp", where: text, host: host}, nil
}

// local says that other machines cannot connect.
func (a address) local() bool {
	if a.network == "unix" || a.host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(a.host)
	return err == nil && ip.Unmap().IsLoopback()
}

// everywhere says that it means all addresses of this machine, without naming one.
func (a address) everywhere() bool {
	ip, err := netip.ParseAddr(a.host)
	return a.host == "" || err == nil && ip.IsUnspecified()
}

func (a address) String() string {
	if a.network == "unix" {
		return "unix:" + a.where
	}
	return a.where
}
