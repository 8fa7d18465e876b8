// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/zkstore/internal/wire"
)

const (
	// diagnosisPatience bounds the questions about an ensemble, and serverPatience those to a server.
	diagnosisPatience = 15 * time.Second
	serverPatience    = 3 * time.Second
	// never is a version that no node has.
	never = math.MaxInt32
)

// Diagnose examines the servers, and the path of the records. It implements
// [driver.Diagnoser]. Each transaction that it tries to write has a condition that cannot
// hold.
func (s *Store) Diagnose(ctx context.Context, t driver.Timing) []driver.Finding {
	ctx, cancel := context.WithTimeout(ctx, diagnosisPatience)
	defer cancel()
	all := []driver.Finding{s.encryption()}
	reached := false
	for _, host := range s.hosts {
		f, answers := s.server(ctx, host)
		all = append(all, f)
		reached = reached || answers
	}
	if !reached {
		return all
	}
	place, err := s.place(ctx, t.Lease-t.Grace-t.Heartbeat)
	if err != nil {
		return all // so do the calls of the store
	}
	return append(all, place...)
}

// encryption also says whether a password is sent over an open connection.
func (s *Store) encryption() driver.Finding {
	var names []string
	for _, host := range s.hosts {
		name, _, _ := net.SplitHostPort(host)
		names = append(names, name)
	}
	f := driver.Encrypted(s.secure, "name the servers' secureClientPort, and ca= in the URL", names...)
	if f.Level != driver.LevelOK && s.user != "" {
		f.Finding += ", and the password is sent over it in clear text"
	}
	return f
}

// server asks a server for its state. The server ends the connection after such a question.
func (s *Store) server(ctx context.Context, host string) (f driver.Finding, answers bool) {
	text, err := s.srvr(ctx, host)
	mode := srvrLine(text, "Mode: ")
	version, _, _ := strings.Cut(srvrLine(text, "Zookeeper version: "), "-")
	switch {
	case err != nil:
		return driver.Warn("server", "%s does not answer: %v", host, err).
			Advise("locks work while a majority of the servers does; fix this server, or remove it from the URL"), false
	case strings.Contains(text, "not currently serving"):
		return driver.Warn("server", "%s serves no requests: it is starting, or cannot reach a majority of the "+
			"servers", host).Advise("see its log"), true
	case version == "" || mode == "":
		return driver.OK("server", "%s answers, but its state is unknown: it does not allow the command srvr", host), true
	case olderThan36(version):
		return driver.Bad("server", "%s answers, version %s, %s", host, version, mode).
			Advise("the store needs version 3.6 or later"), true
	case mode == "standalone":
		return driver.Warn("server", "%s answers, version %s, %s", host, version, mode).
			Advise("it is a single server: if its machine is lost, so are the locks and their tokens: run three"), true
	}
	return driver.OK("server", "%s answers, version %s, %s", host, version, mode), true
}

// srvr returns what a server says of itself.
func (s *Store) srvr(ctx context.Context, host string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	conn, err := s.client.Dial(ctx, host)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	_ = conn.SetDeadline(end)
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", err
	}
	const most = 1 << 16
	text, err := io.ReadAll(io.LimitReader(conn, most))
	if len(text) > 0 || errors.Is(err, io.ErrUnexpectedEOF) {
		return string(text), nil // some servers end an encrypted connection without a word
	}
	return "", err
}

