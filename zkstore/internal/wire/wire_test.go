// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestValues(t *testing.T) {
	var w Writer
	w.Bool(true)
	w.Int(-7)
	w.Long(1 << 40)
	w.Text("ü")
	w.Bytes(nil)
	w.Int(2)
	w.Text("a")
	w.Text("")
	r := NewReader(w.buf)
	if !r.Bool() || r.Int() != -7 || r.Long() != 1<<40 || r.Text() != "ü" || len(r.Bytes()) != 0 || !slices.Equal(r.Texts(), []string{"a", ""}) || r.Err() != nil {
		t.Errorf("read back otherwise: %v", r.Err())
	}
	if r.Int() != 0 || !errors.Is(r.Err(), errShort) {
		t.Errorf("behind the end: %v", r.Err())
	}
}

// A damaged or malicious message is an error, and takes no more memory than its own
// size.
func FuzzReplies(f *testing.F) {
	var w Writer
	w.Int(opCreate)
	w.Bool(false)
	w.Int(0)
	w.Text("/a")
	w.Int(-1)
	w.Bool(true)
	w.Int(-1)
	f.Add(w.buf)
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff})
	f.Add([]byte{0xff, 0xff, 0xff, 0xfe})
	f.Fuzz(func(t *testing.T, body []byte) {
		reply := Reply{OK, body}
		_, _ = reply.Failed()
		if data, _, err := reply.Data(); err == nil && len(data) > len(body) {
			t.Errorf("%d bytes of %d", len(data), len(body))
		}
		if acl, err := reply.ACL(); err == nil && 12*len(acl) > len(body) {
			t.Errorf("%d entries of %d bytes", len(acl), len(body))
		}
		if names, err := reply.Children(); err == nil && 4*len(names) > len(body) {
			t.Errorf("%d names of %d bytes", len(names), len(body))
		}
	})
}

// fake is a server that says what the test wants, once a session has begun.
func fake(t *testing.T, serve func(conn net.Conn, read func() []byte)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			read := func() []byte {
				var head [4]byte
				if _, err := io.ReadFull(conn, head[:]); err != nil {
					return nil
				}
				message := make([]byte, binary.BigEndian.Uint32(head[:]))
				_, _ = io.ReadFull(conn, message)
				return message
			}
			read()
			var w Writer
			w.Int(0)
			w.Int(10_000)
			w.Long(1)
			w.Bytes(make([]byte, 16))
			_, _ = conn.Write(frame(w.buf))
			serve(conn, read)
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

func newTestClient(t *testing.T, address string) *Client {
	t.Helper()
	c := NewClient(Options{Hosts: []string{address}, Session: 10 * time.Second, Event: func(string) {}, Connected: func() {}})
	t.Cleanup(c.Close)
	return c
}

// The client leaves a server that sends an unexpected answer, or a message of 4 GB;
// requests that were sent to it have an unknown outcome.
func TestServerOfAnotherProtocol(t *testing.T) {
	for name, answer := range map[string][]byte{
		"another xid": frame(append([]byte{0, 0, 0, 99}, make([]byte, 12)...)),
		"short":       frame([]byte{0, 0}),
		"endless":     {0xff, 0xff, 0xff, 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestClient(t, fake(t, func(conn net.Conn, read func() []byte) {
				read()
				_, _ = conn.Write(answer)
			}))
			_, err := c.Do(t.Context(), GetData("/a"))
			if !errors.Is(err, ErrLost) || errors.Is(err, ErrNotSent) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A call is answered by the replies to its own requests, in order.
func TestPipelining(t *testing.T) {
	c := newTestClient(t, fake(t, func(conn net.Conn, read func() []byte) {
		for {
			message := read()
			if message == nil {
				return
			}
			var w Writer
			w.buf = append(w.buf, message[:4]...)
			w.Long(0)
			w.Int(0)
			w.Bytes(message[8:])
			_, _ = conn.Write(frame(w.buf))
		}
	}))
	for range 50 {
		replies, err := c.Do(t.Context(), Sync("/one"), GetData("/two"))
		if err != nil || len(replies) != 2 {
			t.Fatal(replies, err)
		}
		for i, want := range []string{"/one", "/two"} {
			if r := NewReader(replies[i].body); !strings.Contains(string(r.Bytes()), want) {
				t.Errorf("reply %d is that of another request", i)
			}
		}
	}
}

func TestClosed(t *testing.T) {
	c := newTestClient(t, fake(t, func(_ net.Conn, read func() []byte) { read() }))
	waits := make(chan error, 1)
	go func() {
		_, err := c.Do(t.Context(), GetData("/a"))
		waits <- err
	}()
	c.Close()
	if err := <-waits; err == nil {
		t.Error("a call outlives its client")
	}
	if _, err := c.Do(t.Context(), GetData("/a")); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrNotSent) {
		t.Errorf("after Close: %v", err)
	}
}
