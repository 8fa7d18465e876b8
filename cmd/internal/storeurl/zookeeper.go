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

// ZooKeeper is what the URL of a store in ZooKeeper says: zookeeper: and a [Cluster],
// whose path is the root. ca= or cert= asks for encryption.
type ZooKeeper struct {
	Cluster
	Root    string
	Session time.Duration // 0: the default
}

func parseZooKeeper(rest string) (Location, error) {
	const write = "write zookeeper://HOST:2181/ROOT, or zookeeper://HOST:2181,HOST:2181,HOST:2181/ROOT"
	cluster, path, values, err := readCluster(rest, write, "2181", "session")
	if err != nil {
		return Location{}, err
	}
	z := ZooKeeper{Cluster: cluster}
	if path = strings.TrimSuffix(path, "/"); path != "" {
		z.Root = "/" + path
	}
	var more []string
	if text := values.Get("session"); text != "" {
		if z.Session, err = time.ParseDuration(text); err != nil {
			return Location{}, fmt.Errorf("session=%.20s is no duration: write one such as 10s", shown(text))
		}
		more = append(more, "session="+z.Session.String())
	}
	// It is made without a password, and is closed again: it says which options there
	// cannot be.
	store, err := zkstore.New(z.Hosts, &zkstore.Options{Root: z.Root, Session: z.Session, User: z.User})
	if err != nil {
		return Location{}, errors.New(strings.TrimPrefix(err.Error(), "zkstore: "))
	}
	if err := store.Close(); err != nil {
		return Location{}, err
	}
	return Location{
		url: z.text("zookeeper", path, z.password, more...), shown: func() string { return z.text("zookeeper", path, "", more...) },
		engine: z, open: z.open,
	}, nil
}

// open opens the store, once a host is there: the client would try on and on.
func (z ZooKeeper) open() (driver.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openPatience)
	defer cancel()
	options, err := z.Options()
	if err != nil {
		return nil, err
	}
	if err := dialed(ctx, z.Hosts, nil); err != nil {
		return nil, err
	}
	store, err := zkstore.Open(ctx, z.Hosts, &options)
	if err != nil {
		return nil, fmt.Errorf("zookeeper at %s: %w", strings.Join(z.Hosts, ","), err)
	}
	return store, nil
}

func (z ZooKeeper) connect(context.Context) (driver.Store, error) {
	options, err := z.Options()
	if err != nil {
		return nil, err
	}
	return zkstore.New(z.Hosts, &options)
}

// Options returns those of the store. It reads the files that the URL names, and each
// connection reads those of encryption again.
func (z ZooKeeper) Options() (o zkstore.Options, err error) {
	o = zkstore.Options{Root: z.Root, Session: z.Session, User: z.User}
	if o.Password, err = z.Password(); err != nil {
		return o, err
	}
	config, err := z.Encryption(false)
	if err != nil || config == nil {
		return o, err
	}
	files := reread(config, func() (*tls.Config, error) { return z.Encryption(false) })
	o.Dial = func(ctx context.Context, host string) (net.Conn, error) {
		config, unread := files()
		conn, err := dial(ctx, host, config)
		if err != nil && unread != nil {
			err = fmt.Errorf("%w; and %w", err, unread)
		}
		return conn, err
	}
	return o, nil
}
