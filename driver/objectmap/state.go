// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/driver/versioned"
)

// maxRemembered is the longest data that the memory keeps of a record.
const maxRemembered = 4 << 10

// state is an object as it was read or written.
type state struct {
	rec  driver.Record // zero if there is no record
	key  string        // as the object has it, if it can be read
	tag  string        // empty: there is no object
	kept uint64        // the token of a lock that was deleted, whose object stays
	err  error         // it cannot be understood
	cut  bool          // without its data, which are long
}

// View says what there is, for the writer that the stores share.
func (s state) View() versioned.View {
	return versioned.View{Record: s.rec, Found: s.tag != "" && s.kept == 0, Err: s.err, Kept: s.kept}
}

// Kept is the state without long data.
func (s state) Kept() (state, bool) {
	if len(s.rec.Data) > maxRemembered {
		s.rec.Data, s.cut = nil, true
	}
	s.rec = s.rec.Clone()
	return s, true
}

// Overtakes is unknown: tags have no order.
func (s state) Overtakes(state) bool { return false }

// gone is the object of a deleted lock. Version and token are those that the deletion
// named, so that its text is unique, too.
type gone struct {
	Deleted deleted `json:"deleted"`
}

type deleted struct {
	Key     string `json:"key"`
	Version string `json:"version"`
	Token   uint64 `json:"token"`
}

// goneMark begins the text of the object of a deleted lock. The text of a record
// begins with its key.
const goneMark = `{"deleted":`

func textOfGone(rec driver.Record) (string, error) {
	text, err := json.Marshal(gone{deleted{rec.Key, rec.Version, rec.Token}})
	return string(text), err
}

var (
	errNoTag    = errors.New("no tag from the engine")
	errOtherKey = errors.New("it is of another key")
)

// decode returns the state that the body of an object shows. An empty key matches any
// record.
func decode(key string, body []byte, tag string) state {
	is := state{tag: tag}
	if text := string(body); strings.HasPrefix(text, goneMark) {
		is.key, is.kept, is.err = decodeGone(body)
	} else {
		is.rec, is.err = recordcodec.Decode(text)
		is.key = is.rec.Key
	}
	if is.err == nil && key != "" && is.key != key {
		is.err = errOtherKey
	}
	if is.err != nil {
		is.rec, is.kept = driver.Record{}, 0
	}
	return is
}

func decodeGone(body []byte) (key string, token uint64, err error) {
	var g gone
	if err := json.Unmarshal(body, &g); err != nil {
		return "", 0, err
	}
	if token = g.Deleted.Token; token == 0 || token > driver.MaxToken {
		err = fmt.Errorf("it is deleted, under token %d", token)
	}
	return g.Deleted.Key, token, err
}
