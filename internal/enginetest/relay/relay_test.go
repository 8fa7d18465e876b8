// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestRelay sends a piece through each fault, to an engine that answers in
// kind.
func TestRelay(t *testing.T) {
	for _, test := range []struct {
		name        string
		set         func(*Relay)
		came, wants error // the answer's, under the fault and after it
		asked       bool  // the engine got the piece
	}{
		{"none", (*Relay).Heal, nil, nil, true},
		{"slow", func(g *Relay) { g.Slow(2 * time.Millisecond) }, nil, nil, true},
		{"black hole", (*Relay).BlackHole, os.ErrDeadlineExceeded, io.EOF, false},
		{"no replies", (*Relay).LoseReplies, io.EOF, io.EOF, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			engine, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer engine.Close()
			got := make(chan struct{}, 1)
			go func() {
				conn, err := engine.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				piece := make([]byte, 1)
				for _, err := conn.Read(piece); err == nil; _, err = conn.Read(piece) {
					got <- struct{}{}
					_, _ = conn.Write(piece)
				}
			}()
			p, err := New(engine.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			conn, err := net.Dial("tcp", p.Address())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ask := func(want error, patience time.Duration) {
				t.Helper()
				if _, err := conn.Write([]byte("x")); err != nil && want == nil {
					t.Fatal(err)
				}
				if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
					t.Fatal(err)
				}
				_, err := io.ReadFull(conn, make([]byte, 1))
				if want == nil && err != nil || want != nil && err == nil ||
					errors.Is(want, os.ErrDeadlineExceeded) != errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%v, want %v", err, want)
				}
			}
			test.set(p)
			patience := 30 * time.Second
			if errors.Is(test.came, os.ErrDeadlineExceeded) {
				patience = 50 * time.Millisecond
			}
			ask(test.came, patience)
			if test.came != nil {
				for end := time.Now().Add(30 * time.Second); p.Lost() == 0 && time.Now().Before(end); {
					runtime.Gosched()
				}
			}
			if asked := len(got) > 0; asked != test.asked {
				t.Errorf("the engine was asked: %v", asked)
			}
			if n := p.Lost(); (n > 0) != (test.came != nil) {
				t.Errorf("%d pieces lost", n)
			}
			for len(got) > 0 {
				<-got
			}
			p.Heal()
			ask(test.wants, 30*time.Second)
		})
	}
}

// TestAim: connections end, and new ones go to another engine.
func TestAim(t *testing.T) {
	engine := func(says string) string {
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
				_, _ = conn.Write([]byte(says))
			}
		}()
		return l.Addr().String()
	}
	p, err := New(engine("1"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ask := func(want string) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		got := make([]byte, 1)
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v; want %s", got, err, want)
		}
		return conn
	}
	before := ask("1")
	p.Aim(engine("2"))
	if n, err := before.Read(make([]byte, 1)); err == nil {
		t.Errorf("the connection goes on: %d", n)
	}
	ask("2")
	p.Cut()
	ask("2")
}
