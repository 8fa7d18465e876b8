// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

// MaxDataLen is that of package driver, which this package does not import.
const MaxDataLen = maxDataLen
