// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/tenurelock/tenure/zkstore"
)

// ZooKeeper is the ensemble of a store in ZooKeeper.
type ZooKeeper struct {
	Hosts []string // with their ports
	// Options returns those of the store.
	Options func() (zkstore.Options, error)
}

const (
	// zooKeeperPatience bounds the questions about an ensemble, all of them together.
	zooKeeperPatience = 15 * time.Second
	// serverPatience bounds those to one server.
	serverPatience = 3 * time.Second
)

// eventualReads says that looks are answered by the server that is asked.
func (z ZooKeeper) eventualReads() bool { return true }

// examine looks at the servers, and at the place of the records.
func (z ZooKeeper) examine(ctx context.Context, p *Patient) {
	ctx, cancel := context.WithTimeout(ctx, zooKeeperPatience)
	defer cancel()
	o, err := z.Options()
	if err != nil {
		return // the store says so, too
	}
	if o.Root == "" {
		o.Root = zkstore.DefaultRoot
	}
	p.Tell(z.encryption(o))
	reached := false
	for _, host := range z.Hosts {
		f, answers := z.server(ctx, host, o)
		p.Tell(f)
		reached = reached || answers
	}
	if !reached {
		return
	}
	d, err := zkstore.Describe(ctx, z.Hosts, &o)
	if err != nil {
		return // likewise
	}
	if d.Voters > 0 {
		p.Tell(members(d.Voters, "voting server"))
	}
	p.Tell(z.session(d.Session, p.Options.LeaseDuration-p.Options.Grace-p.Options.HeartbeatPeriod))
	p.Tell(z.rights(o, d))
	p.Tell(z.access(o, d))
	f := Finding{"size", OK, "a request of 1 MB is taken", ""}
	if d.Short {
		f = Finding{"size", Warn, "a request of 1 MB ends the connection, and what is under way on it gets no answer", "do not lower jute.maxbuffer of the servers"}
	}
	p.Tell(f)
}

// encryption tells whether others can read a password, and change what is sent.
func (z ZooKeeper) encryption(o zkstore.Options) Finding {
	if o.Dial != nil {
		return Finding{"encryption", OK, "the connection is encrypted", ""}
	}
	f := Finding{"encryption", OK, "the connection is not encrypted", ""}
	for _, host := range z.Hosts {
		name, _, _ := net.SplitHostPort(host)
		if near(name) {
			continue
		}
		f.Level, f.Advice = Warn, "others on the way can read and change it: name the servers' secureClientPort, and ca= in the URL"
		if o.Password != "" {
			f.Finding += ", and the password goes over it as it is"
		}
		break
	}
	return f
}

// server asks a server what it is. Such a question ends its connection.
func (ZooKeeper) server(ctx context.Context, host string, o zkstore.Options) (f Finding, answers bool) {
	text, err := srvr(ctx, host, o)
	mode := srvrLine(text, "Mode: ")
	version, _, _ := strings.Cut(srvrLine(text, "Zookeeper version: "), "-")
	switch {
	case err != nil:
		return Finding{"server", Warn, fmt.Sprintf("%s does not answer: %v", host, err), "locks work while most servers do; mend it, or leave it out of the URL"}, false
	case strings.Contains(text, "not currently serving"):
		return Finding{"server", Warn, host + " serves no requests: it is starting, or finds no majority of the servers", "see its log"}, true
	case version == "" || mode == "":
		return Finding{"server", OK, host + " answers, and does not say what it is: it passes on no srvr", ""}, true
	}
	f = Finding{"server", OK, fmt.Sprintf("%s answers, version %s, %s", host, version, mode), ""}
	switch {
	case olderZooKeeper(version):
		f.Level, f.Advice = Bad, "3.6 is the oldest that the store is for"
	case mode == "standalone":
		f.Level, f.Advice = Warn, "it stands alone: if its machine is lost so are the locks and their tokens: run three"
	}
	return f, true
}

// srvr returns what a server says of itself.
func srvr(ctx context.Context, host string, o zkstore.Options) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	dial := o.Dial
	if dial == nil {
		dial = func(ctx context.Context, host string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", host)
		}
	}
	conn, err := dial(ctx, host)
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

// olderZooKeeper says that a version is older than 3.6. What is no version is not.
func olderZooKeeper(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err == nil && err2 == nil && (major < 3 || major == 3 && minor < 6)
}

// session compares the session timeout with how long heartbeats may fail: so much is
// left of a lease after its last good one.
func (ZooKeeper) session(timeout, left time.Duration) Finding {
	silent := timeout / 3 * 2
	f := Finding{"session", OK, fmt.Sprintf("a server that hangs is left for another one after %v", shown(silent)), ""}
	if silent > left {
		f.Level, f.Advice = Warn, fmt.Sprintf("leases end before: write session=%v in the URL, or less, and see maxSessionTimeout and minSessionTimeout of the servers", max(time.Second, left.Truncate(time.Second)))
	}
	return f
}

// rights tells whether records can be made.
func (ZooKeeper) rights(o zkstore.Options, d zkstore.Description) Finding {
	switch {
	case d.Denied != nil && d.Exists:
		return Finding{"rights", Bad, fmt.Sprintf("nothing can be made below %s: %v", o.Root, d.Denied), fmt.Sprintf("see getAcl %s", o.Root)}
	case d.Denied != nil:
		return Finding{"rights", Bad, fmt.Sprintf("%s is not there, and cannot be made: %v", o.Root, d.Denied), fmt.Sprintf("have a user with that right make it, with create %s and setAcl", o.Root)}
	case !d.Exists:
		return Finding{"rights", OK, fmt.Sprintf("%s is not there yet, and can be made", o.Root), ""}
	}
	return Finding{"rights", OK, fmt.Sprintf("nodes can be made below %s", o.Root), ""}
}

// access tells whether anyone else may change the records.
func (ZooKeeper) access(o zkstore.Options, d zkstore.Description) Finding {
	switch {
	case !d.Open:
		return Finding{"access", OK, "records are made for the user alone", ""}
	case o.User == "":
		return Finding{"access", Warn, "anyone who reaches the servers may change the records: world:anyone", "name a user in the URL, before there are records"}
	}
	return Finding{"access", Warn, fmt.Sprintf("anyone who reaches the servers may change %s: world:anyone", o.Root), fmt.Sprintf("addauth digest USER:PASSWORD, then setAcl -R %s auth::cdrwa", o.Root)}
}
