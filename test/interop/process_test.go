// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/test/bed/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

const (
	// buildBound bounds a build in a test: the first one of the Java peer
	// fetches its dependencies.
	buildBound = 5 * time.Minute
	startBound = 30 * time.Second
)

// need returns the program of a kind; those in Go are roles of the test binary.
// Without the toolchain of the Java client the test is skipped, or fails when TENURE_REQUIRE_ENGINES is set.
func need(tb testing.TB, kind peers.Kind) *peers.Program {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), buildBound)
	defer cancel()
	p, err := peers.Make(ctx, kind)
	if errors.Is(err, peers.ErrNoToolchain) {
		enginetest.Missing(tb, "the toolchain of Java", fmt.Sprint("scripts/setup installs it: ", err))
	}
	if err != nil {
		tb.Fatalf("build the %s peer: %v", kind, err)
	}
	return p
}

// start starts a process that is killed when the test ends. The end of its
// standard error is logged if the test has failed.
func start(tb testing.TB, p *peers.Program) *peers.Process {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startBound)
	defer cancel()
	ps, err := p.Start(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ps.Kill()
		if said := ps.Stderr(); tb.Failed() && said != "" {
			tb.Logf("%s %d wrote:\n%s", p.Kind, ps.Ready.PID, said)
		}
	})
	return ps
}

// result waits for the answer to a request.
func result(tb testing.TB, c *peers.Call) (wire.Answer, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), wait.Bound)
	defer cancel()
	return c.Wait(ctx)
}

// must sends a request that is not refused.
func must(tb testing.TB, ps *peers.Process, req wire.Request) wire.Answer {
	tb.Helper()
	a, err := result(tb, ps.Begin(req))
	if err != nil {
		tb.Fatalf("peer %d: %v", ps.Ready.PID, err)
	}
	return a
}

// mustRefuse sends one that is, as one of the kinds.
func mustRefuse(tb testing.TB, ps *peers.Process, req wire.Request, kinds ...string) wire.Answer {
	tb.Helper()
	a, err := result(tb, ps.Begin(req))
	if refused := (*peers.Refused)(nil); !errors.As(err, &refused) || !slices.Contains(kinds, a.Kind) {
		tb.Fatalf("%s by the peer: %+v, %v; want a refusal as %s", req.Command, a, err, strings.Join(kinds, " or "))
	}
	return a
}
