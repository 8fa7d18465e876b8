// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/etcdstore"
	"github.com/tenurelock/tenure/zkstore"
)

// etcd is also for etcds:, which asks for encryption, as ca= and cert= do.
func etcd(scheme string) *engine {
	usage := ""
	if scheme == "etcd" {
		usage = "etcd://HOST:2379/PREFIX"
	}
	e := cluster(scheme, usage,
		"write etcd://HOST:2379/PREFIX, or etcd://HOST:2379,HOST:2379,HOST:2379/PREFIX", "2379")
	e.check = func(p *place) error {
		if err := checkCluster(p); err != nil {
			return err
		}
		// It sends nothing: it says which prefix there cannot be.
		if _, err := etcdstore.New(clientv3.NewCtxClient(context.Background()), p.etcdOptions()); err != nil {
			return refused(err)
		}
		return nil
	}
	e.open = func(ctx context.Context, p *place, ask bool) (driver.Store, error) {
		config, options, err := p.etcdConfig()
		if err != nil {
			return nil, err
		}
		if !ask {
			return etcdstore.Connect(config, options)
		}
		if err := p.reachable(ctx, config.TLS); err != nil { // the client would try on and on
			return nil, err
		}
		store, err := etcdstore.Open(ctx, config, options)
		if err != nil {
			return nil, fmt.Errorf("etcd at %s: %w", strings.Join(p.addresses(), ","), err)
		}
		return store, nil
	}
	return e
}

func (p *place) etcdOptions() *etcdstore.Options {
	if p.path == "" {
		return &etcdstore.Options{}
	}
	return &etcdstore.Options{Prefix: p.path + "/"}
}

// etcdConfig returns what a client is made of, which takes no proxy from the environment. It
// reads the files that the URL names. Each connection reads those of encryption again.
func (p *place) etcdConfig() (config clientv3.Config, options *etcdstore.Options, err error) {
	options = p.etcdOptions()
	if file := p.values["password_file"]; file != "" {
		options.Password = func(context.Context) (string, error) { return passwordIn(file) }
	}
	config = clientv3.Config{
		Username: p.user, DialTimeout: openPatience, DialOptions: []grpc.DialOption{grpc.WithNoProxy()},
	}
	if config.Password, err = p.knownPassword(); err != nil {
		return config, options, err
	}
	if config.TLS, err = p.encryption(); err != nil {
		return config, options, err
	}
	scheme := "http://"
	if config.TLS != nil {
		scheme = "https://"
		config.DialOptions = append(config.DialOptions, grpc.WithTransportCredentials(
			handshakes{credentials.NewTLS(config.TLS), reread(config.TLS, p.encryption)}))
	}
	for _, address := range p.addresses() {
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

func zookeeper() *engine {
	e := cluster("zookeeper", "zookeeper://HOST:2181/ROOT",
		"write zookeeper://HOST:2181/ROOT, or zookeeper://HOST:2181,HOST:2181,HOST:2181/ROOT", "2181")
	e.parameters = append(e.parameters, parameter{name: "session", read: func(_ *place, value string) (string, error) {
		d, err := time.ParseDuration(value)
		switch {
		case err != nil:
			return "", fmt.Errorf("session=%.20s is no duration: write one such as 10s", shown(value))
		case d == 0:
			return "", nil
		}
		return d.String(), nil
	}})
	e.check = func(p *place) error {
		if err := checkCluster(p); err != nil {
			return err
		}
		// It is made without a password, and is closed again: it says which options there
		// cannot be.
		o := p.zooKeeperOptions()
		store, err := zkstore.New(p.addresses(), &o)
		if err != nil {
			return refused(err)
		}
		return store.Close()
	}
	e.open = func(ctx context.Context, p *place, ask bool) (driver.Store, error) {
		options, err := p.zooKeeperSecrets()
		if err != nil {
			return nil, err
		}
		if !ask {
			return zkstore.New(p.addresses(), &options)
		}
		if err := p.reachable(ctx, nil); err != nil { // the client would try on and on
			return nil, err
		}
		store, err := zkstore.Open(ctx, p.addresses(), &options)
		if err != nil {
			return nil, fmt.Errorf("zookeeper at %s: %w", strings.Join(p.addresses(), ","), err)
		}
		return store, nil
	}
	return e
}

func (p *place) zooKeeperOptions() zkstore.Options {
	session, _ := time.ParseDuration(p.values["session"]) // it was read, or is the default: 0
	o := zkstore.Options{Session: session, User: p.user}
	if p.path != "" {
		o.Root = "/" + p.path
	}
	return o
}

// zooKeeperSecrets are the options with the password and the encryption. It reads the files that
// the URL names. Each connection reads those of encryption again.
func (p *place) zooKeeperSecrets() (o zkstore.Options, err error) {
	o = p.zooKeeperOptions()
	if o.Password, err = p.knownPassword(); err != nil {
		return o, err
	}
	config, err := p.encryption()
	if err != nil || config == nil {
		return o, err
	}
	files := reread(config, p.encryption)
	o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
		config, unread := files()
		conn, err := dial(ctx, address, config)
		if err != nil && unread != nil {
			err = fmt.Errorf("%w; and %w", err, unread)
		}
		return conn, err
	}
	return o, nil
}
