// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

// format is the format of a record, and of the store's own.
const format = "1"

// resting is the state of a lock that is held under a session, as package recordcodec writes it.
const resting = "resting"

// textOf is a record without what has fields of its own.
func textOf(rec driver.Record) string {
	rec.Data, rec.Prev, rec.Token = nil, nil, 0
	return recordcodec.Encode(rec)
}

func stateOf(rec driver.Record) string {
	if rec.State == driver.Held && rec.Session != "" {
		return resting
	}
	return string(rec.State)
}

// prevOf is the field of the term before.
func prevOf(rec driver.Record) string {
	if rec.Prev == nil {
		return ""
	}
	return recordcodec.EncodeTerm(rec.Prev)
}

// briefOf is the term that a released record shows, as the record of the next holder keeps it.
func briefOf(rec driver.Record) string {
	if rec.State != driver.Released {
		return ""
	}
	return recordcodec.EncodeTerm(rec.Term(driver.EndReleased).Shorten())
}

func tokenText(token uint64) string { return strconv.FormatUint(token, 10) }

// decode returns the record of a hash, and whether there is one.
func decode(key string, hash rueidis.RedisMessage) (rec driver.Record, found bool, err error) {
	if text, is := hash.ToString(); is == nil { // of a key that is no hash
		return driver.Record{Key: key}, true, unreadable(key, errors.New(text))
	}
	list, err := hash.ToArray()
	if err != nil {
		return rec, false, fmt.Errorf("redis: a record cannot be read: %w", err)
	}
	if len(list) == 0 {
		return rec, false, nil
	}
	of := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		name, _ := list[i].ToString()
		value, _ := list[i+1].ToString()
		of[name] = value
	}
	rec, err = recordOf(key, of)
	if err != nil {
		return driver.Record{Key: key}, true, unreadable(key, err)
	}
	return rec, true, nil
}

func unreadable(key string, err error) error {
	if errors.Is(err, driver.ErrUnreadable) {
		return fmt.Errorf("redis: the record of %q: %w", key, err)
	}
	return fmt.Errorf("redis: the record of %q: %w: %w", key, driver.ErrUnreadable, err)
}

func recordOf(key string, of map[string]string) (driver.Record, error) {
	if of["f"] != format {
		return driver.Record{}, fmt.Errorf("its format is %.20q, and this version knows %s", of["f"], format)
	}
	rec, err := recordcodec.DecodePart(of["r"])
	if err != nil {
		return rec, err
	}
	rec.Token, err = strconv.ParseUint(of["t"], 10, 64)
	switch {
	case err != nil || rec.Token < 1 || rec.Token > driver.MaxToken:
		return rec, fmt.Errorf("its token is %.30q", of["t"])
	case rec.Key != key || rec.Version == "" || rec.Version != of["v"] || rec.State == "" || stateOf(rec) != of["s"]:
		return rec, errors.New("its fields contradict each other")
	case rec.Lease == 0 || rec.Owner == "" && rec.State != driver.Reserved:
		return rec, errors.New("it lacks its lease or its owner")
	}
	if of["p"] != "" {
		if rec.Prev, err = recordcodec.DecodeTerm(of["p"]); err != nil {
			return rec, err
		}
	}
	if of["d"] != "" {
		rec.Data = []byte(of["d"])
	}
	return rec, nil
}
