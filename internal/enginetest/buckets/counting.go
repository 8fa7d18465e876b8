// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package buckets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// Counted is the name of the log of what processes have counted: one object, which is written
// without a condition.
const Counted = "counted"

// Count adds to the log under a lock, again and again, until it is killed: a process of
// [CountUnderKills]. It reads and writes the log in two steps: two holders would write the
// same line. Write sends one request, and its error is passed over: the next holder sees what
// became of it.
func Count(ctx context.Context, s driver.Store, o objectmap.Objects, write func(ctx context.Context, text []byte)) error {
	client, err := tenure.New(s, &tenure.Options{LeaseDuration: 3 * time.Second})
	if err != nil {
		return err
	}
	for {
		err := client.Run(ctx, "counter", nil, func(ctx context.Context, lease *tenure.Lease) error {
			text, err := log(ctx, o)
			if err != nil || lease.Check() != nil {
				return nil //nolint:nilerr // the server may be down: the next holder goes on
			}
			text += fmt.Sprintf("%d %d %d\n", strings.Count(text, "\n")+1, os.Getpid(), lease.Token())
			write(ctx, []byte(text))
			return nil
		})
		if errors.Is(err, driver.ErrPermanent) {
			return err
		}
	}
}

// CountUnderKills is [enginetest.CountUnderKills] for processes that [Count]. The server of o
// may be down for a while.
func CountUnderKills(t *testing.T, env []string, o objectmap.Objects) {
	t.Helper()
	enginetest.CountUnderKills(t, env, func(ctx context.Context) (int, []enginetest.Counted, error) {
		var text string
		var err error
		for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
			if text, err = log(ctx, o); err == nil {
				break
			}
		}
		if err != nil {
			return 0, nil, err
		}
		all, err := enginetest.ReadCounted(text)
		return len(all), all, err
	})
}

// patience is how long a server may take to come back.
const patience = time.Minute

func log(ctx context.Context, o objectmap.Objects) (string, error) {
	text, _, err := o.Get(ctx, Counted)
	if errors.Is(err, driver.ErrNotFound) {
		return "", nil
	}
	return string(text), err
}
