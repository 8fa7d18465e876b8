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
	"strings"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/evidence/bed/proc"
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
const module = "github.com/tenurelock/tenure/evidence"

// ErrNoToolchain is returned by [BuildJava] when Maven or a JDK is missing. The
// caller skips what needs the peer.
var ErrNoToolchain = errors.New("no toolchain for this peer")

// lockPoll is the time between two tries to get the lock of a build.
const lockPoll = 50 * time.Millisecond

// Program is a peer that can be started.
type Program struct {
	Kind    Kind
	Command proc.Command
}

// Own returns a library in Go that the calling program serves itself, in the role of
// the library's name.
func Own(kind Kind) *Program { return &Program{kind, proc.Command{Role: string(kind)}} }

// BuildJava makes the program of the Java client, or finds it built. It runs Maven
// only when the sources are not those of the last build. The first build fetches
// its dependencies and can take minutes: ctx bounds it, the wait for another
// process's build included.
func BuildJava(ctx context.Context) (*Program, error) {
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoToolchain, err)
		}
	}
	root, err := proc.ModuleDir(ctx, module)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, "peers", "java")
	target := filepath.Join(dir, "target")
	jar := filepath.Join(target, "lock-client-peer.jar")
	err = Build(ctx, target, jar, []string{filepath.Join(dir, "pom.xml"), filepath.Join(dir, "src")}, func(ctx context.Context) error {
		_, err := proc.Run(ctx, dir, "mvn", "-q", "-B", "package")
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Program{Java, proc.Command{Args: []string{"java", "-Xmx256m", "-XX:+UseSerialGC", "-jar", jar}}}, nil
}

// Build makes a file in a folder by a tool, unless it was made of the same sources, files
// and folders, before. Processes that do so at the same time share one build.
func Build(ctx context.Context, target, file string, sources []string, build func(context.Context) error) error {
	unlock, err := lockDir(ctx, target)
	if err != nil {
		return err
	}
	defer unlock()
	sum, err := sumSources(sources)
	if err != nil {
		return err
	}
	// The sum is written last: a build that was interrupted leaves none.
	built := filepath.Join(target, "built.sum")
	old, err := os.ReadFile(built)
	if _, missing := os.Stat(file); err == nil && missing == nil && string(old) == sum {
		return nil
	}
	if err := build(ctx); err != nil {
		return err
	}
	return os.WriteFile(built, []byte(sum), 0o644)
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

// sumSources is a sum over what a peer is built from. Contents and not times, since a
// checkout touches files that it does not change.
func sumSources(sources []string) (string, error) {
	sum := sha256.New()
	for _, source := range sources {
		add := func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer func() { _ = file.Close() }() // it was only read
			fmt.Fprintf(sum, "\n%s\n", strings.TrimPrefix(path, filepath.Dir(source)))
			_, err = io.Copy(sum, file)
			return err
		}
		if err := filepath.WalkDir(source, add); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x\n", sum.Sum(nil)), nil
}
