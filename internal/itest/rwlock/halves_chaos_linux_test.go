// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package rwlock

import (
	"bufio"
	"context"
	cryptorand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/pgstore"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/sqlitestore"
)

// The test starts the test binary again, as readers and writers of one file.
const (
	folderVariable = "TENURE_RWLOCK_FOLDER"
	storeVariable  = "TENURE_RWLOCK_STORE"
	sideVariable   = "TENURE_RWLOCK_SIDE"
	// timeVariable says for how long TestHalves kills and stops processes, and the other
	// two how many of them read, and write.
	timeVariable    = "TENURE_RWLOCK_FOR"
	readersVariable = "TENURE_RWLOCK_READERS"
	writersVariable = "TENURE_RWLOCK_WRITERS"
	// blindVariable has readers show the fence nothing: then the test fails, given time.
	blindVariable = "TENURE_RWLOCK_BLIND"
	lease         = 2 * time.Second
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(folderVariable); folder != "" {
		if err := child(folder, os.Getenv(sideVariable) == "write"); err != nil {
			fmt.Fprintln(os.Stdout, "error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// stores are those on which the processes meet. Each has a function that makes a place for
// the records, and returns what the processes are told of it.
var stores = []struct {
	name string
	make func(*testing.T) string
}{
	{"sqlite", func(t *testing.T) string { return filepath.Join(t.TempDir(), "locks.db") }},
	{"postgres", func(t *testing.T) string {
		database := enginetest.Database(t, enginetest.PostgreSQL(t))
		pool, err := pgxpool.New(t.Context(), database)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		if err := pgstore.CreateTable(t.Context(), pool, ""); err != nil {
			t.Fatal(err)
		}
		return database
	}},
	{"dynamodb", func(t *testing.T) string {
		e := enginetest.FullDynamoDB(t)
		table := "rwlock-" + cryptorand.Text()
		if err := dynamostore.CreateTable(t.Context(), connect(e.URL), table, nil); err != nil {
			t.Fatal(err)
		}
		return e.URL + " " + table
	}},
}

func connect(url string) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &url, Region: "local", Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
}

// open opens what a function of stores has made.
func open(ctx context.Context, name string) (driver.Store, error) {
	url, table, remote := strings.Cut(name, " ")
	switch {
	case remote:
		return dynamostore.Open(ctx, connect(url), table, nil)
	case strings.Contains(name, "://"):
		return pgstore.Open(ctx, name, nil)
	}
	return sqlitestore.Open(name, nil)
}

// Writers rewrite a file in two steps, and readers compare its halves, while processes are
// killed and stopped. No reader whose lease is good sees two different halves, unless it
// was told that the last writer had not ended well. The file has a fence, which readers
// show their tokens, so no write of a writer that was stopped changes what they read.
func TestHalves(t *testing.T) {
	d := 5 * time.Second
	if v := os.Getenv(timeVariable); v != "" {
		var err error
		if d, err = time.ParseDuration(v); err != nil {
			t.Fatalf("%s: %v", timeVariable, err)
		}
	}
	for _, on := range stores {
		t.Run(on.name, func(t *testing.T) {
			t.Parallel()
			halves(t, on.make(t), d)
		})
	}
}

func halves(t *testing.T, store string, d time.Duration) {
	folder := t.TempDir()
	ctx, stop := context.WithTimeout(t.Context(), d+awaited)
	defer stop()
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]int{}
	begun := time.Now()
	says := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		seen[line]++
		if seen["whole"] > 0 && seen["written"] > 0 && time.Since(begun) > d {
			stop()
		}
	}
	readers, writers := count(t, readersVariable, 3), count(t, writersVariable, 2)
	for i := range readers + writers {
		side := "read"
		if i < writers {
			side = "write"
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				life(t, ctx, folder, store, side, says)
			}
		})
	}
	wg.Wait()
	t.Logf("%v", seen)
	for line := range seen {
		if strings.HasPrefix(line, "torn") || strings.HasPrefix(line, "error") {
			t.Error(line)
		}
	}
	if seen["whole"] == 0 || seen["written"] == 0 {
		t.Errorf("too little has happened: %v", seen)
	}
}

// count returns a number of the environment.
func count(t *testing.T, variable string, otherwise int) int {
	v := os.Getenv(variable)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q: it must be a whole number above 0", variable, v)
	}
	return n
}

// awaited is how much longer than it must it may take until enough has happened.
const awaited = 2 * time.Minute

