// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package peers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
)

// Kind names a client library.
type Kind string

// The clients there are.
const (
	Dynamolock Kind = "dynamolock" // cirello.io/dynamolock/v2
	Java       Kind = "java"       // com.amazonaws:dynamodb-lock-client
)

// module is the one of this package.
const module = "github.com/tenurelock/tenure/evidence"

// ErrNoToolchain is returned by [Build] when Maven or a JDK is missing. The
// caller skips what needs the peer.
var ErrNoToolchain = errors.New("no toolchain for this peer")

// lockPoll is the time between two tries to get the lock of a build.
const lockPoll = 50 * time.Millisecond

// Program is a peer that was built. It may be used concurrently.
type Program struct {
	Kind    Kind
	command proc.Command
}

// Of returns a program that was built elsewhere, and speaks the language of
// package wire.
func Of(kind Kind, command proc.Command) *Program { return &Program{kind, command} }

// With returns the same program with more variables in its environment.
func (p *Program) With(env ...string) *Program {
	other := *p
	other.command.Env = append(slices.Clone(p.command.Env), env...)
	return &other
}

// Build makes the program of a kind, or finds it built. It runs Maven only when
// the sources are not those of the last build. The first build of the Java peer
// fetches its dependencies and can take minutes: ctx bounds it, the wait for
// another process's build included.
func Build(ctx context.Context, kind Kind) (*Program, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	switch kind {
	case Dynamolock:
		return buildDynamolock(ctx, root)
	case Java:
		return buildJava(ctx, root)
	default:
		return nil, fmt.Errorf("no peer %q", kind)
	}
}

// moduleRoot asks the go command, so that it is found from any module that
// requires this one or shares a workspace with it.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := run(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(out), nil
}

func buildDynamolock(ctx context.Context, root string) (*Program, error) {
	dir := filepath.Join(root, "peers", ".bin")
	unlock, err := lockDir(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	// The go command knows when the sources are newer. The rename leaves a
	// process of an older build the file it runs from.
	bin := filepath.Join(dir, "dynamolock")
	if _, err := run(ctx, root, "go", "build", "-buildvcs=false", "-o", bin+".new", "./peers/dynamolock"); err != nil {
		return nil, err
	}
	if err := os.Rename(bin+".new", bin); err != nil {
		return nil, err
	}
	return Of(Dynamolock, proc.Command{Args: []string{bin}}), nil
}

func buildJava(ctx context.Context, root string) (*Program, error) {
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoToolchain, err)
		}
	}
	dir := filepath.Join(root, "peers", "java")
	target := filepath.Join(dir, "target")
	unlock, err := lockDir(ctx, target)
	if err != nil {
		return nil, err
	}
	defer unlock()
	sum, err := sumSources(dir)
	if err != nil {
		return nil, err
	}
	// The sum is written last: a build that was interrupted leaves none.
	jar, built := filepath.Join(target, "lock-client-peer.jar"), filepath.Join(target, "built.sum")
	old, err := os.ReadFile(built)
	if _, missing := os.Stat(jar); err != nil || missing != nil || string(old) != sum {
		if _, err := run(ctx, dir, "mvn", "-q", "-B", "package"); err != nil {
			return nil, err
		}
		if err := os.WriteFile(built, []byte(sum), 0o644); err != nil {
			return nil, err
		}
	}
	return Of(Java, proc.Command{Args: []string{"java", "-Xmx256m", "-XX:+UseSerialGC", "-jar", jar}}), nil
}

// lockDir makes the folder and holds a lock on a file in it until the returned
// function is called or the process ends.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, "build.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), context.Cause(ctx))
		case <-time.After(lockPoll):
		}
	}
}

// sumSources is a sum over what the Java peer is built from. Contents and not
// times, since a checkout touches files that it does not change.
func sumSources(dir string) (string, error) {
	sum := sha256.New()
	add := func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // it was only read
		fmt.Fprintf(sum, "\n%s\n", strings.TrimPrefix(path, dir))
		_, err = io.Copy(sum, file)
		return err
	}
	for _, name := range []string{"pom.xml", "src"} {
		if err := filepath.WalkDir(filepath.Join(dir, name), add); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x\n", sum.Sum(nil)), nil
}

// run runs a tool and returns its standard output.
func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	// Maven's child processes may hold the pipes after it was killed.
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}
