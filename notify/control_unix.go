// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package notify

import "syscall"

// control removes from the socket the right to broadcast, which package net gives to
// all sockets. The broadcast address of a network looks like any other.
func control(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_BROADCAST, 0)
	}); e != nil {
		return e
	}
	return err
}
