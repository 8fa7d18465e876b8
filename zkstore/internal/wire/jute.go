// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Writer makes the bytes of a request.
type Writer struct{ buf []byte }

// room returns a writer with room for strings of these lengths, and some numbers.
func room(lengths ...int) Writer {
	size := 4 * numbers
	for _, n := range lengths {
		size += 4 + n
	}
	return Writer{make([]byte, 0, size)}
}

// numbers is the usual maximum of numbers beside the strings.
const numbers = 3

// Bool appends 1 byte.
func (w *Writer) Bool(v bool) {
	if v {
		w.buf = append(w.buf, 1)
	} else {
		w.buf = append(w.buf, 0)
	}
}

// Int appends 4 bytes.
func (w *Writer) Int(v int32) { w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(v)) }

// Long appends 8 bytes.
func (w *Writer) Long(v int64) { w.buf = binary.BigEndian.AppendUint64(w.buf, uint64(v)) }

// Text appends a string.
func (w *Writer) Text(v string) {
	w.Int(int32(len(v)))
	w.buf = append(w.buf, v...)
}

// Bytes appends a buffer, which is not null.
func (w *Writer) Bytes(v []byte) {
	w.Int(int32(len(v)))
	w.buf = append(w.buf, v...)
}

var errShort = errors.New("the message ends within a value")

// Reader takes the bytes of a reply apart. After the first error all values are zero.
type Reader struct {
	buf []byte
	err error
}

// NewReader reads a message.
func NewReader(message []byte) *Reader { return &Reader{buf: message} }

// Err returns the first error, nil if there was none.
func (r *Reader) Err() error { return r.err }

func (r *Reader) take(n int) []byte {
	if r.err == nil && (n < 0 || n > len(r.buf)) {
		r.err = errShort
	}
	if r.err != nil {
		return nil
	}
	v := r.buf[:n]
	r.buf = r.buf[n:]
	return v
}

// Bool reads 1 byte.
func (r *Reader) Bool() bool {
	v := r.take(1)
	return len(v) > 0 && v[0] != 0
}

// Int reads 4 bytes.
func (r *Reader) Int() int32 {
	v := r.take(4)
	if v == nil {
		return 0
	}
	return int32(binary.BigEndian.Uint32(v))
}

// Long reads 8 bytes.
func (r *Reader) Long() int64 {
	v := r.take(8)
	if v == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(v))
}

// Bytes reads a buffer; null is nil. It shares memory with the message.
func (r *Reader) Bytes() []byte {
	n := r.Int()
	if n == -1 {
		return nil
	}
	return r.take(int(n))
}

// Text reads a string.
func (r *Reader) Text() string { return string(r.Bytes()) }

// Texts reads a list of strings. Each takes 4 bytes at least, so a wrong length asks
// for no more memory than the message has.
func (r *Reader) Texts() []string {
	n := int(r.Int())
	if r.err == nil && n > len(r.buf)/4 {
		r.err = fmt.Errorf("%w: a list of %d strings", errShort, n)
	}
	var all []string
	for range n {
		if r.err != nil {
			return nil
		}
		all = append(all, r.Text())
	}
	return all
}
