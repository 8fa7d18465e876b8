// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

// The libraries there are.
const (
	tenureName     = "tenure"
	dynamolockName = "dynamolock"
	javaName       = "java"
	etcdName       = "etcd"
	kubeName       = "client-go"
)
