// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package proc starts processes and speaks with them in lines, JSON as a rule.
//
// One side is a [Process]: it gets lines, and what it says is handed to a
// function. It can be killed, stopped and continued as an operating system does
// it. The other side is [Play], with which a program becomes one of those that it
// starts itself, and [Lines] and [Serve], with which it answers.
//
// The package is for Linux, because only there the clocks of the processes are
// known to be one: see [Monotonic].
package proc
