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
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/zkstore"
)

// zookeeper is a cluster, whose path is the root. ca= or cert= asks for encryption.
type zookeeper struct {
	cluster
	session time.Duration // 0: the default
}

func (z *zookeeper) sessionParameter() parameter {
	text := ""
	if z.session != 0 {
		text = z.session.String()
	}
	return parameter{"session", text, func(value string) (err error) {
		if z.session, err = time.ParseDuration(value); err != nil {
			return fmt.Errorf("session=%.20s is no duration: write one such as 10s", shown(value))
		}
		return nil
	}}
}

func readZooKeeper(rest string) (engine, error) {
	const write = "write zookeeper://HOST:2181/ROOT, or zookeeper://HOST:2181,HOST:2181,HOST:2181/ROOT"
	var z zookeeper
	if err := z.read(rest, write, "2181", z.sessionParameter()); err != nil {
		return nil, err
	}
	// It is made without a password, and is closed again: it says which options there
	// cannot be.
	o := z.plain()
	store, err := zkstore.New(z.addresses(), &o)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "zkstore: "))
	}
	return z, store.Close()
}

func (z zookeeper) text(secrets bool) string {
	return z.url("zookeeper", secrets, z.sessionParameter())
}

// open opens the store, once a host is there: the client would try on and on.
func (z zookeeper) open(ctx context.Context, _ *found) (driver.Store, error) {
	options, err := z.options()
	if err != nil {
		return nil, err
	}
	if err := z.reachable(ctx, nil); err != nil {
		return nil, err
	}
	store, err := zkstore.Open(ctx, z.addresses(), &options)
	if err != nil {
		return nil, fmt.Errorf("zookeeper at %s: %w", strings.Join(z.addresses(), ","), err)
	}
	return store, nil
}

func (z zookeeper) connect(context.Context, *found) (driver.Store, error) {
	options, err := z.options()
	if err != nil {
		return nil, err
	}
	return zkstore.New(z.addresses(), &options)
}

// plain are the options of the store but for its password and its encryption.
func (z zookeeper) plain() zkstore.Options {
	o := zkstore.Options{Session: z.session, User: z.user}
	if z.path != "" {
		o.Root = "/" + z.path
	}
	return o
}

// options reads the files that the URL names. Each connection reads those of encryption again.
func (z zookeeper) options() (o zkstore.Options, err error) {
	o = z.plain()
	if o.Password, err = z.knownPassword(); err != nil {
		return o, err
	}
	config, err := z.encryption(false)
	if err != nil || config == nil {
		return o, err
	}
	files := reread(config, func() (*tls.Config, error) { return z.encryption(false) })
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
