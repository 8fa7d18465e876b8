// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/etcdstore"
)

// etcd is a cluster, whose path is the prefix. etcds: asks for encryption, and so does ca= or
// cert=.
type etcd struct {
	cluster
	secure bool
}

func (e etcd) options() *etcdstore.Options {
	if e.path == "" {
		return &etcdstore.Options{}
	}
	return &etcdstore.Options{Prefix: e.path + "/"}
}

func readEtcd(secure bool) func(string) (engine, error) {
	return func(rest string) (engine, error) {
		const write = "write etcd://HOST:2379/PREFIX, or etcd://HOST:2379,HOST:2379,HOST:2379/PREFIX"
		e := etcd{secure: secure}
		if err := e.read(rest, write, "2379"); err != nil {
			return nil, err
		}
		// It sends nothing: it says which prefix there cannot be.
		if _, err := etcdstore.New(clientv3.NewCtxClient(context.Background()), e.options()); err != nil {
			return nil, errors.New(strings.TrimPrefix(err.Error(), "etcdstore: "))
		}
		return e, nil
	}
}

func (e etcd) text(secrets bool) string {
	if e.secure {
		return e.url("etcds", secrets)
	}
	return e.url("etcd", secrets)
}

// open opens the store, once a host is there: the client would try on and on.
func (e etcd) open(ctx context.Context, _ *found) (driver.Store, error) {
	config, options, err := e.config()
	if err != nil {
		return nil, err
	}
	if err := e.reachable(ctx, config.TLS); err != nil {
		return nil, err
	}
	store, err := etcdstore.Open(ctx, config, options)
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(e.addresses(), ","), err)
	}
	return store, nil
}

func (e etcd) connect(context.Context, *found) (driver.Store, error) {
	config, options, err := e.config()
	if err != nil {
		return nil, err
	}
	return etcdstore.Connect(config, options)
}

// config returns what a client is made of, which takes no proxy from the environment. It reads
// the files that the URL names. Each connection reads those of encryption again.
func (e etcd) config() (config clientv3.Config, options *etcdstore.Options, err error) {
	options = e.options()
	if e.passwordFile != "" {
		options.Password = func(context.Context) (string, error) { return passwordIn(e.passwordFile) }
	}
	config = clientv3.Config{
		Username: e.user, DialTimeout: openPatience, DialOptions: []grpc.DialOption{grpc.WithNoProxy()},
	}
	if config.Password, err = e.knownPassword(); err != nil {
		return config, options, err
	}
	if config.TLS, err = e.encryption(e.secure); err != nil {
		return config, options, err
	}
	scheme := "http://"
	if config.TLS != nil {
		scheme = "https://"
		files := reread(config.TLS, func() (*tls.Config, error) { return e.encryption(e.secure) })
		config.DialOptions = append(config.DialOptions,
			grpc.WithTransportCredentials(handshakes{credentials.NewTLS(config.TLS), files}))
	}
	for _, address := range e.addresses() {
		config.Endpoints = append(config.Endpoints, scheme+zoneEscaped(address))
	}
	return config, options, nil
}

// handshakes are the credentials of a client of etcd that reads the files of encryption for
// each connection.
type handshakes struct {
	credentials.TransportCredentials
	files func() (*tls.Config, error)
}

func (h handshakes) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	config, unread := h.files()
	conn, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
	if err != nil && unread != nil {
		err = fmt.Errorf("%w; and %w", err, unread)
	}
	return conn, info, err
}

func (h handshakes) Clone() credentials.TransportCredentials { return h }
