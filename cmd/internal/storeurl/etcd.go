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

// Etcd is what the URL of a store in etcd says: etcd: and a [Cluster], whose path is the
// prefix. etcds: asks for encryption, and so does ca= or cert=.
type Etcd struct {
	Cluster
	Secure  bool
	Options etcdstore.Options
}

func parseEtcd(rest string) (Location, error)  { return etcdAt(rest, "etcd") }
func parseEtcds(rest string) (Location, error) { return etcdAt(rest, "etcds") }

func etcdAt(rest, scheme string) (Location, error) {
	e, err := readEtcd(rest)
	if err != nil {
		return Location{}, err
	}
	e.Secure = scheme == "etcds"
	return Location{
		url: e.text(scheme, e.Options.Prefix, e.password), shown: func() string { return e.text(scheme, e.Options.Prefix, "") },
		engine: e, open: e.open,
	}, nil
}

// open opens the store, once a host is there: the client would try on and on.
func (e Etcd) open() (driver.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openPatience)
	defer cancel()
	config, options, err := e.settings()
	if err != nil {
		return nil, err
	}
	if err := dialed(ctx, e.Hosts, config.TLS); err != nil {
		return nil, err
	}
	store, err := etcdstore.Open(ctx, config, options)
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(e.Hosts, ","), err)
	}
	return store, nil
}

func (e Etcd) connect(context.Context) (driver.Store, error) {
	config, options, err := e.settings()
	if err != nil {
		return nil, err
	}
	return etcdstore.Connect(config, options)
}

func (e Etcd) settings() (clientv3.Config, *etcdstore.Options, error) {
	options := e.Options
	if e.PasswordFile != "" {
		options.Password = func(context.Context) (string, error) { return passwordIn(e.PasswordFile) }
	}
	config, err := e.Config()
	return config, &options, err
}

func readEtcd(rest string) (e Etcd, err error) {
	const write = "write etcd://HOST:2379/PREFIX, or etcd://HOST:2379,HOST:2379,HOST:2379/PREFIX"
	if e.Cluster, e.Options.Prefix, _, err = readCluster(rest, write, "2379"); err != nil {
		return e, err
	}
	if prefix := e.Options.Prefix; prefix != "" && !strings.HasSuffix(prefix, "/") {
		e.Options.Prefix += "/"
	}
	if _, err := etcdstore.New(clientv3.NewCtxClient(context.Background()), &e.Options); err != nil {
		return e, errors.New(strings.TrimPrefix(err.Error(), "etcdstore: "))
	}
	return e, nil
}

// Config returns what a client is made of, which takes no proxy from the environment. It reads
// the files that the URL names. Each connection reads those of encryption again.
func (e Etcd) Config() (config clientv3.Config, err error) {
	config = clientv3.Config{Username: e.User, DialTimeout: openPatience, DialOptions: []grpc.DialOption{grpc.WithNoProxy()}}
	if config.Password, err = e.Password(); err != nil {
		return config, err
	}
	if config.TLS, err = e.Encryption(e.Secure); err != nil {
		return config, err
	}
	scheme := "http://"
	if config.TLS != nil {
		scheme = "https://"
		files := reread(config.TLS, func() (*tls.Config, error) { return e.Encryption(e.Secure) })
		config.DialOptions = append(config.DialOptions, grpc.WithTransportCredentials(handshakes{credentials.NewTLS(config.TLS), files}))
	}
	for _, host := range e.Hosts {
		config.Endpoints = append(config.Endpoints, scheme+zoneEscaped(host))
	}
	return config, nil
}

// handshakes are the credentials of a client of etcd that reads the files of encryption for
// each connection.
type handshakes struct {
	credentials.TransportCredentials
	files func() (*tls.Config, error)
}

func (h handshakes) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, unread := h.files()
	conn, info, err := credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
	if err != nil && unread != nil {
		err = fmt.Errorf("%w; and %w", err, unread)
	}
	return conn, info, err
}

func (h handshakes) Clone() credentials.TransportCredentials { return h }
