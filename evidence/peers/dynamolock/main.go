// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command dynamolock is cirello.io/dynamolock/v2 as a process. It speaks the
// language of package wire on its standard input and output.
package main

import (
	"fmt"
	"os"

	"github.com/tenurelock/tenure/evidence/peers/serve"
)

func main() {
	if err := serve.Dynamolock.Role(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dynamolock:", err)
		os.Exit(1)
	}
	// The end of the input: whoever has started it is gone.
}
