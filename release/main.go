// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Command release checks, tags and builds a release of Tenure: see README.md beside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/tenurelock/tenure/release/dist"
	"github.com/tenurelock/tenure/release/modules"
)

const usage = `usage:

  release check   VERSION              say what keeps HEAD from being released
  release prepare VERSION              write the version into go.mod files, go.work and CHANGELOG.md
  release tag     VERSION [-sign]      check, install from a proxy of HEAD, then tag all modules
  release proxy   VERSION DIR [-from REV]
                                       make a folder that serves as module proxy
  release dist    VERSION DIR [-from REV] [-platforms linux/amd64,...] [-certificates FILE]
                                       make all files of the release
  release notes   VERSION              print the changes

It works on the repository of the current folder. A VERSION has the form v0.2.0.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, errUsage):
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2) //nolint:gocritic // there is nothing to stop yet
	case err != nil:
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var words []string
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	sign := flags.Bool("sign", false, "")
	from := flags.String("from", "", "")
	platforms := flags.String("platforms", "", "")
	certificates := flags.String("certificates", "/etc/ssl/certs/ca-certificates.crt", "")
	for len(args) > 0 {
		if err := flags.Parse(args); err != nil {
			return errors.Join(errUsage, err)
		}
		if args = flags.Args(); len(args) > 0 {
			words, args = append(words, args[0]), args[1:]
		}
	}
	top, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("not in a clone of the repository: %w", err)
	}
	repository := modules.Repository(strings.TrimSpace(string(top)))
	needs := map[string]int{"check": 2, "prepare": 2, "tag": 2, "notes": 2, "proxy": 3, "dist": 3}
	if len(words) == 0 || len(words) != needs[words[0]] {
		return errUsage
	}
	version := words[1]
	revision := "refs/tags/" + version
	if *from != "" {
		revision = *from
	}
	switch words[0] {
	case "check":
		return check(ctx, repository, version, stdout)
	case "prepare":
		return repository.Prepare(ctx, version, time.Now())
	case "tag":
		return tag(ctx, repository, version, *sign, stdout)
	case "notes":
		log, err := repository.Read(ctx, "HEAD", "CHANGELOG.md")
		if err != nil {
			return err
		}
		text, _ := modules.Changes(log, version)
		if text == "" {
			return fmt.Errorf("CHANGELOG.md says nothing of %s", version)
		}
		_, err = fmt.Fprintln(stdout, text)
		return err
	}
	if *from == "" {
		if err := repository.Tagged(ctx, version); err != nil {
			return err
		}
	}
	if words[0] == "proxy" {
		return repository.Proxy(ctx, revision, version, words[2])
	}
	made := &dist.Release{
		Repository: repository, Revision: revision, Version: version, Platforms: dist.Platforms(),
		Out: words[2], Certificates: *certificates, Log: stderr,
	}
	if *platforms != "" {
		made.Platforms = nil
		for p := range strings.SplitSeq(*platforms, ",") {
			system, arch, _ := strings.Cut(p, "/")
			made.Platforms = append(made.Platforms, dist.Platform{OS: system, Arch: arch})
		}
	}
	return made.Make(ctx)
}

func check(ctx context.Context, repository modules.Repository, version string, stdout io.Writer) error {
	found, err := repository.Check(ctx, version)
	if err != nil {
		return err
	}
	for _, p := range found {
		if _, err := fmt.Fprintln(stdout, p); err != nil {
			return err
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("%d problems: HEAD is not ready to be released as %s", len(found), version)
	}
	_, err = fmt.Fprintf(stdout, "HEAD can be released as %s\n", version)
	return err
}

// tag tags what was checked, and installed as users will.
func tag(ctx context.Context, repository modules.Repository, version string, sign bool, stdout io.Writer) error {
	if err := check(ctx, repository, version, stdout); err != nil {
		return err
	}
	if err := dist.Try(ctx, repository, "HEAD", version, stdout); err != nil {
		return err
	}
	names, err := repository.Tag(ctx, version, sign)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "tagged. To release it:\n\n  git push --atomic origin %s\n", strings.Join(names, " "))
	return err
}
