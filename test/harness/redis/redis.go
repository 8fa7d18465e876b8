// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package redis runs servers of Redis that lose what they have answered: in a failover to a replica
// that lags, in a power cut, with their data. What it does is for [must.Try].
package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
	"github.com/tenurelock/tenure/internal/enginetest/relay"
	"github.com/tenurelock/tenure/test/harness/must"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
)

// Setup is how servers are set up.
type Setup struct {
	Dir      string // of their data; they have it for themselves
	Replicas int    // besides the primary, all in memory
	// Fsync keeps a log of writes on the disk, with this appendfsync. It is for a server without replicas.
	Fsync string
}

// Servers are a primary and its replicas. They must be closed, and must not be used concurrently.
type Servers struct {
	Setup
	members []*member
	primary int
}

// member is one of the servers.
type member struct {
	launcher.Server
	address string
	process *launcher.Process
	links   []*relay.Relay // through which it follows each of the others
	client  *redis.Client
}

// Start starts the servers, and returns when all replicas are in sync.
func Start(ctx context.Context, setup Setup) *Servers {
	s := &Servers{Setup: setup}
	var settings, env []string
	if s.Fsync != "" {
		// During a rewrite the log has two files. A power cut may spoil the first: the server would not start.
		settings = []string{"--appendonly", "yes", "--appendfsync", s.Fsync, "--auto-aof-rewrite-percentage", "0"}
		env = []string{"LD_PRELOAD=" + s.noting(ctx)}
	}
	for i := range 1 + s.Replicas {
		port, dir := must.Have(launcher.Port()), filepath.Join(s.Dir, fmt.Sprint("redis-", i))
		must.Do(os.Mkdir(dir, 0o700))
		m := &member{Server: must.Have(launcher.Redis(dir, port, settings...)), address: fmt.Sprint("127.0.0.1:", port)}
		m.Env = env
		m.client = redis.NewClient(&redis.Options{Addr: m.address, MaxRetries: -1, ReadTimeout: 2 * wait.Bound})
		s.members = append(s.members, m)
	}
	for _, m := range s.members {
		for _, of := range s.members {
			m.links = append(m.links, must.Have(relay.New(of.address)))
		}
		m.start(ctx)
	}
	s.Sync(ctx)
	return s
}

func (m *member) start(ctx context.Context) { m.process = must.Have(m.Up(ctx, m.Dir+".log")) }

// Close ends all servers.
func (s *Servers) Close() {
	for _, m := range s.members {
		if m.process != nil {
			m.process.Kill()
		}
		for _, l := range m.links {
			l.Close()
		}
		_ = m.client.Close()
	}
}

// Primary is the address of the primary.
func (s *Servers) Primary() string { return s.members[s.primary].address }

// Process is the primary's.
func (s *Servers) Process() *launcher.Process { return s.members[s.primary].process }

// Client is a client of the primary.
func (s *Servers) Client() *redis.Client { return s.members[s.primary].client }

// next is the replica that is promoted next.
func (s *Servers) next() int { return (s.primary + 1) % len(s.members) }

// Lag has nothing reach any more the replica that is promoted next.
func (s *Servers) Lag() { s.members[s.next()].links[s.primary].BlackHole() }

// Isolate has nothing pass between the primary and its replicas. Clients reach all.
func (s *Servers) Isolate() {
	for _, m := range s.members {
		m.links[s.primary].BlackHole()
	}
}

// FailOver ends the primary, and promotes a replica.
func (s *Servers) FailOver(ctx context.Context) {
	s.Process().Kill()
	s.Promote(ctx)
}

// Promote promotes a replica, whatever the primary does. The other replicas follow that one.
func (s *Servers) Promote(ctx context.Context) {
	before := s.primary
	s.primary = s.next()
	must.Do(s.Client().ReplicaOf(ctx, "NO", "ONE").Err())
	for i := range s.members {
		if i != before {
			s.follow(ctx, i)
		}
	}
}

// follow has a server be a replica of the primary, unless it is the primary.
func (s *Servers) follow(ctx context.Context, i int) {
	if i == s.primary {
		return
	}
	link := s.members[i].links[s.primary]
	link.Heal()
	_, port, _ := net.SplitHostPort(link.Address())
	must.Do(s.members[i].client.ReplicaOf(ctx, "127.0.0.1", port).Err())
}

// Rejoin starts the servers that were ended, and has all follow the primary. What a former primary alone had is gone.
func (s *Servers) Rejoin(ctx context.Context) {
	for _, m := range s.members {
		if m.process.HasEnded() {
			m.start(ctx)
		}
	}
	s.Sync(ctx)
}

