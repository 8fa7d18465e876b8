// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package server compares the lock service with its document, server/openapi.json: the
// document with the rules of OpenAPI, and each call and answer of the tests of package server.
package server
