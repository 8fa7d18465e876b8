// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tenurelock/tenure/cmd/internal/cli"
	"github.com/tenurelock/tenure/cmd/internal/daemon"
	"github.com/tenurelock/tenure/cmd/internal/scripts"
)

// TestMain makes this binary the commands tenured and tenure, and the programs of the
// scripts.
func TestMain(m *testing.M) {
	scripts.Main(m, map[string]func(){
		"tenured": func() { os.Exit(daemon.Main(os.Args[1:])) },
		"tenure":  func() { os.Exit(cli.Main(os.Args[1:])) },
		"call":    scripts.Program(call),
		"hold":    scripts.Program(hold),
		"listens": scripts.Program(listens),
		"certify": scripts.Program(certify),
	})
}

// TestScripts runs what a shell would, from the command line to the exit status: see
// testdata.
func TestScripts(t *testing.T) {
	t.Parallel()
	help, err := filepath.Abs("help")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			env.Setenv("HELP", help)
			env.Setenv("GORACE", os.Getenv("GORACE"))
			env.Setenv("TENURE_STORE", "sqlite:"+filepath.Join(env.WorkDir, "locks.db"))
			return os.Mkdir(home, 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": scripts.Exits},
	})
}

// where are the flags of a program that calls the service.
type where struct{ log, token, ca, cert, key *string }

func flagsOfCall() where {
	return where{
		flag.String("log", "", "of tenured, which says where it listens"),
		flag.String("token", "", "file with the token"), flag.String("ca", "", "authority"),
		flag.String("cert", "", "of the client"), flag.String("key", "", "of the client"),
	}
}

func (w where) caller() (*caller, error) {
	at, err := listensAt(*w.log)
	if err != nil {
		return nil, err
	}
	token := ""
	if *w.token != "" {
		text, err := os.ReadFile(*w.token)
		if err != nil {
			return nil, err
		}
		token = strings.TrimSpace(string(text))
	}
	config, err := clientTLS(*w.ca, *w.cert, *w.key)
	if err != nil {
		return nil, err
	}
	return newCaller(token, config, at), nil
}

var listening = regexp.MustCompile(`msg=listening url=(\S+)`)

// patience is for what takes a moment on a machine that has time.
const patience = 30 * time.Second

// listensAt waits until a log says where its tenured listens.
func listensAt(log string) (string, error) {
	for end := time.Now().Add(patience); time.Now().Before(end); pause(context.Background(), 10*time.Millisecond) {
		text, _ := os.ReadFile(log)
		if m := listening.FindSubmatch(text); m != nil {
			return string(m[1]), nil
		}
	}
	text, _ := os.ReadFile(log)
	return "", fmt.Errorf("nobody listens: %s", text)
}

// listens prints where a tenured listens, when it does:
//
//	listens LOG
func listens() error {
	at, err := listensAt(os.Args[1])
	if err == nil {
		_, err = fmt.Fprintln(os.Stdout, at)
	}
	return err
}

// call makes one call, and prints its status and its answer:
//
//	call [FLAG...] METHOD PATH [BODY]
func call() error {
	w := flagsOfCall()
	kind := flag.String("type", "", "Content-Type")
	host := flag.String("host", "", "Host")
	proto := flag.Bool("proto", false, "print the version of HTTP")
	flag.Parse()
	c, err := w.caller()
	if err != nil {
		return err
	}
	var body any
	if flag.NArg() > 2 {
		body = flag.Arg(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c.http.Transport = changed{c.http.Transport, *kind, *host}
	r, err := c.call(ctx, flag.Arg(0), flag.Arg(1), body)
	if err != nil {
		return err
	}
	if *proto {
		fmt.Fprintln(os.Stdout, r.Proto)
	}
	_, err = fmt.Fprintf(os.Stdout, "%d %s\n", r.Status, r.Body)
	return err
}

// changed sends calls with another type or host.
type changed struct {
	http.RoundTripper
	kind, host string
}

func (c changed) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.kind != "" {
		r.Header.Set("Content-Type", c.kind)
	}
	if c.host != "" {
		r.Host = c.host
	}
	return c.RoundTripper.RoundTrip(r)
}

// hold takes a lock, renews it a few times, and releases it:
//
//	hold [FLAG...] NAME
func hold() error {
	w := flagsOfCall()
	flag.Parse()
	c, err := w.caller()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	h, err := c.acquire(ctx, flag.Arg(0), "holder", 0)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "held", h.Name, h.Token)
	for range 3 {
		if err := h.renew(ctx); err != nil {
			return err
		}
		pause(ctx, 20*time.Millisecond)
	}
	if err := h.release(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, "released", h.Name)
	return err
}