// Sync has all servers follow the primary, and returns when they do.
func (s *Servers) Sync(ctx context.Context) {
	for i := range s.members {
		s.follow(ctx, i)
	}
	must.Do(wait.Until(ctx, "all replicas are in sync", func() bool {
		info, err := s.Client().Info(ctx, "replication").Result()
		return err == nil && strings.Count(info, "state=online") == s.Replicas
	}))
}

// Spread returns when all replicas, and the disk, have what was written until now.
func (s *Servers) Spread(ctx context.Context) {
	commands := s.Client().Pipeline() // WAIT is about what its own connection has written
	commands.Incr(ctx, "spread")
	have := commands.Do(ctx, "WAIT", s.Replicas, wait.Bound.Milliseconds())
	must.Have(commands.Exec(ctx))
	if n := must.Have(have.Int()); n < s.Replicas {
		must.Do(fmt.Errorf("only %d of %d replicas follow", n, s.Replicas))
	}
	if s.Fsync != "" {
		size := s.members[s.primary].logged()
		must.Do(wait.Until(ctx, "the log is on the disk", func() bool { return s.members[s.primary].noted() >= size }))
	}
}

// log is the server's log of writes.
func (m *member) log() string {
	logs := must.Have(filepath.Glob(filepath.Join(m.Dir, "appendonlydir", "*.incr.aof")))
	if len(logs) != 1 {
		must.Do(fmt.Errorf("the log of the server is %q", logs))
	}
	return logs[0]
}

// logged is how much is in the log.
func (m *member) logged() int64 { return must.Have(os.Stat(m.log())).Size() }

// noted is how much of it is on the disk.
func (m *member) noted() int64 {
	noted, err := os.ReadFile(m.log() + notedSuffix)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // else nothing was on the disk
		must.Do(err)
	}
	size, _ := strconv.ParseInt(strings.TrimSpace(string(noted)), 10, 64) // the number alone is written
	return size
}

// Restart kills the primary, and starts it after a time on what it has handed to the system.
func (s *Servers) Restart(ctx context.Context, down time.Duration) { s.again(ctx, down, func() {}) }

// Empty does so without its data.
func (s *Servers) Empty(ctx context.Context, down time.Duration) {
	m := s.members[s.primary]
	s.again(ctx, down, func() { must.Do(errors.Join(os.RemoveAll(m.Dir), os.Mkdir(m.Dir, 0o700))) })
}

// PowerCut does so with what was on the disk, as fsync and fdatasync have answered. It returns how many bytes
// of the log are lost.
func (s *Servers) PowerCut(ctx context.Context, down time.Duration) (lost int64) {
	m := s.members[s.primary]
	s.again(ctx, down, func() {
		kept := m.noted()
		lost = m.logged() - kept
		must.Do(os.Truncate(m.log(), kept))
	})
	return lost
}

func (s *Servers) again(ctx context.Context, down time.Duration, then func()) {
	m := s.members[s.primary]
	m.process.Kill()
	then()
	wait.Rest(ctx, down)
	m.start(ctx)
}

// noting builds the library that notes what is on the disk.
func (s *Servers) noting(ctx context.Context) string {
	source, library := filepath.Join(s.Dir, "noting.c"), filepath.Join(s.Dir, "noting.so")
	must.Do(os.WriteFile(source, []byte(noting), 0o600))
	must.Have(proc.Run(ctx, "", "cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"))
	return library
}

// notedSuffix is that of a file with the noted size of another one.
const notedSuffix = ".noted"

// noting is preloaded by a server. Behind each fsync and fdatasync of a file of its log it notes
// the size that the file had before: so much is left by a power cut.
var noting = strings.ReplaceAll(`#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void note(int fd, off_t size) {
	char link[64], path[4000], noted[4096], text[32];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof path - 1);
	if (n <= 0)
		return;
	path[n] = 0;
	if (!strstr(path, ".aof"))
		return;
	snprintf(noted, sizeof noted, "%sSUFFIX", path);
	int file = open(noted, O_WRONLY | O_CREAT, 0600);
	if (file < 0)
		return;
	n = snprintf(text, sizeof text, "%-24lld", (long long)size);
	if (pwrite(file, text, n, 0) != n)
		_exit(1);
	close(file);
}

#define SYNC(name) \
	int name(int fd) { \
		static int (*real)(int); \
		struct stat is; \
		if (!real) \
			real = dlsym(RTLD_NEXT, #name); \
		off_t size = fstat(fd, &is) == 0 ? is.st_size : 0; \
		int status = real(fd); \
		if (status == 0) \
			note(fd, size); \
		return status; \
	}
SYNC(fdatasync)
SYNC(fsync)
`, "SUFFIX", notedSuffix)
