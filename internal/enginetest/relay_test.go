// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestRelay: what is sent while the relay holds reaches the engine afterwards, and its
// answer the client.
func TestRelay(t *testing.T) {
	engine, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	go func() {
		for {
			conn, err := engine.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	relay := NewRelay(t, engine.Addr().String())
	conn, err := net.Dial("tcp", relay.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answers := bufio.NewReader(conn)
	say := func(line string) {
		t.Helper()
		if _, err := io.WriteString(conn, line); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(want string) {
		t.Helper()
		if line, err := answers.ReadString('\n'); line != want || err != nil {
			t.Fatalf("heard %q, %v; want %q", line, err, want)
		}
	}
	say("one\n")
	hear("one\n")
	if n := relay.Trips(); n != 1 {
		t.Errorf("%d round trips, want 1", n)
	}
	resume := relay.Hold()
	say("two\n")
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if line, err := answers.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the relay passed %q on, %v, and it holds", line, err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	resume()
	hear("two\n")
	if n := relay.Trips(); n != 1 {
		t.Errorf("%d round trips, want 1", n)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := answers.ReadString('\n'); !errors.Is(err, io.EOF) {
		t.Errorf("after its end the connection says %v", err)
	}
}
