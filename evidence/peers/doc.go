// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package peers builds and drives the real clients of other lock libraries, each
// a process of its own that speaks the language of package wire:
// cirello.io/dynamolock/v2 in Go and com.amazonaws:dynamodb-lock-client in Java.
//
// The clients in Go are roles of the program that starts them: see [Own]. The one
// in Java is built once: [BuildJava] works under a file lock, so that test binaries
// that run at the same time share one build. A [Process] is one run of a [Program].
// It answers requests, several at once, and can be killed, stopped and continued as
// an operating system does it.
//
// The rig runs on Linux, because only there the clocks of the processes are
// known to be one: see [proc.Monotonic].
package peers
