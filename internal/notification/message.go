// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"github.com/tenurelock/tenure/driver"
)

// Limits of what is sent and written.
const (
	// MaxMessage is the longest message in bytes. The longest one sent is a Wait with an
	// address of MaxAddress bytes.
	MaxMessage = 512
	// MaxAddress is the longest address in bytes: a record has room for it and a secret.
	MaxAddress = 200
)

// Kind says what a message is.
type Kind byte

// The kinds of messages.
const (
	Wait   Kind = 1 + iota // I wait for the lock, at this address
	Ack                    // the Wait was received
	Notify                 // look at the record
	Asked                  // a request is in the record
)

// ID is a lock's name in messages, or unguessable.
type ID [16]byte

// Message is one message.
type Message struct {
	Kind Kind
	// Lock names the lock for processes that know the secret of its holder.
	Lock ID
	// Nonce is the waiter's own word. Ack and Notify repeat it.
	Nonce ID
	// Echo is the holder's word, in an Ack. A Wait repeats the last word, or has zeros.
	Echo ID
	// Place is the waiter's place in the order of arrival, from 0, in a Notify. In a Wait
	// it is 1 if the process only observes.
	Place uint16
	// Address is where the waiter is notified, only in a Wait.
	Address string
}

// A message is magic, kind, lock, nonce, echo, place, the length of the address, the
// address, and a MAC over all of that. The magic identifies a message that another
// program receives by mistake.
const (
	magic   = "TENUREB1"
	head    = len(magic) + 1 + 3*16 + 2 + 1
	macLen  = 16
	minimum = head + macLen
)

// Append appends the message to b.
func (m *Message) Append(b []byte, secret string) []byte {
	start := len(b)
	b = append(b, magic...)
	b = append(b, byte(m.Kind))
	b = append(b, m.Lock[:]...)
	b = append(b, m.Nonce[:]...)
	b = append(b, m.Echo[:]...)
	b = binary.BigEndian.AppendUint16(b, m.Place)
	b = append(b, byte(len(m.Address)))
	b = append(b, m.Address...)
	return append(b, sum(secret, "message", string(b[start:]))...)
}

// Parse reads a message. Its MAC is not checked: see [Genuine].
func Parse(b []byte) (m Message, ok bool) {
	if len(b) < minimum || len(b) > MaxMessage || string(b[:len(magic)]) != magic {
		return Message{}, false
	}
	m.Kind = Kind(b[len(magic)])
	at := len(magic) + 1
	for _, id := range []*ID{&m.Lock, &m.Nonce, &m.Echo} {
		at += copy(id[:], b[at:])
	}
	m.Place = binary.BigEndian.Uint16(b[at:])
	m.Address = string(b[head : len(b)-macLen])
	switch {
	case int(b[head-1]) != len(m.Address), m.Kind < Wait, m.Kind > Asked:
		return Message{}, false
	case (m.Kind == Wait) != (m.Address != ""), m.Address != "" && !IsAddress(m.Address):
		return Message{}, false
	case m.Kind == Wait && m.Place > 1, m.Kind > Wait && m.Kind != Notify && m.Place != 0, (m.Kind == Notify || m.Kind == Asked) && m.Echo != ID{}:
		return Message{}, false
	}
	return m, true
}

// Genuine says whether the sender of the parsed message b knew the secret.
func Genuine(b []byte, secret string) bool {
	end := len(b) - macLen
	return hmac.Equal(b[end:], sum(secret, "message", string(b[:end])))
}

// NameOf returns the name of a lock in the messages to its holder.
func NameOf(secret, key string) (id ID) {
	copy(id[:], sum(secret, "lock", key))
	return id
}

// sum returns a MAC of the text. what separates the uses of the secret.
func sum(secret, what, text string) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(what))
	h.Write([]byte{0})
	h.Write([]byte(text))
	return h.Sum(nil)[:macLen]
}

// IsAddress says whether an address may be written into a record: 1 to MaxAddress
// printable ASCII characters without a space.
func IsAddress(a string) bool {
	other := func(c rune) bool { return c <= ' ' || c > '~' }
	return a != "" && len(a) <= MaxAddress && !strings.ContainsFunc(a, other)
}

// Target returns what a process writes into its records: its address, and the secret for
// messages to it.
func Target(address, secret string) string { return address + " " + secret }

// parts returns address and secret of a target in a record, and false if the target has
// another form.
func parts(target string) (address, secret string, ok bool) {
	address, secret, ok = strings.Cut(target, " ")
	return address, secret, ok && len(target) <= driver.MaxNotifyLen && IsAddress(address) && IsAddress(secret)
}
