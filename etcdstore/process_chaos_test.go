// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// The processes of this test are the test binary itself, with these variables.
const (
	workerAddress = "ETCDSTORE_TEST_ADDRESS"
	workerPrefix  = "ETCDSTORE_TEST_PREFIX"
)

func TestMain(m *testing.M) {
	enginetest.Main(m, workerAddress, count)
}

// count adds to a counter under a lock, again and again. It reads and writes it in two
// steps, as a program does whose resource knows no transactions: two holders would write
// the same number.
func count(ctx context.Context, address string) error {
	prefix := os.Getenv(workerPrefix)
	s, err := Open(ctx, clientv3.Config{Endpoints: []string{address}}, &Options{Prefix: prefix})
	if err != nil {
		return err
	}
	client, err := tenure.New(s, &tenure.Options{LeaseDuration: 3 * time.Second})
	if err != nil {
		return err
	}
	for {
		err := client.Run(ctx, "counter", nil, func(ctx context.Context, lease *tenure.Lease) error {
			n, _, err := counterAt(ctx, s, prefix)
			if err != nil || lease.Check() != nil {
				return err
			}
			entry := fmt.Sprintf("%slog/%06d/%d", prefix, n+1, os.Getpid())
			_, err = s.client.Txn(ctx).Then(
				clientv3.OpPut(prefix+"counter", strconv.Itoa(n+1)), clientv3.OpPut(entry, fmt.Sprint(lease.Token())),
			).Commit()
			return err
		})
		if err != nil && !errors.Is(err, tenure.ErrLost) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			return err
		}
	}
}

func counterAt(ctx context.Context, s *Store, prefix string) (n int, log []enginetest.Counted, err error) {
	out, err := s.client.Txn(ctx).Then(
		clientv3.OpGet(prefix+"counter"), clientv3.OpGet(prefix+"log/", clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return 0, nil, err
	}
	if kvs := out.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		if n, err = strconv.Atoi(string(kvs[0].Value)); err != nil {
			return 0, nil, err
		}
	}
	for _, kv := range out.Responses[1].GetResponseRange().Kvs {
		e := enginetest.Counted{}
		if _, err := fmt.Sscanf(string(kv.Key[len(prefix):]), "log/%d/%d", &e.N, &e.PID); err != nil {
			return 0, nil, err
		}
		if e.Token, err = strconv.ParseUint(string(kv.Value), 10, 64); err != nil {
			return 0, nil, err
		}
		log = append(log, e)
	}
	return n, log, nil
}

// TestProcessesKilled has twenty processes count, and kills one after the other.
func TestProcessesKilled(t *testing.T) {
	address := enginetest.Shared(t, enginetest.Etcd, "etcd")
	prefix := prefixOf(t)
	s := mustOpen(t, prefix, address)
	enginetest.CountUnderKills(t, []string{workerAddress + "=" + address, workerPrefix + "=" + prefix}, func(ctx context.Context) (int, []enginetest.Counted, error) {
		return counterAt(ctx, s, prefix)
	})
}
