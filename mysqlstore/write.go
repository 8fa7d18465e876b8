// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package mysqlstore

import (
	"bytes"
	"context"
	"errors"

	"github.com/go-sql-driver/mysql"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// Claim writes next if its key is absent or released: in one request if the lock is held, or this store was the last
// to release it, and otherwise in two.
func (s *Store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	return s.writer.Claim(ctx, next)
}

// write makes a claim, for the writer.
func (s *Store) write(ctx context.Context, key string, was freed, step versioned.Step) (is freed, missed bool, err error) {
	changed := int64(0)
	if was.found {
		changed, err = s.replace(ctx, was.rec, step.Record)
	} else {
		args := append([]any{[]byte(key)}, values(step.Record)...)
		changed, err = s.exec(ctx, s.sql.insert, append(args, step.Record.Data)...)
		if number(err) == duplicateKey {
			changed, err = 0, nil
		}
	}
	if err != nil || changed > 0 {
		return freed{rec: step.Record, found: true}, false, err
	}
	if is, err = s.look(ctx, key); err != nil {
		return is, false, driver.NotApplied(err)
	}
	return is, true, nil
}

// Swap replaces prev by next if the stored version and token are those of prev, in one request. A conflict takes two.
func (s *Store) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckSwap(prev, next))
}

// Raise is Swap to a token that is higher by any amount: see [driver.Raiser].
func (s *Store) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.swap(ctx, prev, next, driver.CheckRaise(prev, next))
}

func (s *Store) swap(ctx context.Context, prev, next driver.Record, wrong error) (driver.Record, error) {
	if wrong != nil {
		return driver.Record{}, wrong
	}
	next = next.Detach()
	changed, err := s.replace(ctx, prev, next)
	if err == nil && changed == 0 {
		err = s.conflict(ctx, prev.Key)
	}
	if err != nil {
		s.free.Forget(next.Key)
		return driver.Record{}, err
	}
	s.free.Note(next.Key, freed{rec: next, found: true})
	return next.Clone(), nil
}

// replace writes next if the version and the token of the row are those of prev, and returns how many rows that were.
// Data that stay are not sent: a heartbeat is small, whatever the record holds. A prev without a state was not read,
// and its data mean nothing.
func (s *Store) replace(ctx context.Context, prev, next driver.Record) (int64, error) {
	statement, args := s.sql.update, values(next)
	if prev.State == "" || !bytes.Equal(prev.Data, next.Data) {
		statement, args = s.sql.updateData, append(args, next.Data)
	}
	return s.exec(ctx, statement, append(args, condition(prev)...)...)
}

// condition are the last values of a statement that replaces or removes a record. A token above the highest is that of
// no row.
func condition(prev driver.Record) []any {
	return []any{[]byte(prev.Key), []byte(prev.Version), prev.Token}
}

// Delete removes the record of prev's key if its version and token are those of prev, in one request. A conflict takes
// two.
func (s *Store) Delete(ctx context.Context, prev driver.Record) error {
	s.free.Forget(prev.Key)
	changed, err := s.exec(ctx, s.sql.remove, condition(prev)...)
	if err != nil || changed > 0 {
		return err
	}
	err = s.conflict(ctx, prev.Key)
	if conflict := (*driver.ConflictError)(nil); errors.As(err, &conflict) && conflict.Absent {
		return nil
	}
	return err
}

// conflict returns the conflict of a write that has not been applied, with what is there by now.
func (s *Store) conflict(ctx context.Context, key string) error {
	is, err := s.look(ctx, key)
	if err == nil {
		err = is.err
	}
	if err != nil {
		return driver.NotApplied(err)
	}
	return &driver.ConflictError{Key: key, Current: is.rec, Absent: !is.found}
}

// number is that of an error of the server, 0 of any other.
func number(err error) uint16 {
	if e := (*mysql.MySQLError)(nil); errors.As(err, &e) {
		return e.Number
	}
	return 0
}
