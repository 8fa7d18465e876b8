// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package service

import (
	"context"
	"path/filepath"

	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/peers"
)

// The clients of the service.
const (
	Python     peers.Kind = "python"
	TypeScript peers.Kind = "typescript"
	Java       peers.Kind = "java"
	Go         peers.Kind = "go" // which this program itself is: see package serve
)

// Kinds are all of them.
var Kinds = []peers.Kind{Go, Python, TypeScript, Java}

// Build makes the program of a client, or finds it built. Without its language the error matches
// [peers.ErrNoToolchain].
func Build(ctx context.Context, kind peers.Kind) *peers.Program {
	program := &peers.Program{Kind: kind}
	switch kind {
	case Go:
		return peers.Own(kind)
	case Python: // it needs nothing but Python, and leaves no compiled files in the checkout
		dir := must.Have(peers.Build(ctx, "", "python3"))
		source := filepath.Join(dir, "../../clients/python/src")
		program.Command.Args = []string{"python3", filepath.Join(dir, "service/python/peer.py")}
		program.Command.Env = []string{"PYTHONPATH=" + source, "PYTHONDONTWRITEBYTECODE=1"}
	case TypeScript:
		dir := must.Have(peers.Build(ctx, "service/typescript/target/client", "node", "npm"))
		main := "service/typescript/target/out/test/peers/service/typescript/peer.js"
		program.Command.Args = []string{"node", filepath.Join(dir, main)}
	case Java:
		dir := must.Have(peers.Build(ctx, "java/target/service/client", "java", "javac"))
		program.Command = peers.RunJava(filepath.Join(dir, "java/target/service/classes"), "Service")
	}
	return program
}
