// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/test/bed/proc"
)

// Kind names a client library.
type Kind string

// The clients there are.
const (
	Tenure     Kind = "tenure"
	Dynamolock Kind = "dynamolock" // cirello.io/dynamolock/v2
	Java       Kind = "java"       // com.amazonaws:dynamodb-lock-client
)

// module is the one of this package.
const module = "github.com/tenurelock/tenure/test"

// ErrNoToolchain is returned by [BuildJava] when Maven or a JDK is missing. The
// caller skips what needs the peer.
var ErrNoToolchain = errors.New("no toolchain for this peer")

// Program is a peer that can be started.
type Program struct {
	Kind    Kind
	Command proc.Command
}

// Own returns a library in Go that the calling program serves itself, in the role of
// the library's name.
func Own(kind Kind) *Program { return &Program{kind, proc.Command{Role: string(kind)}} }

// Need returns an error that matches [ErrNoToolchain] if a tool is missing.
func Need(tools ...string) error {
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w: %w", ErrNoToolchain, err)
		}
	}
	return nil
}

// Make makes the program of a client that stands beside Tenure on DynamoDB.
func Make(ctx context.Context, kind Kind) (*Program, error) {
	if kind == Java {
		return BuildJava(ctx)
	}
	return Own(kind), nil
}

// BuildJava makes the program of the Java client, or finds it built. It runs Maven
// only when the sources are newer than the last build. The first build fetches
// its dependencies and can take minutes: ctx bounds it.
func BuildJava(ctx context.Context) (*Program, error) {
	if err := Need("java", "javac", "mvn"); err != nil {
		return nil, err
	}
	root, err := proc.ModuleDir(ctx, module)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, "peers", "java")
	target := filepath.Join(dir, "target")
	sources := []string{filepath.Join(dir, "pom.xml"), filepath.Join(dir, "src")}
	err = Build(ctx, target, sources, func(ctx context.Context) error {
		_, err := proc.Run(ctx, dir, "mvn", "-q", "-B", "package")
		return err
	})
	jar := filepath.Join(target, "lock-client-peer.jar")
	return &Program{Java, proc.Command{Args: []string{"java", "-Xmx256m", "-XX:+UseSerialGC", "-jar", jar}}}, err
}

// Build makes something in a folder by a tool, unless it was made before and the sources, files
// and folders, are older. Processes that do so at the same time share one build.
func Build(ctx context.Context, target string, sources []string, build func(context.Context) error) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(target, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // and with it goes the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	// The file is as old as the beginning of the last build: one that was interrupted has left none.
	built, began := filepath.Join(target, "built"), time.Now()
	if _, err := os.Stat(built); err == nil {
		newer, err := proc.Run(ctx, "", "find", append(sources, "-newer", built)...)
		if err != nil || newer == "" {
			return err
		}
	}
	_ = os.Remove(built) // there may be none
	if err := build(ctx); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(built, nil, 0o644), os.Chtimes(built, began, began))
}
