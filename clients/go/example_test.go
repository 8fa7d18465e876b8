// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tenurelock/tenure"
	tenureclient "github.com/tenurelock/tenure/clients/go"
	"github.com/tenurelock/tenure/memstore"
	"github.com/tenurelock/tenure/server"
)

const token = "a-secret-of-a-program-that-holds-locks-0001"

// serve serves locks in memory.
func serve() (url string, stop func()) {
	locks, err := tenure.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	principals, err := server.ParsePrincipals("ci " + token + " admin:\n")
	if err != nil {
		panic(err)
	}
	s, err := server.New(locks, server.Options{Principals: principals})
	if err != nil {
		panic(err)
	}
	h := httptest.NewServer(s)
	return h.URL, func() {
		ctx := context.Background()
		h.Close()
		if err := errors.Join(s.Shutdown(ctx), locks.Close(ctx)); err != nil {
			panic(err)
		}
	}
}

func Example() {
	ctx := context.Background()
	url, stop := serve() // in place of a tenured
	defer stop()
	client, err := tenureclient.New(tenureclient.Options{Servers: []string{url}, Token: token})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	err = client.Run(ctx, "reports", nil, func(ctx context.Context, lease *tenureclient.Lease) error {
		// One process at a time is here. ctx ends when it must stop.
		if err := lease.Check(); err != nil {
			return err // before every side effect
		}
		_, err := client.TryAcquire(ctx, "reports", nil)
		fmt.Println("under token", lease.Token(), "and for others:", errors.Is(err, tenureclient.ErrHeld))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: under token 1 and for others: true
}

// Two locks are held by one heartbeat.
func ExampleSession() {
	ctx := context.Background()
	url, stop := serve()
	defer stop()
	client, err := tenureclient.New(tenureclient.Options{Servers: []string{url}, Token: token})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	move := func(token uint64) error {
		fmt.Println("moving stock under token", token)
		return nil
	}
	work := func() error {
		session, err := client.OpenSession(ctx)
		if err != nil {
			return err
		}
		defer session.Close(ctx)
		set, err := session.AcquireAll(ctx, []string{"orders", "stock"}, nil) // all or none
		if err != nil {
			return err
		}
		return errors.Join(move(set.Lease("stock").Token()), set.Check(), set.Release(ctx))
	}
	if err := work(); err != nil {
		log.Fatal(err)
	}
	// Output: moving stock under token 1
}

func ExampleRWLock() {
	var client *tenureclient.Client // of tenureclient.New
	var render func(context.Context, int) error
	var lookUp, rebuild func(context.Context, uint64) error
	_ = func(ctx context.Context) error {
		err := client.Semaphore("renders", 3).Run(ctx, nil, func(ctx context.Context, lease *tenureclient.SlotLease) error {
			return render(ctx, lease.Slot()) // at most three at a time
		})
		if err != nil {
			return err
		}
		catalog := client.RWLock("catalog")
		err = catalog.RunRead(ctx, nil, func(ctx context.Context, lease *tenureclient.RWLease) error {
			return lookUp(ctx, lease.Token()) // others may read, too
		})
		if err != nil {
			return err
		}
		return catalog.RunWrite(ctx, nil, func(ctx context.Context, lease *tenureclient.RWLease) error {
			return rebuild(ctx, lease.Token()) // no other process is here
		})
	}
}

// TestREADME runs the program of the page; its other code stands in an example.
func TestREADME(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	flat := func(text string) string {
		return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(text, "")
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 3 {
		t.Fatalf("%d blocks of code", len(blocks))
	}
	for _, block := range blocks[1:] {
		if !strings.Contains(flat(string(source)), flat(block[1])) {
			t.Errorf("no example has\n%s", block[1])
		}
	}

	url, stop := serve()
	defer stop()
	folder := t.TempDir()
	program := strings.Replace(blocks[0][1], "http://127.0.0.1:8368", url, 1)
	program = strings.Replace(program, `"token"`, fmt.Sprintf("%q", filepath.Join(folder, "token")), 1)
	for name, text := range map[string]string{"program.go": program, "token": token} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "run", filepath.Join(folder, "program.go")).CombinedOutput()
	if err != nil || string(out) != "writing the report under token 1\n" {
		t.Errorf("%v: %s", err, out)
	}
}
