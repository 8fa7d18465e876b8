// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// Build makes the program of a client, or finds it built. Without its language the error
// matches [peers.ErrNoToolchain].
func Build(ctx context.Context, kind peers.Kind) (*peers.Program, error) {
	at := places{}
	for module, dir := range map[string]*string{root: &at.clients, evidence: &at.peers} {
		var err error
		if *dir, err = proc.ModuleDir(ctx, module); err != nil {
			return nil, err
		}
	}
	at.clients, at.peers = filepath.Join(at.clients, "clients"), filepath.Join(at.peers, "peers", "service")
	makes := map[peers.Kind]func(places, context.Context) (proc.Command, error){
		Python: places.python, TypeScript: places.typeScript, Java: places.java,
	}[kind]
	if makes == nil {
		return nil, fmt.Errorf("there is no client %q", kind)
	}
	command, err := makes(at, ctx)
	return &peers.Program{Kind: kind, Command: command}, err
}

// places are the folders of the clients, and of the programs that are made of them.
type places struct{ clients, peers string }

// python runs the client from its sources: it needs nothing but Python.
func (p places) python(context.Context) (proc.Command, error) {
	path := filepath.Join(p.clients, "python", "src")
	if old := os.Getenv("PYTHONPATH"); old != "" {
		path += string(os.PathListSeparator) + old
	}
	return proc.Command{
		Args: []string{"python3", filepath.Join(p.peers, "python", "peer.py")},
		// No compiled files in the checkout.
		Env: []string{"PYTHONPATH=" + path, "PYTHONDONTWRITEBYTECODE=1"},
	}, peers.Need("python3")
}

// typeScript compiles the client with the program that is made of it.
func (p places) typeScript(ctx context.Context) (proc.Command, error) {
	if err := peers.Need("node", "npm"); err != nil {
		return proc.Command{}, err
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
	return proc.Command{Args: []string{"node", main}}, err
}

// java compiles the client with the program that is made of it: neither needs a library. What
// the client's module declares does not hold here: the program has a class in its package.
func (p places) java(ctx context.Context) (proc.Command, error) {
	if err := peers.Need("java", "javac"); err != nil {
		return proc.Command{}, err
	}
	dir := filepath.Join(p.peers, "..", "java")
	target := filepath.Join(dir, "target", "service")
	classes := filepath.Join(target, "classes")
	sources := []string{
		filepath.Join(p.clients, "java", "src", "main", "java"), filepath.Join(dir, "src", "main", "java"),
	}
	err := peers.Build(ctx, target, sources, func(ctx context.Context) error {
		files, err := proc.Run(ctx, "", "find", append(sources, "-name", "*.java", "!", "-name", "module-info.java",
			"!", "-name", "LockClient.java")...)
		if err != nil {
			return err
		}
		args := []string{"-Xlint:all", "-Werror", "--release", "17", "-d", classes}
		_, err = proc.Run(ctx, "", "javac", append(args, strings.Split(strings.TrimSpace(files), "\n")...)...)
		return err
	})
	return proc.Command{
		Args: []string{"java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", classes, "tenurelock.peer.Service"},
	}, err
}
