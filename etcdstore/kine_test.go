// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenurelock/tenure/driver"
)

// kine answers a transaction as kine 0.17.5 does: it accepts only four shapes.
type kine struct{ pb.UnimplementedKVServer }

func (kine) Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error) {
	return nil, status.Error(codes.InvalidArgument, "etcdserver: unsupported operations in txn request")
}

// TestKine: a server that has a part of etcd's protocol is named when the store is opened.
func TestKine(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, kine{})
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	defer server.Stop()
	s, err := Open(t.Context(), clientv3.Config{Endpoints: []string{"http://" + listener.Addr().String()}}, nil)
	if s != nil || !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), "such as kine") {
		t.Errorf("%v, %v", s, err)
	}
}
