// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// folders is how many folders the records are spread over: the names of all nodes of a
// folder must fit into one answer.
const folders = 64

// folder returns the path of a folder.
func (s *Store) folder(n int) string { return fmt.Sprintf("%s/%02x", s.root, n) }

// isFolder reports whether a node has the name of a folder.
func isFolder(name string) bool {
	n, err := strconv.ParseUint(name, 16, 8)
	return err == nil && n < folders && fmt.Sprintf("%02x", n) == name
}

// path returns the path of a record.
func (s *Store) path(key string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // it never fails
	return s.folder(int(h.Sum32()%folders)) + "/" + escape(key)
}

const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

// escape returns the name of a key's node: every byte except a few is %XX. A dot may be
// in a name, but a name that is a dot means another node.
func escape(key string) string {
	var b strings.Builder
	for i := range len(key) {
		if c := key[i]; strings.IndexByte(plain, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// unescape returns the key of a node's name, and false if the store did not write it.
func unescape(name string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '%' {
			b.WriteByte(name[i])
			continue
		}
		var c byte
		if i+2 >= len(name) {
			return "", false
		}
		if _, err := fmt.Sscanf(name[i+1:i+3], "%02X", &c); err != nil {
			return "", false
		}
		b.WriteByte(c)
		i += 2
	}
	key := b.String()
	return key, escape(key) == name
}
