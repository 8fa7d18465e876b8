// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// The tests of this file start the test binary again, as real processes on one
// file: children[NAME] runs in place of the tests.
const (
	childName = "SQLITESTORE_TEST_CHILD"
	childFile = "SQLITESTORE_TEST_FILE"
)

var children = map[string]func(file string) error{
	"open":   childOpen,
	"hammer": childHammer,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childName); name != "" {
		if err := children[name](os.Getenv(childFile)); err != nil {
			fmt.Fprintln(os.Stdout, "error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	mu    sync.Mutex
	lines []string
	out   chan string // the lines as well, if somebody takes them
	ended chan struct{}
}

// start starts a child. The child ends with the test at the latest.
func start(t *testing.T, name, file string, prepare func(*exec.Cmd)) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0]), ended: make(chan struct{}), out: make(chan string, 1<<16)}
	c.cmd.Env = append(os.Environ(), childName+"="+name, childFile+"="+file)
	c.cmd.Stderr = os.Stderr
	if prepare != nil {
		prepare(c.cmd)
	}
	stdin, stdout := enginetest.Start(t, c.cmd)
	c.stdin = stdin
	go func() {
		defer close(c.ended)
		scan := bufio.NewScanner(stdout)
		for scan.Scan() {
			c.mu.Lock()
			c.lines = append(c.lines, scan.Text())
			c.mu.Unlock()
			c.out <- scan.Text()
		}
		close(c.out)
		_ = c.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
	})
	return c
}

// wait returns what the child printed.
func (c *child) wait(t *testing.T) []string {
	t.Helper()
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		t.Fatal("child does not end")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines
}

// TestOpenAtOnce has twenty processes open a missing file at the same moment.
func TestOpenAtOnce(t *testing.T) {
	for range 3 {
		file := filepath.Join(t.TempDir(), "locks.db")
		var all []*child
		for range 20 {
			all = append(all, start(t, "open", file, nil))
		}
		for _, c := range all {
			if line := <-c.out; line != "ready" {
				t.Fatal(line)
			}
		}
		for _, c := range all {
			_ = c.stdin.Close()
		}
		for _, c := range all {
			if lines := c.wait(t); len(lines) != 2 || lines[1] != "ok" {
				t.Errorf("child: %q", lines)
			}
		}
		if got := ask(t, file, "SELECT count(*) FROM tenure_records"); got != int64(20) {
			t.Errorf("%v records of 20", got)
		}
	}
}

func childOpen(file string) error {
	fmt.Fprintln(os.Stdout, "ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until all are there
	s, err := Open(file, nil)
	if err != nil {
		return err
	}
	if err := persist(func() error {
		_, _, err := s.Claim(context.Background(), held(fmt.Sprint("k", os.Getpid()), "a"))
		return err
	}); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "ok")
	return s.Close()
}

