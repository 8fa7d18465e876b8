// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenurelock/tenure/driver"
)

// failed returns the error of a request, marked for what is certain about it.
func (s *Store) failed(err error) error {
	if s.life.Ended() {
		return fmt.Errorf("%w (%w)", driver.ErrClosed, err)
	}
	return fmt.Errorf("etcd: %w", sorted(err))
}

// What etcd refuses before it does anything. The text behind is what to do.
var refusals = []struct {
	err  error
	mark func(error) error
	do   string
}{
	{rpctypes.ErrNoSpace, nil, "the quota is full: compact and defragment the cluster, then run etcdctl alarm disarm; see --auto-compaction-retention"},
	{rpctypes.ErrCorrupt, driver.Permanent, "a member has found its data corrupt: see etcdctl alarm list"},
	{rpctypes.ErrRequestTooLarge, nil, "raise --max-request-bytes of etcd, which is 1.5 MiB by default"},
	{rpctypes.ErrTooManyOps, driver.Permanent, "raise --max-txn-ops of etcd to 128, which is the default"},
	{rpctypes.ErrTooManyRequests, driver.Throttled, "etcd has too much to do"},
	{rpctypes.ErrPermissionDenied, driver.Permanent, "grant the user's role readwrite on the prefix: etcdctl role grant-permission ROLE readwrite --prefix=true PREFIX"},
	{rpctypes.ErrUserEmpty, driver.Permanent, "etcd wants a user: name one, and its password"},
	{rpctypes.ErrAuthFailed, driver.Permanent, "the user or its password is wrong"},
	{rpctypes.ErrAuthNotEnabled, driver.Permanent, "etcd asks for no user: leave user and password out"},
	{rpctypes.ErrInvalidAuthToken, nil, "try again"},
	{rpctypes.ErrAuthOldRevision, nil, "try again"},
	{rpctypes.ErrGRPCNotSupportedForLearner, nil, "this member is a learner: name the others as endpoints"},
}

// sorted marks an error of the client. What is not known to be a refusal may have been
// carried out.
func sorted(err error) error {
	for _, r := range refusals {
		if is(err, r.err) {
			err = fmt.Errorf("%s: %w", r.do, err)
			if r.mark != nil {
				err = r.mark(err)
			}
			return driver.NotApplied(err)
		}
	}
	text := err.Error()
	switch {
	case (status.Code(err) == codes.Canceled || errors.Is(err, context.Canceled)) && strings.Contains(text, "closing"):
		return fmt.Errorf("%w (%w)", driver.ErrClosed, err)
	case strings.Contains(text, "Error while dialing"), strings.Contains(text, "authentication handshake failed"):
		// The client had no connection, and so it has sent nothing.
		return driver.NotApplied(err)
	}
	return err
}

// is reports whether err is one of etcd's, which come as such, or as those of gRPC.
func is(err, target error) bool {
	if errors.Is(err, target) {
		return true
	}
	code, want := status.Convert(err), rpctypes.ErrorDesc(target)
	return code.Code() != codes.Unknown && code.Message() != "" && code.Message() == want
}
