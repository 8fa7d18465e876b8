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
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/chaos/replica"
)

// dynoxide is a server with DynamoDB's protocol, whose data are in a file and
// outlive it. Each replica reaches it through a proxy of its own.
type dynoxide struct {
	program string
	data    string
	port    int
	cmd     *exec.Cmd
	ended   chan struct{}
	proxies []*proxy
}

func openDynoxide(ctx context.Context, program, dir string, replicas int) (_ *dynoxide, err error) {
	d := &dynoxide{program: program, data: filepath.Join(dir, "dynoxide.db")}
	if d.port, err = freePort(); err != nil {
		return nil, err
	}
	if err := d.start(ctx); err != nil {
		return nil, err
	}
	if err := dynamostore.CreateTable(ctx, replica.DynamoDB(d.url()), replica.Table, nil); err != nil {
		return nil, errors.Join(err, d.close())
	}
	for range replicas {
		p, err := newProxy(fmt.Sprintf("127.0.0.1:%d", d.port))
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.proxies = append(d.proxies, p)
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
	d.cmd = exec.Command(d.program, "serve", "--host", "127.0.0.1", "--port", fmt.Sprint(d.port), "--db-path", d.data)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	cmd, ended := d.cmd, make(chan struct{})
	d.ended = ended
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	for end := time.Now().Add(10 * time.Second); ; {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", d.port), time.Second)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return errors.Join(errors.New("dynoxide does not answer"), d.kill())
		}
		wait(ctx, 5*time.Millisecond)
	}
}

func (d *dynoxide) kill() error {
	err := d.cmd.Process.Kill()
	<-d.ended
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// restart kills the engine, and starts it after down on the same data.
func (d *dynoxide) restart(ctx context.Context, down time.Duration) error {
	if err := d.kill(); err != nil {
		return err
	}
	wait(ctx, down)
	return d.start(context.WithoutCancel(ctx))
}

// pause stops the engine for a while; what comes meanwhile waits in its
// sockets, and is done late.
func (d *dynoxide) pause(ctx context.Context, length time.Duration) error {
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	wait(ctx, length)
	return d.cmd.Process.Signal(syscall.SIGCONT)
}

func (d *dynoxide) store(replica int) string { return "dynamodb:" + d.proxies[replica].url() }

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
	struck := d.proxies
	if replica >= 0 {
		struck = struck[replica : replica+1]
	}
	for _, p := range struck {
		switch f.kind {
		case blackHole:
			p.set(hole, 0)
		case delay:
			p.set(slowly, length/10)
		case loseReplies:
			p.set(noAnswer, 0)
		}
	}
	wait(ctx, length)
	for _, p := range struck {
		p.set(fair, 0)
	}
	return nil
}

func (d *dynoxide) heal() error {
	for _, p := range d.proxies {
		p.set(fair, 0)
	}
	return nil
}

func (d *dynoxide) lost() int {
	n := 0
	for _, p := range d.proxies {
		n += p.pieces()
	}
	return n
}

func (d *dynoxide) last(ctx context.Context) (driver.Record, error) {
	store, err := dynamostore.New(replica.DynamoDB(d.url()), replica.Table, nil)
	if err != nil {
		return driver.Record{}, err
	}
	return store.Get(ctx, replica.LockName, driver.Strong)
}

func (d *dynoxide) close() error {
	for _, p := range d.proxies {
		p.close()
	}
	return d.kill()
}
