// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command dynamolock is the interop rig's peer on cirello.io/dynamolock/v2. It
// speaks the language of package wire on its standard input and output.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/tenurelock/tenure/interop/peer/wire"
)

const client = "cirello.io/dynamolock/v2"

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dynamolock:", err)
		os.Exit(1)
	}
	// The end of the input: the rig is gone. Nothing is released, as in a crash.
}

func run(in io.Reader, stdout io.Writer) error {
	out := &output{w: stdout}
	now := wire.Monotonic()
	out.write(&wire.Answer{
		Event: wire.Ready, OK: true, Peer: "dynamolock", Version: version(), Runtime: runtime.Version(),
		PID: os.Getpid(), SentNs: now, GotNs: now,
	})
	var cs commands
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var req wire.Request
		if err := json.Unmarshal(line, &req); err != nil {
			return fmt.Errorf("request %q: %w", line, err)
		}
		// A goroutine for each request: one that waits for a lock must not hold
		// up the others. They end with the process.
		go func() { out.write(answer(&cs, &req)) }()
	}
}

func answer(cs *commands, req *wire.Request) (a *wire.Answer) {
	a = &wire.Answer{}
	sent := wire.Monotonic()
	defer func() {
		// The client is known to panic, and that is an answer too.
		if p := recover(); p != nil {
			a = refusal(wire.Other, fmt.Errorf("panic: %v", p))
		}
		a.ID = req.ID
		a.SentNs, a.GotNs = sent, wire.Monotonic()
		a.ElapsedMs = float64(a.GotNs-a.SentNs) / 1e6
	}()
	a, err := cs.run(req)
	if err != nil {
		return refusal(kindOf(req.Command, err), err)
	}
	a.OK = true
	return a
}

// output serialises lines.
type output struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *output) write(a *wire.Answer) {
	line, err := json.Marshal(a)
	if err != nil {
		panic(err) //nolint:forbidigo // a programmer's error: an Answer can be marshalled
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.w.Write(append(line, '\n')); err != nil {
		os.Exit(1)
	}
}

// version is the lock client's version, as it was linked.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dep := range info.Deps {
		if dep.Path == client {
			return dep.Version
		}
	}
	return ""
}