// life runs a process until it is killed, and says what that said.
func life(t *testing.T, ctx context.Context, folder, store, side string, says func(line string)) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), folderVariable+"="+folder, storeVariable+"="+store, sideVariable+"="+side)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	var tormented sync.WaitGroup
	tormented.Go(func() {
		for range 3 {
			pause(ctx, rand.N(lease))
			if rand.N(3) == 0 {
				_ = cmd.Process.Signal(syscall.SIGSTOP) // it may have ended
				pause(ctx, rand.N(2*lease))
				_ = cmd.Process.Signal(syscall.SIGCONT)
			}
		}
		pause(ctx, rand.N(3*lease))
		_ = cmd.Process.Kill()
	})
	for scan := bufio.NewScanner(out); scan.Scan(); {
		says(scan.Text())
		if scan.Text() == stopping {
			tormented.Go(func() {
				pause(ctx, lease+rand.N(lease))
				_ = cmd.Process.Signal(syscall.SIGCONT) // it may be dead
			})
		}
	}
	tormented.Wait()
	_ = cmd.Wait() // it was killed
}

// stopping is what a writer says that stops itself: it wants to be continued when its
// lease has run out.
const stopping = "stopping"

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// child reads, or writes, again and again.
func child(folder string, write bool) error {
	ctx := context.Background()
	store, err := open(ctx, os.Getenv(storeVariable))
	if err != nil {
		return err
	}
	client, err := tenure.New(store, &tenure.Options{LeaseDuration: lease, RefreshPeriod: lease / 20})
	if err != nil {
		return err
	}
	l, err := rwlock.New(client, "file", nil)
	if err != nil {
		return err
	}
	r := resource{folder}
	for {
		if write {
			err = l.RunWrite(ctx, nil, r.rewrite)
		} else {
			err = l.RunRead(ctx, nil, r.compare)
		}
		switch {
		case errors.Is(err, errStale):
			fmt.Fprintln(os.Stdout, "refused")
		case errors.Is(err, tenure.ErrLost), errors.Is(err, context.Canceled):
			fmt.Fprintln(os.Stdout, "lost")
		case errors.Is(err, tenure.ErrUnreadable), errors.Is(err, tenure.ErrPermanent):
			return err
		case err != nil:
			fmt.Fprintln(os.Stdout, "no store") // somebody was stopped who has the database
		}
		time.Sleep(rand.N(lease / 20))
	}
}

// resource is a file of two halves, and its fence.
type resource struct{ folder string }

var errStale = errors.New("a higher token was shown")

// pass does something if no higher token was shown, with nothing else let in meanwhile.
func (r resource) pass(token uint64, do func() error) error {
	f, err := os.OpenFile(filepath.Join(r.folder, "fence"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	var b [8]byte
	_, _ = f.ReadAt(b[:], 0) // nothing yet
	if binary.BigEndian.Uint64(b[:]) > token {
		return errStale
	}
	binary.BigEndian.PutUint64(b[:], token)
	if _, err := f.WriteAt(b[:], 0); err != nil {
		return err
	}
	return do()
}

func (r resource) half(i int) string { return filepath.Join(r.folder, fmt.Sprint("half", i)) }

func (r resource) rewrite(ctx context.Context, l *rwlock.Lease) error {
	for i := range 2 {
		if err := l.Check(); err != nil {
			return err
		}
		if i == 1 && rand.N(3) == 0 {
			fmt.Fprintln(os.Stdout, stopping)
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // between its check and its write
		}
		err := r.pass(l.Token(), func() error {
			return os.WriteFile(r.half(i), fmt.Append(nil, l.Token()), 0o600)
		})
		if err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stdout, "written")
	return ctx.Err()
}

func (r resource) compare(_ context.Context, l *rwlock.Lease) error {
	last, ok := l.LastWriter()
	if !ok {
		return nil
	}
	if os.Getenv(blindVariable) == "" {
		if err := r.pass(l.Token(), func() error { return nil }); err != nil {
			return err
		}
	}
	var first []string
	for range 4 {
		var halves []string
		for i := range 2 {
			b, err := os.ReadFile(r.half(i))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			halves = append(halves, string(b))
			time.Sleep(rand.N(lease / 10))
		}
		if err := l.Check(); err != nil {
			return err
		}
		if first == nil {
			first = halves
		}
		whole := halves[0] == halves[1] && halves[0] == fmt.Sprint(l.Token()-1)
		if !slices.Equal(first, halves) || !whole && last.End == tenure.EndReleased {
			fmt.Fprintf(os.Stdout, "torn: %q, and before %q, for a reader with %d after one that has %s\n", halves, first, l.Token(), last.End)
			return nil
		}
	}
	if last.End == tenure.EndReleased {
		fmt.Fprintln(os.Stdout, "whole")
	} else {
		fmt.Fprintln(os.Stdout, "told") // it may be half, but does not change
	}
	return nil
}
