// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenurelock/tenure/driver"
)

// failed returns the error of a request, marked for what is certain about it.
func (s *Store) failed(err error) error {
	if s.life.Ended() {
		return fmt.Errorf("%w (%w)", driver.ErrClosed, err)
	}
	return fmt.Errorf("etcd: %w", s.heard.behind(sorted(err)))
}

// heard remembers why the attempts of a client fail. Its requests are tried again until their
// contexts end, and then tell no more than that.
type heard struct{ last atomic.Pointer[error] }

// note is an interceptor of each attempt, those to authenticate included.
func (h *heard) note(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	switch {
	case err == nil:
		h.last.Store(nil)
	case ctx.Err() == nil || strings.Contains(err.Error(), "last connection error"):
		h.last.Store(&err)
	}
	return err
}

// behind returns what is known of the cause of a request that ran out of time: the last error
// since there was an answer. Else it returns err.
func (h *heard) behind(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && status.Code(err) != codes.DeadlineExceeded {
		return err
	}
	last := h.last.Load()
	if last == nil {
		return err
	}
	text := strings.ReplaceAll(sorted(*last).Error(), status.Convert(*last).String(), status.Convert(*last).Message())
	return &knownError{strings.TrimPrefix(text, "last connection error: "), err}
}

// knownError is the end of a context, and what is known of why no answer came before it.
type knownError struct {
	text string
	err  error
}

func (e *knownError) Error() string { return e.text }
func (e *knownError) Unwrap() error { return e.err }

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
	{rpctypes.ErrTooManyRequests, driver.Throttled, "etcd is overloaded"},
	{rpctypes.ErrPermissionDenied, driver.Permanent, "grant the user's role readwrite on the prefix: etcdctl role grant-permission ROLE readwrite --prefix=true PREFIX"},
	{rpctypes.ErrUserEmpty, driver.Permanent, "etcd requires a user: name one, and its password"},
	{rpctypes.ErrAuthFailed, driver.Permanent, "the user or its password is wrong"},
	{rpctypes.ErrAuthNotEnabled, driver.Permanent, "authentication is disabled in etcd: leave out user and password"},
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
	case strings.Contains(text, "unsupported operations in txn request"):
		return driver.NotApplied(driver.Permanent(fmt.Errorf("this is not etcd, but a server such as kine (of k3s), which implements a part of its protocol: use the store for the database behind it, or for its Kubernetes API: %w", err)))
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
