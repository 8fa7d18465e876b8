// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Command tenured is the lock service: it lets programs in any language hold locks over
// HTTP and JSON, on a store that people run already. See tenured --help.
package main

import (
	"os"

	"github.com/tenurelock/tenure/cmd/internal/daemon"
)

func main() { os.Exit(daemon.Main(os.Args[1:])) }
