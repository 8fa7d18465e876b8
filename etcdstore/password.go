// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

// authenticate returns an interceptor of each attempt to get a token; the client alone would
// use its first password for ever. It sends the password that etcd accepted last. If etcd
// refuses it, it sends the current one. So a password may change first in etcd, or first where
// the program reads it.
func authenticate(first string, password func(context.Context) (string, error)) grpc.UnaryClientInterceptor {
	var last atomic.Pointer[string]
	last.Store(&first)
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		asked, ok := req.(*etcdserverpb.AuthenticateRequest)
		if !ok {
			return invoke(ctx, method, req, reply, conn, opts...)
		}
		with := func(password string) error {
			return invoke(ctx, method, &etcdserverpb.AuthenticateRequest{Name: asked.Name, Password: password}, reply, conn, opts...)
		}
		used := *last.Load()
		refused := with(used)
		if !is(refused, rpctypes.ErrAuthFailed) {
			return refused
		}
		now, err := password(ctx)
		if err != nil || now == used {
			return refused
		}
		if err := with(now); err != nil {
			return err
		}
		last.Store(&now)
		return nil
	}
}
