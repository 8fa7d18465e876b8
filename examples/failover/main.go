// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Command failover shows how three processes elect a leader, and what happens when the
// leader is killed, and when it is asked to step down:
//
//	go run ./examples/failover
//
// It starts itself three times, as web-1, web-2 and web-3. The function campaign is what a
// program of your own would do. The function show starts, watches, kills and asks.
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
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/sqlitestore"
)

const (
	election  = "scheduler"     // the name of the lock that the leader holds
	watchTime = 3 * time.Second // how long each leader is watched
	limit     = time.Minute     // how long the show may take, beside the leases
	clock     = "15:04:05.000"
)

func main() {
	lease := flag.Duration("lease", 3*time.Second, "how long a dead leader keeps the lock")
	flag.Parse()

	var err error
	switch flag.NArg() {
	case 0:
		err = show(*lease)
	case 2: // one of the three, see start
		err = campaign(flag.Arg(0), flag.Arg(1), *lease)
	default:
		err = fmt.Errorf("unexpected argument %q: there is only the flag -lease", flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "failover:", err)
		os.Exit(1)
	}
}

// say prints a line about a process.
func say(name, format string, args ...any) {
	fmt.Fprintf(os.Stdout, "%s  %s  %s\n", time.Now().Format(clock), name, fmt.Sprintf(format, args...))
}

// open returns a client for the locks in a file, and a function that closes it. With a
// store that all hosts reach, such as pgstore or dynamostore, nothing else in this
// program would change.
func open(file string, options *tenure.Options) (*tenure.Client, func() error, error) {
	store, err := sqlitestore.Open(file, nil)
	if err != nil {
		return nil, nil, err
	}
	client, err := tenure.New(store, options)
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return client, func() error {
		return errors.Join(client.Close(context.Background()), store.Close())
	}, nil
}

// campaign is all that web-1, web-2 and web-3 do: they campaign, and work while they lead.
// They end when their standard input does: it is a pipe from the show, which the kernel
// closes even if the show is killed.
func campaign(name, file string, lease time.Duration) (err error) {
	ctx, end := context.WithCancelCause(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end(errors.New("the show is over"))
	}()

	tell := func(e tenure.Event) {
		switch e.Kind {
		case tenure.EventWaiting:
			say(name, "waits, while %s leads under token %d", e.Owner, e.Token)
		case tenure.EventJeopardy:
			say(name, "gets no answer from the store: %v", e.Err)
		}
	}
	client, closeClient, err := open(file, &tenure.Options{Owner: name, LeaseDuration: lease, OnEvent: tell})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeClient()) }()

	return client.Election(election, nil).Run(ctx, func(ctx context.Context, lease *tenure.Lease) error {
		say(name, "leads under token %d", lease.Token())
		for {
			if err := lease.Check(); err != nil { // ask before every side effect
				return err
			}
			say(name, "works, as only the leader may")
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				say(name, "stops its work: %v", context.Cause(ctx))
				return nil
			}
		}
	})
}

// show has three processes lead one after the other: it kills the first leader, and asks
// the second one to step down. Then it prints the history of the lock.
func show(lease time.Duration) (err error) {
	// SIGPIPE, too: "failover | head" cleans up as well.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	ctx, stop = context.WithTimeoutCause(ctx, limit+4*lease, errors.New("the show takes too long"))
	defer stop()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	folder, err := os.MkdirTemp("", "failover-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	file := filepath.Join(folder, "locks.db")

	client, closeClient, err := open(file, &tenure.Options{Owner: "show", LeaseDuration: lease})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeClient()) }()

	webs := map[string]*process{}
	for _, name := range []string{"web-1", "web-2", "web-3"} {
		p, err := start(ctx, fail, name, file, lease)
		if err != nil {
			return err
		}
		defer p.kill()
		webs[name] = p
	}

	first, err := leader(ctx, client, 1)
	if err != nil {
		return err
	}
	say(first.Owner, "is killed; the others cannot know, and wait until its lease of %v is over", lease)
	webs[first.Owner].kill()

	second, err := leader(ctx, client, first.Token+1)
	if err != nil {
		return err
	}
	say(second.Owner, "is asked to step down; another one leads as soon as its work has stopped")
	if err := client.StepDown(ctx, election, &tenure.StepDownOptions{Reason: "the next one's turn"}); err != nil {
		return err
	}

	third, err := leader(ctx, client, second.Token+1)
	if err != nil {
		return err
	}
	webs[second.Owner].end()
	webs[third.Owner].end() // last, or the other one would take over
	return history(ctx, client)
}

// leader waits for a leader whose token is at least the given one, and watches it for a
// while.
func leader(ctx context.Context, client *tenure.Client, token uint64) (tenure.Leader, error) {
	e := client.Election(election, nil)
	for l, err := range e.Observe(ctx) {
		if err != nil || l.Token < token {
			continue // nobody yet; after an error Observe asks again
		}
		select {
		case <-time.After(watchTime):
		case <-ctx.Done():
		}
		if now, err := e.Leader(ctx); err == nil && now.Token == l.Token {
			return l, nil
		}
	}
	return tenure.Leader{}, context.Cause(ctx)
}

// history prints who held the lock, from when to when, and how it ended.
func history(ctx context.Context, client *tenure.Client) error {
	terms, err := client.History(ctx, election)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "\nThe history of the lock:")
	for _, t := range slices.Backward(terms) { // History has the latest first
		until := "unknown"
		if !t.Until.IsZero() {
			until = t.Until.Format(clock)
		}
		fmt.Fprintf(os.Stdout, "token %d  %s  %s to %-12s  %s\n", t.Token, t.Owner, t.Since.Format(clock), until, t.Ended())
	}
	return nil
}

// process is one of the three.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer     // ends the campaign
	ended chan struct{} // closed when the process has ended
}

// start starts this program again, as one of the three. If it fails, so does the show.
func start(ctx context.Context, fail context.CancelCauseFunc, name, file string, lease time.Duration) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "-lease", lease.String(), name, file)
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() > 0 { // -1 if it was killed
			fail(fmt.Errorf("%s has failed: %w", name, err))
		}
	}()
	return p, nil
}

// end asks the process to end, and waits for it.
func (p *process) end() {
	_ = p.stdin.Close() // an error says that it has ended already
	<-p.ended
}

// kill ends the process by SIGKILL.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error says that it has ended already
	<-p.ended
}