// srvrLine returns what follows key in the line that begins with it.
func srvrLine(text, key string) string {
	for l := range strings.Lines(text) {
		if value, found := strings.CutPrefix(l, key); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// olderThan36 reports whether a version is older than 3.6. An invalid version is not.
func olderThan36(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err == nil && err2 == nil && (major < 3 || major == 3 && minor < 6)
}

// place examines the ensemble through the client, and the root. Left is what remains of a lease
// after the last good heartbeat.
func (s *Store) place(ctx context.Context, left time.Duration) ([]driver.Finding, error) {
	replies, err := s.ask(ctx, wire.Sync(s.root), wire.GetACL(s.root), wire.GetData("/zookeeper/config"))
	if err != nil {
		return nil, err
	}
	var all []driver.Finding
	// A single server does not list the voters, nor does a server whose configuration
	// this user may not read.
	if data, _, err := replies[2].Data(); replies[2].Code == wire.OK && err == nil && voters(string(data)) > 0 {
		all = append(all, driver.Members(voters(string(data)), "voting server"))
	}
	all = append(all, session(s.client.Session(), left))
	open := s.acl.Scheme == "world" // anyone may change records
	exists := true
	switch code := replies[1].Code; code {
	case wire.OK:
		acl, err := replies[1].ACL()
		if err != nil {
			return nil, s.failed(err)
		}
		for _, a := range acl {
			open = open || a.Scheme == "world" && a.Perms&^wire.PermRead != 0
		}
	case wire.NoNode:
		exists = false
	case wire.NoAuth:
	default:
		return nil, s.refused(code)
	}
	denied, err := s.denied(ctx, exists)
	if err != nil {
		return nil, err
	}
	short, err := s.short(ctx)
	if err != nil {
		return nil, err
	}
	return append(all, s.rights(exists, denied), s.access(open), size(short)), nil
}

// voters counts the servers that vote, of a configuration with lines such as
// server.1=HOST:PORT:PORT:participant;HOST:PORT.
func voters(config string) (n int) {
	for line := range strings.SplitSeq(config, "\n") {
		name, value, _ := strings.Cut(line, "=")
		address, _, _ := strings.Cut(value, ";")
		if strings.HasPrefix(name, "server.") && !strings.HasSuffix(address, ":observer") {
			n++
		}
	}
	return n
}

// session compares the session timeout with how long heartbeats may fail.
func session(timeout, left time.Duration) driver.Finding {
	silent := timeout / 3 * 2
	f := driver.OK("session", "the store leaves a server that hangs for another one after %v", silent.Round(10*time.Millisecond))
	if silent > left {
		f.Level = driver.LevelWarn
		return f.Advise("leases end earlier: write session=%v in the URL, or less, and see maxSessionTimeout "+
			"and minSessionTimeout of the servers",
			max(time.Second, left.Truncate(time.Second)))
	}
	return f
}

// rights says whether records can be created.
func (s *Store) rights(exists bool, denied error) driver.Finding {
	switch {
	case denied != nil && exists:
		return driver.Bad("rights", "no node can be created below %s: %v", s.root, denied).Advise("see getAcl %s", s.root)
	case denied != nil:
		return driver.Bad("rights", "%s does not exist, and cannot be created: %v", s.root, denied).
			Advise("have a user with that right create it, with create %s and setAcl", s.root)
	case !exists:
		return driver.OK("rights", "%s does not exist yet, and can be created", s.root)
	}
	return driver.OK("rights", "nodes can be created below %s", s.root)
}

// access says whether anyone else may change the records.
func (s *Store) access(open bool) driver.Finding {
	switch {
	case !open:
		return driver.OK("access", "records are created for the user alone")
	case s.user == "":
		return driver.Warn("access", "anyone who reaches the servers may change the records: world:anyone").
			Advise("name a user in the URL, before there are records")
	}
	return driver.Warn("access", "anyone who reaches the servers may change %s: world:anyone", s.root).
		Advise("addauth digest USER:PASSWORD, then setAcl -R %s auth::cdrwa", s.root)
}

func size(short bool) driver.Finding {
	if short {
		return driver.Warn("size", "a request of 1 MB ends the connection, and other requests under way on it get no answer").
			Advise("do not lower jute.maxbuffer of the servers")
	}
	return driver.OK("size", "a request of 1 MB is accepted")
}

// denied returns why a node cannot be made below the root, or where the root would be.
func (s *Store) denied(ctx context.Context, exists bool) (denied, err error) {
	if exists {
		return s.tryCreate(ctx, s.root, s.root+"/doctor-"+rand.Text())
	}
	above := "/"
	for i := 1; i <= len(s.root); i++ {
		if i < len(s.root) && s.root[i] != '/' {
			continue
		}
		replies, err := s.ask(ctx, wire.GetACL(s.root[:i]))
		if err != nil {
			return nil, err
		}
		if replies[0].Code == wire.NoNode {
			return s.tryCreate(ctx, above, s.root[:i])
		}
		above = s.root[:i]
	}
	return nil, nil // another process has just created it
}

// tryCreate returns the server's answer to the creation of a node, under a condition
// on the parent's version that cannot hold. The server checks the right first.
func (s *Store) tryCreate(ctx context.Context, above, path string) (denied, err error) {
	replies, err := s.ask(ctx, wire.Multi(wire.Create(path, nil, s.acl), wire.Check(above, never)))
	if err != nil {
		return nil, err
	}
	code, err := replies[0].Failed()
	if err != nil || code == wire.BadVersion {
		return nil, err
	}
	return s.refused(code), nil
}

// short says whether a server ends the connection at the longest request. A connection
// can be lost for other reasons, but hardly twice.
func (s *Store) short(ctx context.Context) (bool, error) {
	long := wire.Multi(wire.Check("/", never), wire.SetData("/", make([]byte, maxRequest-128), never))
	for range 2 {
		_, err := s.client.Do(ctx, long)
		if err == nil {
			return false, nil
		}
		if !errors.Is(err, wire.ErrLost) {
			return false, driver.NotApplied(s.failed(err))
		}
		if _, err := s.ask(ctx, wire.Sync("/")); err != nil {
			return false, err
		}
	}
	return true, nil
}
