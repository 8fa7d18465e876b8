// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package service

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
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

// need looks for tools.
func need(tools ...string) error {
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w: %w", peers.ErrNoToolchain, err)
		}
	}
	return nil
}

// python runs the client from its sources: it needs nothing but Python.
func (p places) python() (*peers.Program, error) {
	if err := need("python3"); err != nil {
		return nil, err
	}
	path := filepath.Join(p.clients, "python", "src")
	if old := os.Getenv("PYTHONPATH"); old != "" {
		path += string(os.PathListSeparator) + old
	}
	return &peers.Program{Kind: Python, Command: proc.Command{
		Args: []string{"python3", filepath.Join(p.peers, "python", "peer.py")},
		// No compiled files in the checkout.
		Env: []string{"PYTHONPATH=" + path, "PYTHONDONTWRITEBYTECODE=1"},
	}}, nil
}

// typeScript compiles the client with the program that is made of it.
func (p places) typeScript(ctx context.Context) (*peers.Program, error) {
	if err := need("node", "npm"); err != nil {
		return nil, err
	}
	client, dir := filepath.Join(p.clients, "typescript"), filepath.Join(p.peers, "typescript")
	target := filepath.Join(dir, "target")
	main := filepath.Join(target, "out", "evidence", "peers", "service", "typescript", "peer.js")
	sources := []string{
		filepath.Join(client, "src"), filepath.Join(client, "package-lock.json"), filepath.Join(client, "tsconfig.json"),
		filepath.Join(dir, "peer.ts"), filepath.Join(dir, "work.ts"), filepath.Join(dir, "request.ts"), filepath.Join(dir, "tsconfig.json"),
	}
	err := peers.Build(ctx, target, main, sources, func(ctx context.Context) error {
		compiler := filepath.Join(client, "node_modules", "typescript", "bin", "tsc")
		if _, err := os.Stat(compiler); err != nil {
			if _, err := proc.Run(ctx, client, "npm", "ci", "--no-audit", "--no-fund"); err != nil {
				return err
			}
		}
		_, err := proc.Run(ctx, dir, "node", compiler, "-p", dir)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &peers.Program{Kind: TypeScript, Command: proc.Command{Args: []string{"node", main}}}, nil
}

// java compiles the client with the program that is made of it: neither needs a library.
func (p places) java(ctx context.Context) (*peers.Program, error) {
	if err := need("java", "javac"); err != nil {
		return nil, err
	}
	client, dir := filepath.Join(p.clients, "java", "src", "main", "java"), filepath.Join(p.peers, "java")
	target := filepath.Join(dir, "target")
	classes := filepath.Join(target, "classes")
	sources := []string{client, filepath.Join(dir, "org"), filepath.Join(dir, "tenurelock")}
	main := filepath.Join(classes, "tenurelock", "service", "Peer.class")
	err := peers.Build(ctx, target, main, sources, func(ctx context.Context) error {
		files, err := javaFiles(sources)
		if err != nil {
			return err
		}
		args := append([]string{"-Xlint:all", "-Werror", "--release", "17", "-d", classes}, files...)
		_, err = proc.Run(ctx, dir, "javac", args...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &peers.Program{Kind: Java, Command: proc.Command{
		Args: []string{"java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", classes, "tenurelock.service.Peer"},
	}}, nil
}

// javaFiles are the sources below some folders. What a module declares does not hold here:
// the program has a class in the client's package.
func javaFiles(folders []string) (files []string, err error) {
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if filepath.Ext(path) == ".java" && filepath.Base(path) != "module-info.java" {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}
