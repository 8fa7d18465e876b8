// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// leastAPITests is how many tests of the root module run on a store at least.
const leastAPITests = 155

// BuildAPI builds the tests of package tenure, and returns the program. It is called in
// a folder of the checkout.
func BuildAPI(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "tenure.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", program, "github.com/tenurelock/tenure").CombinedOutput()
	if err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	return program
}

// Worlds are the databases that the tests of package tenure run on, each of their worlds
// in one for itself.
type Worlds struct {
	// New makes a database, and returns its name; End removes it.
	New func(ctx context.Context) (name string, err error)
	End func(ctx context.Context, name string) error
	// Open opens a further client onto one. List returns so many records at once, if
	// pageSize is not zero.
	Open func(name string, pageSize int) (driver.Store, error)

	// As in drivertest.Harness.
	TokensOutliveDelete, NoSessions bool
}

// RunAPI runs the program that [BuildAPI] has made: all tests of package tenure that can
// have their records elsewhere, with their faults.
func RunAPI(t *testing.T, program string, worlds Worlds) {
	t.Helper()
	s := newAPIServer(t, worlds)
	run := exec.CommandContext(t.Context(), program, "-test.run=^Test", "-test.v", "-test.timeout=12m")
	run.Dir = ".." // as `go test` does
	run.Env = append(os.Environ(), "TENURE_TEST_STORE="+s.listener.Addr().String())
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", run, err, out)
	}
	passed, onStore, leftOut := readAPITests(out)
	for _, line := range leftOut {
		t.Log(line)
	}
	for _, name := range passed {
		if !onStore[name] {
			t.Errorf("%s passed without a remote store: let it make its world by newWorld, or say in localTests why it cannot", name)
		}
	}
	for _, match := range skippedLine.FindAllSubmatch(out, -1) {
		if name := string(match[1]); !strings.HasPrefix(name, "TestRemoteStore/") { // what drivertest skips
			t.Errorf("%s was skipped; say in localTests why", name)
		}
	}
	if n := len(passed); n < leastAPITests {
		t.Errorf("%d tests passed, fewer than %d\n%s", n, leastAPITests, out)
	}
	counts := s.finish()
	for _, op := range []string{"world", "open", "get", "claim", "swap", "delete", "list", "close", "end"} {
		if counts[op] == 0 {
			t.Errorf("no call %q reached the store", op)
		}
	}
	t.Logf("%d tests passed; calls: %v", len(passed), counts)
}

var (
	skippedLine = regexp.MustCompile(`(?m)^ *--- SKIP: (\S+)`)
	passedLine  = regexp.MustCompile(`^--- PASS: (\w+) `)
	onStoreLine = regexp.MustCompile(`^=== ATTR +(\w+)\S* store remote$`)
)

// readAPITests finds in the output of a run which tests passed, which of them
// had a world on the store, and the lines that say what was left out.
func readAPITests(out []byte) (passed []string, onStore map[string]bool, leftOut []string) {
	onStore = map[string]bool{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line := lines.Text()
		if match := passedLine.FindStringSubmatch(line); match != nil {
			passed = append(passed, match[1])
		} else if match := onStoreLine.FindStringSubmatch(line); match != nil {
			onStore[match[1]] = true
		} else if strings.HasPrefix(line, "left out: ") {
			leftOut = append(leftOut, line)
		}
	}
	return passed, onStore, leftOut
}

// apiServer serves stores to the tests of package tenure, whose remote_test.go
// has the other end.
type apiServer struct {
	listener net.Listener
	worlds   Worlds
	running  sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	stores []*apiStore // by handle
	left   map[string]bool
	counts map[string]int
}

// apiStore is a handle onto a world.
type apiStore struct {
	driver.Store
	world    string
	pageSize int
}

// apiCall, apiReply and apiError are remoteCall, remoteReply and remoteError
// there.
type apiCall struct {
	Op          string
	Store       int
	Key, Cursor string
	Consistency driver.Consistency
	PageSize    int
	Prev, Next  driver.Record
}

