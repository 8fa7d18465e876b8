// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package repocheck holds the rules of this repository that neither the compiler nor
// golangci-lint knows, as tests: which package may import which, how pure the pure
// core is; and of the documents, that their links lead somewhere, that their snippets are
// examples that compile, that the commands, flags and tests that they name exist, and that
// they avoid the words that the glossary refuses. It has no code of its own.
//
// The tests read the source of every operating system and of every module at once. They
// neither build it nor ask the network.
package repocheck
