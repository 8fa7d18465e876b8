// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package house holds the rules of this repository that no compiler knows, as
// tests: which package may import which, what a go.mod file may say, what every
// file carries, how pure the pure core is; and of the documentation, that its
// links lead somewhere, its snippets are examples that compile, its commands and
// flags exist, and its words are those of the glossary. It has no code of its own.
//
// Each rule is a function from a tree of files to the list of what breaks it.
// It is run on the checkout, and on small trees that break it one way at a
// time, because a check that cannot fail says nothing.
//
// The rules read the source; they neither build it nor ask the network. So they
// see the files of every operating system and of every module at once.
package house
