// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/tenurelock/tenure/driver"
)

// Create makes the store, or sees that there is one with the same options. It implements [driver.Provisioner].
//
// The life of the engine is open then: locks are granted at once. So if the server had the store before and has
// lost it, stop all programs first, and wait for the longest lease.
func (s *Store) Create(ctx context.Context, o driver.CreateOptions) (did string, err error) {
	if o.Print {
		return "", driver.Unsupported(errors.New("redis: no statement creates a store: it is created by a script, which " +
			"notes the server's present life"))
	}
	out, err := s.run(ctx, func(ctx context.Context) ([]rueidis.RedisMessage, error) {
		client, err := s.connected(ctx, true)
		if err != nil {
			return nil, err
		}
		args := s.arguments([]string{tokenText(driver.OpeningOf("", time.Now()).Base)})
		args[0] = rand.Text()
		return execute(ctx, client, &createLua, []string{s.key("life"), s.key("names")}, args)
	})
	if err != nil {
		return "", err
	}
	if word, _ := out[0].ToString(); word == "created" {
		return fmt.Sprintf("store %q was created", s.prefix), nil
	} else if word != "exists" {
		_, err := s.sorted(out)
		return "", err
	}
	is, _ := out[2].ToString()
	if is != s.is {
		return "", driver.Unfit(fmt.Errorf("store %q exists already with %q, not %q: to change it, stop all programs, wait for "+
			"the longest lease, delete the key %s, and create the store again", s.prefix, is, s.is, s.key("life")))
	}
	return fmt.Sprintf("store %q exists already", s.prefix), nil
}

// state is what there is of a store.
type state struct {
	Prefix   string `json:"prefix"`
	Settings string `json:"settings"`
	Life     string `json:"life"`
	Open     bool   `json:"open"`
	Base     string `json:"token_base"`
	Records  int64  `json:"records"`
	Server   string `json:"server"`
	Replicas int    `json:"replicas"`
	Eviction string `json:"maxmemory_policy"`
}

// inspect returns what there is of the store, and of its server. state is nil if there is no store.
func (s *Store) inspect(ctx context.Context) (*server, *state, error) {
	var server *server
	out, err := s.run(ctx, func(ctx context.Context) ([]rueidis.RedisMessage, error) {
		client, err := s.connected(ctx, false)
		if err != nil {
			return nil, err
		}
		if server, err = s.look(ctx, client); err != nil {
			return nil, err
		}
		return execute(ctx, client, &describeLua, []string{s.key("life"), s.key("names")}, s.arguments(nil))
	})
	if err != nil {
		return nil, nil, err
	}
	if word, _ := out[0].ToString(); word != "done" {
		return server, nil, nil // the server's findings say why
	}
	of, err := out[2].AsStrMap()
	if err != nil {
		return nil, nil, fmt.Errorf("redis: the store cannot be read: %w", err)
	}
	if len(of) == 0 {
		return server, nil, nil
	}
	is := &state{
		Prefix: s.prefix, Settings: of["is"], Base: of["base"], Server: server.name + " " + server.version,
		Replicas: server.replicas, Eviction: server.eviction,
	}
	is.Life, _ = out[1].ToString()
	is.Records, _ = out[3].AsInt64()
	is.Open = of["is"] == "single" || of["open"] == is.Life
	return server, is, nil
}

// Describe returns what the store and its server are like. It implements [driver.Provisioner].
func (s *Store) Describe(ctx context.Context, _ driver.Timing) (out driver.Description, err error) {
	server, is, err := s.inspect(ctx)
	if err != nil {
		return out, err
	}
	if is == nil {
		if err := server.refused(&s.settings); err != nil {
			return out, fmt.Errorf("redis: %w", err)
		}
		return out, fmt.Errorf("redis: there is no store %q: create it with tenure table create", s.prefix)
	}
	out.Object, out.Findings = is, s.findings(server, is)
	out.Add("store", is.Prefix, "store")
	out.Add("settings", is.Settings, "")
	out.Add("records", fmt.Sprint(is.Records), "")
	out.Add("life of the server", is.Life, "life")
	out.Add("least token", is.Base, "")
	out.Add("server", is.Server, "server")
	out.Add("replicas", fmt.Sprint(is.Replicas), "replicas")
	out.Add("maxmemory-policy", is.Eviction, "eviction")
	return out, nil
}

// The commands that the store needs.
const (
	rights   = "+eval +evalsha +info +hmget +hgetall +exists +zrangebylex +zcard +subscribe +unsubscribe +ping +hello"
	toWrite  = " +hset +hget +hincrby +zadd +zrem +del +publish +time"
	toBeSure = " +config|get"
)

// Policy returns the line that makes a user for the store. It implements [driver.Granter].
func (s *Store) Policy(_ context.Context, o driver.PolicyOptions) (text, note string, err error) {
	if o.Role == "" {
		return "", "", driver.Unsupported(errors.New("no user is named: write --role NAME, or USER@ in the URL"))
	}
	if strings.ContainsAny(o.Role, " \t\r\n\"'\\") {
		return "", "", driver.Unsupported(fmt.Errorf("user %.80q: Redis needs a name without spaces and quotes", o.Role))
	}
	all := rights
	if !o.ReadOnly { // without these commands no script writes, though it could reach the keys
		all += toWrite
	}
	if s.waits == 0 {
		all += toBeSure
	}
	return fmt.Sprintf("ACL SETUSER %s on >PASSWORD resetkeys resetchannels -@all ~%s &%s %s\n",
		o.Role, s.key("*"), s.key("*"), all), "replace PASSWORD; run it on each server, or put it into the ACL file", nil
}
