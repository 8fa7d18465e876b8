// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"net/http"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// What a gate has to know of Tenure's stores: which of the bytes that a process sends are
// a write of a record. The same holds as of DynamoDB: a write is one whether or not the
// store refuses it, and a read, a watch or a sign of life of a connection is none.

// framed says of pieces of bytes, in their order, whether a message that is a write ends
// in them. size returns how long the first message is of which the bytes are the
// beginning, and 0 if that is not to be seen yet.
func framed(size func(begin []byte) int, isWrite func(message []byte) bool) func(piece []byte) bool {
	var rest []byte
	return func(piece []byte) (write bool) {
		rest = append(rest, piece...)
		for {
			n := size(rest)
			if n == 0 || n > len(rest) {
				return write
			}
			write = isWrite(rest[:n]) || write
			rest = rest[n:]
		}
	}
}

// The requests by which a connection of PostgreSQL may begin before its own beginning: for
// TLS, and for GSSAPI.
const (
	postgresTLS    = 80877103
	postgresGSSAPI = 80877104
)

// postgresWrites knows statements by their text, which must be sent with each.
func postgresWrites() func([]byte) bool {
	head := 0 // of a message, before its length: none until the connection has begun
	size := func(begin []byte) int {
		if len(begin) < head+4 {
			return 0
		}
		return head + int(binary.BigEndian.Uint32(begin[head:]))
	}
	return framed(size, func(message []byte) bool {
		if head == 0 {
			if len(message) < 8 {
				return false
			}
			switch binary.BigEndian.Uint32(message[4:]) {
			case postgresTLS, postgresGSSAPI:
			default:
				head = 1
			}
			return false
		}
		const parse = 'P'
		return message[0] == parse && slices.ContainsFunc(
			[]string{"INSERT INTO ", "UPDATE ", "DELETE FROM "},
			func(word string) bool { return bytes.Contains(message, []byte(word)) })
	})
}

// What is in a request of ZooKeeper: see its MultiTransactionRecord and MultiHeader.
const (
	zooKeeperCheck = 13
	zooKeeperMulti = 14
)

// zooKeeperWrites knows transactions with anything but checks: one that checks alone goes
// before a read. A node that is created by itself is none: it is a folder.
func zooKeeperWrites() func([]byte) bool {
	size := func(begin []byte) int {
		if len(begin) < 4 {
			return 0
		}
		return 4 + int(binary.BigEndian.Uint32(begin))
	}
	begun := false
	return framed(size, func(message []byte) bool {
		if !begun {
			begun = true // it asks for a session
			return false
		}
		in := message[4:]
		number := func() (n uint32) {
			if len(in) >= 4 {
				n, in = binary.BigEndian.Uint32(in), in[4:]
			}
			return n
		}
		skip := func(n uint32) { in = in[min(int(n), len(in)):] }
		skip(4) // which request it is
		if number() != zooKeeperMulti {
			return false
		}
		for len(in) > 0 {
			kind := number()
			last := len(in) > 0 && in[0] != 0
			skip(1 + 4) // that, and an error
			if last {
				return false
			}
			if kind != zooKeeperCheck {
				return true
			}
			skip(number()) // the path
			skip(4)        // the version
		}
		return false
	})
}

// etcdTxn is the method of a transaction.
const etcdTxn = "/etcdserverpb.KV/Txn"

// etcdWrites knows transactions that would put or delete something: others are reads.
func etcdWrites() func([]byte) bool {
	begun := false
	size := func(begin []byte) int {
		const head = 9
		switch {
		case !begun:
			return len(http2.ClientPreface)
		case len(begin) < head:
			return 0
		}
		return head + int(binary.BigEndian.Uint32(begin)>>8)
	}
	var frame bytes.Buffer
	framer := http2.NewFramer(nil, &frame)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	requests := map[uint32]*bytes.Buffer{} // those that are transactions, by their streams
	return framed(size, func(message []byte) bool {
		if !begun {
			begun = true
			return false
		}
		frame.Reset()
		frame.Write(message)
		f, err := framer.ReadFrame()
		if err != nil {
			return false // what it was waited for is never hit, and the row says so
		}
		stream := f.Header().StreamID
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.PseudoValue("path") == etcdTxn {
				requests[stream] = &bytes.Buffer{}
			}
		case *http2.DataFrame:
			request := requests[stream]
			if request == nil {
				return false
			}
			request.Write(f.Data())
			if f.StreamEnded() {
				delete(requests, stream)
				return writesEtcd(request.Bytes())
			}
		case *http2.RSTStreamFrame:
			delete(requests, stream)
		}
		return false
	})
}

// writesEtcd says of the body of a transaction, a message of gRPC, whether it would write.
func writesEtcd(body []byte) bool {
	const head = 1 + 4 // whether it is compressed, and how long it is
	var txn etcdserverpb.TxnRequest
	if len(body) < head || proto.Unmarshal(body[head:], &txn) != nil {
		return false
	}
	return slices.ContainsFunc(txn.Success, func(op *etcdserverpb.RequestOp) bool {
		return op.GetRequestPut() != nil || op.GetRequestDeleteRange() != nil
	})
}

// kubernetesWrites knows requests by their methods: all that is not a GET.
func kubernetesWrites() func([]byte) bool {
	return framed(httpSize, func(message []byte) bool { return !bytes.HasPrefix(message, []byte(http.MethodGet+" ")) })
}

// bucketWrites knows requests by their methods as well, and records by their names: what tries
// the server writes elsewhere.
func bucketWrites() func([]byte) bool {
	return framed(httpSize, func(message []byte) bool {
		line, _, _ := bytes.Cut(message, []byte("\r\n"))
		return !bytes.HasPrefix(line, []byte(http.MethodGet+" ")) && bytes.Contains(line, []byte("/r/"))
	})
}

// httpSize is how long a request of HTTP/1.1 is. The store says of each how long its body is.
func httpSize(begin []byte) int {
	const end = "\r\n\r\n"
	head := bytes.Index(begin, []byte(end))
	if head < 0 {
		return 0
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(begin)))
	if err != nil || r.ContentLength < 0 {
		return 0 // what it was waited for is never hit, and the row says so
	}
	return head + len(end) + int(r.ContentLength)
}
