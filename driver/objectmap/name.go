// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	// maxPart is the length of the parts into which an escaped key is cut: servers that
	// keep objects as files allow names of at most 255 bytes.
	maxPart = 200
	// maxEscaped is the longest escaped key in bytes that is a name. A longer key is
	// hashed: names have at most 1,024 bytes.
	maxEscaped = 880
	// partEnd ends a part that another part follows. No escaped key has its first byte,
	// so that no object has the name of a folder.
	partEnd = "~/"

	records = "r/" // below it the name is the key
	hashed  = "h/" // below it the name is a hash of the key
	probes  = "probe/"
)

// reserved reports whether a store has its records below the part. The objects of its
// trials are below another part, and are only read and removed by name.
func reserved(part string) bool { return part+"/" == records || part+"/" == hashed }

// nameOf returns the name of the object of a key, below the prefix of the store.
func nameOf(key string) string {
	text := escaped(key)
	if len(text) > maxEscaped {
		sum := sha256.Sum256([]byte(key))
		return hashed + hex.EncodeToString(sum[:])
	}
	return records + inParts(text)
}

// keyOf returns the key whose object has the name, and false if the name belongs to no
// key, or is a hash.
func keyOf(name string) (key string, ok bool) {
	text, ok := strings.CutPrefix(name, records)
	if !ok {
		return "", false
	}
	key = unescaped(strings.ReplaceAll(text, partEnd, ""))
	return key, key != "" && nameOf(key) == name
}

// namesOf returns the beginning of the names of all keys that begin with prefix, except
// for hashes.
func namesOf(prefix string) string { return records + inParts(escaped(prefix)) }

// inParts cuts an escaped key. The beginning of a key stays the beginning. No part begins
// with a dot: the parts "." and ".." would be folders.
func inParts(text string) string {
	if len(text) <= maxPart {
		return text
	}
	var b strings.Builder
	for len(text) > maxPart {
		b.WriteString(withoutDot(text[:maxPart]) + partEnd)
		text = text[maxPart:]
	}
	b.WriteString(withoutDot(text))
	return b.String()
}

// withoutDot escapes a dot at the beginning of a part.
func withoutDot(part string) string {
	if rest, ok := strings.CutPrefix(part, "."); ok {
		return "%2E" + rest
	}
	return part
}

// plain reports whether a byte of a key is not escaped in a name.
func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.'
}

const hexDigits = "0123456789ABCDEF"

// escaped returns a key as a part of a name, before it is cut. A dot at the beginning would
// hide a file, or be a folder.
func escaped(key string) string {
	var b strings.Builder
	for i := range len(key) {
		if c := key[i]; plain(c) && (c != '.' || i > 0) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}

// unescaped returns the key that escaped has made this of, and anything for another text.
func unescaped(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			high, low := strings.IndexByte(hexDigits, text[i+1]), strings.IndexByte(hexDigits, text[i+2])
			if high >= 0 && low >= 0 {
				b.WriteByte(byte(high<<4 | low))
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}
