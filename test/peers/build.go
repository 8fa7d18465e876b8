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
	"strings"
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

// BuildJava makes the program of the Java client, or finds it built. It runs Maven only when the
// sources are newer than the last build. The first one fetches what the client needs, and can take
// minutes: ctx bounds it.
func BuildJava(ctx context.Context) (*Program, error) {
	root, err := proc.ModuleDir(ctx, module)
	if err == nil {
		err = Need("java", "javac", "mvn")
	}
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, "peers", "java")
	target, source := filepath.Join(dir, "target"), filepath.Join(dir, "src")
	classes, libraries := filepath.Join(target, "classes"), filepath.Join(target, "lib")
	classpath := strings.Join([]string{classes, filepath.Join(source, "main", "resources"), libraries + "/*"}, ":")
	err = Build(ctx, target, []string{filepath.Join(dir, "pom.xml"), source}, func(ctx context.Context) error {
		_, err := proc.Run(ctx, dir, "mvn", "-q", "-B", "-DincludeScope=runtime", "-DoutputDirectory="+libraries,
			"org.apache.maven.plugins:maven-dependency-plugin:3.7.1:copy-dependencies")
		if err != nil {
			return err
		}
		return Javac(ctx, classes, classpath, []string{source}, "Service.java", "Lines.java")
	})
	return &Program{Java, RunJava(classpath, "LockClient")}, err
}

// Javac compiles all sources in some folders but a few into another one.
func Javac(ctx context.Context, classes, classpath string, folders []string, but ...string) error {
	find := append(folders, "-name", "*.java")
	for _, name := range but {
		find = append(find, "!", "-name", name)
	}
	// What an earlier build has left may be of sources that are gone.
	err := errors.Join(os.RemoveAll(classes), os.MkdirAll(classes, 0o755))
	if err != nil {
		return err
	}
	found, err := proc.Run(ctx, "", "find", find...)
	if err != nil {
		return err
	}
	args := []string{"-Xlint:all", "-Werror", "--release", "17", "-d", classes, "-cp", classpath}
	_, err = proc.Run(ctx, "", "javac", append(args, strings.Fields(found)...)...)
	return err
}

// RunJava is the command that serves a library, by its class.
func RunJava(classpath, library string) proc.Command {
	return proc.Command{Args: []string{
		"java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", classpath, "tenurelock.peer." + library,
	}}
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
