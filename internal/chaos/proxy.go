// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"net"
	"sync"
	"time"
)

// weather is what happens to bytes on their way through a proxy.
type weather int

const (
	fair     weather = iota
	hole             // they vanish, and connections stay open
	slowly           // each piece waits
	noAnswer         // the engine gets them, its answers vanish, and the connection ends
)

// proxy stands between one replica and the engine. It knows bytes alone, so
// that it serves any engine with a socket.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex // guards the fields below
	now     weather
	delay   time.Duration
	changed chan struct{} // closed with each change of the weather
	conns   map[net.Conn]struct{}
	lost    int // pieces that vanished
	closed  bool
	running sync.WaitGroup
}

func newProxy(target string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, target: target, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.set(fair, 0)
	p.running.Wait()
}

// set changes the weather.
func (p *proxy) set(w weather, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now, p.delay = w, delay
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *proxy) look() (weather, time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now, p.delay, p.changed
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.keep(client) {
			p.running.Go(func() { p.serve(client) })
		}
	}
}

// keep notes a connection that close must end. It returns false if it is too
// late.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *proxy) serve(client net.Conn) {
	defer p.drop(client)
	engine, err := net.DialTimeout("tcp", p.target, time.Second)
	if err != nil || !p.keep(engine) {
		return
	}
	defer p.drop(engine)
	var both sync.WaitGroup
	both.Go(func() { p.pump(engine, client, false) })
	both.Go(func() { p.pump(client, engine, true) })
	both.Wait()
}

// pump carries bytes one way. When it ends, so does the other way: a stream of
// which a piece is missing is of no more use.
func (p *proxy) pump(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 && !p.carry(to, piece[:n], answers) {
			return
		}
		if err != nil {
			return
		}
	}
}

// carry carries a piece on. It returns false if the connection is of no more
// use.
func (p *proxy) carry(to net.Conn, piece []byte, answer bool) bool {
	now, delay, changed := p.look()
	if now == slowly {
		select {
		case <-time.After(delay):
		case <-changed:
		}
		now, _, changed = p.look()
	}
	switch {
	case now == hole:
		p.lose()
		for now == hole {
			<-changed
			now, _, changed = p.look()
		}
		return false
	case now == noAnswer && answer:
		p.lose()
		return false
	}
	_, err := to.Write(piece)
	return err == nil
}

func (p *proxy) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost++
}

// pieces returns how many have vanished.
func (p *proxy) pieces() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}
