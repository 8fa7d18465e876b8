// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package server is the lock service: locks, leadership and fencing tokens over HTTP and
// JSON, for programs in any language, on any store.
package server
