// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"net/url"
	"os"

	etcdmodule "go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/embed"
)

// etcdVersion is that of the server, which is linked in.
var etcdVersion = etcdmodule.Version

// etcdServer is a real etcd of one member, in this process.
type etcdServer struct {
	etcd *embed.Etcd
	dir  string
}

func startEtcd(ctx context.Context) (*etcdServer, error) {
	dir, err := os.MkdirTemp("", "tenure-faults-etcd-")
	if err != nil {
		return nil, err
	}
	config := embed.NewConfig()
	config.Dir, config.LogLevel = dir, "panic"
	config.UnsafeNoFsync = true // the machine's disk is not what is looked at
	anywhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls = anywhere, anywhere
	config.ListenPeerUrls, config.AdvertisePeerUrls = anywhere, anywhere
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	s := &etcdServer{etcd, dir}
	select {
	case <-etcd.Server.ReadyNotify():
		return s, nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.close()
	return nil, fmt.Errorf("etcd: %w", err)
}

// address is that of the client's side, as host and port.
func (s *etcdServer) address() string { return s.etcd.Clients[0].Addr().String() }

func (s *etcdServer) close() {
	s.etcd.Close()
	_ = os.RemoveAll(s.dir) // it is the system's to clean, then
}
