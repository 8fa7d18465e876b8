// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// virtual is what a test prints that has more workers than a machine has room for.
type virtual struct {
	What    string   `json:"what"`
	Command string   `json:"command"`
	Date    string   `json:"date"`
	Took    float64  `json:"tookSeconds"`
	Lines   []string `json:"lines"`
	// Failed is what it printed of its failure.
	Failed string `json:"failed,omitempty"`
}

// The tests know the inside of package shard; so they are run, and what they log is
// taken down.
var virtuals = []virtual{
	{
		What:    "1,000 workers, 100,000 partitions: the package as it is, in virtual time",
		Command: "TENURE_SHARD_SCALE=1000x100000 go test -count=1 -timeout=30m -run=^TestManyWorkers$ -v ./shard",
	},
}

// logged finds what is before the text of a line that a test has logged.
var logged = regexp.MustCompile(`^\s+\w+_test\.go:\d+: ?`)

// simulate runs the tests, one after the other.
func simulate(ctx context.Context, say func(string, ...any)) (all []virtual, err error) {
	for _, v := range virtuals {
		began := time.Now()
		v.Date = began.UTC().Format(time.DateTime) + " UTC"
		env, command, _ := strings.Cut(v.Command, " ")
		words := strings.Fields(command)
		c := exec.CommandContext(ctx, words[0], words[1:]...)
		c.Env = append(os.Environ(), env)
		out, failed := c.CombinedOutput()
		if ctx.Err() != nil {
			return all, context.Cause(ctx)
		}
		if failed != nil {
			v.Failed = fmt.Sprintf("%v: %s", failed, bytes.TrimSpace(out))
		}
		v.Took = time.Since(began).Seconds()
		v.Lines = linesLogged(string(out))
		say("%s: %.1f s", v.What, v.Took)
		all = append(all, v)
	}
	return all, nil
}

// linesLogged returns what a test has logged, without where.
func linesLogged(out string) (all []string) {
	inside := false
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		switch at := logged.FindString(line); {
		case at != "":
			inside, line = true, line[len(at):]
		case inside && strings.HasPrefix(line, "        "): // of the same call
			line = line[8:]
		default:
			inside = false
		}
		if inside && strings.TrimSpace(line) != "" {
			all = append(all, line)
		}
	}
	return all
}
