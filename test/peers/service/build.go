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
	program = &peers.Program{Kind: kind}
	return program, must.Try(func() {
		clients := filepath.Join(must.Have(proc.ModuleDir(ctx, root)), "clients")
		dir := filepath.Join(must.Have(proc.ModuleDir(ctx, module)), "peers")
		switch kind {
		case Python:
			program.Command = python(clients, dir)
		case TypeScript:
			program.Command = typeScript(ctx, clients, dir)
		case Java:
			program.Command = java(ctx, clients, dir)
		default:
			must.Do(fmt.Errorf("there is no client %q", kind))
		}
	})
}

// python runs the client from its sources: it needs nothing but Python.
func python(clients, dir string) proc.Command {
	must.Do(peers.Need("python3"))
	return proc.Command{
		Args: []string{"python3", filepath.Join(dir, "service", "python", "peer.py")},
		// No compiled files in the checkout.
		Env: []string{"PYTHONPATH=" + filepath.Join(clients, "python", "src"), "PYTHONDONTWRITEBYTECODE=1"},
	}
}

// typeScript compiles the client with the program that is made of it.
func typeScript(ctx context.Context, clients, dir string) proc.Command {
	must.Do(peers.Need("node", "npm"))
	client, dir := filepath.Join(clients, "typescript"), filepath.Join(dir, "service", "typescript")
	target := filepath.Join(dir, "target")
	makes(ctx, target, []string{
		filepath.Join(client, "src"), filepath.Join(client, "package-lock.json"), filepath.Join(client, "tsconfig.json"),
		filepath.Join(dir, "peer.ts"), filepath.Join(dir, "tsconfig.json"),
	}, func() {
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
func java(ctx context.Context, clients, dir string) proc.Command {
	must.Do(peers.Need("java", "javac"))
	dir = filepath.Join(dir, "java")
	target := filepath.Join(dir, "target", "service")
	classes := filepath.Join(target, "classes")
	sources := []string{filepath.Join(clients, "java", "src", "main", "java"), filepath.Join(dir, "src")}
	makes(ctx, target, sources, func() {
		must.Do(peers.Javac(ctx, classes, classes, sources, "module-info.java", "LockClient.java"))
	})
	return peers.RunJava(classes, "Service")
}

// makes takes the steps of a build, unless the sources are older than the last one: see [peers.Build].
func makes(ctx context.Context, target string, sources []string, steps func()) {
	must.Do(peers.Build(ctx, target, sources, func(context.Context) error { return must.Try(steps) }))
}
