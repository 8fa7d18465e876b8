// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package service

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/evidence/peers"
)

// The clients of the service.
const (
	Python     peers.Kind = "python"
	TypeScript peers.Kind = "typescript"
	Java       peers.Kind = "java"
)

// Kinds are all of them.
var Kinds = []peers.Kind{Python, TypeScript, Java}

// The modules whose folders are asked for.
const (
	evidence = "github.com/tenurelock/tenure/evidence"
	root     = "github.com/tenurelock/tenure"
)

// WrongEnv names a rule that a client is to break: see python/mistakes.py.
const WrongEnv = "TENURE_PEER_WRONG"

// Build makes the program of a client, or finds it built. Without its language the error
// matches [peers.ErrNoToolchain].
func Build(ctx context.Context, kind peers.Kind) (*peers.Program, error) {
	at, err := find(ctx)
	if err != nil {
		return nil, err
	}
	switch kind {
	case Python:
		return at.python()
	case TypeScript:
		return at.typeScript(ctx)
	case Java:
		return at.java(ctx)
	}
	return nil, fmt.Errorf("there is no client %q", kind)
}

// places are the folders of the clients, and of the programs that are made of them.
type places struct{ clients, peers string }

func find(ctx context.Context) (places, error) {
	ours, err := proc.ModuleDir(ctx, root)
	if err != nil {
		return places{}, err
	}
	here, err := proc.ModuleDir(ctx, evidence)
	return places{filepath.Join(ours, "clients"), filepath.Join(here, "peers", "service")}, err
}

// python runs the client from its sources: it needs nothing but Python.
func (p places) python() (*peers.Program, error) {
	path := filepath.Join(p.clients, "python", "src")
	if old := os.Getenv("PYTHONPATH"); old != "" {
		path += string(os.PathListSeparator) + old
	}
	return &peers.Program{Kind: Python, Command: proc.Command{
		Args: []string{"python3", filepath.Join(p.peers, "python", "peer.py")},
		// No compiled files in the checkout.
		Env: []string{"PYTHONPATH=" + path, "PYTHONDONTWRITEBYTECODE=1"},
	}}, peers.Need("python3")
}

// typeScript compiles the client with the program that is made of it.
func (p places) typeScript(ctx context.Context) (*peers.Program, error) {
	if err := peers.Need("node", "npm"); err != nil {
		return nil, err
	}
	client, dir := filepath.Join(p.clients, "typescript"), filepath.Join(p.peers, "typescript")
	var sources []string
	for _, file := range []string{"src", "package-lock.json", "tsconfig.json"} {
		sources = append(sources, filepath.Join(client, file))
	}
	for _, file := range []string{"peer.ts", "work.ts", "request.ts", "tsconfig.json"} {
		sources = append(sources, filepath.Join(dir, file))
	}
	target := filepath.Join(dir, "target")
	err := peers.Build(ctx, target, sources, func(ctx context.Context) error {
		compiler := filepath.Join(client, "node_modules", "typescript", "bin", "tsc")
		if _, err := os.Stat(compiler); err != nil {
			if _, err := proc.Run(ctx, client, "npm", "ci", "--no-audit", "--no-fund"); err != nil {
				return err
			}
		}
		_, err := proc.Run(ctx, dir, "node", compiler, "-p", dir)
		return err
	})
	main := filepath.Join(target, "out", "evidence", "peers", "service", "typescript", "peer.js")
	return &peers.Program{Kind: TypeScript, Command: proc.Command{Args: []string{"node", main}}}, err
}

// java compiles the client with the program that is made of it: neither needs a library. What
// the client's module declares does not hold here: the program has a class in its package.
func (p places) java(ctx context.Context) (*peers.Program, error) {
	if err := peers.Need("java", "javac"); err != nil {
		return nil, err
	}
	client, dir := filepath.Join(p.clients, "java", "src", "main", "java"), filepath.Join(p.peers, "java")
	target := filepath.Join(dir, "target")
	classes := filepath.Join(target, "classes")
	sources := []string{client, filepath.Join(dir, "org"), filepath.Join(dir, "tenurelock")}
	err := peers.Build(ctx, target, sources, func(ctx context.Context) error {
		args := []string{"-Xlint:all", "-Werror", "--release", "17", "-d", classes}
		for _, folder := range sources {
			err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
				if filepath.Ext(path) == ".java" && filepath.Base(path) != "module-info.java" {
					args = append(args, path)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		_, err := proc.Run(ctx, dir, "javac", args...)
		return err
	})
	return &peers.Program{Kind: Java, Command: proc.Command{
		Args: []string{"java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", classes, "tenurelock.service.Peer"},
	}}, err
}
