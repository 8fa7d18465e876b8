// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package zookeeper measures zkstore beside the lock of github.com/go-zookeeper/zk:
//
//	scripts/engines run zookeeper -- go test -run ^$ -bench . -count 5 ./internal/itest/zookeeper
//
// It is here so that zkstore need not require that module.
package zookeeper
