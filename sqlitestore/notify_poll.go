// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package sqlitestore

import (
	sqldriver "database/sql/driver"
	"errors"
	"sync"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// poll asks the engine for changes by other connections. It has a connection
// of its own; a check costs some microseconds and no disk access.
type poll struct {
	store  *Store
	conn   *conn
	ticker *time.Ticker
	last   int64
	once   sync.Once
	done   chan struct{}
}

func openPoll(s *Store, period time.Duration) (*poll, error) {
	c, err := dial(s.file, "rw")
	if err != nil {
		return nil, fault(s.file, err)
	}
	p := &poll{store: s, conn: c, done: make(chan struct{})}
	if err := s.check(); err != nil {
		_ = c.close()
		return nil, err
	}
	if p.last, err = p.version(); err != nil && !locked(err) {
		_ = c.close()
		return nil, fault(s.file, err)
	}
	p.ticker = time.NewTicker(period)
	return p, nil
}

// version is a number that differs after another connection has committed.
func (p *poll) version() (n int64, err error) {
	err = p.conn.query("PRAGMA data_version", func(row []sqldriver.Value) bool {
		n, _ = row[0].(int64)
		return false
	})
	return n, err
}

// wait checks once in a period, and returns true after a change, and false at
// the end. If a check fails, the next one will do.
func (p *poll) wait() bool {
	for {
		select {
		case <-p.done:
			p.ticker.Stop()
			_ = p.conn.close()
			return false
		case <-p.ticker.C:
		}
		if err := p.store.check(); errors.Is(err, driver.ErrReplaced) {
			p.ticker.Stop() // nothing will change here any more
			return true
		}
		if n, err := p.version(); err == nil && n != p.last {
			p.last = n
			return true
		}
	}
}

func (p *poll) close() { p.once.Do(func() { close(p.done) }) }
