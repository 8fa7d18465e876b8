// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/redisstore"
)

// redis is also for rediss:, which asks for encryption, as ca= and cert= do. As usual, the path is the number of a
// database.
func redis(scheme string) *engine {
	usage := ""
	if scheme == "redis" {
		usage = "redis://HOST:6379"
	}
	e := cluster(scheme, usage, "write redis://USER@HOST:6379, or redis://HOST:26379,HOST:26379,HOST:26379?sentinel=NAME", "6379")
	servers := e.begin
	e.begin = func(p *place, authority, path string) error {
		if strings.HasPrefix(authority, ":") && strings.Contains(authority, "@") { // a password alone, as is usual
			authority = "default" + authority
		}
		if err := servers(p, authority, path); err != nil {
			return err
		}
		if n, err := strconv.ParseUint(p.path, 10, 31); p.path != "" && (err != nil || strconv.FormatUint(n, 10) != p.path) {
			return errors.New("the path is not the number of a database: leave it out, and name the store with prefix=")
		}
		if p.path == "0" {
			p.path = ""
		}
		return nil
	}
	e.parameters = append(e.parameters,
		parameter{name: "prefix", preset: redisstore.DefaultPrefix},
		parameter{name: "sentinel"},
		toggle("cluster", "true"),
		period("lease", redisstore.DefaultLease),
		parameter{name: "replicas", preset: "0", read: func(_ *place, value string) (string, error) {
			n, err := strconv.ParseUint(value, 10, 16)
			if err != nil {
				return "", errors.New("replicas= is not a number of servers")
			}
			return strconv.FormatUint(n, 10), nil
		}},
		toggle("quorum", "true"),
		period("lag", redisstore.DefaultLag),
		parameter{name: "mode", preset: "guard", read: func(_ *place, value string) (string, error) {
			if value != "guard" && value != "single" {
				return "", errors.New("mode= is neither guard nor single")
			}
			return value, nil
		}},
	)
	e.check = func(p *place) error {
		switch {
		case p.is("sentinel") && p.is("cluster"):
			return errors.New("a cluster has no Sentinels: leave out sentinel= or cluster=")
		case len(p.hosts) > 1 && !p.is("sentinel") && !p.is("cluster"):
			return errors.New("there are several hosts: write sentinel=NAME if they are Sentinels, whose primary has that name, " +
				"or cluster=true if they are nodes of a cluster")
		case p.is("cluster") && p.path != "":
			return errors.New("a cluster has one database: leave out its number")
		}
		return checkCluster(p)
	}
	e.unasked = func(p *place) (driver.Store, error) { // without a password
		return redisstore.Connect(rueidis.ClientOption{InitAddress: p.addresses()}, p.redisOptions())
	}
	e.open = func(ctx context.Context, p *place, ask bool) (driver.Store, error) {
		option, err := p.redisClient()
		if err != nil {
			return nil, err
		}
		if !ask {
			return redisstore.Connect(option, p.redisOptions())
		}
		store, err := redisstore.Open(ctx, option, p.redisOptions())
		if err != nil {
			return nil, fmt.Errorf("redis at %s: %w", strings.Join(p.addresses(), ","), err)
		}
		return store, nil
	}
	return e
}

// IsRedis reports whether a scheme is one of Redis.
func IsRedis(scheme string) bool { return scheme == "redis" || scheme == "rediss" }

// period is a parameter that is a duration.
func period(name string, preset time.Duration) parameter {
	return parameter{name: name, preset: preset.String(), read: func(_ *place, value string) (string, error) {
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return "", fmt.Errorf("%s=%.20s is not a duration: write one such as %v", name, shown(value), preset)
		}
		return d.String(), nil
	}}
}

func (p *place) redisOptions() *redisstore.Options {
	lease, _ := time.ParseDuration(p.values["lease"]) // they were read, or are the default: 0
	lag, _ := time.ParseDuration(p.values["lag"])
	replicas, _ := strconv.Atoi(p.values["replicas"])
	return &redisstore.Options{
		Prefix: p.values["prefix"], Lease: lease, Replicas: replicas, Quorum: p.is("quorum"), Lag: lag,
		Single: p.values["mode"] == "single",
	}
}

// sentinel says whether an address is that of a Sentinel, to which the password does not belong: all have the
// ports that the URL names.
func (p *place) sentinel(at net.Addr) bool {
	if !p.is("sentinel") || at == nil {
		return false
	}
	_, port, _ := net.SplitHostPort(at.String())
	return slices.ContainsFunc(p.hosts, func(h server) bool { return h.port == port })
}

// redisClient returns how a client connects. Each connection reads the files that the URL names again.
func (p *place) redisClient() (o rueidis.ClientOption, err error) {
	config, err := p.encryption()
	if err != nil {
		return o, err
	}
	database, _ := strconv.Atoi(p.path)
	o = rueidis.ClientOption{
		InitAddress: p.addresses(), SelectDB: database, ForceSingleClient: !p.is("cluster"), TLSConfig: config,
	}
	first, err := p.knownPassword()
	if err != nil {
		return o, err
	}
	if p.user != "" {
		password := reread(first, func() (string, error) {
			now, err := p.knownPassword()
			if now == "" && first != "" && err == nil {
				err = errors.New("the password is empty")
			}
			return now, err
		})
		o.AuthCredentialsFn = func(c rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			if p.sentinel(c.Address) {
				return rueidis.AuthCredentials{}, nil
			}
			now, _ := password()
			return rueidis.AuthCredentials{Username: p.user, Password: now}, nil
		}
	}
	if p.is("sentinel") {
		o.Sentinel = rueidis.SentinelOption{MasterSet: p.values["sentinel"], TLSConfig: config}
	}
	if config != nil {
		files := reread(config, p.encryption)
		o.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialer.Timeout)
			defer cancel()
			config, unread := files()
			conn, err := dial(ctx, address, config)
			if err != nil && unread != nil {
				err = fmt.Errorf("%w; and %w", err, unread)
			}
			return conn, err
		}
	}
	return o, nil
}
