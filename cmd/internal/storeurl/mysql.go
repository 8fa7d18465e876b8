// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/mysqlstore"
)

// mysql is also for mariadb:, which is the same. The path is the database.
func mysql(scheme string) *engine {
	usage := ""
	if scheme == "mysql" {
		usage = "mysql://USER@HOST/DATABASE"
	}
	e := cluster(scheme, usage, "write mysql://USER@HOST:3306/DATABASE", "3306")
	e.parameters = append(e.parameters,
		toggle("tls", "true"),
		parameter{name: "table", preset: mysqlstore.DefaultTable},
		parameter{name: "promotion", preset: "any", read: func(_ *place, value string) (string, error) {
			if value != "any" && value != "never" {
				return "", errors.New("promotion= is neither any nor never")
			}
			return value, nil
		}},
		parameter{name: "max_conns", preset: strconv.Itoa(mysqlstore.DefaultMaxConns), read: func(_ *place, value string) (string, error) {
			n, err := strconv.ParseUint(value, 10, 16)
			if err != nil || n == 0 {
				return "", errors.New("max_conns= is not a number of connections, from 1 on")
			}
			return strconv.FormatUint(n, 10), nil
		}},
	)
	e.check = func(p *place) error {
		switch {
		case len(p.hosts) > 1:
			return errors.New("there are several hosts: name the primary, by a name or an address that moves with it")
		case p.path == "":
			return errors.New("the path, the database, is empty: write mysql://USER@HOST/DATABASE")
		case strings.Contains(p.path, "/"):
			return errors.New("the path is not the name of a database: write mysql://USER@HOST/DATABASE")
		}
		return checkCluster(p)
	}
	e.unasked = func(p *place) (driver.Store, error) { // without a password
		return mysqlstore.Connect(p.mysqlServer(nil), p.mysqlOptions())
	}
	e.open = func(ctx context.Context, p *place, ask bool) (driver.Store, error) {
		config, err := p.mysqlConfig()
		if err != nil {
			return nil, err
		}
		if !ask {
			return mysqlstore.Connect(config, p.mysqlOptions())
		}
		store, err := mysqlstore.Open(ctx, config, p.mysqlOptions())
		if err != nil {
			return nil, fmt.Errorf("mysql at %s: %w", p.addresses()[0], err)
		}
		return store, nil
	}
	return e
}

// IsMySQL reports whether a scheme is one of MySQL and MariaDB.
func IsMySQL(scheme string) bool { return scheme == "mysql" || scheme == "mariadb" }

func (p *place) mysqlOptions() *mysqlstore.Options {
	n, _ := strconv.Atoi(p.values["max_conns"]) // it was read, or is the default: 0
	return &mysqlstore.Options{Table: p.values["table"], NoPromotion: p.values["promotion"] == "never", MaxConns: n}
}

// mysqlServer is the config without a password.
func (p *place) mysqlServer(encryption *tls.Config) *mysqldriver.Config {
	c := mysqldriver.NewConfig()
	c.Net, c.Addr, c.User, c.DBName, c.TLS = "tcp", p.addresses()[0], p.user, p.path, encryption
	return c
}

// mysqlConfig returns how a client connects. Each connection reads the files that the URL names again.
func (p *place) mysqlConfig() (*mysqldriver.Config, error) {
	encryption, err := p.encryption()
	if err != nil {
		return nil, err
	}
	first, err := p.knownPassword()
	if err != nil {
		return nil, err
	}
	password := reread(first, func() (string, error) {
		now, err := p.knownPassword()
		if now == "" && first != "" && err == nil {
			err = errors.New("the password is empty")
		}
		return now, err
	})
	files := reread(encryption, p.encryption)
	c := p.mysqlServer(encryption)
	c.Passwd = first
	return c, c.Apply(mysqldriver.BeforeConnect(func(_ context.Context, c *mysqldriver.Config) error {
		c.Passwd, _ = password()
		if now, _ := files(); now != nil {
			c.TLS = now.Clone()
			c.TLS.ServerName = p.hosts[0].name
		}
		return nil
	}))
}
