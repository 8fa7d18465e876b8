// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tenurelock/tenure/driver"
)

// origin is where a store has its connections from: Open dials them, New
// borrows them.
type origin struct {
	file    string
	given   string // the name that the caller has for it, "" for none but file
	readers int
	// connect returns a connection. mode is createMode for the first, otherwise rw.
	connect func(mode string) (*conn, error)
	// prepare creates the table if it is missing, through the first connection.
	prepare func(c *conn) error
	// verify checks all connections. It may be nil.
	verify func(writer, reader *conn) error
	// walLimit is the length to which a long log is cut, 0 for the connection's setting.
	walLimit int
}

// sharedPatience bounds the retries for a file that this user may use, but
// cannot yet: SQLite creates the files beside it in two steps, and in between
// the umask of their creator excludes other users.
const sharedPatience = time.Second

// open tries until the file is not locked, or for as long as patience lasts.
func (o origin) open(opts Options, patience time.Duration) (*Store, error) {
	begun := time.Now()
	patient := begun.Add(patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		s, err := o.openOnce(opts)
		switch {
		case err == nil:
			return s, nil
		case locked(err), errors.Is(err, errSwapped):
		case is(err, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) && time.Since(begun) < min(patience, sharedPatience):
		default:
			return nil, err
		}
		if time.Now().After(patient) {
			return nil, driver.NotApplied(err)
		}
		<-time.After(pause/2 + rand.N(pause))
	}
}

// openOnce leaves nothing open if it fails.
func (o origin) openOnce(opts Options) (_ *Store, err error) {
	before, err := o.look()
	if err != nil {
		return nil, err
	}
	var conns []*conn
	defer func() {
		if err != nil {
			for _, c := range conns {
				_ = c.close()
			}
		}
	}()
	for i := range 1 + o.readers {
		mode := createMode
		if i > 0 {
			mode = "rw"
		}
		c, err := o.connect(mode)
		if err != nil {
			return nil, fault(o.file, err)
		}
		conns = append(conns, c)
		if err := o.settle(c, i == 0); err != nil {
			return nil, err
		}
	}
	if o.verify != nil {
		if err := o.verify(conns[0], conns[1]); err != nil {
			return nil, err
		}
	}
	after, err := o.look()
	if err != nil {
		return nil, err
	}
	if before == nil {
		before = after
	}
	files, err := identify(o.file, before)
	if err != nil {
		return nil, fault(o.file, err)
	}
	if o.given != o.file {
		files.given = o.given
	}
	if err := files.checkLinks(); err != nil {
		return nil, err
	}
	s := &Store{
		file:     o.file,
		files:    files,
		pageSize: pageSize,
		writes:   make(chan *write),
		writer:   conns[0],
		readers:  make(chan *conn, o.readers),
		closing:  make(chan struct{}),
	}
	s.yield = s.pause
	s.fate.ended = make(chan struct{})
	s.watches.init(s, opts.PollPeriod)
	s.watches.begin()
	for _, c := range conns[1:] {
		s.readers <- c
	}
	s.running.Add(1)
	go s.runWriter(s.writer)
	return s, nil
}

// look returns the file that the name leads to, and nil where SQLite must create it.
func (o origin) look() (os.FileInfo, error) {
	info, err := refuseOtherNames(o.file)
	if errors.Is(err, os.ErrNotExist) && createMode == "rwc" {
		return nil, nil
	}
	return info, err
}

// settle makes a connection the writer, or a reader.
func (o origin) settle(c *conn, writer bool) error {
	role := "PRAGMA query_only = ON"
	if writer {
		if err := o.prepare(c); err != nil {
			return err
		}
		// On macOS fsync alone leaves the data in the drive's cache. Elsewhere
		// these mean nothing.
		role = "PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON"
		if o.walLimit > 0 {
			role += fmt.Sprintf("; PRAGMA journal_size_limit = %d", o.walLimit)
		}
	}
	if err := c.run(role); err != nil {
		return fault(o.file, err)
	}
	if writer { // compiling the statements finds a table that is not ours
		if err := c.compile(sqlGet, sqlPut, sqlSwap, sqlDelete); err != nil {
			return fault(o.file, err)
		}
	}
	// The first read opens the log and its index.
	if _, err := get(c, ""); err != nil && !errors.Is(err, driver.ErrNotFound) && !errors.Is(err, driver.ErrUnreadable) {
		return fault(o.file, err)
	}
	return nil
}
