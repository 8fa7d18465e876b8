// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/test/harness/proc"
)

// Kind names a client library.
type Kind string

// The clients there are.
const (
	Tenure     Kind = "tenure"
	Dynamolock Kind = "dynamolock" // cirello.io/dynamolock/v2
	Java       Kind = "java"       // com.amazonaws:dynamodb-lock-client
)

// ErrNoToolchain is returned when a program is missing that builds or runs a client. The
// caller skips what needs the client.
var ErrNoToolchain = errors.New("no toolchain for this peer")

// Program is a peer that can be started.
type Program struct {
	Kind    Kind
	Command proc.Command
}

// Own returns a library in Go that the calling program serves itself, in the role of
// the library's name.
func Own(kind Kind) *Program { return &Program{kind, proc.Command{Role: string(kind)}} }

// Make returns the program of a client that is compared with Tenure on DynamoDB. The first build
// of the Java client downloads its dependencies, and can take minutes: ctx bounds it.
func Make(ctx context.Context, kind Kind) (*Program, error) {
	if kind != Java {
		return Own(kind), nil
	}
	dir, err := Build(ctx, "java/target/client", "java", "javac", "mvn")
	dir = filepath.Join(dir, "java")
	classpath := filepath.Join(dir, "target/classes") + ":" + filepath.Join(dir, "src/main/resources") + ":" +
		filepath.Join(dir, "target/lib/*")
	return &Program{Java, RunJava(classpath, "LockClient")}, err
}

// Build has the Makefile next to this file build a target, unless it is empty or was built and is
// newer than its sources, and returns the Makefile's folder. Builds wait for each other, those of
// other processes too. If a tool that the client needs is missing the error matches
// [ErrNoToolchain].
func Build(ctx context.Context, target string, tools ...string) (dir string, err error) {
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%w: %w", ErrNoToolchain, err)
		}
	}
	dir, err = launcher.Root()
	dir = filepath.Join(dir, "test/peers")
	if err == nil && target != "" {
		_, err = proc.Run(ctx, dir, "flock", "Makefile", "make", target)
	}
	return dir, err
}

// RunJava is the command that serves a library, by its class.
func RunJava(classpath, library string) proc.Command {
	return proc.Command{Args: []string{
		"java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", classpath, "tenurelock.peer." + library,
	}}
}
