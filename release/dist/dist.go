// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package dist makes the files of a release: archives, packages for Debian and Red Hat, a
// container image, lists of what is inside, and checksums.
//
// The programs are built as a user builds them, by go install from a module proxy, which here
// is a folder made of the tagged tree. So what is released is what the tag says, and anyone
// can build the same bytes:
//
//	CGO_ENABLED=0 go install -trimpath -ldflags=-s github.com/tenurelock/tenure/cmd/tenure@VERSION
package dist

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure/release/modules"
)

// A Platform is an operating system and an architecture, by Go's names.
type Platform struct{ OS, Arch string }

func (p Platform) String() string { return p.OS + "_" + p.Arch }

// Platforms are those that are released.
func Platforms() []Platform {
	return []Platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}
}

// A Release is made of one revision, for some platforms.
type Release struct {
	Repository modules.Repository
	// Revision is what is released: a tag, or for a trial any commit.
	Revision string
	// Version of the modules, such as v0.1.0.
	Version string
	// Platforms to build for.
	Platforms []Platform
	// Out is the folder for the files. It must be empty, or not be there.
	Out string
	// Certificates is a file with the certificates of authorities, for the image.
	Certificates string
	// Log is told what is done.
	Log io.Writer

	at    time.Time
	work  string // holds what is not released
	proxy string // the module proxy of the revision
}

// version without its v, as packages and archives carry it.
func (r *Release) version() string { return strings.TrimPrefix(r.Version, "v") }

// name is the name of a file of the release, without its ending.
func (r *Release) name(p Platform) string { return fmt.Sprintf("tenure_%s_%s", r.version(), p) }

// Make makes all files.
func (r *Release) Make(ctx context.Context) (err error) {
	if !modules.Valid(r.Version) {
		return fmt.Errorf("%q is no version of a release", r.Version)
	}
	if there, _ := os.ReadDir(r.Out); len(there) > 0 {
		return fmt.Errorf("%s is not empty: what is in it would get into the checksums", r.Out)
	}
	if r.at, err = r.Repository.Time(ctx, r.Revision); err != nil {
		return err
	}
	if r.Out, err = filepath.Abs(r.Out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "tenure-dist-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeAll(r.work)) }()
	r.proxy = filepath.Join(r.work, "proxy")
	if err := r.Repository.Proxy(ctx, r.Revision, r.Version, r.proxy); err != nil {
		return err
	}
	for _, p := range r.Platforms {
		r.say("building for %s", p)
		if err := r.build(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	r.say("man page, completions, licences")
	if err := r.texts(ctx); err != nil {
		return err
	}
	for _, p := range r.Platforms {
		r.say("archive and contents for %s", p)
		if err := r.archive(p); err != nil {
			return err
		}
		if err := r.contents(ctx, p); err != nil {
			return err
		}
		if p.OS == "linux" {
			r.say("packages for %s", p)
			if err := r.packages(ctx, p); err != nil {
				return err
			}
		}
	}
	r.say("image")
	if err := r.image(ctx); err != nil {
		return err
	}
	return r.sums()
}

func (r *Release) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.Log, format+"\n", args...)
}

// bin is the folder of a platform's programs.
func (r *Release) bin(p Platform) string { return filepath.Join(r.work, "bin", p.String()) }

// Environment returns the environment of a go command that takes our modules from a folder
// made by [modules.Repository.Proxy], and all others as usual. What it downloads goes into the
// folder home and not into the caller's module cache, which would else take a trial for the
// released module for ever. What it compiles is shared, since that goes by the content.
func Environment(ctx context.Context, home, proxy string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOPROXY", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		return nil, err
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	return []string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "GOCACHE=" + got[2], "GOPATH=" + filepath.Join(home, "go"),
		"GOPROXY=file://" + proxy + ",file://" + filepath.Join(got[1], "cache", "download") + "," + got[0],
		"GONOSUMDB=" + modules.Root + "," + modules.Root + "/*",
		"GOWORK=off", "GOFLAGS=", "GOENV=off", "GOTOOLCHAIN=local", "CGO_ENABLED=0",
		"SSL_CERT_FILE=" + os.Getenv("SSL_CERT_FILE"), "HTTPS_PROXY=" + os.Getenv("HTTPS_PROXY"),
	}, nil
}

// build installs the programs for a platform.
func (r *Release) build(ctx context.Context, p Platform) error {
	home := filepath.Join(r.work, "home")
	env, err := Environment(ctx, home, r.proxy)
	if err != nil {
		return err
	}
	args := []string{"install", "-trimpath", "-ldflags=-s"}
	for _, c := range modules.Commands() {
		args = append(args, c+"@"+r.Version)
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return err
	}
	if err := r.run(ctx, home, append(env, "GOOS="+p.OS, "GOARCH="+p.Arch), "go", args...); err != nil {
		return err
	}
	// The go command has a folder for each platform but its own.
	from := filepath.Join(home, "go", "bin")
	if p.OS != runtime.GOOS || p.Arch != runtime.GOARCH {
		from = filepath.Join(from, p.String())
	}
	if err := os.MkdirAll(r.bin(p), 0o755); err != nil {
		return err
	}
	for _, c := range modules.Commands() {
		name := filepath.Base(c)
		if err := os.Rename(filepath.Join(from, name), filepath.Join(r.bin(p), name)); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program, whose output is in the error if it fails.
func (r *Release) run(ctx context.Context, dir string, env []string, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, out)
	}
	return nil
}

// sums writes the checksums of all files, in the form of sha256sum.
func (r *Release) sums() error {
	entries, err := os.ReadDir(r.Out)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		sum, err := sumOf(filepath.Join(r.Out, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, sum+"  "+e.Name()+"\n")
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return os.WriteFile(filepath.Join(r.Out, "SHA256SUMS"), []byte(strings.Join(lines, "")), 0o644)
}

func sumOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// removeAll removes a folder in which the go command has made others read-only.
func removeAll(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(dir))
}
