// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "fmt"

// Code is what a server says to a request, 0 if it was carried out.
type Code int32

// The codes that a store distinguishes.
const (
	OK           Code = 0
	Throttled    Code = -127
	NoNode       Code = -101
	NoAuth       Code = -102
	BadVersion   Code = -103
	NodeExists   Code = -110
	NotEmpty     Code = -111
	InvalidACL   Code = -114
	AuthFailed   Code = -115
	SessionMoved Code = -118
	Quota        Code = -125
	// NotTried is the code of the parts of a transaction after the failed part.
	NotTried Code = -2
)

var codeNames = map[Code]string{
	OK: "ok", Throttled: "throttled", NoNode: "no node", NoAuth: "not authorized", BadVersion: "another version",
	NodeExists: "node exists", NotEmpty: "node has children", InvalidACL: "invalid ACL", AuthFailed: "authentication failed",
	SessionMoved: "session moved", NotTried: "not tried", -1: "system error", -5: "marshalling error", -6: "unimplemented",
	-7: "operation timeout", -8: "bad arguments", -13: "new config without quorum", -112: "session expired", -119: "read-only server",
	-122: "request timeout", Quota: "quota exceeded",
}

func (c Code) String() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return fmt.Sprintf("error %d", int32(c))
}

// Error returns an error for a code that is not OK.
func (c Code) Error() string { return "zookeeper: " + c.String() }

const (
	opCreate        = 1
	opDelete        = 2
	opExists        = 3
	opGetData       = 4
	opSetData       = 5
	opGetACL        = 6
	opGetChildren   = 8
	opSync          = 9
	opPing          = 11
	opCheck         = 13
	opMulti         = 14
	opRemoveWatches = 18
	opAuth          = 100
	opClose         = -11
)

// Request is one request.
type Request struct {
	op   int32
	body []byte
}

// Size returns how many bytes it takes on the wire.
func (r Request) Size() int { return len(r.body) + 12 }

// Reply is the answer to one request.
type Reply struct {
	Code Code
	body []byte
}

// ACL says who may do what with a node that is created.
type ACL struct {
	Perms      int32
	Scheme, ID string
}

// The permissions of an ACL.
const (
	PermRead = 1
	PermAll  = 31
)

// Op is a part of a transaction.
type Op struct {
	kind int32
	body []byte
}

// Create makes a node that outlives its session.
func Create(path string, data []byte, acl ACL) Op {
	w := room(len(path), len(data), len(acl.Scheme), len(acl.ID))
	w.Text(path)
	w.Bytes(data)
	w.Int(1)
	w.Int(acl.Perms)
	w.Text(acl.Scheme)
	w.Text(acl.ID)
	w.Int(0) // persistent
	return Op{opCreate, w.buf}
}

// AnyVersion is for Delete and Check of a node whatever its version.
const AnyVersion = -1

// Delete removes a node without children that has the version.
func Delete(path string, version int32) Op { return Op{opDelete, pathVersion(path, version)} }

// Check fails unless the node exists and has the version.
func Check(path string, version int32) Op { return Op{opCheck, pathVersion(path, version)} }

func pathVersion(path string, version int32) []byte {
	w := room(len(path))
	w.Text(path)
	w.Int(version)
	return w.buf
}

// SetData writes the data of a node that has the version, which is one higher then.
func SetData(path string, data []byte, version int32) Op {
	w := room(len(path), len(data))
	w.Text(path)
	w.Bytes(data)
	w.Int(version)
	return Op{opSetData, w.buf}
}

// Alone makes an op a request of its own.
func Alone(op Op) Request { return Request{op.kind, op.body} }

// Multi is a transaction: all of it is carried out, or nothing.
func Multi(ops ...Op) Request {
	const header = 9 // of each op, and of the end
	size := header
	for _, op := range ops {
		size += header + len(op.body)
	}
	w := Writer{make([]byte, 0, size)}
	for _, op := range ops {
		w.Int(op.kind)
		w.Bool(false)
		w.Int(-1)
		w.buf = append(w.buf, op.body...)
	}
	w.Int(-1)
	w.Bool(true)
	w.Int(-1)
	return Request{opMulti, w.buf}
}

// Failed returns the code of a transaction: the code of the first part that failed, OK
// if it was carried out.
func (r Reply) Failed() (Code, error) {
	if r.Code != OK {
		return r.Code, nil
	}
	in := NewReader(r.body)
	for {
		kind, done, _ := in.Int(), in.Bool(), in.Int()
		if err := in.Err(); err != nil {
			return 0, fmt.Errorf("reply to a transaction: %w", err)
		}
		if done {
			return OK, nil
		}
		switch kind {
		case -1:
			if code := Code(in.Int()); code != OK && code != NotTried {
				return code, in.Err()
			}
		case opCreate:
			in.Text()
		case opSetData:
			readStat(in)
		case opDelete, opCheck:
		default:
			return 0, fmt.Errorf("reply to a transaction: a part of kind %d", kind)
		}
	}
}

// Sync has the server catch up with all that was confirmed before.
func Sync(path string) Request {
	var w Writer
	w.Text(path)
	return Request{opSync, w.buf}
}

// GetACL reads who may do what with a node.
func GetACL(path string) Request {
	var w Writer
	w.Text(path)
	return Request{opGetACL, w.buf}
}

func pathWatch(path string, watch bool) []byte {
	w := room(len(path))
	w.Text(path)
	w.Bool(watch)
	return w.buf
}

// GetData reads a node.
func GetData(path string) Request { return Request{opGetData, pathWatch(path, false)} }

// GetChildren reads the names of a node's children. A watch fires once, when a child is
// created or deleted, or the node is deleted.
func GetChildren(path string, watch bool) Request {
	return Request{opGetChildren, pathWatch(path, watch)}
}

// WatchCreation sets a watch that reports the node's creation, or its next change if
// it exists.
func WatchCreation(path string) Request { return Request{opExists, pathWatch(path, true)} }

// RemoveWatches ends all watches of this connection on the path.
func RemoveWatches(path string) Request {
	var w Writer
	w.Text(path)
	w.Int(3) // any
	return Request{opRemoveWatches, w.buf}
}

// Stat is what a server knows of a node.
type Stat struct {
	Version     int32
	NumChildren int32
}

func readStat(in *Reader) Stat {
	in.Long()
	in.Long()
	in.Long()
	in.Long()
	s := Stat{Version: in.Int()}
	in.Int()
	in.Int()
	in.Long()
	in.Int()
	s.NumChildren = in.Int()
	in.Long()
	return s
}

// Data returns the answer to GetData.
func (r Reply) Data() ([]byte, Stat, error) {
	in := NewReader(r.body)
	data, stat := in.Bytes(), readStat(in)
	return data, stat, in.Err()
}

// Children returns the answer to GetChildren.
func (r Reply) Children() ([]string, error) {
	in := NewReader(r.body)
	return in.Texts(), in.Err()
}

// ACL returns the answer to GetACL.
func (r Reply) ACL() ([]ACL, error) {
	in := NewReader(r.body)
	var all []ACL
	for n := in.Int(); n > 0 && in.Err() == nil; n-- {
		all = append(all, ACL{Perms: in.Int(), Scheme: in.Text(), ID: in.Text()})
	}
	return all, in.Err()
}
