// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package biller is a service of fifty lines with its tests, in a separate module, as a
// user's would be: the program of docs/guides/testing-your-service.md.
package biller
