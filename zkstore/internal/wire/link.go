// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// The xids that belong to no call.
const (
	xidEvent = -1
	xidPing  = -2
	xidAuth  = -4
)

// link is one connection, and the session that began with it.
type link struct {
	c       *Client
	conn    net.Conn
	in      *bufio.Reader
	session time.Duration

	mu      sync.Mutex
	xid     int32
	waiting []*waiting // written, in the order in which the answers come
}

// waiting is a request that was written.
type waiting struct {
	xid  int32
	call *call
	last bool // of its call
}

// begin opens the session, and authenticates.
func (l *link) begin() error {
	l.in = bufio.NewReader(l.conn)
	_ = l.conn.SetDeadline(time.Now().Add(dialTimeout))
	var w Writer
	w.Int(0)
	w.Long(0)
	w.Int(int32(l.session / time.Millisecond))
	w.Long(0)
	w.Bytes(make([]byte, 16))
	w.Bool(false)
	if err := l.write(frame(w.buf)); err != nil {
		return err
	}
	message, err := l.read()
	if err != nil {
		return fmt.Errorf("no session: %w", err)
	}
	r := NewReader(message)
	r.Int()
	timeout := time.Duration(r.Int()) * time.Millisecond
	if r.Err() != nil || timeout <= 0 {
		return errors.Join(errors.New("the server opened no session"), r.Err())
	}
	l.session = timeout
	if l.c.options.Digest == "" {
		return nil
	}
	w = Writer{}
	w.Int(xidAuth)
	w.Int(opAuth)
	w.Int(0)
	w.Text("digest")
	w.Bytes([]byte(l.c.options.Digest))
	if err := l.write(frame(w.buf)); err != nil {
		return err
	}
	message, err = l.read()
	if err != nil {
		return fmt.Errorf("user: %w", err)
	}
	r = NewReader(message)
	r.Int()
	r.Long()
	if code := Code(r.Int()); code != OK || r.Err() != nil {
		return errors.Join(code, r.Err())
	}
	return nil
}

// frame puts the length in front of a message.
func frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(message)), uint32(len(message))), message...)
}

func (l *link) write(bytes []byte) error {
	_, err := l.conn.Write(bytes)
	return err
}

func (l *link) read() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(l.in, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > MaxMessage {
		return nil, fmt.Errorf("the server sent a message of %d bytes: it is not ZooKeeper", n)
	}
	message := make([]byte, n)
	_, err := io.ReadFull(l.in, message)
	return message, err
}

// serve carries calls until the connection ends.
func (l *link) serve() error {
	_ = l.conn.SetDeadline(time.Time{})
	var writing sync.WaitGroup
	quit := make(chan struct{})
	writing.Go(func() { l.writeAll(quit) })
	err := l.readAll()
	close(quit)
	_ = l.conn.Close()
	writing.Wait()
	// No call is added to the queue any more.
	for _, w := range l.waiting {
		if w.last {
			w.call.done(nil, errors.Join(ErrLost, err))
		}
	}
	return err
}

// mostKept bounds the memory that a link keeps for writing, in bytes.
const mostKept = 1 << 16

// writeAll writes calls as they come, and pings.
func (l *link) writeAll(quit <-chan struct{}) {
	ping := time.NewTicker(l.session / 3)
	defer ping.Stop()
	var buf []byte // what is written, again and again in the same place
	for first := true; ; first = false {
		if buf = buf[:0]; cap(buf) > mostKept {
			buf = nil
		}
		if first {
			select {
			case l.c.wake <- struct{}{}: // for what has waited for a connection
			default:
			}
		}
		select {
		case <-quit:
			return
		case <-l.c.ctx.Done():
			buf = l.request(buf, 0, opClose, nil) // the server may forget the session
		case <-ping.C:
			buf = l.request(buf, xidPing, opPing, nil)
		case <-l.c.wake:
			buf = l.calls(buf)
		}
		_ = l.conn.SetWriteDeadline(time.Now().Add(l.session / 3 * 2))
		if err := l.write(buf); err != nil || l.c.ctx.Err() != nil {
			_ = l.conn.Close() // the reader ends
			return
		}
	}
}

// calls appends the bytes of all calls that are to be written.
func (l *link) calls(buf []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.c.take() {
		for i, r := range q.requests {
			l.xid = l.xid%(1<<30) + 1
			buf = l.request(buf, l.xid, r.op, r.body)
			l.waiting = append(l.waiting, &waiting{l.xid, q, i == len(q.requests)-1})
		}
	}
	return buf
}

func (l *link) request(buf []byte, xid, op int32, body []byte) []byte {
	buf = binary.BigEndian.AppendUint32(buf, uint32(8+len(body)))
	w := Writer{buf}
	w.Int(xid)
	w.Int(op)
	return append(w.buf, body...)
}

// readAll takes answers until there are no more.
func (l *link) readAll() error {
	for {
		_ = l.conn.SetReadDeadline(time.Now().Add(l.session / 3 * 2))
		message, err := l.read()
		if err != nil {
			return err
		}
		r := NewReader(message)
		xid := r.Int()
		r.Long()
		code := Code(r.Int())
		if err := r.Err(); err != nil {
			return err
		}
		switch xid {
		case xidPing:
		case xidEvent:
			r.Int()
			r.Int()
			path := r.Text()
			if err := r.Err(); err != nil {
				return err
			}
			if path != "" { // otherwise it is about the session
				l.c.options.Event(path)
			}
		case xidAuth:
			return code // the user is not known any more
		default:
			if err := l.answer(xid, Reply{code, r.buf}); err != nil {
				return err
			}
		}
	}
}

// answer hands a reply to its call.
func (l *link) answer(xid int32, reply Reply) error {
	l.mu.Lock()
	if len(l.waiting) == 0 || l.waiting[0].xid != xid {
		l.mu.Unlock()
		return fmt.Errorf("an answer to request %d, which is not under way", xid)
	}
	w := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	l.mu.Unlock()
	w.call.replies = append(w.call.replies, reply)
	if w.last {
		w.call.done(w.call.replies, nil)
	}
	return nil
}