type apiReply struct {
	Store      int
	Now, Prev  driver.Record
	Page       driver.Page
	Unreadable map[string]*apiError
	Err        *apiError

	TokensOutliveDelete, NoSessions bool
}

type apiError struct {
	Text     string
	Is       []string
	Conflict *driver.ConflictError
}

func toAPI(err error) *apiError {
	if err == nil {
		return nil
	}
	e := &apiError{Text: err.Error()}
	for _, meaning := range []error{driver.ErrNotFound, driver.ErrNotApplied, driver.ErrPermanent, driver.ErrUnreadable, driver.ErrClosed} {
		if errors.Is(err, meaning) {
			e.Is = append(e.Is, meaning.Error())
		}
	}
	errors.As(err, &e.Conflict)
	return e
}

// newAPIServer starts a server, which ends with the test.
func newAPIServer(t *testing.T, worlds Worlds) *apiServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &apiServer{listener: listener, worlds: worlds, left: map[string]bool{}, counts: map[string]int{}}
	s.running.Go(s.accept)
	t.Cleanup(func() {
		s.finish()
		for world := range s.left { // after a run that was broken off
			if err := s.end(context.WithoutCancel(t.Context()), world); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

func (s *apiServer) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, conn)
		s.mu.Unlock()
		s.running.Go(func() {
			in, out := json.NewDecoder(conn), json.NewEncoder(conn)
			for {
				var call apiCall
				if err := in.Decode(&call); err != nil {
					return
				}
				if err := out.Encode(s.serve(call)); err != nil {
					return
				}
			}
		})
	}
}

// finish ends the service and returns how many calls of each kind came.
func (s *apiServer) finish() map[string]int {
	_ = s.listener.Close()
	s.mu.Lock()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.running.Wait()
	return s.counts
}

func (s *apiServer) serve(call apiCall) apiReply {
	ctx := context.Background() // none comes with a call: the caller's belongs to its bubble
	var reply apiReply
	var err error
	store := s.handle(call)
	switch call.Op {
	case "hello":
		reply.TokensOutliveDelete, reply.NoSessions = s.worlds.TokensOutliveDelete, s.worlds.NoSessions
	case "world":
		reply.Store, err = s.begin(ctx, call.PageSize)
	case "open":
		reply.Store, err = s.open(store.world, store.pageSize)
	case "end":
		err = s.end(ctx, store.world)
	case "get":
		reply.Now, err = store.Get(ctx, call.Key, call.Consistency)
	case "claim":
		reply.Now, reply.Prev, err = store.Claim(ctx, call.Next)
	case "swap":
		reply.Now, err = store.Swap(ctx, call.Prev, call.Next)
	case "delete":
		err = store.Delete(ctx, call.Prev)
	case "list":
		reply.Page, err = store.List(ctx, call.Key, call.Cursor)
		reply.Unreadable = map[string]*apiError{}
		for key, err := range reply.Page.Unreadable {
			reply.Unreadable[key] = toAPI(err)
		}
		reply.Page.Unreadable = nil
	case "close":
		err = store.Close()
	default:
		err = errors.New("no such call: " + call.Op)
	}
	reply.Err = toAPI(err)
	return reply
}

// handle counts the call and returns the store that it names.
func (s *apiServer) handle(call apiCall) *apiStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[call.Op]++
	if call.Op == "hello" || call.Op == "world" {
		return nil
	}
	return s.stores[call.Store]
}

// begin makes a world.
func (s *apiServer) begin(ctx context.Context, pageSize int) (handle int, err error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	world, err := s.worlds.New(ctx)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.left[world] = true
	s.mu.Unlock()
	return s.open(world, pageSize)
}

func (s *apiServer) open(world string, pageSize int) (handle int, err error) {
	store, err := s.worlds.Open(world, pageSize)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stores = append(s.stores, &apiStore{store, world, pageSize})
	return len(s.stores) - 1, nil
}

func (s *apiServer) end(ctx context.Context, world string) error {
	err := s.worlds.End(ctx, world)
	if err == nil {
		s.mu.Lock()
		delete(s.left, world)
		s.mu.Unlock()
	}
	return err
}