// persist repeats a write as the layer above a store does.
func persist(op func() error) error {
	begin, pause := time.Now(), time.Millisecond
	for {
		err := op()
		if err == nil || !errors.Is(err, driver.ErrNotApplied) || errors.Is(err, driver.ErrPermanent) || time.Since(begin) > 30*time.Second {
			return err
		}
		time.Sleep(rand.N(pause))
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// TestProcesses has eight processes take one lock in turns and count in a
// record of their own accord: no token is granted twice, and the sum is exact.
func TestProcesses(t *testing.T) { testProcesses(t, 0) }

// TestProcessesKilled kills some of them in the midst of it.
func TestProcessesKilled(t *testing.T) { testProcesses(t, 6) }

func testProcesses(t *testing.T, kills int) {
	file := filepath.Join(t.TempDir(), "locks.db")
	s := mustOpen(t, file)
	counter := held("counter", "all")
	counter.Data = []byte("0")
	enginetest.Claim(t, s, counter)
	lock := enginetest.Claim(t, s, held("lock", "first"))
	enginetest.Swap(t, s, lock, released(lock))

	var all []*child
	for range 8 {
		all = append(all, start(t, "hammer", file, nil))
	}
	for i := range kills {
		time.Sleep(100*time.Millisecond + rand.N(100*time.Millisecond))
		_ = all[i].cmd.Process.Kill()
		all = append(all, start(t, "hammer", file, nil))
	}
	const grants = 50
	eventually(t, func() error {
		if last := enginetest.Get(t, s, "lock").Token; last < grants {
			return fmt.Errorf("%d grants of %d", last, grants)
		}
		return nil
	})
	for _, c := range all[kills:] {
		_ = c.stdin.Close()
	}
	tokens, count, busy := map[string]bool{}, 0, 0
	for i, c := range all {
		lines := c.wait(t)
		for _, line := range lines {
			what, value, _ := strings.Cut(line, " ")
			switch what {
			case "token":
				if tokens[value] {
					t.Errorf("token %s was granted twice", value)
				}
				tokens[value] = true
			case "count":
				count++
			case "busy":
				n, _ := strconv.Atoi(value)
				busy += n
			case "error":
				t.Errorf("child %d: %s", i, line)
			}
		}
	}
	sum, err := strconv.Atoi(string(enginetest.Get(t, s, "counter").Data))
	if err != nil || sum < count || sum > count+kills {
		t.Errorf("the counter is %d (%v) after %d increments that were answered and %d kills", sum, err, count, kills)
	}
	last := enginetest.Get(t, s, "lock").Token - 1 // the first was this process's
	if n := uint64(len(tokens)); last < n || last > n+uint64(kills) {
		t.Errorf("the token is %d after %d grants that were answered and %d kills", last, n, kills)
	}
	if got := ask(t, file, "PRAGMA integrity_check"); got != "ok" {
		t.Errorf("integrity check: %v", got)
	}
	t.Logf("%d grants, %d increments, %d writes found the file busy", len(tokens), count, busy)
}

// childHammer takes, counts and releases until its standard input ends.
func childHammer(file string) error {
	const lease = 300 * time.Millisecond
	s, err := Open(file, nil)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	ctx := context.Background()
	var (
		conflict *driver.ConflictError
		seen     string // the holder's beat
		since    time.Time
		busy     int
	)
	retry := func(op func() error) error {
		return persist(func() error {
			err := op()
			if locked(err) {
				busy++
			}
			return err
		})
	}
	for {
		select {
		case <-stop:
			fmt.Fprintln(os.Stdout, "busy", busy)
			return s.Close()
		default:
		}
		mine := held("lock", fmt.Sprint(os.Getpid()))
		var got driver.Record
		err := retry(func() (err error) { got, _, err = s.Claim(ctx, mine); return err })
		if errors.As(err, &conflict) {
			if cur := conflict.Current; cur.Beat != seen {
				seen, since = cur.Beat, time.Now()
				time.Sleep(rand.N(5 * time.Millisecond))
				continue
			} else if time.Since(since) < lease {
				time.Sleep(rand.N(5 * time.Millisecond))
				continue
			} else {
				mine.Token = cur.Token + 1
				err = retry(func() (err error) { got, err = s.Swap(ctx, cur, mine); return err })
				if errors.As(err, &conflict) {
					continue
				}
			}
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, "token", got.Token)
		for range 3 {
			if err := count(ctx, s, retry); err != nil {
				return err
			}
			fmt.Fprintln(os.Stdout, "count")
		}
		err = retry(func() (err error) { _, err = s.Swap(ctx, got, released(got)); return err })
		if err != nil && !errors.As(err, &conflict) { // taken over, if this process was slow
			return err
		}
	}
}

func count(ctx context.Context, s *Store, retry func(func() error) error) error {
	for {
		cur, err := s.Get(ctx, "counter", driver.Strong)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(cur.Data))
		if err != nil {
			return err
		}
		after := next(cur)
		after.Data = []byte(strconv.Itoa(n + 1))
		err = retry(func() error { _, err := s.Swap(ctx, cur, after); return err })
		if conflict := (*driver.ConflictError)(nil); !errors.As(err, &conflict) {
			return err
		}
	}
}
