// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Command tenure runs commands under locks with leases, elects leaders, and
// shows who holds each lock. See tenure --help.
package main

import (
	"os"

	"github.com/tenurelock/tenure/cmd/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
