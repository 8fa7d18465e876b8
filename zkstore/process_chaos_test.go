// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/zkstore/internal/wire"
)

// The processes of this test are the test binary itself, with these variables.
const (
	workerAddress = "ZKSTORE_TEST_ADDRESS"
	workerRoot    = "ZKSTORE_TEST_ROOT"
)

func TestMain(m *testing.M) {
	enginetest.Main(m, workerAddress, count)
}

// count adds to a counter under a lock, again and again. It reads and writes it in two
// steps, as a program does whose resource knows no transactions: two holders would write
// the same number.
func count(ctx context.Context, address string) error {
	root := os.Getenv(workerRoot)
	s, err := Open(ctx, []string{address}, &Options{Root: root})
	if err != nil {
		return err
	}
	client, err := tenure.New(s, &tenure.Options{LeaseDuration: 3 * time.Second})
	if err != nil {
		return err
	}
	for {
		err := client.Run(ctx, "counter", nil, func(ctx context.Context, lease *tenure.Lease) error {
			n, err := counterAt(ctx, s)
			if err != nil || lease.Check() != nil {
				return err
			}
			entry := fmt.Sprintf("%s/%d-%d-%d", counterPath(s), n+1, os.Getpid(), lease.Token())
			replies, err := s.client.Do(ctx, wire.Multi(
				wire.SetData(counterPath(s), []byte(strconv.Itoa(n+1)), wire.AnyVersion), wire.Create(entry, nil, s.acl),
			))
			if err != nil {
				return err
			}
			if code, err := replies[0].Failed(); err != nil || code != wire.OK {
				return errors.Join(err, code)
			}
			return nil
		})
		if err != nil && !errors.Is(err, tenure.ErrLost) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			return err
		}
	}
}

// counterPath is beside the records: a node with the number, which has a child for each
// write.
func counterPath(s *Store) string { return s.root + "-counter" }

func counterAt(ctx context.Context, s *Store) (int, error) {
	replies, err := s.ask(ctx, barrier(), wire.GetData(counterPath(s)))
	if err != nil {
		return 0, err
	}
	data, _, err := replies[1].Data()
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(data))
}

// counterLog returns the number, and the writes that made it. A number and its entry are
// written at once: each entry up to the number is there when it has been read, whatever is
// written meanwhile.
func counterLog(ctx context.Context, s *Store) (n int, log []enginetest.Counted, err error) {
	if n, err = counterAt(ctx, s); err != nil {
		return 0, nil, err
	}
	replies, err := s.ask(ctx, barrier(), wire.GetChildren(counterPath(s), false))
	if err != nil {
		return 0, nil, err
	}
	names, err := replies[1].Children()
	if err != nil {
		return 0, nil, err
	}
	for _, name := range names {
		e := enginetest.Counted{}
		if _, err := fmt.Sscanf(name, "%d-%d-%d", &e.N, &e.PID, &e.Token); err != nil {
			return 0, nil, err
		}
		if e.N <= n {
			log = append(log, e)
		}
	}
	slices.SortFunc(log, func(a, b enginetest.Counted) int { return cmp.Or(cmp.Compare(a.N, b.N), cmp.Compare(a.Token, b.Token)) })
	return n, log, nil
}

// TestProcessesKilled has twenty processes count, and kills one after the other.
func TestProcessesKilled(t *testing.T) {
	address := enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper")
	root := rootOf(t)
	s := mustOpen(t, root, address)
	if _, err := s.ask(t.Context(), wire.Alone(wire.Create(counterPath(s), []byte("0"), s.acl))); err != nil {
		t.Fatal(err)
	}
	enginetest.CountUnderKills(t, []string{workerAddress + "=" + address, workerRoot + "=" + root}, func(ctx context.Context) (int, []enginetest.Counted, error) {
		return counterLog(ctx, s)
	})
}
