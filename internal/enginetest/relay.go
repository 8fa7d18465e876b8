// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"net"
	"sync"
	"testing"
)

// Relay passes bytes between clients and an engine, whatever they speak, and can stop
// doing so: to its clients that is an engine whose process is stopped.
type Relay struct {
	// Addr is where it listens: host and port.
	Addr string

	target string
	wg     sync.WaitGroup

	mu    sync.Mutex
	held  chan struct{} // closed when bytes flow again; nil if they do
	ended bool
	conns []net.Conn
	dark  map[net.Conn]bool
	trips int
}

// NewRelay starts a relay to target, a host and port. It ends with the test.
func NewRelay(t testing.TB, target string) *Relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{Addr: listener.Addr().String(), target: target}
	r.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { r.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		r.end()
		r.wg.Wait()
	})
	return r
}

// Hold passes nothing on until resume is called. What clients send meanwhile reaches the
// engine then, theirs too that have gone away.
func (r *Relay) Hold() (resume func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = make(chan struct{})
	}
	return r.flow
}

// Trips returns how many round trips were begun since the last call: how often a
// connection has carried something to the engine, where it had carried an answer before.
func (r *Relay) Trips() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.trips
	r.trips = 0
	return n
}

// Connections returns how many connections of clients there are.
func (r *Relay) Connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns) / 2
}

// Forget lets all connections stand, and passes nothing on them any more, as a NAT that has
// forgotten them. New ones work.
func (r *Relay) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dark = map[net.Conn]bool{}
	for _, conn := range r.conns {
		r.dark[conn] = true
	}
}

// Cut closes all connections.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		_ = conn.Close()
	}
	r.conns = nil
}

func (r *Relay) flow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		close(r.held)
		r.held = nil
	}
}

func (r *Relay) end() {
	r.flow()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for _, conn := range r.conns {
		_ = conn.Close()
	}
}

// keep has the connection closed at the end.
func (r *Relay) keep(conn net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, conn)
	if r.ended {
		_ = conn.Close()
	}
}

func (r *Relay) serve(client net.Conn) {
	r.keep(client)
	engine, err := net.Dial("tcp", r.target)
	if err != nil {
		_ = client.Close()
		return
	}
	r.keep(engine)
	asked := false
	r.wg.Go(func() { r.pass(engine, client, true, &asked) })
	r.pass(client, engine, false, &asked)
}

// pass hands on what comes, until nothing does. Asked says that the last to come on the
// connection was for the engine.
func (r *Relay) pass(to, from net.Conn, asking bool, asked *bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		held, dark := r.held, r.dark[from]
		if n > 0 {
			if asking && !*asked {
				r.trips++
			}
			*asked = asking
		}
		r.mu.Unlock()
		if held != nil {
			<-held
		}
		if n > 0 && !dark {
			if _, err := to.Write(buf[:n]); err != nil {
				_ = from.Close()
				return
			}
		}
		if err != nil {
			_ = to.(*net.TCPConn).CloseWrite()
			return
		}
	}
}
