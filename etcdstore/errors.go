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

// failed returns the error of a request, marked with what is certain.
func (s *Store) failed(err error) error {
	if s.life.Ended() {
		return fmt.Errorf("%w (%w)", driver.ErrClosed, err)
	}
	return fmt.Errorf("etcd: %w", s.heard.behind(sorted(err)))
}

// heard remembers why the attempts of a client fail. The client tries requests again until
// their contexts end, and then reports only that.
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

// behind returns the known cause of a timeout: the last error since the last answer.
// Otherwise it returns err.
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

// knownError is the end of a context, with the known cause of the missing answer.
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

// sorted marks an error of the client. A request may have been carried out unless the
// error is a known refusal.
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

// is reports whether err is an error of etcd, which may come as an error of gRPC.
func is(err, target error) bool {
	if errors.Is(err, target) {
		return true
	}
	code, want := status.Convert(err), rpctypes.ErrorDesc(target)
	return code.Code() != codes.Unknown && code.Message() != "" && code.Message() == want
}
