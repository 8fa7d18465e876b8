// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package server checks server/openapi.json against the rules of OpenAPI, and each call
// and answer of the tests of package server against server/openapi.json.
package server
