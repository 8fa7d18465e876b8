// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package pattern has regular expressions that cost nothing before they are used: most runs of
// a command use none of them.
package pattern

import (
	"regexp"
	"sync"
)

// Lazy returns a function that returns the compiled expression, and compiles it at its first
// call. It panics then if the expression cannot be parsed. It may be called concurrently.
func Lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
