// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package sqlitestore

const interleavings = 10_000
