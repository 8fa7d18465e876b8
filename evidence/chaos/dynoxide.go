// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/bed/wait"
	"github.com/tenurelock/tenure/evidence/chaos/replica"
)

// dynoxide is a server with DynamoDB's protocol, whose data are in a file and
// outlive it. Each replica reaches it through a gate of its own.
type dynoxide struct {
	program string
	data    string
	port    int
	process *proc.Process
	gates   []*gate.TCP
}

func openDynoxide(ctx context.Context, program, dir string, replicas int) (_ *dynoxide, err error) {
	d := &dynoxide{program: program, data: filepath.Join(dir, "dynoxide.db")}
	if d.port, err = freePort(); err != nil {
		return nil, err
	}
	if err := d.start(ctx); err != nil {
		return nil, err
	}
	if err := dynamostore.CreateTable(ctx, dynamo.Connect(d.url()), replica.Table, nil); err != nil {
		return nil, errors.Join(err, d.close())
	}
	for range replicas {
		p, err := gate.NewTCP(fmt.Sprintf("127.0.0.1:%d", d.port))
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.gates = append(d.gates, p)
	}
	return d, nil
}

// findDynoxide returns the program that scripts/engines has installed.
func findDynoxide() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("this is no checkout: name the program with -dynoxide")
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, ".bin/engines/dynoxide-*/node_modules/@dynoxide/*/dynoxide"))
	if err != nil || len(found) == 0 {
		return "", errors.Join(err, errors.New("dynoxide is not installed: scripts/engines install dynoxide"))
	}
	return found[len(found)-1], nil
}

// freePort returns a port that the kernel chose.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	addr, _ := listener.Addr().(*net.TCPAddr)
	return addr.Port, listener.Close()
}

func (d *dynoxide) url() string { return fmt.Sprintf("http://127.0.0.1:%d", d.port) }

// start starts the engine on its data, and waits until it takes connections.
func (d *dynoxide) start(ctx context.Context) error {
	var err error
	d.process, err = proc.Start(proc.Command{
		Args: []string{d.program, "serve", "--host", "127.0.0.1", "--port", fmt.Sprint(d.port), "--db-path", d.data},
	})
	if err != nil {
		return err
	}
	answers := wait.Within(ctx, 10*time.Second, func() bool {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", d.port), time.Second)
		return err == nil && conn.Close() == nil
	})
	if !answers {
		d.process.Kill()
		return fmt.Errorf("dynoxide does not answer: %s", d.process.Stderr())
	}
	return nil
}

// restart kills the engine, and starts it after down on the same data.
func (d *dynoxide) restart(ctx context.Context, down time.Duration) error {
	d.process.Kill()
	wait.Rest(ctx, down)
	return d.start(context.WithoutCancel(ctx))
}

// pause stops the engine for a while; what comes meanwhile waits in its
// sockets, and is done late.
func (d *dynoxide) pause(ctx context.Context, length time.Duration) error {
	if err := d.process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	wait.Rest(ctx, length)
	return d.process.Continue()
}

func (d *dynoxide) store(replica int) string {
	if replica < 0 {
		return "dynamodb:" + d.url()
	}
	return "dynamodb:http://" + d.gates[replica].Address()
}

func (d *dynoxide) faults() []fault {
	return []fault{
		{kind: blackHole, on: leader, least: 0.2, most: 0.7},
		{kind: blackHole, on: leader, least: 0.8, most: 2.5},
		{kind: blackHole, on: anyone, least: 0.5, most: 2},
		{kind: delay, on: leader, least: 0.5, most: 2},
		{kind: loseReplies, on: leader, least: 0.2, most: 1.2},
		{kind: loseReplies, on: everybody, least: 0.2, most: 0.8},
		{kind: stopEngine, on: nobody, least: 0.1, most: 1.2},
		{kind: restartEngine, on: nobody, least: 0.02, most: 0.5},
	}
}

func (d *dynoxide) strike(ctx context.Context, f fault, length time.Duration, replica int) error {
	switch f.kind {
	case stopEngine:
		return d.pause(ctx, length)
	case restartEngine:
		return d.restart(ctx, length)
	}
	struck := d.gates
	if replica >= 0 {
		struck = struck[replica : replica+1]
	}
	for _, p := range struck {
		switch f.kind {
		case blackHole:
			p.BlackHole()
		case delay:
			p.Slow(length / 5) // a tenth on each way
		case loseReplies:
			p.LoseReplies()
		}
	}
	wait.Rest(ctx, length)
	for _, p := range struck {
		p.Heal()
	}
	return nil
}

func (d *dynoxide) heal() error {
	for _, p := range d.gates {
		p.Heal()
	}
	return nil
}

func (d *dynoxide) lost() int {
	n := 0
	for _, p := range d.gates {
		n += p.Lost()
	}
	return n
}

func (d *dynoxide) close() error {
	for _, p := range d.gates {
		p.Close()
	}
	d.process.Kill()
	return nil
}
