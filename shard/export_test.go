// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

// Limits that are those of package driver, which this package does not import.
const (
	OwnPrefix  = ownPrefix
	MaxDataLen = maxDataLen
)
