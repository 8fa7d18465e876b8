// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tenurelock/tenure/test/bed/must"
	"github.com/tenurelock/tenure/test/bed/proc"
	"github.com/tenurelock/tenure/test/peers"
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
	module = "github.com/tenurelock/tenure/test"
	root   = "github.com/tenurelock/tenure"
)

// Build makes the program of a client, or finds it built. Without its language the error
// matches [peers.ErrNoToolchain].
func Build(ctx context.Context, kind peers.Kind) (program *peers.Program, err error) {
	build := map[peers.Kind]func(context.Context, places) proc.Command{
		Python: python, TypeScript: typeScript, Java: java,
	}[kind]
	if build == nil {
		return nil, fmt.Errorf("there is no client %q", kind)
	}
	err = must.Try(func() {
		at := places{
			filepath.Join(must.Have(proc.ModuleDir(ctx, root)), "clients"),
			filepath.Join(must.Have(proc.ModuleDir(ctx, module)), "peers"),
		}
		program = &peers.Program{Kind: kind, Command: build(ctx, at)}
	})
	return program, err
}

// places are the folders of the clients, and of the programs that are made of them.
type places struct{ clients, peers string }

// python runs the client from its sources: it needs nothing but Python.
func python(_ context.Context, at places) proc.Command {
	must.Do(peers.Need("python3"))
	path := filepath.Join(at.clients, "python", "src")
	if old := os.Getenv("PYTHONPATH"); old != "" {
		path += string(os.PathListSeparator) + old
	}
	return proc.Command{
		Args: []string{"python3", filepath.Join(at.peers, "service", "python", "peer.py")},
		// No compiled files in the checkout.
		Env: []string{"PYTHONPATH=" + path, "PYTHONDONTWRITEBYTECODE=1"},
	}
}

// typeScript compiles the client with the program that is made of it.
func typeScript(ctx context.Context, at places) proc.Command {
	must.Do(peers.Need("node", "npm"))
	client, dir := filepath.Join(at.clients, "typescript"), filepath.Join(at.peers, "service", "typescript")
	var sources []string
	for _, file := range []string{"src", "package-lock.json", "tsconfig.json"} {
		sources = append(sources, filepath.Join(client, file))
	}
	for _, file := range []string{"peer.ts", "tsconfig.json"} {
		sources = append(sources, filepath.Join(dir, file))
	}
	target := filepath.Join(dir, "target")
	makes(ctx, target, sources, func() {
		compiler := filepath.Join(client, "node_modules", "typescript", "bin", "tsc")
		if _, err := os.Stat(compiler); err != nil {
			must.Have(proc.Run(ctx, client, "npm", "ci", "--no-audit", "--no-fund"))
		}
		must.Have(proc.Run(ctx, dir, "node", compiler, "-p", dir))
	})
	main := filepath.Join(target, "out", "test", "peers", "service", "typescript", "peer.js")
	return proc.Command{Args: []string{"node", main}}
}

// java compiles the client with the program that is made of it: neither needs a library. What
// the client's module declares does not hold here: the program has a class in its package.
func java(ctx context.Context, at places) proc.Command {
	must.Do(peers.Need("java", "javac"))
	dir := filepath.Join(at.peers, "java")
	target := filepath.Join(dir, "target", "service")
	classes := filepath.Join(target, "classes")
	sources := []string{filepath.Join(at.clients, "java", "src", "main", "java"), filepath.Join(dir, "src")}
	makes(ctx, target, sources, func() {
		must.Do(peers.Javac(ctx, classes, classes, sources, "module-info.java", "LockClient.java"))
	})
	return peers.RunJava(classes, "Service")
}

// makes takes the steps of a build, unless the sources are older than the last one: see [peers.Build].
func makes(ctx context.Context, target string, sources []string, steps func()) {
	must.Do(peers.Build(ctx, target, sources, func(context.Context) error { return must.Try(steps) }))
}
